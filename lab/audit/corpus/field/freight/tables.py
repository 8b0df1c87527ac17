"""Tables of the freight office."""

from sqlalchemy import Column, DateTime, Integer, String, UniqueConstraint, create_engine
from sqlalchemy.orm import declarative_base, sessionmaker

Base = declarative_base()
engine = create_engine("postgresql://freight")
Session = sessionmaker(bind=engine)


class Booking(Base):
    __tablename__ = "bookings"
    id = Column(Integer, primary_key=True)
    reference = Column(String, unique=True)
    status = Column(String)
    weight = Column(Integer)


class HandledMessage(Base):
    __tablename__ = "handled_messages"
    __table_args__ = (UniqueConstraint("source", "message_key"),)
    id = Column(Integer, primary_key=True)
    source = Column(String)
    message_key = Column(String)
    at = Column(DateTime(timezone=True))
