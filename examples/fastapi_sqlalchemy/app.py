"""A FastAPI webhook that stores orders with SQLAlchemy: row and outcome commit together."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from sqlalchemy import create_engine, event, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from oncegate import Gate, Once
from oncegate.receiver import Receiver

LEDGER = os.environ.get("ONCEGATE_URL", "sqlite:///shop.db")
engine = create_engine(LEDGER.replace("postgresql://", "postgresql+psycopg://"))
gate = Gate(LEDGER)
webhooks = Receiver(gate, "shop.orders", secrets=[os.environ["WEBHOOK_SECRET"]], ordered=False)


class Base(DeclarativeBase):
    """The application's tables; they are in the ledger's database."""


class Order(Base):
    """One order. Its key is not the order number on purpose: nothing but the gate prevents a second row."""

    __tablename__ = "shop_order"
    id: Mapped[int] = mapped_column(primary_key=True)
    number: Mapped[str]
    total: Mapped[int]


if engine.dialect.name == "sqlite":

    @event.listens_for(engine, "connect")
    def as_durable_as_the_ledger(connection: Any, _: object) -> None:
        """The commit of this connection is also the commit of the outcome."""
        connection.execute("PRAGMA synchronous = FULL")


@webhooks.handler()
def store_order(received: dict[str, Any], once: Once) -> None:
    """Stores one order, once."""
    order = received["payload"]
    with Session(engine) as session, session.begin():
        session.add(Order(number=order["number"], total=order["total"]))
        session.flush()
        once.commit(tx=session, outcome=order["number"])


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Creates the tables, and recovers interrupted events while the application runs."""
    Base.metadata.create_all(engine)
    async with gate.worker(only=["recovery"]):
        yield
    gate.close()


app = FastAPI(lifespan=lifespan)


@app.post("/hooks/orders")
async def receive(request: Request) -> Response:
    """Verifies the signature and admits the event."""
    answer = await webhooks.receive(request.headers.items(), await request.body())
    return Response(answer.body, answer.status, dict(answer.headers))


@app.get("/orders")
def orders() -> list[str]:
    """The numbers of all orders."""
    with Session(engine) as session:
        return list(session.scalars(select(Order.number).order_by(Order.id)))
