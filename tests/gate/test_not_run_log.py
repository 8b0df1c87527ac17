"""Why an event did not run: in the log and in the answer, bounded, without secrets (E3, E5, F2)."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytest

from oncegate import Failed, Gate, Once, OutcomeUnknown, Verdict
from oncegate.clock import from_wall_ms
from oncegate.gate.runtime.not_run_log import LINES_MAX
from oncegate.testing import ManualClock

LOGGER = "oncegate.arrivals"
SECRET = "s3cret-canary"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def gate(tmp_path: Any, clock: ManualClock, caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level(logging.INFO, LOGGER)
    with Gate(f"sqlite:///{tmp_path / 'ledger.db'}", clock=clock) as made:

        @made.handler("pay", key="{id}", occurred_at="{at}")
        def pay(event: dict[str, Any], once: Once) -> str:
            if event.get("amount") == "unknown":
                raise OutcomeUnknown(f"the bank said {SECRET}")
            if event.get("amount") == "never":
                raise Failed(f"refused: {SECRET}")
            return "paid"

        @made.handler("slow", key="{id}", approve_first=True)
        def slow(event: dict[str, Any]) -> str:
            return "done"

        yield made


def at(clock: ManualClock, ahead_seconds: float = 0.0) -> str:
    return (from_wall_ms(clock.wall_ms()) + timedelta(seconds=ahead_seconds)).isoformat()


def lines(gate: Gate, caplog: pytest.LogCaptureFixture) -> list[str]:
    gate.engine.sightings.flush()
    return [record.getMessage() for record in caplog.records if record.name == LOGGER]


def test_a_replay_says_since_when(gate: Gate, clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    """From memory and from the ledger alike."""
    event = {"id": "p-1", "at": at(clock)}
    first = clock.wall_ms()
    assert gate.admit_sync("pay", event).first_seen is None
    clock.advance(90)
    from_memory = gate.admit_sync("pay", event)
    assert from_memory.verdict is Verdict.REPLAY
    assert (from_memory.first_seen, from_memory.reason) == (from_wall_ms(first), "already done")
    (line,) = lines(gate, caplog)
    assert line.startswith("replay on pay: key=")
    assert "label=p-1 reason=already done first_seen=" in line


def test_a_replay_by_another_process_says_since_when(gate: Gate, clock: ManualClock) -> None:
    event = {"id": "p-1", "at": at(clock)}
    first = clock.wall_ms()
    gate.admit_sync("pay", event)
    clock.advance(90)
    with Gate(store=gate.engine.store, clock=clock) as other:
        other.engine.adopt(gate.engine)
        answer = other.admit_sync("pay", event)
        assert (answer.first_seen_ms, answer.reason) == (first, "already done")


def test_a_skew_is_a_number_and_a_line(
    gate: Gate, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Positive where the event is ahead of our clock."""
    for number, ahead in enumerate((7_200.0, -7_200.0)):
        answer = gate.admit_sync("pay", {"id": f"p-{number}", "at": at(clock, ahead)})
        assert answer.verdict is Verdict.QUARANTINE
        assert answer.skew_ms == ahead * 1000
        assert answer.reason is not None
        assert answer.reason.startswith("skew: ")
    told = lines(gate, caplog)
    assert len(told) == 2
    assert all(line.startswith("quarantine on pay: key=") and "reason=skew: 2h" in line for line in told)


def test_a_conflict_says_since_when_and_what_became_of_it(
    gate: Gate, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    first = clock.wall_ms()
    event = {"id": "p-1", "at": at(clock)}
    gate.admit_sync("pay", event)
    clock.advance(60)
    answer = gate.admit_sync("pay", {**event, "amount": SECRET})
    assert (answer.verdict, answer.first_seen_ms) == (Verdict.CONFLICT, first)
    (line,) = lines(gate, caplog)
    assert line.startswith("conflict on pay: key=")
    assert "reason=what came is kept and waits for a person; differs in: amount first_seen=" in line
    assert SECRET not in line


def test_holds_are_told_without_what_a_handler_said(
    gate: Gate, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The entry has the error's words; the log does not."""
    with pytest.raises(OutcomeUnknown):
        gate.admit_sync("pay", {"id": "p-1", "at": at(clock), "amount": "unknown"})
    gate.admit_sync("pay", {"id": "p-1", "at": at(clock), "amount": "unknown"})
    with pytest.raises(Failed):
        gate.admit_sync("pay", {"id": "p-2", "at": at(clock), "amount": "never"})
    assert gate.admit_sync("slow", {"id": "s-1"}).verdict is Verdict.HOLD
    told = lines(gate, caplog)
    assert [line.partition(":")[0] for line in told][:1] == ["in doubt on pay"]
    assert told[-1].startswith("hold on slow: ")
    assert "reason=waits for approval" in told[-1]
    assert SECRET not in "\n".join(told)


def test_a_flood_is_so_many_lines_and_a_summary(gate: Gate, caplog: pytest.LogCaptureFixture) -> None:
    """A sender cannot fill a disk with log lines."""
    for number in range(LINES_MAX + 30):
        gate.admit_sync("pay", {"wrong": number})
    told = lines(gate, caplog)
    assert len(told) == LINES_MAX + 1
    assert told[-1] == "quarantine on pay: 30 more within a second, not told one by one"


def test_a_label_cannot_forge_a_line(gate: Gate, caplog: pytest.LogCaptureFixture) -> None:
    """Marks that turn or hide text are written out."""
    gate.admit_sync("slow", {"id": "a\u202eb\u200b"})
    (line,) = lines(gate, caplog)
    assert line.isprintable()


def test_replays_cost_nothing_where_they_are_not_told(
    gate: Gate, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """At the level WARNING, which is Python's own, only what waits or conflicts is told."""
    caplog.set_level(logging.WARNING, LOGGER)
    gate.engine.sightings.flush()
    event = {"id": "p-1", "at": at(clock)}
    for _ in range(3):
        gate.admit_sync("pay", event)
    assert lines(gate, caplog) == []
