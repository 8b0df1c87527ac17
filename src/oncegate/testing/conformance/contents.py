"""Marks of content: pairs are found once, in any order of commits; what has not run is stopped (E6)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

from oncegate.model.content import ContentMark
from oncegate.model.states import Decision, State
from oncegate.store import (
    ContentPage,
    Dismissal,
    Doubled,
    Flag,
    Flagged,
    Forgetting,
    LogKind,
    Pair,
    Reservation,
    Reserved,
    Session,
)
from oncegate.testing.conformance.bench import StoreBench, key_of

HOUR_MS: Final = 3_600_000
WINDOW_MS: Final = 72 * HOUR_MS
SAME: Final = ContentMark(b"same change here", "client 7", "cancel route {route_id}")
OTHER: Final = ContentMark(b"other change ...", "client 8")


class ContentConformance(StoreBench):
    """What is kept of contents, and what is done about equal ones."""

    def marked(
        self, session: Session, text: str, mark: ContentMark = SAME, state: State | None = None, **more: Any
    ) -> int:
        """Lets a marked event arrive, and end where a state is given; returns its entry."""
        claim = self.reserve(session, text, content=mark, **more)
        if state is not None:
            assert self.settle(session, claim, state, reason="for some reason")
        return claim.entry_id

    def pages(self, session: Session, position: int = 0, limit: int = 100) -> ContentPage:
        """Looks at marks."""
        self.wait_for_readers()
        with session.unit():
            return session.contents_after(position, limit, WINDOW_MS)

    def flag(self, session: Session, entry: int, other: int) -> Flagged:
        """Flags a pair in a unit of its own."""
        with session.unit():
            return session.flag([Flag(entry, other, self.clock.wall_ms(), "scan")])[0]

    def state_of(self, session: Session, entry: int) -> tuple[State, str | None]:
        """An entry's state and reason."""
        with session.unit():
            detail = session.detail(entry)
        assert detail is not None
        return detail.entry.state, detail.entry.reason

    def kinds_of(self, session: Session, entry: int) -> list[LogKind]:
        """What the log has under an entry."""
        with session.unit():
            detail = session.detail(entry)
        assert detail is not None
        return [record.kind for record in detail.records]

    def test_recorded_key_keeps_its_mark_of_content(self) -> None:
        """An event that would change the same thing in the same way is found beside it later."""
        session = self.open()
        mark = ContentMark(b"same change here", "container 7")
        wanted = (
            self.reservation("a", content=mark),
            self.reservation("b"),
            self.reservation("c", content=mark),
        )

        answers = [*_recorded(session, wanted[:1]), *_recorded(session, wanted[1:])]

        self.wait_for_readers()
        with session.unit():
            page = session.contents_after(0, 10, 1_000)
        assert page.looked == 2
        (pair,) = page.pairs
        assert {pair.entry_id, pair.other_id} == {answers[0].entry_id, answers[2].entry_id}

    def test_pairs_of_which_both_ran_are_counted_until_a_person_decides(self) -> None:
        """Not those of which one was stopped, failed or is in flight; by the later one's surface."""
        session = self.open()
        ran = [self.marked(session, f"ran {n}", state=State.COMMITTED) for n in (1, 2)]
        waits = self.marked(session, "waits", state=State.RETRYABLE)
        self.flag(session, ran[1], ran[0])
        self.flag(session, waits, ran[1])
        with session.unit():
            assert session.doubled() == [Doubled("orders", 1, self.clock.wall_ms())]
        with session.unit():
            assert session.dismiss(Dismissal(ran[1], self.clock.wall_ms(), "ann", "both are meant"))
        with session.unit():
            assert session.doubled() == []

    def test_any_two_that_ran_are_doubled_whatever_stands_between_them(self) -> None:
        """The first ran, ten were stopped, the last ran: one change ran twice, and the list names both."""
        session = self.open()
        first = self.marked(session, "first", state=State.COMMITTED)
        entries = [first, *(self.marked(session, str(n), state=State.RETRYABLE) for n in range(10))]
        for earlier, later in pairwise(entries):
            assert self.flag(session, later, earlier).stopped
        last = self.marked(session, "last", state=State.COMMITTED)
        self.flag(session, last, entries[-1])
        with session.unit():
            assert session.doubled() == [Doubled("orders", 1, self.clock.wall_ms())]
            found = {one.pair.entry_id: one.ran_with for one in session.open_duplicates(0, 20)}
        assert {entry: with_.entry_id for entry, with_ in found.items() if with_} == {last: first}

    def test_two_that_ran_further_apart_than_the_window_are_not_doubled(self) -> None:
        """Unless they are the two halves of a pair: a scan may look further than 72 hours."""
        session, now = self.open(), self.clock.wall_ms()
        first = self.marked(session, "first", state=State.COMMITTED, received_at_ms=now)
        middle = self.marked(session, "middle", state=State.RETRYABLE, received_at_ms=now + WINDOW_MS)
        late = now + WINDOW_MS + 1
        last = self.marked(session, "last", state=State.COMMITTED, received_at_ms=late)
        self.flag(session, middle, first)
        self.flag(session, last, middle)
        with session.unit():
            assert session.doubled() == []
        wide = self.marked(session, "wide", state=State.COMMITTED, received_at_ms=late + 2 * WINDOW_MS)
        self.flag(session, wide, last)
        with session.unit():
            assert [one.count for one in session.doubled()] == [1]

    def test_equal_marks_under_different_keys_are_a_pair(self) -> None:
        """Each with the nearest before it; other marks and unmarked entries are none."""
        session = self.open()
        first = self.marked(session, "one")
        self.marked(session, "elsewhere", OTHER)
        self.reserve(session, "unmarked")
        second, third = self.marked(session, "two"), self.marked(session, "three")
        page = self.pages(session)
        assert page.pairs == (Pair(second, first), Pair(third, second))
        assert page.looked == 4

    def test_a_second_arrival_of_a_key_has_no_mark_of_its_own(self) -> None:
        """A replay is not a duplicate."""
        session = self.open()
        for _ in range(3):
            self.reserve(session, "one", content=SAME)
        page = self.pages(session)
        assert (page.pairs, page.looked) == ((), 1)

    def test_marks_in_one_batch_are_kept_each_with_its_entry(self) -> None:
        """Marked and unmarked, new and known keys mixed."""
        session = self.open()
        self.reserve(session, "known", content=OTHER)
        with session.unit():
            answers = session.reserve(
                [
                    self.reservation("b", content=SAME),
                    self.reservation("known", content=OTHER),
                    self.reservation("unmarked"),
                    self.reservation("a", content=SAME),
                ]
            )
        page = self.pages(session)
        ((later, earlier),) = [(pair.entry_id, pair.other_id) for pair in page.pairs]
        assert {later, earlier} == {answers[0].entry_id, answers[3].entry_id}
        assert page.looked == 3

    def test_a_scan_goes_on_where_it_stopped(self) -> None:
        """Position by position; the place is kept in the ledger and never goes back."""
        session = self.open()
        entries = [self.marked(session, str(number)) for number in range(5)]
        position = 0
        seen: list[Pair] = []
        for looked in (2, 2, 1, 0):
            page = self.pages(session, position, 2)
            assert page.looked == looked
            position, seen = page.position, [*seen, *page.pairs]
        assert seen == [Pair(later, earlier) for earlier, later in pairwise(entries)]
        with session.unit():
            assert session.scanned() == 0
            session.note_scanned(position)
            session.note_scanned(position - 1)
        other = self.open()
        with other.unit():
            assert other.scanned() == position
        late = self.marked(session, "late")
        assert self.pages(session, position).pairs == (Pair(late, entries[-1]),)

    def test_a_scan_that_is_behind_knows_since_when(self) -> None:
        """Of the next mark; nothing where all were looked at."""
        session = self.open()
        now = self.clock.wall_ms()
        for number in range(2):
            self.marked(session, str(number), received_at_ms=now + number)
        with session.unit():
            found = session.unscanned()
        assert found is not None
        assert found.received_at_ms == now
        for oldest in (now + 1, None):
            with session.unit():
                scanned = session.scanned()
            page = self.pages(session, scanned, 1)
            with session.unit():
                session.note_scanned(page.position)
                found = session.unscanned()
            assert (None if found is None else found.received_at_ms) == oldest

    def test_pairs_further_apart_than_the_window_are_none(self) -> None:
        """At the window exactly they still are one; before and after alike."""
        session, now = self.open(), self.clock.wall_ms()
        first = self.marked(session, "first", received_at_ms=now)
        second = self.marked(session, "second", received_at_ms=now + WINDOW_MS)
        self.marked(session, "third", received_at_ms=now + 2 * WINDOW_MS + 1)
        fourth = self.marked(session, "fourth", received_at_ms=now + WINDOW_MS + 1)
        assert [pair.entry_id for pair in self.pages(session).pairs] == [second, fourth]
        assert self.pages(session).pairs[0].other_id == first

    def test_what_failed_for_good_is_half_of_no_pair(self) -> None:
        """It changed nothing, and a sender that sends it again does right."""
        session = self.open()
        first = self.marked(session, "first", state=State.COMMITTED)
        self.marked(session, "failed", state=State.FAILED)
        third = self.marked(session, "third", state=State.COMMITTED)
        assert self.pages(session).pairs == (Pair(third, first),)

    def test_what_waits_is_stopped_and_what_ran_is_only_marked(self) -> None:
        """Retryable and held entries are quarantined, with a record and the other's number."""
        session = self.open()
        ran = self.marked(session, "ran", state=State.COMMITTED)
        for number, state in enumerate((State.RETRYABLE, State.HELD)):
            waits = self.marked(session, f"waits {number}", state=state)
            assert self.flag(session, waits, ran) == Flagged(is_new=True, stopped=(waits,))
            stopped, reason = self.state_of(session, waits)
            assert stopped is State.QUARANTINED
            assert reason is not None
            assert f"entry {ran} " in reason
            assert f"was {state.label}: for some reason" in reason
            assert self.kinds_of(session, waits)[-2:] == [LogKind.DUPLICATE, LogKind.QUARANTINED]
        assert self.state_of(session, ran)[0] is State.COMMITTED
        assert self.kinds_of(session, ran) == [LogKind.COMMITTED, LogKind.DUPLICATE, LogKind.DUPLICATE]

    def test_a_stopped_entry_does_not_run_by_itself(self) -> None:
        """An arrival gets the answer, and no worker finds it."""
        session = self.open()
        ran, waits = self.marked(session, "ran"), self.marked(session, "waits", state=State.RETRYABLE)
        self.flag(session, waits, ran)
        assert self.reserve(session, "waits").decision is Decision.QUARANTINE
        with session.unit():
            assert [item.entry.entry_id for item in session.stranded(10)] == []

    def test_what_is_in_doubt_is_only_marked(self) -> None:
        """It may have had its effect: putting it where it can be released would have it run again."""
        session = self.open()
        ran, doubt = self.marked(session, "ran"), self.marked(session, "doubt", state=State.UNKNOWN)
        assert self.flag(session, doubt, ran).stopped == ()
        assert self.state_of(session, doubt)[0] is State.UNKNOWN

    def test_flagging_twice_is_flagging_once(self) -> None:
        """One record an entry, one pair, from whichever session."""
        session = self.open()
        ran = self.marked(session, "ran", state=State.COMMITTED)
        waits = self.marked(session, "waits", state=State.RETRYABLE)
        self.flag(session, waits, ran)
        before = self.kinds_of(session, waits), self.kinds_of(session, ran)
        assert self.flag(session, waits, ran) == Flagged(is_new=False)
        assert self.flag(self.open(), waits, ran) == Flagged(is_new=False)
        assert (self.kinds_of(session, waits), self.kinds_of(session, ran)) == before
        with session.unit():
            assert len(session.duplicates(None, 10, dismissed=True)) == 1

    def test_an_entry_in_flight_is_looked_at_again(self) -> None:
        """A worker holds it; once it waits it can be stopped."""
        session = self.open()
        claim = self.reserve(session, "running", content=SAME)
        later = self.marked(session, "later", state=State.COMMITTED)
        assert self.flag(session, later, claim.entry_id) == Flagged(is_new=True)
        with session.unit():
            assert session.undecided(10) == [Pair(later, claim.entry_id)]
        self.settle(session, claim, State.RETRYABLE)
        assert self.flag(session, later, claim.entry_id) == Flagged(is_new=False, stopped=(claim.entry_id,))
        with session.unit():
            assert session.undecided(10) == []

    def test_pairs_are_listed_with_what_is_known_of_them(self) -> None:
        """Newest first, a page at a time; dismissed ones only if asked for."""
        session = self.open()
        first, second, third = (self.marked(session, str(n), state=State.COMMITTED) for n in range(3))
        flagged_at = self.clock.wall_ms()
        self.flag(session, second, first)
        self.flag(session, third, second)
        with session.unit():
            newest, older = session.duplicates(None, 10, dismissed=False)
            assert session.duplicates(third, 10, dismissed=False) == [older]
            assert session.duplicates(None, 1, dismissed=False) == [newest]
            assert session.open_duplicates(0, 10) == [older, newest]
            assert session.open_duplicates(0, 1) == [older]
            assert session.open_duplicates(second, 10) == [newest]
        assert newest.pair == Pair(third, second)
        assert newest.entry is not None
        assert newest.other is not None
        assert (newest.entry.label, newest.other.label) == ("2", "1")
        assert (newest.target, newest.compensation) == (SAME.target, SAME.compensation)
        assert (newest.flagged_at_ms, newest.dismissed_at_ms) == (flagged_at, None)

    def test_open_pairs_are_narrowed_to_those_that_both_ran_and_to_a_surface(self) -> None:
        """The pairs that `doubled` counts are listed alone; the numbers of all open pairs without more."""
        session = self.open()
        first, second = (self.marked(session, str(n), state=State.COMMITTED) for n in range(2))
        waits = self.marked(session, "waits", state=State.RETRYABLE)
        self.flag(session, second, first)
        self.flag(session, waits, second)
        with session.unit():
            assert [one.pair for one in session.open_duplicates(0, 10, ran=True)] == [Pair(second, first)]
            assert session.open_duplicates(second, 10, ran=True) == []
            assert len(session.open_duplicates(0, 10, surface="orders")) == 2
            assert session.open_duplicates(0, 10, surface="refunds") == []
            assert session.open_pairs(0, 10) == [Pair(second, first), Pair(waits, second)]
            assert session.open_pairs(second, 10) == [Pair(waits, second)]
            assert session.open_pairs(0, 1) == [Pair(second, first)]
            assert session.dismiss(Dismissal(second, 5, "ann", "both were meant"))
        with session.unit():
            assert session.open_duplicates(0, 10, ran=True) == []
            assert session.open_pairs(0, 10) == [Pair(waits, second)]

    def test_a_pair_is_dismissed_once_by_one_person(self) -> None:
        """With one record; a second word changes nothing."""
        session = self.open()
        first, second = (self.marked(session, str(n), state=State.COMMITTED) for n in range(2))
        self.flag(session, second, first)
        with session.unit():
            assert session.dismiss(Dismissal(second, 5, "ann", "twice is right"))
        with session.unit():
            assert not session.dismiss(Dismissal(second, 6, "bob", "no"))
            assert not session.dismiss(Dismissal(first, 6, "bob", "no pair of this number"))
            assert session.duplicates(None, 10, dismissed=False) == []
            assert session.open_duplicates(0, 10) == []
            (pair,) = session.duplicates(None, 10, dismissed=True)
        assert (pair.dismissed_at_ms, pair.dismissed_by, pair.note) == (5, "ann", "twice is right")
        assert self.kinds_of(session, second).count(LogKind.DISMISSED) == 1
        assert self.flag(session, second, first) == Flagged(is_new=False)

    def test_what_is_forgotten_takes_its_mark_along(self) -> None:
        """A pair whose earlier half is forgotten is still listed, without it."""
        session = self.open()
        first = self.marked(session, "first", state=State.COMMITTED)
        self.clock.advance(1)
        before = self.clock.wall_ms()
        second = self.marked(session, "second", state=State.COMMITTED)
        self.flag(session, second, first)
        with session.unit():
            assert session.forget(Forgetting("orders", before, (first,), before, "pruner")) == 1
        assert (self.pages(session).looked, self.pages(session).pairs) == (1, ())
        with session.unit():
            (pair,) = session.duplicates(None, 10, dismissed=False)
            assert (pair.other, pair.pair.other_id) == (None, first)
        self.clock.advance(1)
        now = self.clock.wall_ms()
        with session.unit():
            assert session.forget(Forgetting("orders", now, (second,), now, "pruner")) == 1
            assert session.duplicates(None, 10, dismissed=True) == []
            assert session.read([key_of("second")]) == [None]


def _recorded(session: Session, wanted: Sequence[Reservation]) -> list[Reserved]:
    with session.unit(single=True):
        return list(session.record(wanted, b'{"value":null}'))
