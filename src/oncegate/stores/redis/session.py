"""One session of a Redis ledger: each call is one pipeline, each item is atomic and commits by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from redis.exceptions import RedisError

from oncegate.errors import StoreError, StoreRejected, StoreUnknown
from oncegate.model.states import State
from oncegate.store import (
    Attachment,
    ClaimId,
    Entry,
    EntryDetail,
    Renewal,
    Reservation,
    Reserved,
    Settlement,
    StepRecords,
)
from oncegate.store.alternatives import has_alternatives
from oncegate.stores.redis import failures, rows
from oncegate.stores.redis.functions import Call
from oncegate.stores.redis.open_entries import Layout, RedisOpenEntries
from oncegate.stores.redis.wire import TAGS, RedisWire, TaggedCommand
from oncegate.stores.shared.open_lists import number_of

_UNIT: Final = nullcontext()
Acting = Renewal | StepRecords | Settlement | Attachment | ClaimId


class RedisSession(RedisOpenEntries):
    """Claims on one wire. `ticks` replaces the server's clock; only tests do that.

    `reopen` gives a new wire after the server has closed the old one, and `is_time_due` says whether the
    clocks of all slots shall be moved with the next write.
    """

    def __init__(
        self,
        wire: RedisWire,
        layout: Layout,
        shown: str,
        *,
        ticks: Callable[[], int] | None = None,
        reopen: Callable[[], RedisWire] | None = None,
        is_time_due: Callable[[], bool] = lambda: False,
    ) -> None:
        self._wire, self._layout, self._shown = wire, layout, shown
        self._ticks, self._reopen, self._is_time_due = ticks, reopen, is_time_due
        self._is_closed = False

    def unit(
        self, *, wait: bool = True, single: bool = False, patient: bool = True
    ) -> AbstractContextManager[None]:
        """Holds nothing together."""
        return _UNIT

    def reserve(self, wanted: Sequence[Reservation]) -> list[Reserved]:
        """Each by one function that inserts or judges."""
        return self._reserve(wanted, None)

    def record(self, wanted: Sequence[Reservation], outcome: bytes) -> list[Reserved]:
        """Each by one function that inserts what is new as committed."""
        return self._reserve(wanted, outcome)

    def _reserve(self, wanted: Sequence[Reservation], outcome: bytes | None) -> list[Reserved]:
        if has_alternatives(wanted):
            raise StoreRejected("a Redis ledger knows an event by one key only; nothing was done")
        asked = [(item.key, rows.reservation_arguments(item, outcome)) for item in wanted]
        answers = self._call(Call.RESERVE, asked)
        return [rows.reserved_of(item, answer) for item, answer in zip(wanted, answers, strict=True)]

    def renew(self, claims: Sequence[Renewal]) -> list[bool]:
        """Each by its key."""
        return self._act(Call.RENEW, claims, lambda item: (item.lease_ms,))

    def progress(self, wanted: Sequence[StepRecords]) -> list[bool]:
        """Each by its key."""
        return self._act(Call.PROGRESS, wanted, lambda item: rows.step_arguments(item.steps))

    def settle(self, settlements: Sequence[Settlement], *, last: bool = False) -> list[bool]:
        """Each by its key."""
        return self._act(Call.SETTLE, settlements, rows.settlement_arguments)

    def withdraw(self, claims: Sequence[ClaimId]) -> list[bool]:
        """Each by its key."""
        return self._act(Call.WITHDRAW, claims, lambda item: ())

    def attach(self, attachments: Sequence[Attachment]) -> list[bool]:
        """Each by its key."""
        return self._act(Call.ATTACH, attachments, lambda item: (item.outcome,))

    def _act(
        self, call: Call, items: Sequence[Any], arguments: Callable[[Any], Iterable[Any]]
    ) -> list[bool]:
        """Acts for claims; one that names another entry than its key does is no claim."""
        asked = [
            (item.key, (item.fence, item.token, *arguments(item))) for item in items if _is_whole(item)
        ]
        answers = iter(self._call(call, asked))
        return [_is_whole(item) and next(answers) == 1 for item in items]

    def are_committed(self, claims: Sequence[ClaimId]) -> list[bool]:
        """Compares state, fence and token."""
        wanted = [(State.COMMITTED, claim.fence, claim.token, claim.entry_id) for claim in claims]
        found = self.read([claim.key for claim in claims])
        return [
            entry is not None and (entry.state, entry.fence, entry.token, entry.entry_id) == one
            for entry, one in zip(found, wanted, strict=True)
        ]

    def read(self, keys: Sequence[bytes]) -> list[Entry | None]:
        """Reads by key."""
        return [None if found is None else found.entry for found in self.details(keys)]

    def details(self, keys: Sequence[bytes]) -> list[EntryDetail | None]:
        """Reads by key, from the primary. Where another program's value stands there is no entry."""
        layout = self._layout
        asked = [TaggedCommand(layout.tag(key), (b"HGETALL", layout.entry(key))) for key in keys]
        answers = self._sent(lambda: asked, writes=False)
        self._check([answer for answer in answers if not failures.is_strange(answer)], writes=False)
        return [rows.detail_of(key, answer) for key, answer in zip(keys, answers, strict=True)]

    def now_ticks(self) -> int:
        """The ledger's own time, as the first slot has it that can be reached."""
        (now,) = self._exchange(
            lambda: [self._about_clock(Call.READ_TIME, self._wire.tags[0], b"")], writes=False
        )
        return int(now)

    def settle_doubt(self) -> None:
        """Writes to every slot; where replicas are waited for, they have all that came before it.

        Slots of a server that is away are left out: nothing can be read back from there either.
        """
        self._exchange(
            lambda: [self._about_clock(Call.SETTLE_DOUBT, tag, b"") for tag in self._wire.tags], writes=True
        )

    def begin_clocks(self, ticks: int) -> None:
        """Lets the clock of each slot begin at a time, unless it has begun."""
        self._exchange(
            lambda: [self._about_clock(Call.KEEP_TIME, tag, ticks) for tag in range(TAGS)], writes=True
        )

    def close(self) -> None:
        """Closes the connections."""
        self._is_closed = True
        self._wire.close()

    def _time(self) -> bytes | int:
        return b"" if self._ticks is None else self._ticks()

    def _about_clock(self, call: Call, tag: int, argument: int | bytes) -> TaggedCommand:
        return self._wire.call(call, tag, self._layout.clock(tag), (self._time(), argument))

    def _call(self, call: Call, asked: Sequence[tuple[bytes, tuple[Any, ...]]]) -> list[Any]:
        if not asked:
            return []
        is_due = self._ticks is None and self._is_time_due()

        def requests() -> list[TaggedCommand]:
            now, wire, layout = self._time(), self._wire, self._layout
            made = [wire.call(call, layout.tag(k), layout.keys(k), (now, *rest)) for k, rest in asked]
            moves = wire.tags if is_due else ()
            return made + [self._about_clock(Call.KEEP_TIME, tag, b"") for tag in moves]

        return self._exchange(requests, writes=True, count=len(asked))

    def _exchange(
        self, requests: Callable[[], Sequence[TaggedCommand]], *, writes: bool, count: int | None = None
    ) -> list[Any]:
        """Sends, and raises what the server refused; where a part was done, all of it is in doubt.

        Requests after the first `count` only move clocks: what becomes of them does not matter.
        """
        answers = self._sent(requests, writes=writes)[:count]
        self._check(answers, writes=writes)
        return answers

    def _sent(self, requests: Callable[[], Sequence[TaggedCommand]], *, writes: bool) -> list[Any]:
        if self._reopen is not None and not self._is_closed and self._wire.is_stale:
            self._wire.close()
            self._wire = self._reopen()
        return self._wire.exchange(requests(), writes=writes)

    def _check(self, answers: Sequence[Any], *, writes: bool) -> None:
        refused = [answer for answer in answers if isinstance(answer, RedisError)]
        if not refused:
            return
        error: StoreError = failures.translate(refused[0], self._shown)
        if writes and len(refused) < len(answers):
            count = f"{len(answers) - len(refused)} of {len(answers)} were written"
            raise StoreUnknown(f"{count}: {error}") from refused[0]
        raise error from refused[0]


def _is_whole(item: Acting) -> bool:
    return item.entry_id == number_of(item.key)
