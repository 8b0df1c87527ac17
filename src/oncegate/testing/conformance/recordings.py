"""Events with nothing to call: what is new is settled with its reservation (`Claims.record`)."""

from __future__ import annotations

from typing import Any

from oncegate.model.states import Decision, State
from oncegate.store import EntryDetail, LogKind, Reservation, Reserved, Session
from oncegate.testing.conformance.bench import StoreBench, key_of, unchanged

OUTCOME = b'{"value":null}'
_NAMES = ("a", "b", "c", "d", "e")


class RecordingConformance(StoreBench):
    """Recording new and known keys."""

    def record(self, session: Session, *wanted: Reservation) -> list[Reserved]:
        """Records in a unit that is announced as a single call."""
        with session.unit(single=True):
            return list(session.record(wanted, OUTCOME))

    def test_recorded_key_is_left_as_a_reservation_and_a_settlement_leave_it(self) -> None:
        """A reader of the ledger cannot tell which way an event went."""
        session = self.open()
        same: dict[str, Any] = {"label": "a label", "tenant": "acme", "body": b"[1]", "actor": "suite"}
        lone, first, second, other = (self.reservation(name, **same) for name in "abcd")

        answers = [*self.record(session, lone), *self.record(session, first, second)]
        with session.unit():
            (claim,) = session.reserve([other])
        self.settle(session, claim, outcome=OUTCOME)

        theirs = self.detail(claim.entry_id)
        for answer in answers:
            assert (answer.decision, answer.attempt) == (Decision.RUN, 1)
            assert answer.received_at_ms == self.clock.wall_ms()
            self._is_alike(self.detail(answer.entry_id), theirs)
        assert self.counts() == {State.COMMITTED: 4}

    def _is_alike(self, found: EntryDetail, other: EntryDetail) -> None:
        assert (found.outcome, found.body, found.steps) == (other.outcome, other.body, other.steps)
        for name in found.entry.__struct_fields__:
            if name not in ("entry_id", "key", "fence", "token"):
                assert getattr(found.entry, name) == getattr(other.entry, name), name
        told = [(one.kind, one.at_ms, one.actor, one.note) for one in self.records_of(found)]
        assert told == [(one.kind, one.at_ms, one.actor, one.note) for one in self.records_of(other)]

    def test_recorded_key_is_never_stranded(self) -> None:
        """There is no lease that could lapse, and nothing for a worker to take up."""
        session = self.open()
        self.record(session, self.reservation())
        self.let_lapse()

        assert self.stranded(10) == []
        assert self.reserve(session).decision is Decision.REPLAY

    def test_each_recorded_of_a_batch_keeps_what_is_its_own(self) -> None:
        """Body, label, tenant, time and actor, in whatever order they come."""
        session = self.open()
        wanted = [
            self.reservation(
                name,
                body=name.encode(),
                tenant=f"t-{name}",
                received_at_ms=1_000 + place,
                actor=f"a-{name}",
            )
            for place, name in enumerate(reversed(_NAMES))
        ]

        answers = self.record(session, *wanted)

        found = [self.detail(answer.entry_id) for answer in answers]
        assert [one.body for one in found] == [self.kept_body(item.body, is_final=True) for item in wanted]
        for name in ("key", "label", "tenant", "received_at_ms"):
            assert [getattr(one.entry, name) for one in found] == [getattr(item, name) for item in wanted]
        assert [one.entry.settled_at_ms for one in found] == [item.received_at_ms for item in wanted]
        assert [one.outcome for one in found] == [OUTCOME] * len(wanted)
        told = [[(one.at_ms, one.actor) for one in self.records_of(detail)] for detail in found]
        assert told == [[(item.received_at_ms, item.actor)] for item in wanted]

    def test_same_key_recorded_twice_in_one_batch_is_a_replay(self) -> None:
        """The first is new, its equals learn its outcome, and the log tells of one end."""
        session = self.open()
        again = [self.reservation("a") for _ in range(3)]

        answers = self.record(session, *again[:2], self.reservation("b"), again[2])

        run, replay = Decision.RUN, Decision.REPLAY
        assert [answer.decision for answer in answers] == [run, replay, run, replay]
        assert [answer.outcome for answer in answers if answer.decision is replay] == [OUTCOME] * 2
        assert [record.kind for record in self.log()] == [LogKind.COMMITTED] * 2

    def test_recorded_key_is_a_replay_and_nothing_changes(self) -> None:
        """However often it comes, by either way."""
        session = self.open()
        self.record(session, self.reservation())

        with unchanged(self, session):
            (answer,) = self.record(session, self.reservation())
            again = self.reserve(session)

        for one in (answer, again):
            assert (one.decision, one.state) == (Decision.REPLAY, State.COMMITTED)
            assert one.outcome == OUTCOME

    def test_other_content_under_a_recorded_key_conflicts(self) -> None:
        """In the same batch and in the next; the first content stays (I7)."""
        session = self.open()
        first, other = self.reservation(body=b"1"), self.reservation(body=b"2", fingerprint=b"other")

        answers = [*self.record(session, first, other), *self.record(session, other)]

        decisions = [answer.decision for answer in answers]
        assert decisions == [Decision.RUN, Decision.CONFLICT, Decision.CONFLICT]
        assert [answer.outcome for answer in answers] == [None] * 3
        found = self.detail(answers[0].entry_id)
        assert (found.body, found.entry.fingerprint) == (
            self.kept_body(b"1", is_final=True),
            first.fingerprint,
        )
        assert (
            sorted(one.kind for one in self.records_of(found))
            == [LogKind.COMMITTED] + [LogKind.CONFLICT] * 2
        )

    def test_known_key_is_judged_and_not_settled(self) -> None:
        """A claim that a worker holds, or that may be taken up again, is not ended by recording it."""
        session = self.open()
        busy, lapsed = self.reserve(session, "busy", lease_ms=10**9), self.reserve(session, "lapsed")
        tried = self.reserve(session, "tried")
        self.settle(session, tried, State.RETRYABLE, reason="timeout")
        self.let_lapse()

        names = ("busy", "new", "lapsed", "tried")
        answers = self.record(session, *(self.reservation(name) for name in names))

        decisions = [answer.decision for answer in answers]
        assert decisions == [Decision.BUSY, Decision.RUN, Decision.RECOVER, Decision.RETRY]
        states = [entry.state for entry in self.read([key_of(name) for name in names]) if entry is not None]
        in_flight = State.IN_FLIGHT
        assert states == [in_flight, State.COMMITTED, in_flight, in_flight]
        assert answers[2].fence > lapsed.fence
        assert self.settle(session, busy), "its holder still holds it"

    def test_what_waits_for_a_person_is_not_recorded_as_done(self) -> None:
        """Among others of a batch: unsettled, listed as waiting, with its reason on record."""
        session = self.open()
        strange: dict[str, Any] = {"b": {"quarantine": "skew"}, "d": {"hold": "ask first"}}
        wanted = [self.reservation(name, **strange.get(name, {})) for name in _NAMES]

        answers = self.record(session, *wanted)

        assert [answer.decision for answer in answers] == [
            Decision.RUN, Decision.QUARANTINE, Decision.RUN, Decision.HOLD, Decision.RUN,
        ]  # fmt: skip
        assert self.counts() == {State.COMMITTED: 3, State.QUARANTINED: 1, State.HELD: 1}
        for answer, kind in ((answers[1], LogKind.QUARANTINED), (answers[3], LogKind.HELD)):
            found = self.detail(answer.entry_id)
            assert (found.outcome, found.entry.attempt) == (None, 0)
            assert found.entry.reason == answer.reason
            assert [(one.kind, one.note) for one in self.records_of(found)] == [(kind, answer.reason)]
        again = self.record(session, *wanted)
        assert [one.decision for one in again] == [
            Decision.REPLAY, Decision.QUARANTINE, Decision.REPLAY, Decision.HOLD, Decision.REPLAY,
        ]  # fmt: skip

    def test_what_waits_for_a_person_is_not_recorded_as_done_when_it_comes_alone(self) -> None:
        """Each in a call of its own."""
        session = self.open()

        (strange,) = self.record(session, self.reservation("a", quarantine="skew"))
        (held,) = self.record(session, self.reservation("b", hold="ask first"))

        assert (strange.decision, held.decision) == (Decision.QUARANTINE, Decision.HOLD)
        assert self.counts() == {State.QUARANTINED: 1, State.HELD: 1}
