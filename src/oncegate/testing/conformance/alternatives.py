"""Reservations with other keys that their event may be known by: judged there, or inserted (I1, A2)."""

from __future__ import annotations

from typing import Any

from oncegate.model.states import Decision, State
from oncegate.store import Reservation, Reserved, Session
from oncegate.testing.conformance.bench import StoreBench, key_of

OLD, NEW, OLDER = key_of("old"), key_of("new"), key_of("older")
OUTCOME = b'{"value":"the first"}'


class AlternativeConformance(StoreBench):
    """What a store must do with `Reservation.also`."""

    def either(self, session: Session, **changes: Any) -> Reserved:
        """Lets an event arrive under its new key, that may be known under an old one."""
        return self.reserve(session, "new", also=(OLD, OLDER), **changes)

    def test_an_event_that_no_key_knows_is_inserted_under_its_own(self) -> None:
        """And under no other."""
        answer = self.either(self.open())
        assert (answer.decision, answer.judged) == (Decision.RUN, None)
        own, *others = self.read([NEW, OLD, OLDER])
        assert own is not None
        assert own.entry_id == answer.entry_id
        assert others == [None, None]

    def test_an_event_known_by_an_old_key_is_a_replay(self) -> None:
        """With the outcome that stands there, and the key that it stands under."""
        session = self.open()
        self.settle(session, self.reserve(session, "older"), outcome=OUTCOME)
        answer = self.either(session)
        assert (answer.decision, answer.outcome, answer.judged) == (Decision.REPLAY, OUTCOME, OLDER)
        assert self.read([NEW]) == [None]

    def test_an_event_in_flight_under_an_old_key_is_busy_and_recovered_under_it(self) -> None:
        """A worker of the old program holds it; an expired lease is taken over, steps and all."""
        session = self.open()
        first = self.reserve(session, "old")
        assert self.either(session).decision is Decision.BUSY
        self.let_lapse()
        answer = self.either(session)
        assert (answer.decision, answer.judged) == (Decision.RECOVER, OLD)
        assert (answer.entry_id, answer.attempt) == (first.entry_id, 2)
        assert answer.fence > first.fence
        assert self.read([NEW]) == [None]

    def test_another_content_under_an_old_key_is_a_conflict(self) -> None:
        """As under its own: nothing runs."""
        session = self.open()
        self.settle(session, self.reserve(session, "old"), outcome=OUTCOME)
        answer = self.either(session, fingerprint=b"other")
        assert (answer.decision, answer.judged) == (Decision.CONFLICT, OLD)
        assert self.read([NEW]) == [None]

    def test_its_own_key_counts_first(self) -> None:
        """Where both are known, the event is judged under the key it came by."""
        session = self.open()
        self.settle(session, self.reserve(session, "old"), State.FAILED, outcome=b"{}", reason="no")
        self.settle(session, self.reserve(session, "new"), outcome=OUTCOME)
        answer = self.either(session)
        assert (answer.decision, answer.state, answer.judged) == (Decision.REPLAY, State.COMMITTED, None)

    def test_two_that_know_each_others_key_meet_in_one_batch(self) -> None:
        """An event accepted under its old key and again under its new one runs once, whatever the order."""
        for first, second in (("old", "new"), ("new-2", "old-2")):
            session = self.open()
            with session.unit():
                answers = session.reserve([self._known_by(first, second), self._known_by(second, first)])
            assert [answer.decision for answer in answers] == [Decision.RUN, Decision.BUSY]
            assert answers[1].judged == key_of(first)
            assert self.read([key_of(second)]) == [None]

    def test_what_is_only_recorded_is_recorded_once(self) -> None:
        """`record` looks at the other keys too, and a mixed batch is answered in its own order."""
        session = self.open()
        with session.unit():
            session.record([self.reservation("old")], OUTCOME)
        with session.unit():
            answers = session.record(
                [self.reservation("plain"), self._known_by("new", "old"), self._known_by("fresh", "none")],
                OUTCOME,
            )
        assert [answer.decision for answer in answers] == [Decision.RUN, Decision.REPLAY, Decision.RUN]
        assert [answer.judged for answer in answers] == [None, OLD, None]

    def test_two_sessions_that_know_each_others_key_run_it_once(self) -> None:
        """Looking and inserting are one step: neither passes the other's open unit."""
        first, second = self.open(), self.open()
        with first.unit():
            assert first.reserve([self._known_by("old", "new")])[0].decision is Decision.RUN
        with second.unit():
            answer = second.reserve([self._known_by("new", "old")])[0]
        assert (answer.decision, answer.judged) == (Decision.BUSY, OLD)

    def _known_by(self, text: str, other: str) -> Reservation:
        return self.reservation(text, also=(key_of(other),))
