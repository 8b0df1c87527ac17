from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    pass


class Account(Base):
    __tablename__ = "accounts"
    id: Mapped[str] = mapped_column(primary_key=True)
    balance: Mapped[int]


class Entry(Base):
    __tablename__ = "entries"
    id: Mapped[int] = mapped_column(primary_key=True)
    account: Mapped[str]
    amount: Mapped[int]


class ProcessedMessage(Base):
    __tablename__ = "processed_messages"
    id: Mapped[str] = mapped_column(primary_key=True)
