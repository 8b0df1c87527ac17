"""Batches: each of many keeps what is its own, as if it had come alone."""

from __future__ import annotations

from typing import Any

from oncegate.model.states import Decision, State
from oncegate.store import StepRecord, StepState
from oncegate.testing.conformance.bench import StoreBench

_DONE = StepRecord("claim", StepState.DONE, "terminal", b'{"id":"S-1"}', "S-1")
_NAMES = ("a", "b", "c", "d", "e")


class BatchConformance(StoreBench):
    """Reservations and settlements that go in one call."""

    def test_each_reservation_of_a_batch_keeps_its_own_body(self) -> None:
        """Recovery hands it to the handler, so none may be missing or another's."""
        session = self.open()
        with session.unit():
            wanted = [self.reservation(name, body=f'"{name}"'.encode()) for name in _NAMES]
            claims = session.reserve(wanted)

        bodies = [self.detail(claim.entry_id).body for claim in claims]

        assert bodies == [self.kept_body(f'"{name}"'.encode()) for name in _NAMES]

    def test_one_of_a_batch_that_waits_for_a_person_is_in_nobodys_flight(self) -> None:
        """Its neighbours run; a lease on it would let a worker run it too, once that has expired."""
        session = self.open()
        strange: dict[str, Any] = {"quarantine": "skew: 9m in the past"}
        with session.unit():
            claims = session.reserve(
                [self.reservation(name, **(strange if name == "c" else {})) for name in _NAMES]
            )

        seen = [self.detail(claim.entry_id).entry for claim in claims]

        assert [claim.decision is Decision.RUN for claim in claims] == [name != "c" for name in _NAMES]
        assert [entry.state is State.QUARANTINED for entry in seen] == [name == "c" for name in _NAMES]

    def test_each_settlement_of_a_batch_writes_and_clears_its_own_steps(self) -> None:
        """Of five, one brings a step, one clears what it had, and three leave theirs as they are."""
        session = self.open()
        with session.unit():
            claims = session.reserve([self.reservation(name) for name in _NAMES])
        for claim in claims[1:]:
            self.progress(session, claim, _DONE)
        changes: list[dict[str, Any]] = [{"steps": (_DONE,)}, {"clear_steps": True}, {}, {}, {}]

        with session.unit():
            ends = [self.settlement(claim, **change) for claim, change in zip(claims, changes, strict=True)]
            assert session.settle(ends) == [True] * 5

        steps = [self.detail(claim.entry_id).steps for claim in claims]
        assert steps == [(_DONE,), (), (_DONE,), (_DONE,), (_DONE,)]
