"""The reconciler: one call looks at every stranded key once, and the gate decides about each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest

from oncegate import Failed, Gate, NotApplied, StoreUnavailable, Verdict
from oncegate.clock import from_wall_ms
from oncegate.crashpoints import CrashPoints
from oncegate.maintenance.reconciler import Reconciler, Report
from oncegate.model.backoff import spread
from oncegate.model.identity import KIND, OVERLAP_MIN_MS, KeyRule, LedgerNow, read_identity, rekeyed
from oncegate.model.template import KeyTemplate
from oncegate.signals.measures import measure
from oncegate.signals.snapshot import WorkerStatus
from oncegate.store import DocumentChange, What
from oncegate.store.notices import WorkerWord
from oncegate.testing import CrashReached, Faults, faulty
from tests.support.gates import DeadAfter, Ledger, Style, Terminal


class Depot:
    """Processes that book at a terminal which honours keys; some die, one reconciles."""

    def __init__(self, ledger: Ledger, style: Style, **options: Any) -> None:
        self.ledger, self.style, self.options = ledger, style, options
        self.terminal = Terminal(honours_key=True)
        self.before_return: Callable[[Any], None] = lambda event: None

    def process(self, crashpoints: CrashPoints | None = None, surface: str = "bookings") -> Gate:
        """Starts a process."""
        gate, style = self.ledger.gate(crashpoints), self.style
        ect = gate.downstream("ect", honours_key="7d")

        def book(event, once):
            slot = yield once.effect(ect, style.function(self.terminal.claim), str(event["id"]))
            self.before_return(event)
            return slot["id"]

        style.register(gate, surface, book, **self.options)
        return gate

    def strand(self, number: int, point: str = "effect.after", **options: Any) -> None:
        """An arrival whose process dies, a second after the one before."""
        self.ledger.clock.advance(1)
        surface = options.pop("surface", "bookings")
        with pytest.raises(CrashReached):
            self.style.admit(self.process(DeadAfter(point), surface), surface, {"id": number}, **options)

    def reconcile(self, gate: Gate | None = None, **options: Any) -> Report:
        """Runs a reconciler once, from a thread or from a task."""
        reconciler = Reconciler(gate or self.process(), **options)
        if self.style.is_async:
            return asyncio.run(reconciler.run_once_async())
        return reconciler.run_once()


@pytest.fixture
def depot(ledger: Ledger, style: Style) -> Depot:
    """A depot of the given style."""
    return Depot(ledger, style)


def became(report: Report) -> list[str]:
    """What the keys of a report became, in order."""
    return [item.became for item in report.looked]


def test_stranded_keys_are_finished_oldest_first(depot: Depot) -> None:
    """A6: no new arrival is needed; each key owns one slot, and its outcome is there for replays."""
    # Given three keys whose processes died after the slot was sold
    for number in (1, 2, 3):
        depot.strand(number)
    depot.ledger.lapse()
    # When the reconciler runs
    report = depot.reconcile()
    # Then all are finished
    assert became(report) == ["finished"] * 3
    assert report.finished == report.count("finished") == 3
    assert [(item.surface, item.label) for item in report.looked] == [
        ("bookings", "1"),
        ("bookings", "2"),
        ("bookings", "3"),
    ]
    assert depot.terminal.sold == 3
    assert depot.ledger.states() == ["committed"] * 3
    answer = depot.style.admit(depot.process(), "bookings", {"id": 1})
    assert (answer.verdict, answer.key) == (Verdict.REPLAY, report.looked[0].key)
    # And there is nothing left to do
    assert became(depot.reconcile()) == []


def test_what_is_in_flight_is_left_alone(depot: Depot) -> None:
    """A lease that has not lapsed is somebody's."""
    depot.strand(1)
    assert became(depot.reconcile()) == []
    assert depot.ledger.state() == "in_flight"
    # At the very moment it lapses, it is looked at
    depot.ledger.clock.advance(600)
    assert became(depot.reconcile()) == ["finished"]


def test_settled_held_unknown_and_quarantined_entries_are_left_alone(depot: Depot) -> None:
    """They have their outcome, or wait for a person."""
    gate = depot.process()
    opaque = depot.ledger.gate()

    def lost(event):
        raise TimeoutError("no answer")

    depot.style.register(opaque, "opaque", lost)
    depot.style.admit(gate, "bookings", {"id": 1})
    depot.style.admit(gate, "bookings", {})
    with pytest.raises(TimeoutError):
        depot.style.admit(opaque, "opaque", {"id": 1})
    depot.ledger.lapse()
    assert became(depot.reconcile(gate)) == became(depot.reconcile(opaque)) == []
    assert depot.ledger.states() == ["committed", "quarantined", "unknown"]


@pytest.mark.waits
def test_a_failed_attempt_is_tried_again_after_its_backoff(depot: Depot) -> None:
    """Jitter is passed in: ten seconds and a half after the first failure, twenty-one after the second."""
    failures = [RuntimeError("no luck"), RuntimeError("no luck")]

    def fail(event: Any) -> None:
        if failures:
            raise failures.pop()

    depot.before_return = fail
    with pytest.raises(RuntimeError):
        depot.style.admit(depot.process(), "bookings", {"id": 1})
    for attempt, wait_ms, result in ((1, 1_000, "failed again"), (2, 2_000, "finished")):
        due_ms = int(wait_ms * (1 + spread(1, attempt) / 10))
        depot.ledger.clock.advance((due_ms - 0.5) / 1000)
        assert became(depot.reconcile()) == []
        depot.ledger.clock.advance(0.001)
        assert became(depot.reconcile()) == [result]
    assert len(depot.terminal.keys) == 1


@pytest.mark.waits
def test_an_attempt_that_called_nothing_waits_from_its_own_end(ledger: Ledger) -> None:
    """Not from the last call of an earlier one: attempts would be used up without any wait between them."""
    gate, runs = ledger.gate(), list[int]()

    @gate.handler("bookings", key="{id}")
    def fail(event: Any, once: Any) -> None:
        runs.append(once.attempt)
        raise KeyError("before any effect")

    with pytest.raises(KeyError):
        gate.admit_sync("bookings", {"id": 1})
    for attempt, wait_ms in ((2, 1_000), (3, 2_000), (4, 4_000)):
        due_ms = int(wait_ms * (1 + spread(1, attempt - 1) / 10))
        ledger.clock.advance((due_ms - 0.5) / 1000)
        Reconciler(gate).run_once()
        assert len(runs) == attempt - 1
        ledger.clock.advance(0.001)
        Reconciler(gate).run_once()
        assert len(runs) == attempt


@pytest.mark.slow
@pytest.mark.waits
def test_the_wait_of_an_attempt_is_the_same_however_often_somebody_looks(ledger: Ledger) -> None:
    """A share drawn anew at each look, by each process, would make the shortest of them the wait."""
    gate, runs = ledger.gate(), list[int]()

    @gate.handler("bookings", key="{id}", retry_base="1000s", retry_cap="1h")
    def fail(event: Any, once: Any) -> None:
        runs.append(once.attempt)
        raise RuntimeError

    with pytest.raises(RuntimeError):
        gate.admit_sync("bookings", {"id": 1})
    due = 1000 + spread(1, 1) * 100
    ledger.clock.advance(due - 1)
    for _ in range(200):
        Reconciler(gate).run_once()
    assert len(runs) == 1
    ledger.clock.advance(2)
    Reconciler(gate).run_once()
    assert len(runs) == 2


def test_attempts_of_the_reconciler_are_bounded(ledger: Ledger, style: Style) -> None:
    """I18: what keeps failing ends in front of a person."""
    depot = Depot(ledger, style, attempts_max=3)

    def fail(event: Any) -> None:
        raise RuntimeError("no luck")

    depot.before_return = fail
    with pytest.raises(RuntimeError):
        style.admit(depot.process(), "bookings", {"id": 1})
    results = [became(depot.reconcile(at_once=True)) for _ in range(4)]
    assert results == [["failed again"], ["failed again"], [], []]
    assert ledger.state() == "held"


def test_a_final_failure_is_told_as_such(depot: Depot) -> None:
    """The handler says that trying again makes no sense."""

    def fail(event: Any) -> None:
        raise Failed("no such container")

    depot.strand(1)
    depot.before_return = fail
    depot.ledger.lapse()
    assert became(depot.reconcile()) == ["failed for good"]
    assert depot.ledger.state() == "failed"


def test_what_nobody_can_be_asked_about_is_left_to_a_person(ledger: Ledger, style: Style) -> None:
    """A4: looked at once, then in front of a person."""
    runs: list[Any] = []

    def process(crashpoints: CrashPoints | None = None) -> Gate:
        gate = ledger.gate(crashpoints)
        style.register(gate, "bookings", runs.append)
        return gate

    with pytest.raises(CrashReached):
        style.admit(process(DeadAfter("effect.after")), "bookings", {"id": 1})
    ledger.lapse()
    depot = Depot(ledger, style)
    assert became(depot.reconcile(process())) == ["left to a person"]
    assert became(depot.reconcile(process())) == []
    assert (len(runs), ledger.state()) == (1, "unknown")


def test_a_downstream_that_may_still_get_a_request_is_asked_again_later(
    ledger: Ledger, style: Style
) -> None:
    """A6: within 90 seconds of the crash at default settings, with no human."""
    terminal = Terminal()

    def process(crashpoints: CrashPoints | None = None) -> Gate:
        gate = ledger.gate(crashpoints)
        ect = gate.downstream("ect", probe=style.function(terminal.find))

        def book(event, once):
            yield once.effect(ect, style.function(terminal.claim), "X")

        style.register(gate, "bookings", book, lease="20s")
        return gate

    with pytest.raises(CrashReached):
        style.admit(process(DeadAfter("effect.before")), "bookings", {"id": 1})
    depot = Depot(ledger, style)
    seen: list[str] = []
    for _ in range(9):
        ledger.clock.advance(10)
        seen += became(depot.reconcile(process()))
    assert seen[-1] == "finished"
    assert set(seen[:-1]) == {"waits"}
    assert terminal.sold == 1
    # And it counts as one entry that a worker took up, however often it had to come again
    ledger.close()
    counted = ledger.rows("SELECT sum(count) FROM oncegate_tally WHERE what = ?", [What.RECONCILED.value])
    assert counted == [(1,)]


def test_one_bad_key_does_not_stop_the_others(depot: Depot) -> None:
    """Each key is looked at for itself."""

    def fail(event: Any) -> None:
        if event["id"] == 2:
            raise RuntimeError("no luck")

    for number in (1, 2, 3):
        depot.strand(number)
    depot.before_return = fail
    depot.ledger.lapse()
    assert became(depot.reconcile()) == ["finished", "failed again", "finished"]


def test_surfaces_of_other_programs_are_left_to_them(depot: Depot) -> None:
    """A reconciler knows its own process's handlers; others' keys do not crowd out its own."""
    depot.strand(1, surface="theirs")
    depot.strand(2)
    depot.ledger.lapse()
    report = depot.reconcile(entries_max=1)
    assert [(item.surface, item.became) for item in report.looked] == [("bookings", "finished")]
    assert depot.ledger.states() == ["in_flight", "committed"]
    # And the program that knows the other surface finishes it
    assert became(depot.reconcile(depot.process(surface="theirs"))) == ["finished"]


def test_a_run_is_bounded(depot: Depot) -> None:
    """What is left over comes next time, oldest first."""
    for number in range(5):
        depot.strand(number)
    depot.ledger.lapse()
    labels = [[item.label for item in depot.reconcile(entries_max=2).looked] for _ in range(3)]
    assert labels == [["0", "1"], ["2", "3"], ["4"]]


def test_a_stranded_key_keeps_its_tenant(depot: Depot) -> None:
    """I8: recovery runs under the same key, of the same tenant."""
    depot.strand(1, tenant="acme")
    depot.ledger.lapse()
    depot.reconcile()
    assert depot.ledger.rows("SELECT tenant, state FROM oncegate_entries") == [("acme", "committed")]
    assert depot.style.admit(depot.process(), "bookings", {"id": 1}, tenant="acme").replay
    assert not depot.style.admit(depot.process(), "bookings", {"id": 1}).replay


def test_a_stranded_event_is_not_too_late_to_be_finished(ledger: Ledger, style: Style) -> None:
    """E3: its key is known, so the time gate does not judge it again."""
    depot = Depot(ledger, style, occurred_at="at")
    gate = depot.process(DeadAfter("effect.after"))
    event = {"id": 1, "at": from_wall_ms(ledger.clock.wall_ms()).isoformat()}
    with pytest.raises(CrashReached):
        style.admit(gate, "bookings", event)
    ledger.clock.advance(3 * 3600)
    assert became(depot.reconcile()) == ["finished"]


@pytest.mark.parametrize(
    "extra",
    [{"n": 2**70}, {"n": 1e22}, {"n": -0.0}, {"é": {"\U0001f600": 1, "\uffff": [None, True]}}],
    ids=["large", "float", "zero", "unicode"],
)
def test_the_stored_event_is_recognised_as_itself(depot: Depot, extra: dict[str, Any]) -> None:
    """Read back from the ledger it must have the same fingerprint, or it would conflict with itself."""
    with pytest.raises(CrashReached):
        depot.style.admit(depot.process(DeadAfter("effect.after")), "bookings", {"id": 1, **extra})
    depot.ledger.lapse()
    assert became(depot.reconcile()) == ["finished"]


def test_reconcilers_do_not_get_in_each_others_way(depot: Depot) -> None:
    """Taking over is one conditional statement: while one works on a key, another finds nothing to do."""
    second: list[list[str]] = []

    def meanwhile(event: Any) -> None:
        gate = depot.ledger.gate()
        Style("plain").register(gate, "bookings", lambda event, once: "by the other")
        second.append(became(Reconciler(gate).run_once()))

    depot.strand(1)
    depot.before_return = meanwhile
    depot.ledger.lapse()
    assert became(depot.reconcile()) == ["finished"]
    assert second == [[]]


def test_a_gate_without_surfaces_has_nothing_to_reconcile(depot: Depot) -> None:
    """A worker may be started before the handlers are registered."""
    depot.strand(1)
    depot.ledger.lapse()
    assert became(depot.reconcile(depot.ledger.gate())) == []


def test_caretakers_may_be_at_work_before_the_first_arrival(depot: Depot) -> None:
    """There is no ledger yet; there is nothing to complain of either."""
    assert became(depot.reconcile()) == []


def test_what_somebody_else_took_meanwhile_is_busy_or_finished(depot: Depot) -> None:
    """A list is only a list: between reading it and acting on it another one may have been quicker."""
    depot.strand(1)
    depot.ledger.lapse()
    gate = depot.process()
    with gate.engine.store.look() as session:
        (stale,) = session.stranded(10, ["bookings"])

    def recover(on: Gate) -> Any:
        return (
            asyncio.run(on.engine.recover(stale)) if depot.style.is_async else on.engine.recover_sync(stale)
        )

    other = Depot(depot.ledger, Style("plain"))
    seen: list[Any] = []
    depot.before_return = lambda event: seen.append(other.process().engine.recover_sync(stale).verdict)
    assert recover(gate).verdict is Verdict.RUN
    assert seen == [Verdict.BUSY]
    assert recover(depot.process()).verdict is Verdict.REPLAY


def test_a_store_that_is_down_is_told_and_nothing_runs(depot: Depot) -> None:
    """I19: the caller's loop tries again later; no key is half looked at."""
    depot.strand(1)
    depot.ledger.lapse()
    faults = Faults()
    gate = depot.ledger.gate(store=faulty(depot.ledger.gate().engine.store, faults))
    runs: list[Any] = []
    depot.style.register(gate, "bookings", lambda event, once: runs.append(event))
    faults.down = True
    with pytest.raises(StoreUnavailable):
        depot.reconcile(gate)
    assert not runs
    faults.down = False
    assert became(depot.reconcile(gate)) == ["finished"]


def test_a_reconciler_without_a_loop_leaves_async_handlers_alone(ledger: Ledger) -> None:
    """It cannot run them; it must not use up their attempts either."""
    depot = Depot(ledger, Style("async"), attempts_max=2)
    depot.strand(1)
    ledger.lapse()
    for _ in range(3):
        Reconciler(depot.process(), at_once=True).run_once()
        ledger.lapse()
    assert became(depot.reconcile()) == ["finished"]


def test_a_stranded_event_is_finished_under_the_key_it_has(ledger: Ledger, style: Style) -> None:
    """I1: a key of a changed template would be another one, and the downstream would act again."""
    # Given a key that a process of the last version left in flight, after the slot was sold
    depot = Depot(ledger, style)
    depot.strand(1)
    ledger.lapse()
    # When a process of the next version, with another template, reconciles
    newer = Depot(ledger, style, key="order:{id}")
    newer.terminal = depot.terminal
    refused = newer.reconcile()
    assert (refused.finished, depot.terminal.sold) == (0, 1)  # until a person has accepted the template
    accept_template(ledger, "bookings", "order:{id}")
    report = newer.reconcile()
    # Then the entry is finished under the key it has, and nothing is called under another
    assert len(set(depot.terminal.keys)) == 1
    assert depot.terminal.sold == 1
    assert (report.finished, ledger.states()) == (1, ["committed"])


def accept_template(ledger: Ledger, surface: str, key: str) -> None:
    """A person's yes to another key template."""
    with closing(ledger.gate().engine.store.connect()) as session, session.unit():
        kept = session.document(KIND, surface)
        assert kept is not None
        now = LedgerNow(session.now_ticks(), ledger.clock.wall_ms())
        made = rekeyed(read_identity(kept.body), KeyRule(KeyTemplate.parse(key), None), now, OVERLAP_MIN_MS)
        wanted = DocumentChange(KIND, surface, kept.version, made.encoded(), now.wall_ms, "ann", "yes")
        assert session.change_document(wanted)


def test_a_changed_list_of_ignored_fields_does_not_strand_a_key_for_ever(
    ledger: Ledger, style: Style
) -> None:
    """The event is the stored one itself; it cannot conflict with itself."""
    depot = Depot(ledger, style)
    with pytest.raises(CrashReached):
        style.admit(depot.process(DeadAfter("effect.after")), "bookings", {"id": 1, "sent": "now"})
    ledger.lapse()
    newer = Depot(ledger, style, ignore=["sent"])
    newer.terminal = depot.terminal
    assert became(newer.reconcile()) == ["finished"]
    assert depot.terminal.sold == 1


def test_a_key_that_says_nothing_happened_is_tried_again(depot: Depot) -> None:
    """NotApplied is a failure like others to the reconciler."""

    def fail(event: Any) -> None:
        raise NotApplied("later")

    depot.strand(1)
    depot.before_return = fail
    depot.ledger.lapse()
    assert became(depot.reconcile()) == ["failed again"]
    assert depot.ledger.state() == "retryable"


def test_a_worker_says_after_its_runs_that_it_is_there(ledger: Ledger) -> None:
    """At most every 15 s; its name, its surfaces and its interval are what the signal goes by."""
    gate = ledger.gate()
    gate.handler("bookings", key="{id}")(lambda event: None)
    reconciler = Reconciler(gate, every=timedelta(seconds=5))

    def seen() -> list[WorkerStatus]:
        with gate.engine.store.look() as session:
            return list(measure(session, gate.engine.clock).workers)

    reconciler.run_once()
    ledger.clock.advance(10)
    reconciler.run_once()
    (worker,) = seen()
    assert (worker.age_ms, worker.word) == (10_000, WorkerWord(5_000, ("bookings",)))
    ledger.clock.advance(10)
    reconciler.run_once()
    (worker,) = seen()
    assert (worker.age_ms, worker.is_silent) == (0, False)
    ledger.clock.advance(61)
    assert seen()[0].is_silent
