"""After a crash: what the downstream can do decides between calling again, asking, waiting and a person."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from oncegate import Downstream, Gate, NotApplied, OutcomeUnknown, Verdict
from oncegate.crashpoints import CrashPoints
from oncegate.gate.runtime.recovery_rate_limiter import RecoveryPace, current_pace
from oncegate.model.keys import Key
from oncegate.store import LogKind
from oncegate.testing import ArmedCrashPoints, CrashReached
from tests.support.gates import LEASE_SECONDS, DeadAfter, Ledger, Style, Terminal

EVENT = {"id": "N-1", "equipment": "MSKU1234565"}

# Before the settlement is committed, which is the third commit of a process that meets a step at first.
UNSETTLED = [
    ("reserve.after", 1),
    ("effect.before", 1),
    ("effect.after", 1),
    ("step.after", 1),
    ("settle.before", 1),
    ("commit.before", 3),
]
SETTLED = [("commit.after", 3), ("settle.after", 1)]

Declare = Callable[[Gate], Downstream]


class Scene:
    """Processes that book a slot at one terminal, one after the other."""

    def __init__(
        self, ledger: Ledger, style: Style, terminal: Terminal, declare: Declare, **options: Any
    ) -> None:
        self.ledger, self.style, self.terminal = ledger, style, terminal
        self._declare, self._options = declare, options

    def process(self, crashpoints: CrashPoints | None = None) -> Gate:
        """Starts another process."""
        gate, style = self.ledger.gate(crashpoints), self.style
        downstream = self._declare(gate)

        def book(event, once):
            slot = yield once.effect(downstream, style.function(self.terminal.claim), event["equipment"])
            return slot["id"]

        style.register(gate, "bookings", book, **self._options)
        return gate

    def arrive(self, crashpoints: CrashPoints | None = None) -> Any:
        """An arrival at a process of its own."""
        return self.style.admit(self.process(crashpoints), "bookings", EVENT)

    def crash(self, point: str, occurrence: int = 1) -> None:
        """An arrival whose process dies at a crash point."""
        crashpoints = DeadAfter(point, occurrence)
        with pytest.raises(CrashReached):
            self.arrive(crashpoints)
        assert crashpoints.is_dead


@pytest.fixture
def honouring(ledger: Ledger, style: Style) -> Scene:
    """A terminal that honours our key for a week."""
    terminal = Terminal(honours_key=True)
    return Scene(ledger, style, terminal, lambda gate: gate.downstream("ect", honours_key="7d"))


@pytest.fixture
def askable(ledger: Ledger, style: Style) -> Scene:
    """A terminal that knows nothing of keys when called, but can be asked what a key owns."""
    terminal = Terminal()
    find = style.function(terminal.find)
    return Scene(ledger, style, terminal, lambda gate: gate.downstream("ect", probe=find))


@pytest.fixture
def neither(ledger: Ledger, style: Style) -> Scene:
    """A terminal that can do nothing about repeats."""
    return Scene(ledger, style, Terminal(), lambda gate: gate.downstream("ect"))


@pytest.mark.parametrize(("point", "occurrence"), UNSETTLED, ids=str)
def test_a_downstream_that_honours_the_key_is_called_again_with_it(
    honouring: Scene, point: str, occurrence: int
) -> None:
    """I1, I6: whatever point the crash was at, the key owns one slot, and the same key is sent."""
    # Given a process that died before its outcome was recorded
    honouring.crash(point, occurrence)
    assert honouring.ledger.state() == "in_flight"
    # When the event arrives before the lease has lapsed, it is only busy
    assert honouring.arrive().verdict is Verdict.BUSY
    # When it arrives after that, it is finished with the same key
    honouring.ledger.lapse()
    answer = honouring.arrive()
    assert answer.verdict is Verdict.RUN
    assert honouring.terminal.sold == 1
    assert len(set(honouring.terminal.keys)) == 1
    assert honouring.arrive().value == answer.value
    # And the log tells of the recovery and of the commit, once each
    assert honouring.ledger.log_kinds() == [LogKind.RECOVERED, LogKind.COMMITTED]


@pytest.mark.parametrize(("point", "occurrence"), SETTLED, ids=str)
def test_a_crash_after_the_commit_leaves_a_replay(honouring: Scene, point: str, occurrence: int) -> None:
    """I3: what is committed is committed, though the caller never heard of it."""
    honouring.crash(point, occurrence)
    assert honouring.ledger.state() == "committed"
    assert honouring.arrive().verdict is Verdict.REPLAY
    assert honouring.terminal.sold == len(honouring.terminal.keys) == 1


def test_past_the_horizon_of_the_key_a_person_decides(ledger: Ledger, style: Style) -> None:
    """A downstream that has forgotten our key would act a second time."""
    # Given a terminal that remembers keys for an hour, and a crash after the slot was sold
    terminal = Terminal(honours_key=True)
    scene = Scene(ledger, style, terminal, lambda gate: gate.downstream("ect", honours_key="1h"))
    scene.crash("effect.after")
    # When the event comes back an hour later
    ledger.clock.advance(3600)
    with pytest.raises(OutcomeUnknown, match="cannot be asked"):
        scene.arrive()
    # Then it was not called again, and stands in front of a person
    assert (len(terminal.keys), ledger.state()) == (1, "unknown")
    assert scene.arrive().verdict is Verdict.HOLD


def test_just_before_the_horizon_it_is_still_called_again(ledger: Ledger, style: Style) -> None:
    """The horizon is counted from the first reservation."""
    terminal = Terminal(honours_key=True)
    scene = Scene(ledger, style, terminal, lambda gate: gate.downstream("ect", honours_key="1h"))
    scene.crash("effect.after")
    ledger.clock.advance(3599)
    assert scene.arrive().verdict is Verdict.RUN
    assert (len(terminal.keys), terminal.sold) == (2, 1)


def test_recovery_that_has_had_its_share_calls_nothing(ledger: Ledger, style: Style) -> None:
    """A second call waits for its turn, also where no downstream was ever down."""
    terminal = Terminal(honours_key=True)
    scene = Scene(ledger, style, terminal, lambda gate: gate.downstream("ect", honours_key="1h"))
    scene.crash("effect.after")
    ledger.lapse()
    token = current_pace.set(RecoveryPace(ledger.clock.ticks_ms, rate_per_second=0))
    try:
        with pytest.raises(NotApplied, match="had its share"):
            scene.arrive()
    finally:
        current_pace.reset(token)
    assert (len(terminal.keys), ledger.state()) == (1, "retryable")


def test_the_horizon_is_not_moved_by_attempts_in_between(ledger: Ledger, style: Style) -> None:
    """Each crash and each retry leaves the first call as old as it is."""
    terminal = Terminal(honours_key=True)
    scene = Scene(ledger, style, terminal, lambda gate: gate.downstream("ect", honours_key="1h"))
    scene.crash("effect.after")
    ledger.clock.advance(1800)
    scene.crash("effect.after")
    ledger.clock.advance(1800)
    with pytest.raises(OutcomeUnknown):
        scene.arrive()
    assert len(terminal.keys) == 2


@pytest.mark.parametrize("step", [-7200, 365 * 86400], ids=["back two hours", "on a year"])
def test_a_wrong_wall_clock_only_makes_recovery_more_careful(
    ledger: Ledger, style: Style, step: float
) -> None:
    """I15: it may send an event to a person, it never makes a call that was not allowed."""
    terminal = Terminal(honours_key=True)
    scene = Scene(ledger, style, terminal, lambda gate: gate.downstream("ect", honours_key="1h"))
    scene.crash("effect.after")
    ledger.clock.step_wall(step)
    ledger.lapse()
    if step > 0:
        with pytest.raises(OutcomeUnknown):
            scene.arrive()
    else:
        assert scene.arrive().verdict is Verdict.RUN
        # And a clock set back does not make a key look younger than it is
    assert terminal.sold == 1


def test_a_clock_set_back_does_not_stretch_the_horizon(ledger: Ledger, style: Style) -> None:
    """I15: the age of a key is at least what the ledger's own time says."""
    terminal = Terminal(honours_key=True)
    scene = Scene(ledger, style, terminal, lambda gate: gate.downstream("ect", honours_key="1h"))
    scene.crash("effect.after")
    ledger.clock.advance(3601)
    ledger.clock.step_wall(-7200)
    with pytest.raises(OutcomeUnknown):
        scene.arrive()
    assert len(terminal.keys) == 1


@pytest.mark.parametrize(("point", "occurrence"), UNSETTLED[2:], ids=str)
def test_what_the_probe_finds_is_finished_without_a_second_call(
    askable: Scene, point: str, occurrence: int
) -> None:
    """A6: no second resource for a key that has one; the found result goes on as if just returned."""
    askable.crash(point, occurrence)
    askable.ledger.lapse()
    answer = askable.arrive()
    assert (answer.verdict, answer.value, answer.resource) == (
        Verdict.RUN,
        "MSKU1234565-1",
        "MSKU1234565-1",
    )
    assert len(askable.terminal.keys) == 1
    assert askable.arrive().value == answer.value


@pytest.mark.parametrize("point", ["reserve.after", "effect.before"])
def test_what_the_probe_does_not_find_is_called_once_no_request_can_be_under_way(
    askable: Scene, point: str
) -> None:
    """ "Not there" is only an answer when nothing sent earlier can still arrive."""
    # Given a process that died before the slot was sold
    askable.crash(point)
    # When the event comes back at the moment the lease has lapsed
    askable.ledger.lapse()
    with pytest.raises(NotApplied, match="may still be under way"):
        askable.arrive()
    # Then nothing was called
    assert (askable.terminal.keys, askable.ledger.state()) == ([], "retryable")
    # When it comes back just before the request's life is over, still nothing is called
    askable.ledger.clock.advance(58)
    with pytest.raises(NotApplied):
        askable.arrive()
    assert askable.terminal.keys == []
    # When its life is over, it is called
    askable.ledger.clock.advance(1)
    assert askable.arrive().verdict is Verdict.RUN
    assert askable.terminal.sold == 1


def test_a_request_that_arrives_late_is_found_and_not_repeated(askable: Scene) -> None:
    """Why the wait: the request of the dead process may reach the downstream after the question."""
    askable.crash("effect.before")
    askable.ledger.lapse()
    with pytest.raises(NotApplied):
        askable.arrive()
    # Given that the dead process's request gets there now
    ((key,),) = askable.ledger.rows("SELECT key FROM oncegate_entries")
    askable.terminal.claim("MSKU1234565", Key.from_text(key).step("claim"))
    # When the event comes back after the request's life
    askable.ledger.clock.advance(60)
    answer = askable.arrive()
    # Then the slot it bought is taken
    assert (answer.value, askable.terminal.sold) == ("MSKU1234565-1", 1)


def test_waiting_for_earlier_requests_uses_up_no_attempts(askable: Scene) -> None:
    """A6: settled with no human, however often the provider repeats the event meanwhile."""
    askable.crash("effect.before")
    askable.ledger.lapse()
    for _ in range(12):
        askable.ledger.clock.advance(4)
        with pytest.raises(NotApplied):
            askable.arrive()
    askable.ledger.clock.advance(60)
    assert askable.arrive().verdict is Verdict.RUN


def test_a_key_that_owns_two_resources_is_held(askable: Scene) -> None:
    """A9: two resources for one key is nothing to choose from; a person must look."""
    askable.crash("effect.after")
    askable.terminal.claim("MSKU1234565", askable.terminal.keys[0])
    askable.ledger.lapse()
    with pytest.raises(OutcomeUnknown, match="holds 2 resources"):
        askable.arrive()
    assert askable.ledger.state() == "held"
    assert askable.arrive().verdict is Verdict.HOLD
    assert len(askable.terminal.keys) == 2


class Berth:
    """What a client library returns: it shows an id, and cannot be stored."""

    def __init__(self, number: int) -> None:
        self.id = f"S-{number}"


@pytest.mark.parametrize(("second", "state"), [(1, "committed"), (2, "held")])
def test_a_second_call_with_the_key_that_hands_out_something_else_is_held(
    ledger: Ledger, style: Style, second: int, state: str
) -> None:
    """A9: a downstream that said it honours keys has sold two slots for one, and somebody must know."""
    gate, answers, failures = ledger.gate(), [1, second], [NotApplied("not now")]
    ect = gate.downstream("ect", honours_key="7d")

    def claim(idempotency_key):
        return Berth(answers.pop(0))

    def body(event, once):
        slot = yield once.effect(ect, style.function(claim))
        if failures:
            raise failures.pop()
        return slot.id

    style.register(gate, "bookings", body)
    with pytest.raises(NotApplied):
        style.admit(gate, "bookings", {"id": 1})
    # When it is called again, because what it returned could not be kept
    if state == "held":
        with pytest.raises(OutcomeUnknown, match=r"holds 2 resources for claim: S-1 and S-2"):
            style.admit(gate, "bookings", {"id": 1})
    else:
        assert style.admit(gate, "bookings", {"id": 1}).value == "S-1"
    assert (ledger.state(), answers) == (state, [])
    with gate.engine.store.look() as session:
        kinds = [item.reason for item in session.waiting()]
    assert kinds == (["two_resources"] if state == "held" else [])


def test_a_probe_that_fails_is_asked_again(ledger: Ledger, style: Style) -> None:
    """No answer is not an answer: nothing is called until the downstream has been heard."""
    # Given a crash after the slot was sold, and a probe that fails twice
    terminal, failures = Terminal(), [ConnectionError("down"), ConnectionError("down")]

    def find(key):
        if failures:
            raise failures.pop()
        return terminal.find(key)

    probe = style.function(find)
    scene = Scene(ledger, style, terminal, lambda gate: gate.downstream("ect", probe=probe))
    scene.crash("effect.after")
    ledger.lapse()
    for _ in range(2):
        with pytest.raises(ConnectionError):
            scene.arrive()
        assert ledger.state() == "retryable"
    # When it answers
    answer = scene.arrive()
    # Then the slot is found
    assert (answer.value, len(terminal.keys)) == ("MSKU1234565-1", 1)


def probes_of(ledger: Ledger) -> list[str]:
    """What the history says of questions to a downstream."""
    rows = ledger.rows("SELECT note FROM oncegate_log WHERE kind = 0 ORDER BY position")
    return [str(note) for (note,) in rows]


def test_what_a_probe_found_stands_in_the_history(askable: Scene) -> None:
    """E5: reserved, crashed, asked, settled: the answer can be read later."""
    askable.crash("effect.after")
    askable.ledger.lapse()
    askable.arrive()
    kinds = [LogKind.RECOVERED, LogKind.PROBED, LogKind.COMMITTED]
    assert askable.ledger.log_kinds() == kinds
    assert probes_of(askable.ledger) == ["asked ect about claim: holds MSKU1234565-1"]


def test_what_a_probe_did_not_find_stands_in_the_history(askable: Scene) -> None:
    """E5: first with the reason why nothing was called yet, then before the call."""
    askable.crash("effect.before")
    askable.ledger.lapse()
    with pytest.raises(NotApplied, match="asked, nothing found"):
        askable.arrive()
    assert askable.ledger.log_kinds() == [LogKind.RECOVERED, LogKind.RETRYABLE]
    askable.ledger.clock.advance(60)
    askable.arrive()
    assert probes_of(askable.ledger) == ["asked ect about claim: nothing found; it is called now"]


def test_a_probe_without_an_answer_stands_in_the_history(ledger: Ledger, style: Style) -> None:
    """E5: a failed attempt shows that it failed while asking, and nothing was called."""
    failures = [ConnectionError("down\nfor good\0")]

    def find(key):
        raise failures.pop()

    scene = Scene(
        ledger, style, Terminal(), lambda gate: gate.downstream("ect", probe=style.function(find))
    )
    scene.crash("effect.after")
    ledger.lapse()
    with pytest.raises(ConnectionError):
        scene.arrive()
    assert ledger.log_kinds() == [LogKind.RECOVERED, LogKind.PROBED, LogKind.RETRYABLE]
    assert probes_of(ledger) == ["asked ect about claim: no answer, ConnectionError: down for good"]


@pytest.mark.parametrize("answer", [None, [], ()], ids=str)
def test_a_probe_may_say_nothing_in_several_ways(ledger: Ledger, style: Style, answer: Any) -> None:
    """None and an empty list both mean that the key owns nothing."""
    terminal = Terminal()
    scene = Scene(ledger, style, terminal, lambda gate: gate.downstream("ect", probe=lambda key: answer))
    scene.crash("effect.before")
    ledger.clock.advance(LEASE_SECONDS + 60)
    assert scene.arrive().verdict is Verdict.RUN


def test_a_probe_may_return_the_resource_itself(ledger: Ledger, style: Style) -> None:
    """A list of one and the one itself are the same answer."""
    terminal = Terminal()

    def find(key):
        owned = terminal.find(key)
        return owned[0] if owned else None

    probe = style.function(find)
    scene = Scene(ledger, style, terminal, lambda gate: gate.downstream("ect", probe=probe))
    scene.crash("effect.after")
    ledger.lapse()
    assert (scene.arrive().value, len(terminal.keys)) == ("MSKU1234565-1", 1)


@dataclass
class Slot:
    id: str


def test_a_probe_may_answer_in_plain_json(ledger: Ledger, style: Style) -> None:
    """What it finds becomes what the call would have returned: the handler does not see a difference."""
    sold: list[str] = []

    def claim(equipment: str) -> Slot:
        sold.append(equipment)
        return Slot(f"{equipment}-1")

    def find(key):
        return {"id": f"{sold[0]}-1"} if sold else None

    def process(crashpoints: CrashPoints | None = None) -> Gate:
        gate = ledger.gate(crashpoints)
        ect = gate.downstream("ect", probe=style.function(find))

        def book(event, once):
            slot = yield once.effect(ect, style.function(claim), "X")
            return slot.id

        style.register(gate, "bookings", book)
        return gate

    with pytest.raises(CrashReached):
        style.admit(process(DeadAfter("effect.after")), "bookings", EVENT)
    ledger.lapse()
    assert style.admit(process(), "bookings", EVENT).value == "X-1"
    assert sold == ["X"]


def test_past_the_horizon_a_downstream_that_can_be_asked_is_asked(ledger: Ledger, style: Style) -> None:
    """Honouring keys for an hour and answering questions: after the hour, the question."""
    terminal = Terminal()
    probe = style.function(terminal.find)
    scene = Scene(
        ledger, style, terminal, lambda gate: gate.downstream("ect", honours_key="1h", probe=probe)
    )
    scene.crash("effect.after")
    ledger.clock.advance(3600)
    assert (scene.arrive().value, len(terminal.keys)) == ("MSKU1234565-1", 1)


@pytest.mark.parametrize("point", ["start.after", "effect.before", "effect.after"])
def test_a_started_call_that_nobody_can_tell_about_goes_to_a_person(neither: Scene, point: str) -> None:
    """A4: once its start is recorded, an unrepeatable call is never made again."""
    neither.crash(point)
    called = len(neither.terminal.keys)
    neither.ledger.lapse()
    with pytest.raises(OutcomeUnknown, match="cannot be asked about"):
        neither.arrive()
    assert neither.ledger.state() == "unknown"
    neither.ledger.clock.advance(86400)
    assert neither.arrive().verdict is Verdict.HOLD
    assert len(neither.terminal.keys) == called


@pytest.mark.parametrize(("point", "occurrence"), [("reserve.after", 1), ("commit.before", 2)], ids=str)
def test_a_call_whose_start_was_never_recorded_is_made(neither: Scene, point: str, occurrence: int) -> None:
    """The start is recorded before the call, so without the record there was no call."""
    neither.crash(point, occurrence)
    assert neither.terminal.keys == []
    neither.ledger.lapse()
    assert neither.arrive().verdict is Verdict.RUN
    assert len(neither.terminal.keys) == 1


@pytest.mark.parametrize(("point", "occurrence"), [("step.after", 1), ("settle.before", 1)], ids=str)
def test_a_finished_unrepeatable_call_is_finished_after_a_crash(
    neither: Scene, point: str, occurrence: int
) -> None:
    """Its end is recorded too: the crash after that costs nothing."""
    neither.crash(point, occurrence)
    neither.ledger.lapse()
    answer = neither.arrive()
    assert (answer.verdict, answer.value) == (Verdict.RUN, "MSKU1234565-1")
    assert len(neither.terminal.keys) == 1


@pytest.mark.parametrize("point", ["recover.after", "probe.before", "probe.after", "step.after"])
def test_a_crash_during_recovery_is_recovered_from(askable: Scene, point: str) -> None:
    """I6: also repeatedly, also while recovering."""
    askable.crash("effect.after")
    for _ in range(3):
        askable.ledger.lapse()
        askable.crash(point)
    askable.ledger.lapse()
    assert askable.arrive().value == "MSKU1234565-1"
    assert len(askable.terminal.keys) == 1


def opaque_gate(
    ledger: Ledger, style: Style, runs: list[Any], crashpoints: CrashPoints | None = None, **options: Any
) -> Gate:
    """A process whose handler takes only the event."""
    gate = ledger.gate(crashpoints)

    def book(event):
        runs.append(event)
        return "booked"

    style.register(gate, "bookings", book, **options)
    return gate


@pytest.mark.parametrize("point", ["reserve.after", "effect.before", "effect.after", "settle.before"])
def test_a_handler_that_takes_only_the_event_is_one_call_that_a_person_decides_about(
    ledger: Ledger, style: Style, point: str
) -> None:
    """What it does outside is not known to the gate, so after a lapse it is never run again."""
    runs: list[Any] = []
    with pytest.raises(CrashReached):
        style.admit(opaque_gate(ledger, style, runs, DeadAfter(point)), "bookings", EVENT)
    ran = len(runs)
    ledger.lapse()
    gate = opaque_gate(ledger, style, runs)
    with pytest.raises(OutcomeUnknown):
        style.admit(gate, "bookings", EVENT)
    assert ledger.state() == "unknown"
    assert style.admit(gate, "bookings", EVENT).verdict is Verdict.HOLD
    assert len(runs) == ran


@pytest.mark.parametrize(
    ("point", "occurrence"),
    [("effect.before", 1), ("effect.after", 1), ("settle.before", 1), ("commit.before", 2)],
    ids=str,
)
def test_an_interrupt_around_an_opaque_handler_never_runs_it_again(
    ledger: Ledger, style: Style, point: str, occurrence: int
) -> None:
    """The process goes on, as after Ctrl-C; the handler may have acted all the same."""
    runs: list[Any] = []
    interrupt = ArmedCrashPoints.raising(point, occurrence=occurrence)
    gate = opaque_gate(ledger, style, runs, interrupt)
    with pytest.raises(CrashReached):
        style.admit(gate, "bookings", EVENT)
    ran = len(runs)
    # When the event arrives again, at once and after the lease
    assert style.admit(gate, "bookings", EVENT).verdict in (Verdict.BUSY, Verdict.HOLD)
    ledger.lapse()
    with contextlib.suppress(OutcomeUnknown):
        style.admit(gate, "bookings", EVENT)
    # Then it has not been run again, and a person decides
    assert (len(runs), ledger.state()) == (ran, "unknown")


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, CrashReached, RuntimeError])
def test_whatever_an_opaque_handler_raises_it_is_not_run_again(
    ledger: Ledger, style: Style, error: type[BaseException]
) -> None:
    """An error that does not say what happened leaves the call in doubt, whatever its kind."""
    gate = ledger.gate()
    runs: list[Any] = []

    def book(event):
        runs.append(event)
        raise error("interrupted")

    style.register(gate, "bookings", book)
    with pytest.raises(error):
        style.admit(gate, "bookings", EVENT)
    ledger.lapse()
    with contextlib.suppress(OutcomeUnknown):
        style.admit(gate, "bookings", EVENT)
    assert (len(runs), ledger.state()) == (1, "unknown")
    assert style.admit(gate, "bookings", EVENT).verdict is Verdict.HOLD


@pytest.mark.parametrize("point", ["reserve.after", "effect.after", "settle.before"])
def test_an_opaque_handler_whose_downstream_honours_keys_is_run_again_with_the_key(
    ledger: Ledger, style: Style, point: str
) -> None:
    """`downstream=` says what its one call can do about repeats."""
    terminal = Terminal(honours_key=True)

    def process(crashpoints: CrashPoints | None = None) -> Gate:
        gate = ledger.gate(crashpoints)
        ect = gate.downstream("ect", honours_key="7d")

        def book(event, idempotency_key=""):
            return terminal.claim(event["equipment"], idempotency_key)

        gate.handler("bookings", key="{id}", lease="10m", downstream=ect)(style.function(book))
        return gate

    with pytest.raises(CrashReached):
        style.admit(process(DeadAfter(point)), "bookings", EVENT)
    ledger.lapse()
    assert style.admit(process(), "bookings", EVENT).verdict is Verdict.RUN
    assert terminal.sold == len(set(terminal.keys)) == 1


def test_an_opaque_handler_whose_downstream_can_be_asked_is_finished_from_the_answer(
    ledger: Ledger, style: Style
) -> None:
    """What the probe finds is the handler's value."""
    runs: list[Any] = []
    probe = style.function(lambda key: {"id": "s-1"} if runs else None)

    def process(crashpoints: CrashPoints | None = None) -> Gate:
        gate = ledger.gate(crashpoints)
        ect = gate.downstream("ect", probe=probe)

        def book(event):
            runs.append(event)
            return {"id": "s-1"}

        style.register(gate, "bookings", book, downstream=ect)
        return gate

    with pytest.raises(CrashReached):
        style.admit(process(DeadAfter("effect.after")), "bookings", EVENT)
    ledger.lapse()
    answer = style.admit(process(), "bookings", EVENT)
    assert (answer.verdict, answer.value, len(runs)) == (Verdict.RUN, {"id": "s-1"}, 1)


def test_a_failure_is_not_a_crash_and_asks_before_it_calls_again(askable: Scene) -> None:
    """A call that raised may have happened: also without a lapse the downstream is asked first."""
    # Given a terminal that sells the slot and then fails to answer
    askable.terminal.loses_answers = True
    with pytest.raises(TimeoutError):
        askable.arrive()
    assert askable.ledger.state() == "retryable"
    askable.terminal.loses_answers = False
    # When the event arrives again
    answer = askable.arrive()
    # Then the slot is found
    assert (answer.value, askable.terminal.sold) == ("MSKU1234565-1", 1)


def test_a_crash_before_the_value_was_attached_keeps_the_business_write(
    ledger: Ledger, style: Style
) -> None:
    """A commit block commits the write and the state; the returned value alone may be lost."""
    ledger.create_bookings()

    def process(crashpoints: CrashPoints | None = None) -> Gate:
        gate = ledger.gate(crashpoints)

        def book(event, once):
            yield style.block(once, ("INSERT INTO bookings VALUES (?, ?)", ("X", "s-1")), resource="s-1")
            return "booked"

        style.register(gate, "bookings", book)
        return gate

    with pytest.raises(CrashReached):
        style.admit(process(DeadAfter("attach.before")), "bookings", EVENT)
    assert (ledger.state(), ledger.bookings()) == ("committed", [("X", "s-1")])
    replay = style.admit(process(), "bookings", EVENT)
    assert (replay.verdict, replay.value) == (Verdict.REPLAY, None)
    assert ledger.bookings() == [("X", "s-1")]


def test_a_worker_that_dies_every_time_ends_in_front_of_a_person(ledger: Ledger, style: Style) -> None:
    """I18: an event that kills whoever takes it is not taken without end."""
    terminal = Terminal(honours_key=True)
    scene = Scene(
        ledger, style, terminal, lambda gate: gate.downstream("ect", honours_key="7d"), attempts_max=3
    )
    for _ in range(3):
        scene.crash("effect.after")
        ledger.lapse()
    answer = scene.arrive()
    assert answer.verdict is Verdict.HOLD
    assert "3 workers died" in answer.reason
    assert (ledger.state(), len(terminal.keys), terminal.sold) == ("held", 3, 1)
    assert ledger.log_kinds() == [LogKind.RECOVERED, LogKind.RECOVERED, LogKind.HELD]
