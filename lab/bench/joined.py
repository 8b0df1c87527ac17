"""The measured handler with a transaction of the user's own: `once.commit(tx=…)` on their libraries.

Each has a pool of its own, as the user's program would. The handler's outcome is known before its commit
(`outcome=`): an event is two commits. `tx= asyncpg, value returned` leaves that out and makes three.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

from oncegate.bench.workload import KEY, SURFACE, claim_slot
from oncegate.gate.once import AsyncOnce
from oncegate.wiring import Gate

Book = Callable[[AsyncOnce, str, str], Awaitable[None]]
Opened = AbstractAsyncContextManager[Book]


@asynccontextmanager
async def open_joined_gate(url: str, mode: str, connections: int) -> AsyncIterator[Gate]:
    """A gate whose handler books in a transaction of its own."""
    async with _MODES[mode](url, connections) as book:
        with Gate(url) as gate:
            _register(gate, book)
            yield gate


def _register(gate: Gate, book: Book) -> None:
    terminal = gate.downstream("terminal", honours_key="7d")

    @gate.handler(SURFACE, key=KEY)
    async def take(event: dict[str, Any], once: AsyncOnce) -> dict[str, str]:
        slot = await once.effect(terminal, claim_slot, event["equipment_number"])
        await book(once, event["equipment_number"], slot)
        return {"slot": slot}


class _Pool:
    """Open connections; the one used last is used next. It runs nothing of its own between two users."""

    def __init__(self, connections: list[Any]) -> None:
        self._connections = connections
        self._idle: asyncio.LifoQueue[Any] = asyncio.LifoQueue()
        for connection in connections:
            self._idle.put_nowait(connection)

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[Any]:
        """A connection, with a transaction open on it."""
        connection = await self._idle.get()
        try:
            async with connection.transaction():
                yield connection
        finally:
            self._idle.put_nowait(connection)

    async def close(self) -> None:
        for connection in self._connections:
            await connection.close()


@asynccontextmanager
async def _asyncpg(url: str, connections: int, *, returned: bool = False) -> AsyncIterator[Book]:
    import asyncpg  # type: ignore[import-untyped]

    pool = _Pool([await asyncpg.connect(url) for _ in range(connections)])

    async def book(once: AsyncOnce, equipment: str, slot: str) -> None:
        outcome: dict[str, Any] = {} if returned else {"outcome": {"slot": slot}}
        async with pool.taken() as connection:
            await connection.execute(
                "INSERT INTO booking (equipment, slot) VALUES ($1, $2)", equipment, slot
            )
            await once.commit(resource=slot, tx=connection, **outcome)

    try:
        yield book
    finally:
        await pool.close()


def _asyncpg_returned(url: str, connections: int) -> Opened:
    return _asyncpg(url, connections, returned=True)


@asynccontextmanager
async def _psycopg(url: str, connections: int) -> AsyncIterator[Book]:
    import psycopg

    opened = [await psycopg.AsyncConnection.connect(url, autocommit=True) for _ in range(connections)]
    for connection in opened:
        connection.prepare_threshold = 1
    pool = _Pool(opened)

    async def book(once: AsyncOnce, equipment: str, slot: str) -> None:
        async with pool.taken() as connection:
            await connection.execute(
                "INSERT INTO booking (equipment, slot) VALUES (%s, %s)", (equipment, slot)
            )
            await once.commit(resource=slot, outcome={"slot": slot}, tx=connection)

    try:
        yield book
    finally:
        await pool.close()


@asynccontextmanager
async def _sqlalchemy(url: str, connections: int) -> AsyncIterator[Book]:
    from sqlalchemy import text
    from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

    engine = create_async_engine(
        url.replace("postgresql:", "postgresql+asyncpg:", 1), pool_size=connections
    )
    insert = text("INSERT INTO booking (equipment, slot) VALUES (:equipment, :slot)")

    async def book(once: AsyncOnce, equipment: str, slot: str) -> None:
        async with AsyncSession(engine) as session, session.begin():
            await session.execute(insert, {"equipment": equipment, "slot": slot})
            await once.commit(resource=slot, outcome={"slot": slot}, tx=session)

    try:
        yield book
    finally:
        await engine.dispose()


_MODES: Final[dict[str, Callable[[str, int], Opened]]] = {
    "tx= asyncpg": _asyncpg,
    "tx= asyncpg, value returned": _asyncpg_returned,
    "tx= psycopg": _psycopg,
    "tx= SQLAlchemy": _sqlalchemy,
}
_NEEDS: Final = {"tx= SQLAlchemy": "sqlalchemy", "tx= psycopg": "psycopg"}


def is_joined(mode: str) -> bool:
    """Whether a mode is one of these."""
    return mode in _MODES


def joined_modes() -> list[str]:
    """The modes whose libraries are installed."""
    return [mode for mode in _MODES if importlib.util.find_spec(_NEEDS.get(mode, "asyncpg"))]
