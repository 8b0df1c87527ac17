"""One word for many entries: plan, confirm, carry out with progress, cancel.

A plan names exactly the entries that fitted the filter when it was made, each with the fence seen then and
a mark of its key: in a ledger that went back, another event may have the number and the fence (I23). A job
acts on these and no others: what changed meanwhile is left alone and counted. Must never act on anything
that the plan did not show, and never hold the ledger for longer than one small batch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from oncegate.errors import RulingRefused
from oncegate.review.decisions import Decisions, EntryDecision, ruling_of, sayable
from oncegate.review.doubles import Choice, Doubles, doubles_among
from oncegate.store import Entry, EntryDetail, EntryFilter, Ruling, Session

PLAN_ENTRIES_MAX: Final = 100_000  # a plan is held in memory
PAGE_ENTRIES: Final = 1_000
BATCH_ENTRIES: Final = 50  # one commit; also what a cancel waits for
SAMPLE_ENTRIES: Final = 5
REFUSALS_KEPT_MAX: Final = 20

MARK_BYTES: Final = 8  # of the end of a key: conflicting contents of one key differ only there

Seen = tuple[int, int, bytes]  # an entry, the fence under which it was seen, and the mark of its key


def seen_as(entry: Entry) -> Seen:
    """How a plan names an entry."""
    return entry.entry_id, entry.fence, entry.key[-MARK_BYTES:]


class BulkPlan(Struct, frozen=True):
    """What a word would be said about. `is_complete` is false where there are more than a plan can hold.

    `doubles` are entries that are the same change as another one; `choice` says which of them count.
    """

    word: EntryDecision
    entries: tuple[Seen, ...]
    sample: tuple[Entry, ...]
    surfaces: dict[str, int]
    is_complete: bool
    doubles: Doubles = Doubles()
    choice: Choice | None = None

    @property
    def chosen(self) -> tuple[Seen, ...]:
        """The entries that the choice lets the word be said about; without a choice, one of each change."""
        left_out = self.doubles.left_out(self.choice or Choice.ONE)
        return tuple(seen for seen in self.entries if seen[0] not in left_out)

    @property
    def count(self) -> int:
        """How many entries it names."""
        return len(self.entries)


class BulkProgress(Struct, frozen=True):
    """How far a job has come. `changed` were not as planned any more, `refused` cannot be decided so."""

    total: int
    done: int = 0
    changed: int = 0
    refused: int = 0
    refusals: tuple[str, ...] = ()
    is_cancelled: bool = False

    @property
    def left(self) -> int:
        """How many have not been looked at."""
        return self.total - self.done - self.changed - self.refused


def make_plan(
    session: Session, word: EntryDecision, wanted: EntryFilter, *, entries_max: int = PLAN_ENTRIES_MAX
) -> BulkPlan:
    """Walks through the whole filter, page by page; changes nothing.

    Of the states that the filter names, those count from which the verb can start.
    """
    states = sorted(word.verb.starts_from.intersection(wanted.states or word.verb.starts_from))
    if not states:  # to the store, no states would be all states
        return BulkPlan(word, (), (), {}, is_complete=True)
    wanted = replace(wanted, states=tuple(states))
    entries: list[Seen] = []
    sample: list[Entry] = []
    surfaces: dict[str, int] = {}
    is_complete = True
    for entry in _walk(session, wanted):
        if len(entries) == entries_max:
            is_complete = False
            break
        entries.append(seen_as(entry))
        surfaces[entry.surface] = surfaces.get(entry.surface, 0) + 1
        if len(sample) < SAMPLE_ENTRIES:
            sample.append(entry)
    doubles = doubles_among(session, [number for number, *_ in entries]) if word.verb.runs else Doubles()
    return BulkPlan(word, tuple(entries), tuple(sample), surfaces, is_complete, doubles)


def _walk(session: Session, wanted: EntryFilter) -> Iterator[Entry]:
    before: int | None = None
    while page := session.entries(wanted, before, PAGE_ENTRIES):
        yield from page
        before = page[-1].entry_id


class Job:
    """Carries out a plan, batch by batch. One thread runs it; any other may read `progress` or cancel."""

    def __init__(self, rulings: Decisions, plan: BulkPlan) -> None:
        self.plan = plan
        self._entries = plan.chosen
        self.progress = BulkProgress(len(self._entries))
        self._rulings = rulings
        self._cancelled = threading.Event()
        self._doubled: frozenset[int] = frozenset()

    def cancel(self) -> None:
        """Stops the job after the batch under way; what is done stays done."""
        self._cancelled.set()

    def run(self, on_progress: Callable[[BulkProgress], object] = lambda progress: None) -> BulkProgress:
        """Runs to the end or until it is cancelled; an error of the store ends it with progress kept."""
        entries = self._entries
        self._doubled = self._found_since()
        for start in range(0, len(entries), BATCH_ENTRIES):
            if self._cancelled.is_set():
                self.progress = replace(self.progress, is_cancelled=True)
                break
            self._advance(entries[start : start + BATCH_ENTRIES])
            on_progress(self.progress)
        return self.progress

    def _found_since(self) -> frozenset[int]:
        """Entries that a scan has found to be the same change since the plan was made: not let run."""
        if not self.plan.word.verb.runs or self.plan.choice is Choice.ALL:
            return frozenset()
        with self._rulings.commits.store.look() as session:
            return doubles_among(session, [number for number, *_ in self._entries]).extras

    def _advance(self, batch: tuple[Seen, ...]) -> None:
        before = self.progress
        rulings, changed, refusals = self._prepare(batch)
        answers = self._rulings.carry_out(tuple(rulings)) if rulings else []
        done = sum(answer.done for answer in answers)
        self.progress = replace(
            before,
            done=before.done + done,
            changed=before.changed + changed + len(answers) - done,
            refused=before.refused + len(refusals),
            refusals=(*before.refusals, *refusals)[:REFUSALS_KEPT_MAX],
        )

    def _prepare(self, batch: tuple[Seen, ...]) -> tuple[list[Ruling], int, list[str]]:
        """Reads the entries of a batch and makes their rulings; counts those that are not as planned."""
        rulings: list[Ruling] = []
        refusals: list[str] = []
        changed = 0
        at_ms = self._rulings.clock.wall_ms()
        with self._rulings.commits.store.look() as session:
            for planned in batch:
                entry_id = planned[0]
                seen = session.detail(entry_id)
                if seen is None or seen_as(seen.entry) != planned:
                    changed += 1
                    continue
                if entry_id in self._doubled:
                    refusals.append(f"entry {entry_id} was found to be the same change as another one")
                    continue
                try:
                    rulings.append(ruling_of(seen, _narrowed(self.plan.word, seen), at_ms))
                except RulingRefused as refused:
                    refusals.append(str(refused))
        return rulings, changed, refusals


def _narrowed(word: EntryDecision, seen: EntryDetail) -> EntryDecision:
    """The word as it concerns one entry: of the steps, those that are in doubt there."""
    names = {step.name for step in sayable(seen)}
    return replace(word, steps={name: told for name, told in word.steps.items() if name in names})
