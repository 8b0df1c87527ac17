"""Counters and repeats: added to by many, read back by time, folded and forgotten."""

from __future__ import annotations

import unittest
from concurrent.futures import ThreadPoolExecutor

from oncegate.model.repeats import RepeatClass
from oncegate.model.states import State
from oncegate.store import Forgetting, Observations, Repeat, Session, Tally, What
from oncegate.testing.conformance.bench import StoreBench

MINUTE = 29_000_000
THREADS = 4


class TallyConformance(StoreBench):
    """`observe`, `tallies`, `repeats`, `sender_bugs`, `trim_tallies`."""

    def test_counts_are_added_to_what_is_there(self) -> None:
        """Several observations of the same minute become one counter, within a call and across calls."""
        session = self.open()
        once = Observations((Tally("orders", MINUTE, What.FRESH, 3, 70), Tally("refunds", MINUTE, 1, 5)))
        again = Observations((Tally("orders", MINUTE, What.FRESH, 2, 30),))

        self._observe(session, once, again)
        self._observe(session, again)

        assert self._tallies() == [
            Tally("orders", MINUTE, What.FRESH, 7, 130),
            Tally("refunds", MINUTE, What.FRESH, 5),
        ]

    def test_counters_are_read_by_time_and_surface(self) -> None:
        """The first minute is part of a range, the last is not; a surface that is unknown has none."""
        session = self.open()
        for minute in range(MINUTE, MINUTE + 4):
            self._observe(
                session, Observations((Tally("orders", minute, 4, 1), Tally("refunds", minute, 4, 1)))
            )

        with self.looking() as reader:
            some = reader.tallies(MINUTE + 1, MINUTE + 3, "orders")
            assert [(tally.surface, tally.minute) for tally in some] == [
                ("orders", MINUTE + 1),
                ("orders", MINUTE + 2),
            ]
            assert reader.tallies(0, 2**40, "never heard of") == []
            assert len(reader.tallies(0, 2**40)) == 8

    def test_nothing_observed_changes_nothing(self) -> None:
        """An empty observation is no error."""
        session = self.open()
        self._observe(session, Observations())
        with session.unit():
            session.observe([])
        assert self._tallies() == []

    def test_many_sessions_may_add_to_the_same_counters(self) -> None:
        """No count is lost and no session waits for ever, in whatever order each names the counters."""
        names = ("a", "b", "c", "d")
        self._observe(self.open(), Observations(tuple(Tally(name, MINUTE, 1, 0) for name in names)))
        sessions = [self.open() for _ in range(THREADS)]

        def add(place: int) -> None:
            ordered = names if place % 2 else names[::-1]
            for _ in range(25):
                self._observe(
                    sessions[place], Observations(tuple(Tally(name, MINUTE, 1, 1, 2) for name in ordered))
                )

        with ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(add, range(THREADS)))

        assert [(tally.count, tally.total) for tally in self._tallies()] == [(100, 200)] * 4

    def test_repeats_of_an_entry_are_kept_by_class(self) -> None:
        """Times add up, the first and last moment widen, and the latest evidence stays."""
        session = self.open()
        entry = self.reserve(session).entry_id
        late = RepeatClass.LATE_REPLAY

        self._observe(session, Observations(repeats=(Repeat(entry, late, 500, 900, 2, "latest"),)))
        self._observe(
            session,
            Observations(repeats=(Repeat(entry, late, 100, 300, 3, "older"),)),
            Observations(repeats=(Repeat(entry, RepeatClass.RACE, 50, 50, 1, "raced"),)),
            Observations(repeats=(Repeat(entry, RepeatClass.RACE, 60, 60, 1, "raced again"),)),
        )

        with self.looking() as reader:
            assert reader.repeats(entry) == [
                Repeat(entry, RepeatClass.RACE, 50, 60, 2, "raced again"),
                Repeat(entry, late, 100, 900, 5, "latest"),
            ]

    def test_repeats_of_nothing_are_left_out(self) -> None:
        """An entry that was forgotten meanwhile has no repeats, and its neighbours keep theirs."""
        session = self.open()
        entry = self.reserve(session).entry_id
        seen = [Repeat(number, RepeatClass.RACE, 1, 1, 1, "raced") for number in (entry, entry + 99)]

        self._observe(session, Observations(repeats=tuple(seen)))

        with self.looking() as reader:
            assert len(reader.repeats(entry)) == 1
            assert reader.repeats(entry + 99) == []

    def test_forgetting_an_entry_forgets_its_repeats(self) -> None:
        """No unreachable row stays behind."""
        session = self.open()
        claim = self.reserve(session)
        self.settle(session, claim)
        self._observe(
            session, Observations(repeats=(Repeat(claim.entry_id, RepeatClass.RACE, 1, 1, 1, "raced"),))
        )
        before = self.clock.wall_ms() + 1

        with session.unit():
            gone = session.forget(Forgetting("orders", before, (claim.entry_id,), before, "suite"))

        with self.looking() as reader:
            assert (gone, reader.repeats(claim.entry_id)) == (1, [])

    def test_what_points_at_a_sender_is_listed_latest_first(self) -> None:
        """Harmless repeats are not in the list, and it can be limited to a surface."""
        session = self.open()
        ours = self.reserve(session, "ours").entry_id
        theirs = self.reserve(session, "theirs", surface="refunds").entry_id
        kinds = (RepeatClass.RACE, RepeatClass.CONFLICT, RepeatClass.NEW_ID_PER_RETRY)
        seen = [Repeat(ours, kind, at, at, 1, kind.label) for at, kind in enumerate(kinds)]
        seen.append(Repeat(theirs, RepeatClass.STALE_OFFSET, 9, 9, 1, "stale"))

        self._observe(session, Observations(repeats=tuple(seen)))

        with self.looking() as reader:
            found = [repeat.evidence for repeat in reader.sender_bugs(None, 10)]
            assert found == ["stale", "new_id_per_retry", "conflict"]
            assert [repeat.entry_id for repeat in reader.sender_bugs("refunds", 10)] == [theirs]
            assert len(reader.sender_bugs(None, 2)) == 2

    def test_old_minutes_become_hours_and_the_oldest_go(self) -> None:
        """Folding keeps every count; only what is before the second moment is gone."""
        session = self.open()
        hour = MINUTE // 60 * 60
        for minute in (hour - 120, hour - 60, hour - 59, hour - 1, hour, hour + 1):
            self._observe(session, Observations((Tally("orders", minute, 1, 1, 10),)))

        for _ in range(5):
            with session.unit():
                session.trim_tallies(hour, hour - 60, 2)

        assert self._tallies() == [
            Tally("orders", hour - 60, 1, 3, 30),
            Tally("orders", hour, 1, 1, 10),
            Tally("orders", hour + 1, 1, 1, 10),
        ]
        with session.unit():
            assert session.trim_tallies(hour, hour - 60, 2) == 0

    def test_sums_are_by_surface_and_kind(self) -> None:
        """Minutes of the range are added up; each sum stands under the first minute asked for."""
        session = self.open()
        for minute in range(MINUTE, MINUTE + 5):
            self._observe(
                session, Observations((Tally("orders", minute, 4, 2, 7), Tally("refunds", minute, 1, 1)))
            )

        with self.looking() as reader:
            assert reader.tally_sums(MINUTE + 1, MINUTE + 4) == [
                Tally("orders", MINUTE + 1, 4, 6, 21),
                Tally("refunds", MINUTE + 1, 1, 3),
            ]
            assert reader.tally_sums(0, MINUTE) == []

    def test_waiting_knows_how_long_a_person_has_for_a_decision(self) -> None:
        """Entries with another limit are counted apart; words that only look like one are none."""
        session = self.open()
        for name, words in (("soon", "15m"), ("later", "4h"), ("odd", "soon enough")):
            self.reserve(session, name, hold=f"waits for approval, to be decided within {words}")
        self.reserve(session, "any time", hold="waits for approval")

        with self.looking() as reader:
            found = sorted(item.decide_within_ms or 0 for item in reader.waiting())
        assert found == [0, 0, 900_000, 14_400_000]

    def test_waiting_knows_how_long_an_event_is_tried_again(self) -> None:
        """I26: from its arrival to its last failed attempt; an entry in front of a person is not tried."""
        session = self.open()
        self.settle(session, self.reserve(session, "held"), State.HELD, reason="who knows")
        self.settle(session, self.reserve(session, "tried"), State.RETRYABLE)
        self.clock.advance(3600)
        self.settle(session, self.reserve(session, "tried"), State.RETRYABLE)

        with self.looking() as reader:
            found = {item.state: item.tried_ms for item in reader.waiting()}
        assert found == {State.HELD: 0, State.RETRYABLE: 3_600_000}

    def test_what_waits_can_be_counted_without_what_is_in_flight(self) -> None:
        """Both parts together are the whole."""
        session = self.open()
        self.reserve(session, "runs")
        self.reserve(session, "odd", quarantine="skew: 2h")
        self.settle(session, self.reserve(session, "held"), State.HELD, reason="who knows")
        self.settle(session, self.reserve(session, "done"))
        with self.looking() as reader:
            parts = [reader.waiting(in_flight=True), reader.waiting(in_flight=False)]
            whole = reader.waiting()
        assert [[item.state for item in part] for part in parts] == [
            [State.IN_FLIGHT],
            [State.HELD, State.QUARANTINED],
        ]
        assert sorted(parts[0] + parts[1], key=repr) == sorted(whole, key=repr)

    def test_mark_of_what_waits_changes_with_it_and_not_with_what_runs(self) -> None:
        """Parked, given up, taken up again, held again at once: each is seen."""
        session = self.open()
        if session.waiting_mark() is None:
            raise unittest.SkipTest("this store tells no mark")
        marks = [session.waiting_mark()]
        claim = self.reserve(session, "held")
        self.settle(session, self.reserve(session, "done"))
        assert session.waiting_mark() == marks[0], "what runs and ends well is not part of it"
        for state in (State.RETRYABLE, State.HELD):
            self.settle(session, claim, state, reason="who knows", last_call_ticks=5)
            marks.append(session.waiting_mark())
            if state is State.RETRYABLE:
                claim = self.reserve(session, "held")
                marks.append(session.waiting_mark())
        self.reserve(session, "odd", quarantine="skew: 2h")
        marks.append(session.waiting_mark())
        assert marks[2] == marks[0]
        assert len(set(marks)) == len(marks) - 1

    def test_mark_of_what_waits_tells_two_equal_looking_waits_apart(self) -> None:
        """Let go, taken up and left as before, with the same times: the reason may be another."""
        session = self.open()
        if session.waiting_mark() is None:
            raise unittest.SkipTest("this store tells no mark")
        marks = []
        for reason in ("timeout", "closed"):
            claim = self.reserve(session, "again")
            self.settle(session, claim, State.RETRYABLE, reason=reason, last_call_ticks=5)
            marks.append(session.waiting_mark())
        assert marks[0] != marks[1]

    def test_waiting_counts_what_is_open_by_surface_state_and_reason(self) -> None:
        """Final entries do not count; the oldest is in the ledger's own time."""
        session = self.open()
        began = session.now_ticks()
        for state in (State.COMMITTED, State.FAILED):
            self.settle(session, self.reserve(session, state.label), state)
        self.reserve(session, "lapses")
        self.let_lapse()
        self.reserve(session, "runs")
        self.reserve(session, "early", quarantine="skew: 7m in the future")
        self.reserve(session, "odd", surface="refunds", quarantine="key_input: missing: id")
        for reason in ("gave up after 8 attempts", "ect holds 2 resources for claim", "who knows"):
            self.settle(session, self.reserve(session, reason), State.HELD, reason=reason)

        with self.looking() as reader:
            found = {(item.surface, item.state, item.reason): item for item in reader.waiting()}

        running = found.pop(("orders", State.IN_FLIGHT, ""))
        assert (running.count, running.lapsed, running.oldest_ticks) == (2, 1, began)
        assert {place: item.count for place, item in found.items()} == {
            ("orders", State.HELD, "attempts_used_up"): 1,
            ("orders", State.HELD, "two_resources"): 1,
            ("orders", State.HELD, "in_doubt"): 1,
            ("orders", State.QUARANTINED, "skew"): 1,
            ("refunds", State.QUARANTINED, "key_input"): 1,
        }

    def test_clock_of_the_ledger_is_its_own_or_none(self) -> None:
        """A minute more of wall time is a minute more ahead."""
        self.open()
        with self.looking() as reader:
            ahead = reader.clock_ahead_ms(self.clock.wall_ms() + 60_000)
            now = reader.clock_ahead_ms(self.clock.wall_ms())
        assert (ahead is None) == (now is None)
        assert ahead is None or now is None or 60_000 <= ahead - now < 90_000

    def _observe(self, session: Session, *seen: Observations) -> None:
        with session.unit():
            session.observe(seen)

    def _tallies(self) -> list[Tally]:
        with self.looking() as reader:
            return reader.tallies(0, 2**40)
