"""The wallet's tables, by SQLAlchemy Core and asyncio."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql as pg
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

metadata = sa.MetaData()
processed_events = sa.Table(
    "processed_events", metadata, sa.Column("event_id", sa.Text, primary_key=True), sa.Column("at", sa.DateTime(timezone=True))
)
accounts = sa.Table("accounts", metadata, sa.Column("id", sa.Text, primary_key=True), sa.Column("balance", sa.BigInteger))


class EventRepo:
    def __init__(self, conn: AsyncConnection) -> None:
        self.conn = conn

    async def insert_if_new(self, event_id: str) -> bool:
        stmt = pg.insert(processed_events).values(event_id=event_id).on_conflict_do_nothing(index_elements=["event_id"])
        result = await self.conn.execute(stmt)
        return result.rowcount == 1

    async def is_processed(self, event_id: str) -> bool:
        row = await self.conn.execute(sa.select(processed_events.c.event_id).where(processed_events.c.event_id == event_id))
        return row.first() is not None

    async def mark_processed(self, event_id: str) -> None:
        await self.conn.execute(processed_events.insert().values(event_id=event_id))


class AccountRepo:
    def __init__(self, conn: AsyncConnection) -> None:
        self.conn = conn

    async def credit(self, account: str, amount: int) -> None:
        await self.conn.execute(sa.update(accounts).where(accounts.c.id == account).values(balance=accounts.c.balance + amount))

    async def credit_bare(self, account: str, amount: int) -> None:
        await self.conn.execute(sa.update(accounts).where(accounts.c.id == account).values(balance=accounts.c.balance + amount))

    async def set_limit(self, account: str, limit: int) -> None:
        await self.conn.execute(sa.update(accounts).where(accounts.c.id == account).values(limit=limit))


class UnitOfWork:
    """One transaction."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.engine = engine

    async def __aenter__(self) -> "UnitOfWork":
        self._cm = self.engine.begin()
        conn = await self._cm.__aenter__()
        self.events = EventRepo(conn)
        self.accounts = AccountRepo(conn)
        return self

    async def __aexit__(self, *args: object) -> None:
        await self._cm.__aexit__(*args)
