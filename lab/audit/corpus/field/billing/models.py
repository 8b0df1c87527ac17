from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    pass


class WebhookEvent(Base):
    __tablename__ = "webhook_events"
    id: Mapped[str] = mapped_column(primary_key=True)
    type: Mapped[str]


class Invoice(Base):
    __tablename__ = "invoices"
    id: Mapped[str] = mapped_column(primary_key=True)
    email: Mapped[str]
