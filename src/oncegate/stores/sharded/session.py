"""One session over several ledgers: requests go to the shard of their key, lists are asked of all.

A shard is opened when it is first needed. Inside a unit each shard that is used has a unit of its own, and
they commit one after the other. An event's own writes are on one shard, so nothing is lost by that: a unit
whose commits did not all succeed is unknown, and each operation is read back by itself. A shard that cannot
be reached raises PartUnavailable: operations on other shards are run again without it.

Each ledger has its own time. Entries that are read by key show the time of their shard, and `now_ticks`
answers with the shard that was used last. Lists show everything in the time of the first shard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

from msgspec.structs import replace

from oncegate.errors import (
    OncegateError,
    PartUnavailable,
    StoreError,
    StoreRejected,
    StoreUnavailable,
    StoreUnknown,
    UsageError,
)
from oncegate.model.decisions import Verb
from oncegate.store import (
    Attachment,
    ClaimId,
    Document,
    Entry,
    EntryDetail,
    Renewal,
    Reservation,
    Reserved,
    Ruling,
    RulingAnswer,
    Session,
    Settlement,
    StepRecords,
)
from oncegate.store.alternatives import has_alternatives
from oncegate.store.people import latest_ruling
from oncegate.stores.sharded.lists import FIRST, ShardedLists, shown_detail, shown_entry
from oncegate.stores.sharded.shard_map import Homes, inner_id, outer_id, virtual_of
from oncegate.stores.shared.homes import REFUSAL

Opener = Callable[[int], Session]
T = TypeVar("T")


class ShardedSession(ShardedLists):
    """Claims and open entries over shards. `opener` opens a shard."""

    def __init__(self, homes: Homes, opener: Opener) -> None:
        self._homes, self._count, self._opener = homes, homes.count, opener
        self._sessions: dict[int, Session] = {}
        self._units: dict[int, AbstractContextManager[None]] | None = None
        self._options: dict[str, bool] = {}
        self._last = FIRST

    @contextmanager
    def unit(self, *, wait: bool = True, single: bool = False, patient: bool = True) -> Iterator[None]:
        """A unit on each shard that is used in it; they commit one after the other."""
        self._homes.renew()
        self._units, self._options = {}, {"wait": wait, "single": single, "patient": patient}
        try:
            yield
        except BaseException as error:
            told: BaseException = error
            try:
                self._leave(error)
            except StoreError as made:  # what the shard that it came from makes of it
                told = made
            # A database that refuses a key may have given it away: the next unit asks where keys are.
            self._homes.is_moving |= str(told) == REFUSAL
            if told is error or not isinstance(error, Exception):
                raise
            raise told from error
        self._leave(None)

    def _leave(self, error: BaseException | None) -> None:
        units, self._units = self._units or {}, None
        failed: list[Exception] = []
        for unit in units.values():
            try:
                if error is None and not failed:
                    unit.__exit__(None, None, None)
                else:
                    why = error or failed[0]
                    unit.__exit__(type(why), why, why.__traceback__)
            except Exception as own:  # noqa: BLE001  the other shards' units must be left too
                if own is not error and own not in failed:
                    failed.append(own)
        if failed and error is None and len(units) > 1:
            raise StoreUnknown(f"a part of the shards did not commit: {failed[0]}") from failed[0]
        if failed:
            raise failed[0]

    def _at(self, shard: int) -> Session:
        """The session of a shard, inside the open unit."""
        self._last = shard
        with _away(shard):
            session = self._sessions.get(shard)
            if session is None:
                session = self._sessions[shard] = self._opener(shard)
            if self._units is not None and shard not in self._units:
                unit = session.unit(**self._options)
                unit.__enter__()
                self._units[shard] = unit
        return session

    def _by_shard(self, items: Sequence[Any], key: Callable[[Any], bytes]) -> dict[int, list[int]]:
        places: dict[int, list[int]] = {}
        for place, item in enumerate(items):
            places.setdefault(self._homes.of(key(item)), []).append(place)
        if len(places) > 1:
            self._options["single"] = False  # nothing commits before all have answered
        for shard in sorted(places):  # in one order everywhere: no two wait for each other
            self._at(shard)  # all of them can be reached, before anything is written
        return places

    def _each(
        self,
        items: Sequence[Any],
        do: Callable[[Session, list[Any], int], Sequence[T]],
        key: Callable[[Any], bytes] = lambda item: item.key,
    ) -> list[T]:
        """Runs items at their shards, and returns the answers in the order of the items."""
        answers: list[Any] = [None] * len(items)
        for shard, places in self._by_shard(items, key).items():
            with _away(shard):
                found = do(self._at(shard), [items[place] for place in places], shard)
            for place, answer in zip(places, found, strict=True):
                answers[place] = answer
        return answers

    def reserve(self, wanted: Sequence[Reservation]) -> list[Reserved]:
        """Each at its shard."""
        return self._reserve(wanted, lambda session, some: session.reserve(some))

    def record(self, wanted: Sequence[Reservation], outcome: bytes) -> list[Reserved]:
        """Each at its shard."""
        return self._reserve(wanted, lambda session, some: session.record(some, outcome))

    def _reserve(
        self, wanted: Sequence[Reservation], do: Callable[[Session, list[Reservation]], Sequence[Reserved]]
    ) -> list[Reserved]:
        if has_alternatives(wanted):
            raise StoreRejected("a sharded ledger knows an event by one key only; nothing was done")
        return self._each(
            wanted,
            lambda session, some, shard: [
                replace(one, entry_id=outer_id(shard, one.entry_id)) for one in do(session, some)
            ],
        )

    def renew(self, claims: Sequence[Renewal]) -> list[bool]:
        """Each at its shard."""
        return self._act(claims, lambda session, some: session.renew(some))

    def progress(self, wanted: Sequence[StepRecords]) -> list[bool]:
        """Each at its shard, with its writes."""
        return self._act(wanted, lambda session, some: session.progress(some))

    def settle(self, settlements: Sequence[Settlement], *, last: bool = False) -> list[bool]:
        """Each at its shard, with its writes."""
        is_one = len({self._homes.of(item.key) for item in settlements}) == 1
        return self._act(settlements, lambda session, some: session.settle(some, last=last and is_one))

    def withdraw(self, claims: Sequence[ClaimId]) -> list[bool]:
        """Each at its shard."""
        return self._act(claims, lambda session, some: session.withdraw(some))

    def attach(self, attachments: Sequence[Attachment]) -> list[bool]:
        """Each at its shard."""
        return self._act(attachments, lambda session, some: session.attach(some))

    def are_committed(self, claims: Sequence[ClaimId]) -> list[bool]:
        """Each at its shard."""
        return self._act(claims, lambda session, some: session.are_committed(some))

    def _act(self, items: Sequence[Any], do: Callable[[Session, list[Any]], Sequence[bool]]) -> list[bool]:
        """Acts for claims; one that names an entry of another shard is no claim."""
        return self._each(
            items, lambda session, some, shard: do(session, [_inner(item, shard) for item in some])
        )

    def read(self, keys: Sequence[bytes]) -> list[Entry | None]:
        """Each at its shard."""
        return self._each(
            keys,
            lambda session, some, shard: [shown_entry(one, shard) for one in session.read(some)],
            bytes,
        )

    def details(self, keys: Sequence[bytes]) -> list[EntryDetail | None]:
        """Each at its shard."""
        return self._each(
            keys,
            lambda session, some, shard: [shown_detail(one, shard) for one in session.details(some)],
            bytes,
        )

    def now_ticks(self) -> int:
        """The time of the shard that was used last."""
        return self._at(self._last).now_ticks()

    def settle_doubt(self) -> None:
        """On each shard that can be reached: from others nothing can be read back either."""
        for shard in range(self._count):
            try:
                self._at(shard).settle_doubt()
            except PartUnavailable:
                continue

    def execute(self, sql: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Runs a user's statement at the shard of the event whose unit this is."""
        if self._units is None or len(self._units) != 1:
            raise UsageError("a statement needs an event: in a sharded ledger its key says which database")
        (shard,) = self._units
        return self._sessions[shard].execute(sql, parameters)

    def close(self) -> None:
        """Gives the connections back."""
        while self._sessions:
            self._sessions.popitem()[1].close()

    def rule(self, rulings: Sequence[Ruling]) -> list[RulingAnswer]:
        """Each at its shard; failed entries run again only in ledgers with review, so none does here."""

        def rule(session: Session, some: list[Ruling], shard: int) -> list[RulingAnswer]:
            answers = session.rule([_inner(item, shard) for item in some])
            return [self._shown(item, answer, shard) for item, answer in zip(some, answers, strict=True)]

        answers = iter(self._each([one for one in rulings if one.verb is not Verb.RETRY], rule))
        return [self._refused(one) if one.verb is Verb.RETRY else next(answers) for one in rulings]

    def _refused(self, ruling: Ruling) -> RulingAnswer:
        found = self.detail(ruling.entry_id)
        if found is None:
            return RulingAnswer(done=False, entry=None)
        return RulingAnswer(done=False, entry=found.entry, decided=latest_ruling(found.records))

    def _shown(self, ruling: Ruling, answer: RulingAnswer, shard: int) -> RulingAnswer:
        if answer.entry is None and inner_id(ruling.entry_id)[0] != shard:
            found = self.detail(ruling.entry_id)  # it names an entry of another shard than its key's
            return RulingAnswer(done=False, entry=None if found is None else found.entry)
        decided = answer.decided
        if decided is not None:
            decided = replace(decided, entry_id=outer_id(shard, decided.entry_id))
        return RulingAnswer(answer.done, shown_entry(answer.entry, shard), decided)


class OneShardSession(ShardedSession):
    """A session that was opened for one shard; `owns` says which keys it can be asked about."""

    def __init__(self, homes: Homes, shard: int, session: Any) -> None:
        super().__init__(homes, _no_other)
        self._sessions[shard] = session
        self._last = self._shard = shard

    def owns(self, key: bytes) -> bool:
        """Whether a key belongs to this shard."""
        return self._homes.places[virtual_of(key)] == self._shard

    def document(self, kind: str, name: str) -> Document | None:
        """Of this shard."""
        return self._at(self._shard).document(kind, name)

    def settle_doubt(self) -> None:
        """On this shard."""
        self._at(self._shard).settle_doubt()


@contextmanager
def _away(shard: int) -> Iterator[None]:
    """What a shard that cannot be reached means for the others; one that is busy or full is there."""
    try:
        yield
    except StoreUnavailable as error:
        if type(error) is not StoreUnavailable:
            raise
        raise PartUnavailable(f"shard {shard}: {error}; other shards go on") from error


def _no_other(shard: int) -> Session:
    raise OncegateError(f"shard {shard} was asked for inside another one")


def _inner(item: Any, shard: int) -> Any:
    """A request with the number that its shard knows; -1 where it names an entry of another shard."""
    of, number = inner_id(item.entry_id)
    mine = number if of == shard else -1
    return item._replace(entry_id=mine) if isinstance(item, ClaimId) else replace(item, entry_id=mine)
