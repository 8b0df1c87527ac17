"""Tables of the port."""

from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    pass


class Consumed(Base):
    __tablename__ = "consumed"
    key: Mapped[str] = mapped_column(primary_key=True)


class Shipment(Base):
    __tablename__ = "shipments"
    id: Mapped[int] = mapped_column(primary_key=True)
    vessel: Mapped[str]
