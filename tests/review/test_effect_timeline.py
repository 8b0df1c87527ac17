"""When effects were started: the moment on record, or between which moments it was (E5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from oncegate import Failed, Gate, NotApplied, OutcomeUnknown
from oncegate.gate.codec.outcome import Outcome, StepOutcome, decode_outcome
from oncegate.model.states import State
from oncegate.review.effect_timeline import MAY_HAVE_STARTED, STARTED, Start, starts, storyline
from oncegate.store import Entry, EntryDetail, EntryFilter, LogKind, LogRecord, StepRecord, StepState
from oncegate.testing import CrashReached, ManualClock
from tests.support.gates import DeadAfter, Ledger

EVENT = {"id": "N-1"}
BORN = 1_000


class Site:
    """A gate on either store, with a clock that every call moves on."""

    def __init__(self, url: str) -> None:
        self.clock = ManualClock()
        self.gate = Gate(url, clock=self.clock)
        self.began_ms = self.clock.wall_ms()

    def call(self, seconds: float, error: Exception | None = None) -> Callable[[], dict[str, str]]:
        """A downstream that takes its time, and may fail."""

        def claim() -> dict[str, str]:
            self.clock.advance(seconds)
            if error is not None:
                raise error
            return {"id": "S-1"}

        return claim

    def seen(self) -> EntryDetail:
        """The only entry."""
        with self.gate.engine.store.look() as session:
            entry = session.entries(EntryFilter(), None, 10)[0]  # the newest
            found = session.detail(entry.entry_id)
        assert found is not None
        return found

    def starts(self) -> list[tuple[float, str, str]]:
        """What is told of the starts: seconds after the first arrival, what, and which call."""
        seen = self.seen()
        found = starts(seen, decode_outcome(seen.outcome))
        return [((one.at_ms - self.began_ms) / 1000, one.what, one.note) for one in found]


@pytest.fixture(params=["sqlite", "postgres"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """A fresh ledger on each store."""
    sqlite = request.param == "sqlite"
    made = Site(f"sqlite:///{tmp_path / 'ledger.db'}" if sqlite else request.getfixturevalue("ledger_url"))
    yield made
    made.gate.close()


def test_a_finished_effect_tells_when_it_was_called(site):
    ect, mail = site.gate.downstream("ect", probe=lambda key: None), site.gate.downstream("mail")

    @site.gate.handler("bookings", key="{id}")
    def book(event, once):
        site.clock.advance(2)
        once.effect(ect, site.call(3), name="slot")
        once.effect(mail, site.call(4), name="letter")
        return "done"

    site.gate.admit_sync("bookings", EVENT)
    assert site.starts() == [(2, STARTED, "slot at ect"), (5, STARTED, "letter at mail")]
    assert site.seen().steps == ()


def test_a_handler_that_knows_nothing_of_the_gate_is_one_call(site):
    @site.gate.handler("bookings", key="{id}")
    def book(event):
        site.clock.advance(3)
        return "done"

    site.gate.admit_sync("bookings", EVENT)
    assert site.starts() == [(0, STARTED, "a call of the handler, not a step")]


def test_a_handler_that_only_writes_has_started_nothing_outside(site):
    @site.gate.handler("bookings", key="{id}")
    def book(event, once):
        return "done"

    site.gate.admit_sync("bookings", EVENT)
    assert site.starts() == []


def test_a_final_failure_keeps_what_was_done_before_it_and_when_the_last_call_was_made(site):
    """D4: the slot that was booked before the mail failed for good stays visible."""
    ect = site.gate.downstream("ect", probe=lambda key: None)

    @site.gate.handler("bookings", key="{id}")
    def book(event, once):
        once.effect(ect, site.call(3), name="slot")
        once.effect(ect, site.call(4, Failed("no such address")), name="letter")
        return "done"

    with pytest.raises(Failed):
        site.gate.admit_sync("bookings", EVENT)
    assert site.starts() == [(0, STARTED, "slot at ect"), (3, STARTED, "letter at ect")]
    outcome = decode_outcome(site.seen().outcome)
    assert (outcome.error, outcome.resource, len(outcome.steps)) == ("no such address", "S-1", 1)


def test_a_final_failure_of_a_handler_that_knows_nothing_of_the_gate_is_one_call(site):
    @site.gate.handler("bookings", key="{id}")
    def book(event):
        site.clock.advance(3)
        raise Failed("no such address")

    with pytest.raises(Failed):
        site.gate.admit_sync("bookings", EVENT)
    assert site.starts() == [(0, STARTED, "a call of the handler, not a step")]


def test_a_call_that_cannot_be_repeated_tells_its_start_while_it_is_in_doubt(site):
    mail = site.gate.downstream("mail")

    @site.gate.handler("bookings", key="{id}")
    def book(event, once):
        site.clock.advance(1)
        once.effect(mail, site.call(4, OutcomeUnknown("no answer")), name="letter")
        return "done"

    with pytest.raises(OutcomeUnknown):
        site.gate.admit_sync("bookings", EVENT)
    assert site.starts() == [(1, STARTED, "letter at mail")]
    assert site.seen().steps[0].started_at_ms == site.began_ms + 1_000


def test_an_opaque_call_in_doubt_tells_its_start(site):
    @site.gate.handler("bookings", key="{id}")
    def book(event):
        site.clock.advance(4)
        raise OutcomeUnknown("no answer")

    with pytest.raises(OutcomeUnknown):
        site.gate.admit_sync("bookings", EVENT)
    assert site.starts() == [(0, STARTED, "call at (undeclared)")]


def test_a_call_that_did_not_happen_says_so(site):
    mail = site.gate.downstream("mail")

    @site.gate.handler("bookings", key="{id}")
    def book(event, once):
        once.effect(mail, site.call(4, NotApplied("closed")), name="letter")
        return "done"

    with pytest.raises(NotApplied):
        site.gate.admit_sync("bookings", EVENT)
    assert site.starts() == [(0, STARTED, "letter at mail; it did not happen")]


def test_of_a_repeatable_call_that_failed_only_the_attempt_is_known(site):
    """In a process that knows the step, nothing is written ahead of it, and only a reason after it."""
    errors: list[Exception] = []
    ect = site.gate.downstream("ect", probe=lambda key: None, request_life_max="1ms")

    @site.gate.handler("bookings", key="{id}")
    def book(event, once):
        once.effect(ect, site.call(4, errors.pop() if errors else None), name="slot")
        return "done"

    site.gate.admit_sync("bookings", {"id": "before"})
    errors.append(ConnectionError("reset"))
    with pytest.raises(ConnectionError):
        site.gate.admit_sync("bookings", EVENT)
    ((at, what, note),) = site.starts()
    assert (at, what) == (4, MAY_HAVE_STARTED)
    assert "if a downstream was called" in note


def test_what_a_crashed_attempt_did_was_between_its_claim_and_the_next_one(tmp_path):
    """A3, A6: the terminal is asked and has the slot. The first call of a process is recorded ahead."""
    ledger = Ledger(tmp_path)
    sold: list[str] = []

    def claim() -> dict[str, str]:
        sold.append("S-1")
        return {"id": "S-1"}

    def register(gate: Gate) -> None:
        ect = gate.downstream("ect", probe=lambda key: [{"id": slot} for slot in sold])

        @gate.handler("bookings", key="{id}", lease="10m")
        def book(event, once):
            once.effect(ect, claim, name="slot")
            return "done"

    mortal = ledger.gate(DeadAfter("effect.after"))
    register(mortal)
    began_ms = ledger.clock.wall_ms()
    with pytest.raises(CrashReached):
        mortal.admit_sync("bookings", EVENT)
    fresh = ledger.gate()
    register(fresh)
    assert [one.what for one in _starts_at(fresh)] == [STARTED]
    ledger.lapse()
    fresh.admit_sync("bookings", EVENT)
    (only,) = _starts_at(fresh)
    assert (only.step, only.what, only.is_exact) == ("slot", STARTED, True)
    assert only.at_ms == began_ms
    ledger.close()


def _starts_at(gate: Gate) -> list[Start]:
    with gate.engine.store.look() as session:
        (entry,) = session.entries(EntryFilter(), None, 10)
        seen = session.detail(entry.entry_id)
    assert seen is not None
    return starts(seen, decode_outcome(seen.outcome))


def _seen(state: State, *records: tuple[LogKind, int], steps: tuple[StepRecord, ...] = ()) -> EntryDetail:
    entry = Entry(7, b"key", "", "orders", "o-1", state, 2, 9, None, b"print", BORN, 3_000, None, None)
    log = tuple(LogRecord(place, 7, kind, at, "gate", None) for place, (kind, at) in enumerate(records))
    return EntryDetail(entry, None, None, steps, log)


def _told(seen: EntryDetail, outcome: Outcome = Outcome()) -> list[str]:  # noqa: B008 - it is frozen
    return [
        one.what if isinstance(one, Start) else one.kind.name.lower() for one in storyline(seen, outcome)
    ]


def test_a_start_stands_after_its_claim_and_before_what_came_of_it_also_in_one_millisecond():
    records = [(LogKind.RETRYABLE, BORN), (LogKind.TAKEN_UP, BORN), (LogKind.PROBED, BORN)]
    seen = _seen(State.COMMITTED, *records, (LogKind.COMMITTED, BORN))
    told = _told(seen, Outcome(steps=(StepOutcome("slot", "ect", None, 0),)))
    assert told == [MAY_HAVE_STARTED, "retryable", "taken_up", "probed", STARTED, "committed"]


def test_a_start_of_an_earlier_attempt_stands_before_the_next_claim():
    step = StepRecord("slot", StepState.STARTED, "ect", started_at_ms=BORN + 10)
    seen = _seen(State.IN_FLIGHT, (LogKind.RECOVERED, BORN + 500), steps=(step,))
    assert _told(seen) == [STARTED, "recovered", MAY_HAVE_STARTED]


def test_an_outcome_of_before_there_were_moments_is_told_without_one():
    seen = _seen(State.COMMITTED, (LogKind.COMMITTED, 3_000))
    (only,) = starts(seen, Outcome(steps=(StepOutcome("slot", "ect"),)))
    assert (only.at_ms, only.until_ms, only.is_exact, only.is_certain) == (BORN, 3_000, False, True)
