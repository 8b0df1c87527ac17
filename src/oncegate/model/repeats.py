"""What kind of repeat an arrival is, and why we think so.

A repeat is an arrival that says something again: a key that is known already, or the content of another
event under a key of its own. Every repeat gets one class with its evidence in words. Pure; called by the
gate's sightings after the arrival was answered, so nothing that is decided here changes what an arrival
gets. Evidence names fields and entries, never values: they may be personal.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from oncegate.model.states import Decision

LATE_AFTER_MS: Final = 3600 * 1000  # D5: a replay more than an hour after the first arrival is late
RUN_MIN: Final = 8  # keys in a row in their first order; by chance that is one in 40,000
RUN_FRESH_SHARE: Final = 4  # at most one new arrival for so many repeats in a run
RUN_DISORDER_SHARE: Final = 8  # at most one repeat out of order for so many: workers overtake each other
RETRY_WITHIN_MS: Final = 10 * 60 * 1000  # the same content within this under a new id is a retry
SPLIT_WITHIN_MS: Final = 60 * 1000
TWINS_MAX: Final = 6  # more keys with one content: that content is simply common here
SPLITS_MAX: Final = 2  # three parts and more are lines of a list, each meant


class Harm(Enum):
    """What a repeat would have done without a gate, and still may where the key is another."""

    REPLAY = "replay"
    DUPLICATE = "harmful duplicate"
    NEW_INTENT = "new intent"


class RepeatClass(IntEnum):
    """The kinds of repeats. The numbers are stored; never renumber."""

    EXPECTED_REPLAY = 1
    LATE_REPLAY = 2
    RACE = 3
    CONFLICT = 4
    NEW_ID_PER_RETRY = 5
    STALE_OFFSET = 6
    SPLIT_ACTION = 7
    NEW_INTENT = 8
    ASKED_RETRY = 9

    @property
    def label(self) -> str:
        """The words shown to people and used in labels of metrics."""
        return self.name.lower()

    @property
    def harm(self) -> Harm:
        """Which of the three kinds of D6 this is."""
        return _HARM[self]

    @property
    def is_sender_bug(self) -> bool:
        """Whether the sender probably has a fault."""
        return self in _SENDER_BUGS

    @property
    def is_normal(self) -> bool:
        """Whether it comes with at-least-once delivery, or is meant, so that no person need look."""
        return self in _NORMAL

    @property
    def is_of_known_key(self) -> bool:
        """Whether its key was known; else another key's content came again."""
        return self in _OF_KNOWN_KEYS

    @property
    def advice(self) -> str:
        """What to do about it."""
        return _ADVICE[self]


_HARM: Final = {
    RepeatClass.EXPECTED_REPLAY: Harm.REPLAY,
    RepeatClass.LATE_REPLAY: Harm.REPLAY,
    RepeatClass.RACE: Harm.REPLAY,
    RepeatClass.CONFLICT: Harm.DUPLICATE,
    RepeatClass.NEW_ID_PER_RETRY: Harm.DUPLICATE,
    RepeatClass.STALE_OFFSET: Harm.REPLAY,
    RepeatClass.SPLIT_ACTION: Harm.DUPLICATE,
    RepeatClass.NEW_INTENT: Harm.NEW_INTENT,
    RepeatClass.ASKED_RETRY: Harm.REPLAY,
}
_SENDER_BUGS: Final = frozenset(
    {
        RepeatClass.CONFLICT,
        RepeatClass.NEW_ID_PER_RETRY,
        RepeatClass.STALE_OFFSET,
        RepeatClass.SPLIT_ACTION,
    }
)
_NORMAL: Final = frozenset(
    {RepeatClass.EXPECTED_REPLAY, RepeatClass.RACE, RepeatClass.NEW_INTENT, RepeatClass.ASKED_RETRY}
)
_OF_KNOWN_KEYS: Final = frozenset(
    {
        RepeatClass.EXPECTED_REPLAY,
        RepeatClass.LATE_REPLAY,
        RepeatClass.RACE,
        RepeatClass.CONFLICT,
        RepeatClass.STALE_OFFSET,
        RepeatClass.ASKED_RETRY,
    }
)
_ADVICE: Final = {
    RepeatClass.EXPECTED_REPLAY: "nothing: at-least-once delivery at work",
    RepeatClass.LATE_REPLAY: "ask who replays so late, and keep the retention longer than they may",
    RepeatClass.RACE: "nothing: the key was in flight; if it happens often, the sender waits too briefly",
    RepeatClass.CONFLICT: "ask the sender why one id has two contents, or name what changes in ignore=",
    RepeatClass.NEW_ID_PER_RETRY: "tell the sender to keep its id on a retry; these ran more than once",
    RepeatClass.STALE_OFFSET: "ask the sender whether a consumer was restarted from an old position",
    RepeatClass.SPLIT_ACTION: "ask the sender whether one action was sent as two events",
    RepeatClass.NEW_INTENT: "nothing: the same wish came again, far enough apart to be meant",
    RepeatClass.ASKED_RETRY: "nothing: the event was not done yet, and the sender was asked to come again",
}


class Classified(Struct, frozen=True):
    """A class and the words that say why."""

    kind: RepeatClass
    evidence: str


class OrderedRun(Struct, frozen=True, gc=False):
    """Repeats of one surface as they come: do they follow the order of their first arrivals?"""

    length: int = 0
    first_entry: int = 0
    last_entry: int = 0
    last_at_ms: int = 0
    out_of_order: int = 0
    fresh: int = 0

    @property
    def is_stale_offset(self) -> bool:
        """Whether this looks like a reader that began again at an old position."""
        return self.length >= RUN_MIN and self._is_alive

    @property
    def _is_alive(self) -> bool:
        crowded = self.fresh * RUN_FRESH_SHARE > self.length
        shuffled = self.out_of_order * RUN_DISORDER_SHARE > max(self.length, RUN_MIN)
        return not crowded and not shuffled

    def after_fresh(self, count: int = 1) -> OrderedRun:
        """New keys came in between; many of them end the run."""
        if not self.length or count <= 0:
            return self
        longer = replace(self, fresh=self.fresh + count)
        return longer if longer._is_alive else OrderedRun()

    def with_repeat(self, entry_id: int, first_at_ms: int) -> OrderedRun:
        """A known key came again; one from before the last in order counts against the run."""
        if entry_id == self.last_entry:
            return self
        if not self.length:
            return OrderedRun(1, entry_id, entry_id, first_at_ms)
        if (first_at_ms, entry_id) > (self.last_at_ms, self.last_entry):
            return replace(self, length=self.length + 1, last_entry=entry_id, last_at_ms=first_at_ms)
        worse = replace(self, out_of_order=self.out_of_order + 1)
        return worse if worse._is_alive else OrderedRun(1, entry_id, entry_id, first_at_ms)


def classify(
    decision: Decision,
    age_ms: int,
    run: OrderedRun,
    late_after_ms: int = LATE_AFTER_MS,
    *,
    asked: bool = False,
) -> Classified:
    """Classifies an arrival of a known key by what the gate decided and how old the key is.

    `asked` says that the event had not been done, so that its sender was asked to come again.
    """
    since = f"{_span(age_ms)} after the first arrival"
    if decision is Decision.CONFLICT:
        return Classified(RepeatClass.CONFLICT, "another content under the same key")
    if asked:
        return Classified(RepeatClass.ASKED_RETRY, f"came again as it was asked to, {since}")
    if decision is Decision.BUSY:
        return Classified(RepeatClass.RACE, f"came while the key was in flight elsewhere, {since}")
    if run.is_stale_offset:
        return Classified(
            RepeatClass.STALE_OFFSET,
            f"{run.length} known keys in a row in their first order, from entry {run.first_entry} to "
            f"{run.last_entry}; this one {since}",
        )
    if age_ms > late_after_ms:
        return Classified(RepeatClass.LATE_REPLAY, f"the same content, {since}")
    return Classified(RepeatClass.EXPECTED_REPLAY, f"the same content, {since}")


class Twin(Struct, frozen=True, gc=False):
    """Another key's event that is like this one: which, how long before, and in what they differ."""

    entry_id: int
    gap_ms: int
    ids: tuple[str, ...]
    also_differs: str | None = None
    shared_by: int = 2


def classify_twin(twin: Twin, retry_within_ms: int = RETRY_WITHIN_MS) -> Classified | None:
    """Classifies an event under a new key whose content another key has had; None if it says nothing.

    `shared_by` is how many keys have had this content, this one included. Content that many share is no
    evidence of anything.
    """
    if twin.gap_ms < 0 or twin.shared_by > TWINS_MAX:
        return None
    where = f"entry {twin.entry_id}, {_span(twin.gap_ms)} before"
    ids = ", ".join(twin.ids)
    if twin.also_differs is not None:
        if twin.gap_ms > SPLIT_WITHIN_MS or twin.shared_by > SPLITS_MAX:
            return None
        evidence = f"differs from {where}, only in {ids} and in {twin.also_differs}"
        return Classified(RepeatClass.SPLIT_ACTION, evidence)
    if twin.gap_ms <= retry_within_ms:
        return Classified(RepeatClass.NEW_ID_PER_RETRY, f"the content of {where}, under another {ids}")
    return Classified(RepeatClass.NEW_INTENT, f"the content of {where}, under another {ids}")


def _span(milliseconds: int) -> str:
    """A length of time in words short enough for evidence; a clock that went back is named as such."""
    if milliseconds < 0:
        return "by the clock before it"
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if milliseconds >= 2 * size:
            return f"{milliseconds // size} {unit}"
    return f"{milliseconds} ms"
