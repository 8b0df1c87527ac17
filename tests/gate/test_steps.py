"""Steps: finished ones are skipped with their results, doubtful ones wait for a person."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pydantic
import pytest

from oncegate import Failed, Gate, Held, NotApplied, OutcomeUnknown, RecordedFailure, Verdict
from oncegate.store import LogKind
from tests.support.gates import BOOK, Ledger, Style, Terminal

EVENT = {"id": "N-1", "equipment": "MSKU1234565"}


@dataclass
class SlotRecord:
    id: str
    hours: tuple[int, int]


class SlotModel(pydantic.BaseModel):
    id: str
    hours: tuple[int, int]


class SlotStruct(msgspec.Struct):
    id: str
    hours: tuple[int, int]


def as_dataclass() -> SlotRecord:
    """A dataclass."""
    return SlotRecord("s-1", (7, 8))


def as_pydantic() -> SlotModel:
    """A pydantic model."""
    return SlotModel(id="s-1", hours=(7, 8))


def as_msgspec() -> SlotStruct:
    """A msgspec value."""
    return SlotStruct("s-1", (7, 8))


def as_list_of_typed() -> list[SlotRecord]:
    """A list of typed values."""
    return [SlotRecord("s-1", (7, 8))]


def as_plain() -> dict[str, Any]:
    """Plain JSON."""
    return {"id": "s-1", "hours": [7, 8]}


def as_nothing() -> None:
    """Nothing."""
    return


MAKERS = [as_dataclass, as_pydantic, as_msgspec, as_list_of_typed, as_plain, as_nothing]


class Flaky:
    """Fails the first so many times that it is passed."""

    def __init__(self, times: int = 1, error: BaseException | None = None) -> None:
        self.left = times
        self.error = error or RuntimeError("no luck")

    def check(self) -> None:
        """Fails while it has failures left."""
        if self.left:
            self.left -= 1
            raise self.error


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_a_finished_step_is_skipped_and_its_typed_result_restored(
    ledger: Ledger, style: Style, make: Callable[[], Any]
) -> None:
    """D4: a retry does not apply finished steps again, and sees the results that the first run saw."""
    # Given a handler whose steps succeed and which then fails
    gate, flaky, calls, seen = ledger.gate(), Flaky(), [], []
    ect = gate.downstream("ect", honours_key="7d")

    def body(event, once):
        def claim(idempotency_key) -> Any:
            calls.append("claim")
            return make()

        def notify() -> Any:
            calls.append("notify")
            return make()

        claim.__annotations__["return"] = notify.__annotations__["return"] = make.__annotations__["return"]
        slot = yield once.effect(ect, style.function(claim))
        told = yield once.step("notify", style.function(notify))
        seen.append((slot, told))
        flaky.check()
        return "done"

    style.register(gate, "bookings", body)
    with pytest.raises(RuntimeError):
        style.admit(gate, "bookings", EVENT)
    # When the event arrives again, at a process that knows only the ledger
    fresh = ledger.gate()
    fresh_ect = fresh.downstream("ect", honours_key="7d")
    assert fresh_ect.promise is ect.promise
    style.register(fresh, "bookings", body)
    answer = style.admit(fresh, "bookings", EVENT)
    # Then nothing was called again, and the handler saw the same values of the same types
    assert answer.verdict is Verdict.RUN
    assert calls == ["claim", "notify"]
    assert seen[0] == seen[1]
    assert [type(value) for value in seen[0]] == [type(value) for value in seen[1]]


@pytest.mark.parametrize(
    "value",
    [(7, 8), {7}, SlotRecord("s-1", (7, 8)), SlotStruct("s-1", (7, 8))],
    ids=lambda v: type(v).__name__,
)
def test_an_untyped_result_looks_the_same_on_the_first_run_and_on_a_retry(
    ledger: Ledger, style: Style, value: Any
) -> None:
    """A handler must not work on its first attempt and break on its second, for want of an annotation."""
    gate, flaky, seen = ledger.gate(), Flaky(), []
    ect = gate.downstream("ect", honours_key="7d")

    def body(event, once):
        seen.append((yield once.effect(ect, style.function(lambda idempotency_key: value), name="claim")))
        flaky.check()

    style.register(gate, "bookings", body)
    with pytest.raises(RuntimeError):
        style.admit(gate, "bookings", EVENT)
    style.admit(gate, "bookings", EVENT)
    assert seen[0] == seen[1]
    assert type(seen[0]) is type(seen[1])


def test_a_step_that_fails_does_not_undo_the_steps_before_it(ledger: Ledger, style: Style) -> None:
    """Each retry goes on where the last one stopped; those that came to nothing do not count (I26)."""
    gate, calls = ledger.gate(), []
    trouble = {"two": Flaky(2, NotApplied("later")), "three": Flaky(1, NotApplied("later"))}

    def body(event, once):
        def work(name):
            if name in trouble:
                trouble[name].check()
            calls.append(name)

        for name in ("one", "two", "three"):
            yield once.step(name, style.function(work), name)
        return once.attempt

    style.register(gate, "bookings", body)
    for _ in range(3):
        with pytest.raises(NotApplied):
            style.admit(gate, "bookings", EVENT)
    assert style.admit(gate, "bookings", EVENT).value == 1
    assert calls == ["one", "two", "three"]


def test_an_unrepeatable_step_in_doubt_goes_to_a_person(ledger: Ledger, style: Style) -> None:
    """A4, I9: a step that nobody can be asked about is never run a second time."""
    # Given a step at a downstream that can do nothing about repeats
    gate, calls = ledger.gate(), []

    def body(event, once):
        def notify():
            calls.append("notify")
            raise TimeoutError("no answer")

        yield once.step("notify", style.function(notify))

    style.register(gate, "bookings", body)
    # When it fails without saying what happened
    with pytest.raises(TimeoutError):
        style.admit(gate, "bookings", EVENT)
    # Then the entry is unknown, and every later arrival is held, whoever gets it
    assert ledger.state() == "unknown"
    for gate_now in (gate, ledger.gate()):
        if gate_now is not gate:
            style.register(gate_now, "bookings", body)
        answer = style.admit(gate_now, "bookings", EVENT)
        assert answer.verdict is Verdict.HOLD
        assert answer.reason == "TimeoutError: no answer"
        with pytest.raises(Held, match="no answer"):
            answer.result()
    assert calls == ["notify"]
    assert ledger.log_kinds() == [LogKind.UNKNOWN]


def test_a_doubtful_step_that_the_handler_settles_itself_is_not_held(ledger: Ledger, style: Style) -> None:
    """A handler that catches the error and returns has decided; its outcome stands."""
    gate = ledger.gate()

    def body(event, once):
        def notify():
            raise TimeoutError("no answer")

        try:
            yield once.step("notify", style.function(notify))
        except TimeoutError:
            return "told by phone"

    style.register(gate, "bookings", body)
    assert style.admit(gate, "bookings", EVENT).value == "told by phone"
    assert ledger.state() == "committed"


def test_a_step_that_says_it_did_not_happen_may_be_retried(ledger: Ledger, style: Style) -> None:
    """NotApplied takes the doubt away: the same step is called again."""
    gate, calls, flaky = ledger.gate(), [], Flaky(1, NotApplied("refused: full"))

    def body(event, once):
        def notify():
            calls.append("notify")
            flaky.check()
            return "told"

        return (yield once.step("notify", style.function(notify)))

    style.register(gate, "bookings", body)
    with pytest.raises(NotApplied):
        style.admit(gate, "bookings", EVENT)
    assert ledger.state() == "retryable"
    assert style.admit(gate, "bookings", EVENT).value == "told"
    assert calls == ["notify", "notify"]


@pytest.mark.parametrize("opaque", [True, False], ids=["whole handler", "step"])
def test_a_final_failure_is_recorded_and_replayed(ledger: Ledger, style: Style, opaque: bool) -> None:
    """I9: a final failure is never run again; the replay tells the recorded reason."""
    gate, calls = ledger.gate(), []

    def refuse():
        calls.append("refuse")
        raise Failed("no such container")

    def whole(event):
        refuse()

    def stepped(event, once):
        yield once.step("claim", style.function(refuse))

    style.register(gate, "bookings", whole if opaque else stepped)
    # When it fails for good, the caller gets the handler's own error
    with pytest.raises(Failed, match="no such container"):
        style.admit(gate, "bookings", EVENT)
    # Then replays, from memory and from the ledger, tell the recorded failure and run nothing
    fresh = ledger.gate()
    style.register(fresh, "bookings", whole if opaque else stepped)
    for gate_now in (gate, fresh):
        answer = style.admit(gate_now, "bookings", EVENT)
        assert (answer.verdict, answer.error) == (Verdict.REPLAY, "no such container")
        with pytest.raises(RecordedFailure, match="no such container"):
            answer.result()
    assert calls == ["refuse"]
    assert ledger.state() == "failed"
    assert ledger.log_kinds() == [LogKind.FAILED]


def test_declared_final_errors_are_final_and_others_are_not(ledger: Ledger, style: Style) -> None:
    """`final_errors` turns the user's own exceptions into recorded failures."""
    gate, raised = ledger.gate(), []

    class NoSuchContainer(LookupError):
        pass

    def body(event, once):
        raised.append(event["id"])
        raise NoSuchContainer("gone") if event["id"] == "final" else KeyError("again")

    style.register(gate, "bookings", body, final_errors=(NoSuchContainer, ValueError))
    for _ in range(2):
        with pytest.raises(KeyError):
            style.admit(gate, "bookings", {"id": "other"})
    with pytest.raises(NoSuchContainer):
        style.admit(gate, "bookings", {"id": "final"})
    answer = style.admit(gate, "bookings", {"id": "final"})
    assert (answer.verdict, answer.error) == (Verdict.REPLAY, "NoSuchContainer: gone")
    assert raised == ["other", "other", "final"]
    assert ledger.states() == ["retryable", "failed"]


def test_exhausted_attempts_put_the_event_in_front_of_a_person(ledger: Ledger, style: Style) -> None:
    """I18: retries are bounded; the last failure leaves the entry held, with its reason."""
    gate, runs = ledger.gate(), []

    def body(event, once):
        runs.append(once.attempt)
        raise RuntimeError("no luck")

    style.register(gate, "bookings", body, attempts_max=3)
    for _ in range(3):
        with pytest.raises(RuntimeError):
            style.admit(gate, "bookings", EVENT)
    assert ledger.state() == "held"
    answer = style.admit(gate, "bookings", EVENT)
    assert (answer.verdict, answer.reason) == (
        Verdict.HOLD,
        "gave up after 3 attempts: RuntimeError: no luck",
    )
    assert runs == [1, 2, 3]
    # And whoever counts what waits for a person is told the kind: nothing is in doubt here
    with gate.engine.store.look() as session:
        assert [item.reason for item in session.waiting()] == ["attempts_used_up"]
    tries = [LogKind.RETRYABLE, LogKind.TAKEN_UP] * 2
    assert ledger.log_kinds() == [*tries, LogKind.HELD]


def test_a_limit_lowered_later_holds_what_has_used_it_up(ledger: Ledger, style: Style) -> None:
    """A new version with fewer attempts does not run what has had them already."""
    runs: list[int] = []

    def body(event, once):
        runs.append(once.attempt)
        raise RuntimeError("no luck")

    def register(attempts_max: int) -> Gate:
        gate = ledger.gate()
        style.register(gate, "bookings", body, attempts_max=attempts_max)
        return gate

    with pytest.raises(RuntimeError):
        style.admit(register(5), "bookings", EVENT)
    answer = style.admit(register(1), "bookings", EVENT)
    assert (answer.verdict, answer.reason) == (Verdict.HOLD, "gave up after 1 attempts")
    assert (runs, ledger.state()) == ([1], "held")


def test_writes_as_a_named_step_are_applied_once_across_retries(ledger: Ledger, style: Style) -> None:
    """`once.write` commits the writes with the step's record: a retry skips both."""
    ledger.create_bookings()
    gate, flaky = ledger.gate(), Flaky(2)

    def body(event, once):
        yield once.write("book", [(BOOK, (event["equipment"], f"attempt {once.attempt}"))])
        flaky.check()
        return "done"

    style.register(gate, "bookings", body)
    for _ in range(2):
        with pytest.raises(RuntimeError):
            style.admit(gate, "bookings", EVENT)
        assert ledger.bookings() == [("MSKU1234565", "attempt 1")]
    assert style.admit(gate, "bookings", EVENT).verdict is Verdict.RUN
    assert ledger.bookings() == [("MSKU1234565", "attempt 1")]


def test_a_step_whose_result_cannot_be_stored_is_not_run_again(ledger: Ledger, style: Style) -> None:
    """Its result is lost with the attempt, so a person must finish it: at most once stays at most once."""
    gate, calls, flaky = ledger.gate(), [], Flaky()

    def body(event, once):
        def connect():
            calls.append("connect")
            return object()

        yield once.step("connect", style.function(connect))
        flaky.check()

    style.register(gate, "bookings", body)
    with pytest.raises(RuntimeError):
        style.admit(gate, "bookings", EVENT)
    with pytest.raises(OutcomeUnknown, match="result could not be stored"):
        style.admit(gate, "bookings", EVENT)
    assert (calls, ledger.state()) == (["connect"], "unknown")


def test_finished_steps_are_visible_in_the_outcome(ledger: Ledger, style: Style) -> None:
    """D4: the outcome names each finished step, its downstream and what it handed out."""
    gate, terminal = ledger.gate(), Terminal(honours_key=True)
    ect = gate.downstream("ect", honours_key="7d")

    def body(event, once):
        yield once.effect(ect, style.function(terminal.claim), "X")
        yield once.step("notify", style.function(list))
        return "done"

    style.register(gate, "bookings", body)
    style.admit(gate, "bookings", EVENT)
    ((body_bytes,),) = ledger.rows("SELECT body FROM oncegate_outcome")
    assert msgspec.json.decode(body_bytes) == {
        "value": "done",
        "resource": "X-1",
        "steps": [
            {"name": "claim", "downstream": "ect", "resource": "X-1", "after_ms": 0},
            {"name": "notify", "downstream": "(undeclared)", "after_ms": 0},
        ],
    }
    assert ledger.rows("SELECT count(*) FROM oncegate_step") == [(0,)]


def test_the_resource_survives_a_retry(ledger: Ledger, style: Style) -> None:
    """A9: what the downstream handed out is shown also when a later attempt finishes the work."""
    gate, terminal, flaky = ledger.gate(), Terminal(honours_key=True), Flaky()
    ect = gate.downstream("ect", honours_key="7d")

    def body(event, once):
        yield once.effect(ect, style.function(terminal.claim), "X")
        flaky.check()
        return "done"

    style.register(gate, "bookings", body)
    with pytest.raises(RuntimeError):
        style.admit(gate, "bookings", EVENT)
    assert style.admit(gate, "bookings", EVENT).resource == "X-1"


def test_a_refused_write_is_not_shown_as_done(ledger: Ledger, style: Style) -> None:
    """The outcome tells what is in the database, also when the handler goes on without it."""
    gate = ledger.gate()

    def body(event, once):
        try:
            yield once.write("book", [("INSERT INTO no_such_table VALUES (1)", ())])
        except Exception:  # noqa: BLE001  any refusal will do
            return "not booked"

    style.register(gate, "bookings", body)
    assert style.admit(gate, "bookings", EVENT).value == "not booked"
    ((outcome,),) = ledger.rows("SELECT body FROM oncegate_outcome")
    assert msgspec.json.decode(outcome) == {"value": "not booked"}


@pytest.mark.parametrize("error", [ValueError, Failed], ids=["retryable", "final"])
def test_an_error_whose_text_is_not_unicode_is_recorded(
    ledger: Ledger, style: Style, error: type[Exception]
) -> None:
    """Names of files may hold bytes that are not text; an error that shows one is an error like others."""
    gate = ledger.gate()

    def body(event, once):
        raise error("no such file: \udcff.csv")

    style.register(gate, "bookings", body)
    with pytest.raises(error, match="no such file"):
        style.admit(gate, "bookings", EVENT)
    assert ledger.state() == ("failed" if error is Failed else "retryable")
