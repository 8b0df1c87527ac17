"""One key, several arrivals at once: exactly one runs, the others are told or wait."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from oncegate import Admission, Busy, Gate, Verdict
from oncegate.crashpoints import CrashPoints
from oncegate.errors import ConfigError
from oncegate.maintenance.reconciler import Reconciler
from oncegate.model.surface import OnBusy
from oncegate.store import EntryFilter
from oncegate.testing import CrashReached, ManualClock
from oncegate.testing.waiting import DEADLINE_SECONDS
from tests.support.gates import LEASE, LEASE_SECONDS, DeadAfter, Ledger, Style, running, until, wait_for

EVENT = {"id": "N-1"}
PLAIN = Style("plain")


class Held:
    """A handler that stays inside until it is let go, from any style."""

    def __init__(self) -> None:
        self.entered, self.leave = threading.Event(), threading.Event()
        self.runs = 0

    def __call__(self, event: Any) -> str:
        self.runs += 1
        self.entered.set()
        wait_for(self.leave)
        return f"run {self.runs}"


@pytest.mark.parametrize("on_busy", ["refuse", "retry_later"])
def test_a_busy_key_is_refused_with_the_time_to_come_back(
    ledger: Ledger, style: Style, on_busy: str
) -> None:
    """While a key is in flight another arrival runs nothing and is told when to try again."""
    # Given a handler that is held inside
    held, gate = Held(), ledger.gate()
    PLAIN.register(gate, "bookings", held, on_busy=on_busy)
    with running(lambda: gate.admit_sync("bookings", EVENT)) as first:
        wait_for(held.entered)
        ledger.clock.advance(60)
        # When the same event arrives, here and at another process
        other = ledger.gate()
        style.register(other, "bookings", lambda event: "second", on_busy=on_busy)
        answer = style.admit(other, "bookings", EVENT)
        held.leave.set()
    # Then it was not run, and was told what is left of the lease
    assert answer.verdict is Verdict.BUSY
    assert answer.retry_after_seconds == LEASE_SECONDS - 60
    with pytest.raises(Busy) as raised:
        answer.result()
    assert raised.value.retry_after_seconds == LEASE_SECONDS - 60
    assert (first[0].verdict, held.runs) == (Verdict.RUN, 1)
    # And once the first is done, it is a replay
    assert style.admit(other, "bookings", EVENT).value == "run 1"


class WaitingClock(ManualClock):
    """A clock on which waiting lets time pass and, the first time, lets something happen."""

    def __init__(self) -> None:
        super().__init__()
        self.waited_seconds = 0.0
        self.meanwhile: list[Any] = []

    def pause(self, seconds: float) -> None:
        """Lets time pass, and what was due meanwhile happen."""
        self.waited_seconds += seconds
        if self.meanwhile:
            self.meanwhile.pop()()
        super().pause(seconds)

    async def pause_async(self, seconds: float) -> None:
        """The same for a task."""
        self.pause(seconds)
        await asyncio.sleep(0)


@pytest.fixture
def waiting_clock(ledger: Ledger) -> WaitingClock:
    """The ledger's clock, replaced by one that shows how long was waited."""
    clock = WaitingClock()
    ledger.clock = clock
    return clock


def test_a_surface_that_waits_answers_with_the_outcome_of_the_first(
    ledger: Ledger, style: Style, waiting_clock: WaitingClock
) -> None:
    """`on_busy="wait"`: the second arrival gets the first one's outcome as a replay."""
    # Given a handler that is held inside, and leaves while the second arrival waits
    held, gate, other = Held(), ledger.gate(), ledger.gate()
    PLAIN.register(gate, "bookings", held, on_busy="wait")
    style.register(other, "bookings", lambda event: "second", on_busy="wait")
    finished = threading.Event()

    def first_arrival() -> Admission:
        try:
            return gate.admit_sync("bookings", EVENT)
        finally:
            finished.set()

    def let_the_first_finish() -> None:
        held.leave.set()
        wait_for(finished)

    waiting_clock.meanwhile.append(let_the_first_finish)
    with running(first_arrival) as first:
        wait_for(held.entered)
        # When the same event arrives
        answer = style.admit(other, "bookings", EVENT)
    # Then it waited for the outcome and ran nothing
    assert (answer.verdict, answer.value) == (Verdict.REPLAY, "run 1")
    assert waiting_clock.waited_seconds > 0
    assert (first[0].verdict, held.runs) == (Verdict.RUN, 1)


def test_waiting_ends_at_its_limit(ledger: Ledger, style: Style, waiting_clock: WaitingClock) -> None:
    """`busy_wait_max` bounds the wait; then the key is simply busy."""
    held, gate, other = Held(), ledger.gate(), ledger.gate()
    PLAIN.register(gate, "bookings", held)
    style.register(other, "bookings", lambda event: "second", on_busy="wait", busy_wait_max="3s")
    with running(lambda: gate.admit_sync("bookings", EVENT)):
        wait_for(held.entered)
        answer = style.admit(other, "bookings", EVENT)
        held.leave.set()
    assert answer.verdict is Verdict.BUSY
    assert waiting_clock.waited_seconds == pytest.approx(3.0, abs=0.01)
    assert held.runs == 1


def test_one_who_waits_for_a_failed_attempt_tries_again(
    ledger: Ledger, style: Style, waiting_clock: WaitingClock
) -> None:
    """The one who waits gets the key when the first attempt fails, and runs it."""
    gate, other = ledger.gate(), ledger.gate()
    entered, leave, finished = threading.Event(), threading.Event(), threading.Event()

    def fails(event, once):
        entered.set()
        wait_for(leave)
        raise RuntimeError("no luck")

    def first_arrival() -> Admission:
        try:
            return gate.admit_sync("bookings", EVENT)
        finally:
            finished.set()

    def let_the_first_fail() -> None:
        leave.set()
        wait_for(finished)

    PLAIN.register(gate, "bookings", fails)
    style.register(other, "bookings", lambda event, once: once.attempt, on_busy="wait")
    waiting_clock.meanwhile.append(let_the_first_fail)
    with running(first_arrival) as first:
        wait_for(entered)
        answer = style.admit(other, "bookings", EVENT)
    assert isinstance(first[0], RuntimeError)
    assert (answer.verdict, answer.value) == (Verdict.RUN, 2)


def run_in_thread(gate: Gate) -> Admission:
    """An arrival from a thread."""
    return gate.admit_sync("bookings", EVENT)


def run_in_task(gate: Gate) -> Admission:
    """An arrival from a task, in a loop of its own."""
    return asyncio.run(gate.admit("bookings", EVENT))


@pytest.mark.parametrize(
    "ways",
    [
        (run_in_thread,) * 8,
        (run_in_task,) * 8,
        (run_in_thread, run_in_task) * 4,
    ],
    ids=["threads", "loops", "threads and loops"],
)
@pytest.mark.parametrize("gates", [1, 2], ids=["one process", "two processes"])
def test_of_many_concurrent_arrivals_exactly_one_runs(ledger: Ledger, ways: Any, gates: int) -> None:
    """A2: the reservation is one conditional statement; losing the race means doing nothing."""
    # Given a handler that stays inside until every other arrival has been answered
    runs: list[str] = []
    answered = threading.Semaphore(0)

    def body(event):
        runs.append("run")
        for _ in range(len(ways) - 1):
            assert answered.acquire(timeout=DEADLINE_SECONDS)
        return "done"

    opened = [ledger.gate() for _ in range(gates)]
    for gate in opened:
        PLAIN.register(gate, "bookings", body)
    start = threading.Barrier(len(ways))

    def arrive(place: int) -> Admission:
        start.wait(DEADLINE_SECONDS)
        try:
            return ways[place](opened[place % gates])  # type: ignore[no-any-return]
        finally:
            answered.release()

    # When they all arrive at once
    with running(*(lambda place=place: arrive(place) for place in range(len(ways)))) as answers:
        pass
    # Then one has run and the rest were told that it is busy
    verdicts = sorted(answer.verdict.value for answer in answers)
    assert verdicts == ["busy"] * (len(ways) - 1) + ["run"]
    assert runs == ["run"]
    assert ledger.states() == ["committed"]


def test_of_many_tasks_of_one_loop_exactly_one_runs(ledger: Ledger) -> None:
    """The same key many times in one batch is decided as many arrivals, of which one wins."""
    gate, runs = ledger.gate(), []

    async def arrivals() -> list[Admission]:
        release = asyncio.Event()

        async def body(event):
            runs.append(event)
            await release.wait()
            return "done"

        gate.handler("bookings", key="{id}")(body)
        tasks = [asyncio.create_task(gate.admit("bookings", EVENT)) for _ in range(20)]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        await until(lambda: sum(task.done() for task in tasks) == 19)
        release.set()
        return await asyncio.gather(*tasks)

    verdicts = sorted(answer.verdict.value for answer in asyncio.run(arrivals()))
    assert verdicts == ["busy"] * 19 + ["run"]
    assert len(runs) == 1


def test_different_keys_do_not_wait_for_each_other(ledger: Ledger, style: Style) -> None:
    """A handler that takes long holds its own key and nothing else."""
    held, gate = Held(), ledger.gate()
    PLAIN.register(gate, "slow", held)
    style.register(gate, "bookings", lambda event: "done")
    with running(lambda: gate.admit_sync("slow", EVENT)):
        wait_for(held.entered)
        answers = [style.admit(gate, "bookings", {"id": number}) for number in range(3)]
        held.leave.set()
    assert [answer.verdict for answer in answers] == [Verdict.RUN] * 3


def _register(gate: Gate, work: Any, **options: Any) -> None:
    gate.handler("bookings", key="{id}", lease=LEASE, on_busy="acknowledge", **options)(work)


def test_a_repeat_of_a_key_in_flight_is_acknowledged_where_the_ledger_keeps_its_body(
    ledger: Ledger,
) -> None:
    """`on_busy="acknowledge"`: the second arrival is accepted at once, and runs nothing."""
    held, gate, other = Held(), ledger.gate(), ledger.gate()
    for one in (gate, other):
        _register(one, lambda event, once: held(event))
    with running(lambda: gate.admit_sync("bookings", EVENT)) as first:
        wait_for(held.entered)
        answer = other.admit_sync("bookings", EVENT)
        other_content = other.admit_sync("bookings", {**EVENT, "box": 2})
        held.leave.set()

    assert (answer.verdict, answer.result(), answer.replay) == (Verdict.ACCEPTED, None, False)
    assert answer.reason == "entry 1 has the same event, and is finished without this arrival"
    assert answer.first_seen_ms == 1_780_000_000_000
    assert other_content.verdict is Verdict.CONFLICT  # only the content that the ledger has is acknowledged
    assert (first[0].verdict, held.runs) == (Verdict.RUN, 1)
    assert other.admit_sync("bookings", EVENT).verdict is Verdict.REPLAY


def test_what_was_acknowledged_is_settled_once_although_the_first_worker_dies(
    ledger: Ledger, style: Style
) -> None:
    """I2: acknowledged is as good as done, whatever becomes of the worker that has the key."""
    sold: dict[str, int] = {}

    def claim_slot(idempotency_key: str) -> str:
        sold[idempotency_key] = sold.get(idempotency_key, 0) + 1
        return "slot"

    def process(crashpoints: CrashPoints | None = None) -> Gate:
        gate = ledger.gate(crashpoints)
        terminal = gate.downstream("terminal", honours_key="7d")
        options = {"on_busy": "acknowledge"}
        style.register(
            gate, "bookings", lambda e, once: (yield once.effect(terminal, claim_slot)), **options
        )
        return gate

    with pytest.raises(CrashReached):
        style.admit(process(DeadAfter("effect.before")), "bookings", EVENT)
    survivor = process()
    assert style.admit(survivor, "bookings", EVENT).verdict is Verdict.ACCEPTED
    ledger.lapse()
    reconciler = Reconciler(survivor, at_once=True)
    if style.is_async:
        asyncio.run(reconciler.run_once_async())
    else:
        reconciler.run_once()

    assert (ledger.state(), len(sold)) == ("committed", 1)


def test_a_caretaker_is_never_told_that_a_busy_key_is_acknowledged(ledger: Ledger) -> None:
    """What it wants to finish is not finished by being in flight elsewhere."""
    held, gate, other = Held(), ledger.gate(), ledger.gate()
    for one in (gate, other):
        _register(one, lambda event, once: held(event))
    with running(lambda: gate.admit_sync("bookings", EVENT)):
        wait_for(held.entered)
        try:
            with other.engine.store.look() as session:
                (entry,) = session.entries(EntryFilter(), None, 2)
                detail = session.detail(entry.entry_id)
            assert detail is not None
            assert other.engine.recover_sync(detail).verdict is Verdict.BUSY
        finally:
            held.leave.set()


@pytest.mark.parametrize(
    ("options", "work", "words"),
    [
        ({}, lambda event: None, "recovery cannot run an opaque handler again"),
        ({"same_database": True}, lambda event, once: None, "keeps nothing of an event before"),
        ({"caller_retries": True}, lambda event, once: None, "only the caller's next try"),
        ({"mode": "accept"}, lambda event, once: None, "acknowledges each event at once already"),
    ],
)
def test_what_recovery_could_not_finish_is_not_acknowledged(
    ledger: Ledger, options: dict[str, Any], work: Any, words: str
) -> None:
    """Refused when the surface is registered, with the reason."""
    with pytest.raises(ConfigError, match=words):
        _register(ledger.gate(), work, **options)


def test_a_function_that_returns_a_value_cannot_acknowledge(ledger: Ledger) -> None:
    with pytest.raises(ConfigError, match="an acknowledgement has none"):
        ledger.gate().once(key="{order}", on_busy="acknowledge")(  # type: ignore[arg-type]  # on purpose
            lambda order: order
        )


def test_an_opaque_handler_may_acknowledge_where_its_downstream_honours_the_key(ledger: Ledger) -> None:
    gate = ledger.gate()
    _register(
        gate, lambda event, idempotency_key="": None, downstream=gate.downstream("t", honours_key="7d")
    )
    assert gate.engine.surface("bookings").rule.on_busy is OnBusy.ACKNOWLEDGE
