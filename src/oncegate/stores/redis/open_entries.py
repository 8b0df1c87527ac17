"""Open entries of a Redis ledger: found by the index of each hash tag, read as they are now, decided about.

A tag has one index, so that an operation changes it with the entry, also in a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Final

from oncegate.store import Ruling, RulingAnswer
from oncegate.store.people import latest_ruling
from oncegate.stores.redis import rows
from oncegate.stores.redis.functions import Call
from oncegate.stores.redis.wire import TAGS, RedisWire, TaggedCommand, tag_name
from oncegate.stores.shared.open_lists import OpenLists, can_be_said

RETRY_BAND: Final = 1 << 50  # scores of entries that are tried again begin here; below are ends of leases
WAIT_BAND: Final = 1 << 51  # and those of entries that wait for a person here
_ALL: Final = (0, 1 << 53)


class Layout:
    """How keys of a ledger are named: an entry, the clock and the index of its slot have one hash tag."""

    def __init__(self, prefix: str) -> None:
        head = prefix.encode()
        self.meta = head + b":ledger"
        self._heads = [b"%b:{%b}:" % (head, tag_name(tag)) for tag in range(TAGS)]
        self._beside = [(one + b"clock", one + b"open") for one in self._heads]

    def tag(self, key: bytes) -> int:
        """Which tag a key belongs to."""
        return key[-1] % TAGS

    def entry(self, key: bytes) -> bytes:
        """Where an entry is."""
        return self._heads[key[-1] % TAGS] + key

    def keys(self, key: bytes) -> tuple[bytes, bytes, bytes]:
        """An entry, its clock and its index."""
        tag = key[-1] % TAGS
        return (self._heads[tag] + key, *self._beside[tag])

    def clock(self, tag: int) -> tuple[bytes, bytes, bytes]:
        """The keys of a function that is about a clock only."""
        clock, index = self._beside[tag]
        return clock, clock, index

    def index(self, tag: int) -> bytes:
        """Where the open entries of a tag are listed."""
        return self._beside[tag][1]


class RedisOpenEntries(OpenLists):
    """Lists and decisions. Mixed into the session."""

    _layout: Layout
    _wire: RedisWire
    _in_due_order = True

    def _exchange(
        self, requests: Callable[[], Sequence[TaggedCommand]], *, writes: bool, count: int | None = None
    ) -> list[Any]:
        raise NotImplementedError

    def _call(self, call: Call, asked: Sequence[tuple[bytes, tuple[Any, ...]]]) -> list[Any]:
        raise NotImplementedError

    def _open_keys(self, *, waiting: bool, running: bool) -> list[bytes]:
        low, high = WAIT_BAND if not running else _ALL[0], WAIT_BAND - 1 if not waiting else _ALL[1]
        return [key for _, key in self._ranged(low, high, -1)] if waiting or running else []

    def _due_keys(self, limit: int, now: int) -> list[bytes]:
        tags = self._wire.tags  # of servers that can be reached: recovery goes on there
        expired = self._ranged(0, now, limit, tags)
        later = self._ranged(RETRY_BAND, WAIT_BAND - 1, limit, tags)
        again = [(score - RETRY_BAND, key) for score, key in later]
        return [key for _, key in sorted(expired + again)[:limit]]

    def _ranged(
        self, low: int, high: int, limit: int, tags: Sequence[int] = range(TAGS)
    ) -> list[tuple[int, bytes]]:
        """Scores and keys of tags between two scores, `limit` of each tag; -1 is all."""
        between = (low, high, b"BYSCORE", b"LIMIT", 0, limit, b"WITHSCORES")
        asked = [TaggedCommand(tag, (b"ZRANGE", self._layout.index(tag), *between)) for tag in tags]
        answers = self._exchange(lambda: asked, writes=False)
        return list(
            chain.from_iterable(zip(map(_score, one[1::2]), one[::2], strict=True) for one in answers)
        )

    def rule(self, rulings: Sequence[Ruling]) -> list[RulingAnswer]:
        """Each by one function; one that names another entry than its key does changes nothing."""
        right = [one for one in rulings if can_be_said(one)]
        done = iter(self._call(Call.RULE, [(one.key, rows.ruling_arguments(one)) for one in right]))
        return [self._ruled(one, done=can_be_said(one) and next(done) == 1) for one in rulings]

    def _ruled(self, ruling: Ruling, *, done: bool) -> RulingAnswer:
        (found,) = self.details([ruling.key])
        if found is None or ruling.entry_id != found.entry.entry_id:
            found = self.detail(ruling.entry_id)
        if found is None:
            return RulingAnswer(done=False, entry=None)
        return RulingAnswer(done, found.entry, latest_ruling(found.records))


def _score(text: bytes) -> int:
    return int(float(text))
