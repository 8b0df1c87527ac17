"""The kinds of transactions that users join, each with real connections of its library.

A scenario is written once, as a coroutine. For a blocking kind it never has to wait, so it is run without
an event loop; for an async kind it runs in one.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import asyncpg  # type: ignore[import-untyped]
import django
import psycopg
import sqlalchemy
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from oncegate import Admission, Gate

T = TypeVar("T")
Opened = contextlib.AbstractAsyncContextManager[Any]
INSERT = "INSERT INTO bookings (equipment, slot) VALUES ({}, {})"
PERCENT, NUMBERED = INSERT.format("%s", "%s"), INSERT.format("$1", "$2")
NAMED = sqlalchemy.text(INSERT.format(":equipment", ":slot"))


class Kind:
    """One library: opens transactions, writes through them, runs scenarios as its users would."""

    def __init__(
        self, name: str, opened: Callable[[str, bool], Opened], write: Callable[[Any, str, str], Any]
    ) -> None:
        self.name = name
        self.is_async = "async" in name
        self._opened = opened
        self._write = write

    def transaction(self, url: str) -> Opened:
        """An open transaction that is committed at the end of the block, or undone if that raises."""
        return self._opened(url, True)

    def bare(self, url: str) -> Opened:
        """The same without a transaction."""
        return self._opened(url, False)

    async def write(self, tx: Any, equipment: str, slot: str = "s-1") -> None:
        """Writes business data through the user's own library."""
        done = self._write(tx, equipment, slot)
        if isinstance(done, Awaitable):
            await done

    async def commit(self, once: Any, tx: Any, **options: Any) -> None:
        """Joins, in the handler's own way."""
        block = once.commit(tx=tx, **options)
        if self.is_async:
            await block

    async def admit(self, gate: Gate, event: Any, **options: Any) -> Admission:
        """Admits from a task or a thread."""
        if self.is_async:
            return await gate.admit("bookings", event, **options)
        return gate.admit_sync("bookings", event, **options)

    def register(self, gate: Gate, body: Callable[..., Coroutine[Any, Any, Any]], **options: Any) -> None:
        """Registers a coroutine function as a handler of this kind's colour."""

        def plain(event: Any, once: Any) -> Any:
            return run_plainly(body(event, once))

        handler = body if self.is_async else plain
        gate.handler("bookings", key="{id}", lease="10m", **options)(handler)

    def run(self, scenario: Coroutine[Any, Any, T]) -> T:
        """Runs a scenario to its end."""
        return asyncio.run(scenario) if self.is_async else run_plainly(scenario)


def run_plainly(scenario: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine that never waits."""
    try:
        scenario.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    raise AssertionError("a blocking scenario had to wait")


@contextlib.asynccontextmanager
async def _psycopg(url: str, begin: bool) -> AsyncIterator[Any]:
    async with contextlib.AsyncExitStack() as stack:
        connection = stack.enter_context(psycopg.connect(url, autocommit=True))
        if begin:
            stack.enter_context(connection.transaction())
        yield connection


@contextlib.asynccontextmanager
async def _psycopg_async(url: str, begin: bool) -> AsyncIterator[Any]:
    async with contextlib.AsyncExitStack() as stack:
        connection = await stack.enter_async_context(
            await psycopg.AsyncConnection.connect(url, autocommit=True)
        )
        if begin:
            await stack.enter_async_context(connection.transaction())
        yield connection


@contextlib.asynccontextmanager
async def _asyncpg(url: str, begin: bool) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction() if begin else contextlib.nullcontext():
            yield connection
    finally:
        await connection.close()


def sqlalchemy_url(url: str, driver: str) -> str:
    """The same address as SQLAlchemy wants it."""
    return url.replace("postgresql://", f"postgresql+{driver}://", 1)


@contextlib.asynccontextmanager
async def _session(url: str, begin: bool) -> AsyncIterator[Any]:
    engine = sqlalchemy.create_engine(sqlalchemy_url(url, "psycopg"), poolclass=NullPool)
    async with contextlib.AsyncExitStack() as stack:
        session = stack.enter_context(contextlib.closing(Session(engine)))
        if begin:
            stack.enter_context(session.begin())
        yield session


@contextlib.asynccontextmanager
async def _connection(url: str, begin: bool) -> AsyncIterator[Any]:
    engine = sqlalchemy.create_engine(sqlalchemy_url(url, "psycopg"), poolclass=NullPool)
    async with contextlib.AsyncExitStack() as stack:
        connection = stack.enter_context(engine.connect())
        if begin:
            stack.enter_context(connection.begin())
        yield connection


@contextlib.asynccontextmanager
async def _async_session(url: str, begin: bool) -> AsyncIterator[Any]:
    engine = create_async_engine(sqlalchemy_url(url, "asyncpg"), poolclass=NullPool)
    async with contextlib.AsyncExitStack() as stack:
        session = await stack.enter_async_context(AsyncSession(engine))
        if begin:
            await stack.enter_async_context(session.begin())
        yield session


@contextlib.asynccontextmanager
async def _async_connection(url: str, begin: bool) -> AsyncIterator[Any]:
    engine = create_async_engine(sqlalchemy_url(url, "psycopg"), poolclass=NullPool)
    async with contextlib.AsyncExitStack() as stack:
        connection = await stack.enter_async_context(engine.connect())
        if begin:
            await stack.enter_async_context(connection.begin())
        yield connection


@contextlib.asynccontextmanager
async def _django(url: str, begin: bool) -> AsyncIterator[Any]:
    connection = django_connection(url)
    transaction: Any = importlib.import_module("django.db.transaction")
    try:
        with transaction.atomic(using=connection.alias) if begin else contextlib.nullcontext():
            yield connection
    finally:
        connection.close()


def django_connection(url: str, alias: str | None = None) -> Any:
    """Django's connection to a PostgreSQL database."""
    given = conninfo_to_dict(url)
    chosen = {"NAME": given["dbname"], "HOST": given.get("host", ""), "USER": given.get("user", "")}
    chosen |= {"PORT": str(given.get("port", "")), "PASSWORD": given.get("password", "")}
    return _django_on(alias or str(given["dbname"]), "django.db.backends.postgresql", chosen)


def django_on_sqlite(path: Path) -> Any:
    """Django's connection to a SQLite file."""
    return _django_on(str(path), "django.db.backends.sqlite3", {"NAME": str(path)})


def _django_on(alias: str, engine: str, chosen: dict[str, Any]) -> Any:
    """Settings are made for these tests alone."""
    from django.conf import settings

    if not settings.configured:
        settings.configure(DATABASES={}, USE_TZ=True)
        django.setup()
    from django.db import connections

    if connections.databases.get(alias, {}).get("NAME") != chosen["NAME"]:
        defaults = connections.configure_settings({"default": {}})["default"]
        connections.databases[alias] = {**defaults, **chosen, "ENGINE": engine}
    return connections[alias]


def _through_sqlalchemy(tx: Session | AsyncSession | AsyncConnection, equipment: str, slot: str) -> Any:
    return tx.execute(NAMED, {"equipment": equipment, "slot": slot})


def _through_django(tx: Any, equipment: str, slot: str) -> None:
    with tx.cursor() as cursor:
        cursor.execute(PERCENT, (equipment, slot))


def _through_psycopg(tx: Any, equipment: str, slot: str) -> Any:
    return tx.execute(PERCENT, (equipment, slot))


def _through_asyncpg(tx: Any, equipment: str, slot: str) -> Any:
    return tx.execute(NUMBERED, equipment, slot)


KINDS = [
    Kind("psycopg", _psycopg, _through_psycopg),
    Kind("psycopg async", _psycopg_async, _through_psycopg),
    Kind("asyncpg", _asyncpg, _through_asyncpg),
    Kind("sqlalchemy session", _session, _through_sqlalchemy),
    Kind("sqlalchemy connection", _connection, _through_sqlalchemy),
    Kind("sqlalchemy async session", _async_session, _through_sqlalchemy),
    Kind("sqlalchemy async connection", _async_connection, _through_sqlalchemy),
    Kind("django", _django, _through_django),
]
