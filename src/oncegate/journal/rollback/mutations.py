"""Mutations: functions that change one object, recorded with the object's value before and after.

A mutation that takes `tx` first is recorded in the event's own transaction. Any other one is recorded
before the call and after it, so that a crash between the two is visible. Must never change an object whose
value before could not be read.
"""

from __future__ import annotations

import inspect
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, ParamSpec, TypeVar

import msgspec
from msgspec import Struct

from oncegate.commit.mutation_operations import NoteMutation
from oncegate.errors import ConfigError, OncegateError, StoreError, UsageError
from oncegate.gate.codec.introspection import is_async, name_of
from oncegate.gate.gate import GateEngine
from oncegate.gate.runtime.claim import Claim
from oncegate.gate.runtime.tracing import current_claim
from oncegate.journal.snapshots.beliefs import id_text
from oncegate.model.canonical import canonical_json
from oncegate.model.surface import check_name
from oncegate.store import NOTE_MUTATION, Facet, Mutated, require, require_transactions

P = ParamSpec("P")
R = TypeVar("R")
TX: Final = "tx"

log = logging.getLogger("oncegate.rollback")


class MutationRule(Struct, frozen=True):
    """How a mutation's object is read and set back.

    `read(id)` returns the object, None where there is none. `compensate(id, value)` gives it the value, or
    removes it for None. With `by_field` only the fields that events changed go back.
    """

    name: str
    read: Callable[..., Any]
    compensate: Callable[..., Any] | None
    belief: str | None
    by_field: bool
    takes_tx: bool
    is_async: bool


class Mutation(Generic[P, R]):
    """A function that changes one object; inside a handler each call is recorded."""

    def __init__(self, engine: GateEngine, rule: MutationRule, apply: Callable[P, R]) -> None:
        self.rule = rule
        self._engine = engine
        self._apply = apply
        self._signature = inspect.signature(apply)
        self.__name__, self.__doc__ = name_of(apply), apply.__doc__
        self._target = list(self._signature.parameters)[1 if rule.takes_tx else 0]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Changes the object; inside a handler with a record."""
        claim = current_claim.get()
        if claim is None:
            return self._apply(*args, **kwargs)
        arguments = self._signature.bind(*args, **kwargs).arguments
        target = arguments[self._target]
        head = (arguments[TX],) if self.rule.takes_tx else ()
        call = RecordedCall(self._engine, self.rule, claim, target, head)
        if self.rule.is_async:
            return call.run_async(lambda: self._apply(*args, **kwargs))  # type: ignore[arg-type, return-value]
        return call.run(lambda: self._apply(*args, **kwargs))


class RecordedCall:
    """One change of one object by one event."""

    def __init__(
        self, engine: GateEngine, rule: MutationRule, claim: Claim, target: Any, head: tuple[Any, ...]
    ) -> None:
        self._engine, self._rule, self._claim = engine, rule, claim
        self._place, self._id = (*head, target), id_text(target)
        self._nth = secrets.randbits(31)
        self._is_joined = rule.takes_tx or claim.in_block or claim.surface.same_database
        if claim.joined or claim.committed or claim.ended:
            raise UsageError(f"{rule.name}: call mutations before once.commit(tx=…) joins the transaction")

    def run(self, apply: Callable[[], R]) -> R:
        """Reads, changes, reads again, records."""
        before = as_value(self._rule, self._rule.read(*self._place))
        self._begin_sync(before)
        result = apply()
        self._end_sync(before, as_value(self._rule, self._rule.read(*self._place)))
        return result

    async def run_async(self, apply: Callable[[], Awaitable[R]]) -> R:
        """The same, awaited."""
        before = as_value(self._rule, await self._rule.read(*self._place))
        if not self._is_joined:
            await self._engine.commits.submit_async(NoteMutation(self._row(before, None, False)))
        result = await apply()
        row = self._row(before, as_value(self._rule, await self._rule.read(*self._place)), True)
        try:
            if not self._stage(row):
                await self._engine.commits.submit_async(NoteMutation(row))
        except StoreError as error:
            self._tell(error)
        return result

    def _begin_sync(self, before: bytes | None) -> None:
        if not self._is_joined:
            self._engine.commits.submit(NoteMutation(self._row(before, None, False)))

    def _end_sync(self, before: bytes | None, after: bytes | None) -> None:
        row = self._row(before, after, True)
        try:
            if not self._stage(row):
                self._engine.commits.submit(NoteMutation(row))
        except StoreError as error:
            self._tell(error)

    def _tell(self, error: StoreError) -> None:
        """The change is made: failing now would run it again. A plan shows that its value is unknown."""
        log.warning("%s of %s: the value after is not on record: %s", self._rule.name, self._id, error)

    def _stage(self, row: Mutated) -> bool:
        """Puts the record among the writes of the event's own transaction, where there is one."""
        if self._is_joined:
            self._claim.writes = [*self._claim.writes, (NOTE_MUTATION, row.row)]
        return self._is_joined

    def _row(self, before: bytes | None, after: bytes | None, is_done: bool) -> Mutated:
        entry, now_ms = self._claim.entry_id, self._engine.clock.wall_ms()
        return Mutated(0, entry, self._rule.name, self._id, self._nth, before, after, is_done, now_ms)


def as_value(rule: MutationRule, found: Any) -> bytes | None:
    """What `read` returned, as it is kept."""
    if found is None:
        return None
    try:
        if not isinstance(found, dict):
            found = msgspec.to_builtins(found)
        return canonical_json(found)
    except (OncegateError, TypeError) as error:
        raise UsageError(
            f"{rule.name}: {name_of(rule.read)} returned what cannot be kept: {error}"
        ) from None


def mutation_rule(
    engine: GateEngine,
    name: str,
    apply: Callable[..., Any],
    belief: str | None,
    *,
    read: Callable[..., Any] | None = None,
    compensate: Callable[..., Any] | None = None,
    get: Callable[..., Any] | None = None,
    put: Callable[..., Any] | None = None,
) -> MutationRule:
    """Checks a declaration; raises ConfigError with what is missing."""
    check_name("mutation", name)
    require(engine.store, Facet.REVIEW, "mutations")
    require_transactions(engine.store, "mutations")
    if (get is None) != (put is None) or (get is None) == (read is None) or (put and compensate):
        raise ConfigError(f"mutation {name}: give read= (and compensate=), or get= and put=")
    reads = read or get
    assert reads is not None
    takes_tx, awaits = next(iter(inspect.signature(apply).parameters), None) == TX, is_async(apply)
    for one in (reads, compensate or put):
        if one is None:
            continue
        if (next(iter(inspect.signature(one).parameters), None) == TX) != takes_tx:
            raise ConfigError(f"mutation {name}: either all of its functions take tx first, or none does")
        if is_async(one) != awaits:
            raise ConfigError(f"mutation {name}: either all of its functions are async, or none is")
    back = compensate or put
    return MutationRule(name, reads, back, belief, put is not None, takes_tx, awaits)
