"""Money in a database: asyncpg, psycopg, SQLAlchemy."""

import contextlib
import json
import logging
from decimal import Decimal

import asyncpg
import nats
from nats.aio.msg import Msg
from sqlalchemy import text, update
from sqlalchemy.orm import Session, sessionmaker

from .tables import Account, Entry, ProcessedMessage

logger = logging.getLogger(__name__)
make_session = sessionmaker()


@contextlib.contextmanager
def unit_of_work():
    session = make_session()
    try:
        yield session
        session.commit()
    except Exception:
        session.rollback()
        raise
    finally:
        session.close()


class Deposits:
    def __init__(self, pool: asyncpg.Pool) -> None:
        self.pool = pool

    async def on_deposit(self, msg: Msg) -> None:  # good: OG001, OG004, OG006, OG008
        data = json.loads(msg.data)
        async with self.pool.acquire() as conn:
            async with conn.transaction():
                fresh = await conn.fetchval(
                    "INSERT INTO processed_messages (deposit_id) VALUES ($1) ON CONFLICT DO NOTHING RETURNING 1",
                    data["deposit_id"],
                )
                if fresh is None:
                    logger.info("deposit %s is booked", data["deposit_id"])
                    await msg.ack()
                    return
                await conn.execute(
                    "UPDATE accounts SET balance = balance + $1 WHERE id = $2", Decimal(data["amount"]), data["account"]
                )
        await msg.ack()

    async def on_withdrawal(self, msg: Msg) -> None:
        data = json.loads(msg.data)
        async with self.pool.acquire() as conn:
            await conn.execute(
                "UPDATE accounts SET balance = balance - $1 WHERE id = $2", Decimal(data["amount"]), data["account"]  # bad: OG001
            )
        await msg.ack()

    async def on_transfer(self, msg: Msg) -> None:
        await msg.ack()  # bad: OG007
        data = json.loads(msg.data)
        async with self.pool.acquire() as conn, conn.transaction():
            known = await conn.execute(
                "INSERT INTO processed_messages (transfer_id) VALUES ($1) ON CONFLICT DO NOTHING", data["transfer_id"]
            )
            if known == "INSERT 0 0":
                logger.info("known")
                return
            await conn.execute("UPDATE accounts SET balance = balance - $1 WHERE id = $2", data["amount"], data["from"])
            await conn.execute("UPDATE accounts SET balance = balance + $1 WHERE id = $2", data["amount"], data["to"])

    async def subscribe(self) -> None:
        nc = await nats.connect()
        js = nc.jetstream()
        await js.subscribe("deposits", cb=self.on_deposit, manual_ack=True)
        await js.subscribe("withdrawals", cb=self.on_withdrawal, manual_ack=True)
        await js.subscribe("transfers", cb=self.on_transfer, manual_ack=True)


def handle_event(event: dict) -> None:  # good: OG001, OG004
    with unit_of_work() as session:
        session.add(ProcessedMessage(id=event["id"]))
        session.flush()
        session.execute(update(Account).where(Account.id == event["account"]).values(balance=Account.balance + event["amount"]))


def process_event(event: dict) -> None:
    with unit_of_work() as session:
        session.add(Entry(account=event["account"], amount=event["amount"]))
    with unit_of_work() as session:
        session.add(ProcessedMessage(id=event["id"]))  # bad: OG004


def on_event(event: dict, session: Session) -> None:
    row = session.execute(text("SELECT 1 FROM processed_messages WHERE id = :id"), {"id": event["id"]}).first()  # bad: OG005
    if row:
        logger.debug("known")
        return
    session.execute(text("UPDATE accounts SET balance = balance + :x WHERE id = :id"), {"x": event["amount"], "id": event["account"]})
    session.execute(text("INSERT INTO processed_messages (id) VALUES (:id)"), {"id": event["id"]})
    session.commit()


def on_message(message: dict, session: Session) -> None:  # good: OG001
    session.execute(
        text(
            "INSERT INTO balances (account, total) VALUES (:a, :t)"
            " ON CONFLICT (account) DO UPDATE SET total = excluded.total, at = excluded.at"
        ),
        {"a": message["account"], "t": message["total"]},
    )
    session.commit()
