"""The live state: objects as they are now, read by the users' own functions, one by one or as a whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from oncegate.errors import OncegateError, PlanRefused
from oncegate.gate.gate import GateEngine
from oncegate.journal.rollback.mutations import MutationRule, as_value
from oncegate.journal.snapshots.beliefs import Belief, id_of
from oncegate.journal.snapshots.spool import Spool
from oncegate.store import Session


class ReadingTx:
    """What `read(tx, id)` gets outside an event: it can only read."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Runs a statement and returns its rows."""
        return self._session.execute(sql, parameters)


class AsyncReadingTx(ReadingTx):
    """The same for async functions."""

    async def execute(  # type: ignore[override]
        self, sql: str, parameters: Sequence[Any] = ()
    ) -> list[tuple[Any, ...]]:
        """Runs a statement and returns its rows."""
        return self._session.execute(sql, parameters)


class LiveReader:
    """Reads objects by their mutation's `read`; raises PlanRefused for one that cannot be read."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def read(self, rule: MutationRule, target: str) -> bytes | None:
        """One object as it is now."""
        kind = AsyncReadingTx if rule.is_async else ReadingTx
        place = (kind(self._session), id_of(target)) if rule.takes_tx else (id_of(target),)
        try:
            if rule.is_async:
                found = await rule.read(*place)
            elif rule.takes_tx:
                found = rule.read(*place)
            else:
                found = await asyncio.to_thread(rule.read, *place)
            return as_value(rule, found)
        except Exception as error:
            told = str(error) if isinstance(error, OncegateError) else f"{type(error).__name__}: {error}"
            raise PlanRefused(f"{rule.name}: {id_of(target)} cannot be read now: {told}") from error


@asynccontextmanager
async def live_reader(engine: GateEngine) -> AsyncIterator[LiveReader]:
    """One moment of the ledger's database for reading."""
    with engine.store.look() as session:
        yield LiveReader(session)


async def live_spool(belief: Belief) -> Spool:
    """All objects of a belief as they are now; the caller closes it."""
    spool = Spool()
    try:
        async for step in belief.steps():
            spool.add(step)
        await asyncio.to_thread(spool.check, belief.name)
    except BaseException:
        spool.__exit__()
        raise
    return spool
