"""The reconciler's manners: paced for each downstream, patient with one that is down."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from oncegate import Failed, Gate, NotApplied
from oncegate.crashpoints import CrashPoints
from oncegate.maintenance.reconciler import Reconciler, Report
from oncegate.testing import CrashReached
from oncegate.testing.waiting import DEADLINE_SECONDS
from tests.support.gates import DeadAfter, Ledger, Style, Terminal

ASYNC, PLAIN = Style("async"), Style("plain")


class Yard:
    """Two terminals, each behind a surface of its own; what their calls do is up to the test."""

    def __init__(self, ledger: Ledger, style: Style) -> None:
        self.ledger, self.style = ledger, style
        self.calls: dict[str, int] = {"north": 0, "south": 0}
        self.acts: dict[str, Callable[[], Any]] = {}
        self.options: dict[str, Any] = {}

    def process(self, crashpoints: CrashPoints | None = None) -> Gate:
        """Starts a process."""
        gate = self.ledger.gate(crashpoints)
        for name in ("north", "south"):
            self._register(gate, name)
        return gate

    def _register(self, gate: Gate, name: str) -> None:
        downstream = gate.downstream(name, honours_key="7d")

        def claim(idempotency_key: str) -> Any:
            self.calls[name] += 1
            return self.acts.get(name, lambda: {"id": "slot"})()

        def book(event, once):
            return (yield once.effect(downstream, self.style.function(claim)))

        self.style.register(gate, name, book, **self.options)

    def strand(self, name: str, *numbers: int) -> None:
        """Leaves keys in flight whose workers died before their calls."""
        for number in numbers:
            with pytest.raises(CrashReached):
                self.style.admit(self.process(DeadAfter("reserve.after")), name, {"id": number})

    def reconciler(self, **options: Any) -> Reconciler:
        """A reconciler in a process of its own."""
        return Reconciler(self.process(), **options)

    def run(self, reconciler: Reconciler) -> list[tuple[str, str]]:
        """Runs it once and tells what became of each surface's keys."""
        report = asyncio.run(reconciler.run_once_async()) if self.style.is_async else reconciler.run_once()
        return [(item.surface, item.became) for item in report.looked]


@pytest.fixture
def yard(ledger: Ledger, style: Style) -> Yard:
    """A yard of the given style."""
    return Yard(ledger, style)


def down() -> Any:
    raise ConnectionRefusedError("connection refused")


def test_a_downstream_that_is_down_is_left_alone_and_others_go_on(yard: Yard) -> None:
    """One refused connection, then a rest that grows; nothing is taken over meanwhile."""
    yard.strand("north", 1, 2, 3, 4, 5, 6)
    yard.strand("south", 7)
    yard.ledger.lapse()
    yard.acts["north"] = down
    reconciler = yard.reconciler(at_once_per_surface=1)
    # When a run meets it
    seen = yard.run(reconciler)
    # Then it is called once, not six times, and the other downstream's key is finished
    assert (yard.calls["north"], ("south", "finished") in seen) == (1, True)
    assert seen.count(("north", "failed again")) == 1
    assert seen.count(("north", "waits")) == 5
    # And during its rest it is not called
    yard.ledger.clock.advance(0.9)
    assert set(yard.run(reconciler)) == {("north", "waits")}
    assert yard.calls["north"] == 1
    # When the rest is over one call finds out that it is still down, and the next rest is longer
    yard.ledger.clock.advance(0.2)
    yard.run(reconciler)
    assert yard.calls["north"] == 2
    yard.ledger.clock.advance(1.9)
    yard.run(reconciler)
    assert yard.calls["north"] == 2
    # When it is back, all are finished
    yard.acts.clear()
    yard.ledger.clock.advance(30)
    yard.run(reconciler)
    yard.ledger.clock.advance(30)
    yard.run(reconciler)
    assert set(yard.ledger.states()) == {"committed"}


def test_many_keys_of_a_downstream_that_is_down_do_not_hide_the_others(yard: Yard) -> None:
    """The oldest come first, and there are more of them than one run looks at (A6, I2)."""
    yard.strand("north", *range(9))
    yard.strand("south", 100)
    yard.ledger.lapse()
    yard.acts["north"] = down
    reconciler = yard.reconciler(entries_max=4)
    # When the first run has met it
    first = yard.run(reconciler)
    # Then the other downstream's key was finished by that run or is by the next, while the rest lasts
    assert ("south", "finished") in first + yard.run(reconciler)
    # And what waits is told, as many as a run may look at
    assert yard.run(reconciler) == [("north", "waits")] * 4


def test_events_that_only_their_callers_try_again_do_not_hide_the_others(
    ledger: Ledger, style: Style
) -> None:
    """They are never due here, however many and however old (I2)."""
    gate = ledger.gate()

    def fail(event, once):
        yield from ()
        raise NotApplied("not now")

    style.register(gate, "called", fail, caller_retries=True)
    style.register(gate, "queued", fail)
    for surface, number in [("called", number) for number in range(9)] + [("queued", 100)]:
        with pytest.raises(NotApplied):
            style.admit(gate, surface, {"id": number})
    ledger.clock.advance(60)
    reconciler = Reconciler(gate, entries_max=4, at_once=True)
    report = asyncio.run(reconciler.run_once_async()) if style.is_async else reconciler.run_once()
    assert [(item.surface, item.became) for item in report.looked] == [("queued", "failed again")]


def test_async_handlers_that_a_thread_cannot_run_are_told_of_once(
    ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody who writes a plain `with gate.worker()` learns what it leaves alone."""
    gate = Yard(ledger, ASYNC).process()
    reconciler = Reconciler(gate)
    for _ in range(2):
        asyncio.run(reconciler.run_once_apart())
    told = [record.getMessage() for record in caplog.records if "async with" in record.getMessage()]
    assert [text.split(" is async")[0] for text in told] == [
        "the handler of north",
        "the handler of south",
    ]
    # And nobody is told where the event loop is there
    caplog.clear()
    asyncio.run(Reconciler(gate).run_once_async())
    assert not caplog.records


def test_waiting_for_a_downstream_uses_up_no_attempts(yard: Yard) -> None:
    """A key that is refused its turn after it was taken over is as it was before."""
    yard.strand("north", 1, 2)
    yard.ledger.lapse()
    # Given a reconciler that may make one second call a second, and does not know the surface yet
    reconciler = yard.reconciler(rate_per_second=1)
    seen = yard.run(reconciler)
    assert sorted(seen) == [("north", "finished"), ("north", "waits")]
    rows = yard.ledger.rows("SELECT state, attempt FROM oncegate_entries ORDER BY state")
    assert rows in ([("committed", 2), ("in_flight", 1)], [("committed", 2), ("retryable", 1)])
    # Then the second one comes a second later
    yard.ledger.clock.advance(1)
    assert yard.run(reconciler) == [("north", "finished")]


def test_the_pace_is_kept_for_each_downstream(yard: Yard) -> None:
    """So many a second at one, as many again at the other."""
    yard.strand("north", *range(6))
    yard.strand("south", *range(6))
    yard.ledger.lapse()
    reconciler = yard.reconciler(rate_per_second=2)
    for calls in (2, 4, 6):
        yard.run(reconciler)
        assert yard.calls == {"north": calls, "south": calls}
        yard.ledger.clock.advance(1)


def test_a_failure_that_the_downstream_itself_gives_is_an_answer(yard: Yard) -> None:
    """A refusal is final for its event and says nothing about the next."""
    yard.strand("north", 1, 2, 3, 4, 5)
    yard.ledger.lapse()

    def refuse() -> Any:
        raise Failed("no such container")

    yard.acts["north"] = refuse
    assert yard.run(yard.reconciler()) == [("north", "failed for good")] * 5


def test_arrivals_are_not_held_up_by_what_the_reconciler_has_learnt(yard: Yard) -> None:
    """Only recovery waits its turn; a sender that tries again is let through as before."""
    yard.strand("north", 1, 2, 3)
    yard.ledger.lapse()
    yard.acts["north"] = down
    yard.run(yard.reconciler())
    yard.acts.clear()
    assert yard.style.admit(yard.process(), "north", {"id": 1}).value == {"id": "slot"}


def test_a_call_that_hangs_holds_up_its_own_surface_only(ledger: Ledger) -> None:
    """Four at a time hang; the other surface's keys are finished, and so is the run."""
    yard = Yard(ledger, ASYNC)
    yard.strand("north", *range(6))
    yard.strand("south", *range(3))
    ledger.lapse()

    async def story() -> list[Report]:
        released = asyncio.Event()
        yard.acts["north"] = lambda: _wait(released)
        reconciler = yard.reconciler(run_within=timedelta(seconds=3))  # on a busy machine, too
        first = await reconciler.run_once_async()
        released.set()
        reports = [first]
        async with asyncio.timeout(DEADLINE_SECONDS):
            while sum(report.finished for report in reports) < 9:
                reports.append(await reconciler.run_once_async())
        return reports

    async def _wait(released: asyncio.Event) -> Any:
        await released.wait()
        return {"id": "slot"}

    yard.style = _Awaiting("async")
    reports = asyncio.run(story())
    # Then the first run ended without the hanging ones, which the next one tells of
    assert [(item.surface, item.became) for item in reports[0].looked] == [("south", "finished")] * 3
    assert not reports[0].is_complete
    assert sum(report.finished for report in reports) == 9
    assert set(ledger.states()) == {"committed"}


class _Awaiting(Style):
    """Async functions that await what they are given."""

    def function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        async def run(idempotency_key: str) -> Any:
            answer = function(idempotency_key)
            return await answer if asyncio.iscoroutine(answer) else answer

        return run


@pytest.mark.parametrize("kind", ["async", "plain"])
def test_a_recovery_that_never_ends_is_given_up_after_the_surfaces_time_limit(
    ledger: Ledger, kind: str
) -> None:
    """Recorded as an attempt that ended without an answer; the next one asks again, as after any crash."""
    yard = Yard(ledger, _Awaiting("async") if kind == "async" else PLAIN)
    yard.options = {"time_limit": "1s"}
    yard.strand("north", 1)
    ledger.lapse()
    released = threading.Event()

    async def hang() -> Any:
        await asyncio.wait_for(asyncio.Event().wait(), DEADLINE_SECONDS)

    yard.acts["north"] = hang if kind == "async" else lambda: released.wait(DEADLINE_SECONDS)
    reconciler = yard.reconciler(run_within=None)
    report = asyncio.run(reconciler.run_once_async())
    released.set()
    assert [item.became for item in report.looked] == ["given up for now"]
    assert (ledger.state(), ledger.attempt()) == ("retryable", 2)
    assert "no end within the surface's time limit" in ledger.reason()


def test_a_recovery_is_cancelled_with_its_worker(ledger: Ledger) -> None:
    """It is recorded as any cancelled attempt is, and nothing goes on in the user's loop."""
    yard = Yard(ledger, _Awaiting("async"))
    yard.strand("north", 1)
    ledger.lapse()

    async def story() -> int:
        entered = asyncio.Event()

        async def hang() -> Any:
            entered.set()
            await asyncio.wait_for(asyncio.Event().wait(), DEADLINE_SECONDS)

        yard.acts["north"] = hang
        gate = yard.process()
        async with gate.worker(only=["recovery"], reconcile_every="1ms", grace="20ms"):
            async with asyncio.timeout(DEADLINE_SECONDS):
                await entered.wait()
        return len(asyncio.all_tasks())

    assert asyncio.run(story()) == 1
    assert (ledger.state(), ledger.reason()) == ("retryable", "CancelledError: the reconciler is stopping")


@pytest.mark.slow
def test_stopping_leaves_the_rest_for_the_next_run(yard: Yard) -> None:
    """What is under way is ended properly, and no other key is begun."""
    yard.strand("north", 1, 2, 3)
    yard.ledger.lapse()
    stopping: list[bool] = []

    def act() -> Any:
        stopping.append(True)
        return {"id": "slot"}

    yard.acts["north"] = act
    reconciler = yard.reconciler(at_once_per_surface=1)
    if yard.style.is_async:
        report = asyncio.run(reconciler.run_once_async(lambda: bool(stopping)))
    else:
        report = reconciler.run_once(lambda: bool(stopping))
    assert (report.finished, report.is_complete) == (1, False)
    assert yard.ledger.states().count("in_flight") == 2


NONSENSE = [True, False, "", b"", {}, ConnectionError("returned, not raised"), [True]]


@pytest.mark.parametrize("answer", NONSENSE, ids=repr)
def test_a_probe_that_answers_nonsense_is_not_believed(ledger: Ledger, style: Style, answer: Any) -> None:
    """Neither as found nor as not found: a person looks, and the reason says what was answered."""
    terminal = Terminal()

    def process(crashpoints: CrashPoints | None = None) -> Gate:
        gate = ledger.gate(crashpoints)
        ect = gate.downstream("ect", probe=style.function(lambda key: answer))

        def book(event, once):
            return (yield once.effect(ect, style.function(terminal.claim), "X"))["id"]

        style.register(gate, "bookings", book)
        return gate

    with pytest.raises(CrashReached):
        style.admit(process(DeadAfter("effect.after")), "bookings", {"id": 1})
    ledger.clock.advance(3600)
    reconciler = Reconciler(process(), at_once=True)
    report = asyncio.run(reconciler.run_once_async()) if style.is_async else reconciler.run_once()
    assert [item.became for item in report.looked] == ["left to a person"]
    assert (ledger.state(), terminal.sold) == ("unknown", 1)
    assert "the probe of ect answered" in ledger.reason()
