"""People settle what the gate cannot decide: one word, one effect, and all can see whose (A4, I20)."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from oncegate import ConfigError, Gate, OutcomeUnknown, Verdict
from oncegate.clock import from_wall_ms
from oncegate.errors import RulingRefused
from oncegate.maintenance.reconciler import Reconciler
from oncegate.model.decisions import Verb
from oncegate.model.surface import SurfaceRule
from oncegate.review.decisions import EntryDecision, StepDecision
from oncegate.store import EntryFilter, LogKind
from oncegate.testing import CrashReached
from oncegate.testing.waiting import DEADLINE_SECONDS
from tests.support.gates import DeadAfter, Ledger, Style, Terminal, running

EVENT = {"id": 7}
HAPPENED, DID_NOT = StepDecision(happened=True, resource="S-1"), StepDecision(happened=False)
ADA: dict[str, Any] = {"actor": "Ada", "reason": "asked the terminal"}


class Desk:
    """A process that books at a terminal which nobody can ask, and the people who look after it."""

    def __init__(self, ledger: Ledger, style: Style, **options: Any) -> None:
        self.ledger, self.style, self.options = ledger, style, options
        self.terminal = Terminal()
        self.returned: list[Any] = []

    def process(self, crashpoints: Any = None) -> Gate:
        """Starts a process."""
        gate, style = self.ledger.gate(crashpoints), self.style
        terminal = gate.downstream("terminal")
        claim = style.function(self.terminal.claim)

        def book(event, once):
            slot = yield once.effect(terminal, claim, str(event["id"]), name="slot")
            self.returned.append(slot)
            return slot["id"]

        style.register(gate, "bookings", book, **self.options)
        return gate

    def admit(self, event: Any = EVENT, gate: Gate | None = None) -> Any:
        """Lets an event arrive."""
        return self.style.admit(gate or self.process(), "bookings", event)

    def strand(self, point: str = "effect.after") -> int:
        """An event whose process died in the call, brought before a person."""
        with pytest.raises(CrashReached):
            self.admit(gate=self.process(DeadAfter(point)))
        self.ledger.lapse()
        with pytest.raises(OutcomeUnknown):
            self.admit()
        return self.waiting()

    def waiting(self) -> int:
        """The id of the only entry."""
        with self.ledger.gate().engine.store.look() as session:
            (entry,) = session.entries(EntryFilter(), None, 10)
        return entry.entry_id

    def reconcile(self, gate: Gate | None = None) -> list[str]:
        """Lets a worker do its round."""
        self.ledger.clock.advance(2)
        reconciler = Reconciler(gate or self.process())
        report = asyncio.run(reconciler.run_once_async()) if self.style.is_async else reconciler.run_once()
        return [item.became for item in report.looked]


@pytest.fixture
def desk(ledger: Ledger, style: Style) -> Desk:
    """A desk of the given style."""
    return Desk(ledger, style)


# --- a step that may have happened -----------------------------------------------------------------


def test_nothing_runs_before_a_person_has_spoken(desk: Desk) -> None:
    """A4: neither key nor probe: no worker and no arrival calls again, however long it takes."""
    desk.strand()
    desk.ledger.clock.advance(100 * 3600)
    assert desk.reconcile() == []
    assert desk.admit().verdict is Verdict.HOLD
    assert (desk.ledger.state(), desk.terminal.sold) == ("unknown", 1)


def test_it_did_not_happen_runs_it_again(desk: Desk) -> None:
    """The person looked: nothing there. The step is called once more and the event finished."""
    entry = desk.strand("effect.before")
    desk.ledger.gate().people.approve(entry, **ADA, steps={"slot": DID_NOT})
    assert desk.ledger.state() == "retryable"
    assert desk.reconcile() == ["finished"]
    assert (desk.ledger.state(), desk.terminal.sold) == ("committed", 1)
    assert desk.admit().verdict is Verdict.REPLAY


def test_it_happened_skips_the_step_and_finishes_the_rest(desk: Desk) -> None:
    """The person found the slot: the handler gets it and goes on, and the terminal is not called."""
    entry = desk.strand()
    desk.ledger.gate().people.approve(entry, **ADA, steps={"slot": HAPPENED})
    answer = desk.admit()
    assert (answer.verdict, answer.value, answer.resource) == (Verdict.RUN, "S-1", "S-1")
    assert desk.returned == [{"id": "S-1"}]
    assert (desk.ledger.state(), desk.terminal.sold) == ("committed", 1)


@pytest.mark.parametrize(
    ("returns", "given"),
    [(str, "S-1"), (dict[str, str], {"id": "S-1"}), (None, {"id": "S-1"})],
    ids=["text", "object", "undeclared"],
)
def test_a_handler_gets_the_found_resource_as_its_call_would_give_it(
    desk: Desk, returns: Any, given: Any
) -> None:
    """An object with that id, or the id itself, by what the function is declared to return."""
    entry = desk.strand()
    gate, style = desk.ledger.gate(), desk.style
    terminal, got = gate.downstream("terminal"), []

    def claim(equipment, idempotency_key):
        raise AssertionError("called")

    def book(event, once):
        got.append((yield once.effect(terminal, style.function(claim), "7", name="slot")))

    claim.__annotations__["return"] = returns
    style.register(gate, "bookings", book)
    gate.people.approve(entry, **ADA, steps={"slot": HAPPENED})
    desk.admit(gate=gate)
    assert got == [given]


def test_the_result_can_be_given_in_full(desk: Desk) -> None:
    """Where a handler needs more than an id, the person gives the call's whole answer as JSON."""
    entry = desk.strand()
    told = StepDecision(happened=True, resource="S-1", result=b'{"id":"S-1","berth":4}')
    desk.ledger.gate().people.approve(entry, **ADA, steps={"slot": told})
    desk.reconcile()
    assert desk.returned == [{"id": "S-1", "berth": 4}]


def test_an_approval_that_leaves_the_doubt_open_is_refused_with_both_choices(desk: Desk) -> None:
    """The gate does not guess, and does not let a person pass over the question."""
    entry = desk.strand()
    before = desk.ledger.rows("SELECT * FROM oncegate_entry")
    with pytest.raises(RulingRefused, match="step slot at terminal may or may not") as refused:
        desk.ledger.gate().people.approve(entry, **ADA)
    assert "slot=happened:RESOURCE" in str(refused.value)
    assert "slot=did-not-happen" in str(refused.value)
    with pytest.raises(RulingRefused, match="'mail' is not in doubt here; steps in doubt: slot"):
        desk.ledger.gate().people.approve(entry, **ADA, steps={"mail": DID_NOT})
    assert desk.ledger.rows("SELECT * FROM oncegate_entry") == before


def test_a_person_may_be_asked_again_and_again(desk: Desk) -> None:
    """It did not happen, it is called, and the answer is lost once more: the same question, a new fence."""
    entry = desk.strand("effect.before")
    desk.terminal.loses_answers = True
    for asked in (1, 2):
        desk.ledger.gate().people.approve(entry, **ADA, steps={"slot": DID_NOT})
        assert desk.reconcile() == ["failed again"]
        assert (desk.ledger.state(), desk.terminal.sold) == ("unknown", asked)
    desk.ledger.gate().people.approve(entry, **ADA, steps={"slot": HAPPENED})
    assert desk.reconcile() == ["finished"]
    assert desk.terminal.sold == 2


@pytest.mark.parametrize("point", ["start.after", "effect.after"])
def test_a_word_that_nothing_happened_is_used_up_by_the_call(desk: Desk, point: str) -> None:
    """I1: a crash in the approved call leaves the question open again; the old word answers nothing."""
    entry = desk.strand("effect.before")
    desk.ledger.gate().people.approve(entry, **ADA, steps={"slot": DID_NOT})
    with pytest.raises(CrashReached):
        desk.admit(gate=desk.process(DeadAfter(point)))
    desk.ledger.lapse()
    with pytest.raises(OutcomeUnknown):
        desk.admit()
    sold = desk.terminal.sold
    assert sold == (point == "effect.after")
    assert desk.reconcile() == []
    assert desk.terminal.sold == sold


def test_a_rejection_is_what_every_replay_is_told(desk: Desk) -> None:
    """Reject records who and why; nothing runs, and the step's doubt stays on record."""
    entry = desk.strand()
    desk.ledger.gate().people.reject(entry, actor="Ben", reason="the customer has left")
    answer = desk.admit()
    assert answer.verdict is Verdict.REPLAY
    assert answer.error == "rejected by Ben: the customer has left"
    assert (desk.ledger.state(), desk.terminal.sold) == ("failed", 1)
    assert desk.ledger.rows("SELECT name FROM oncegate_step") == [("slot",)]


# --- functions that know nothing of the gate ---------------------------------------------------------


@dataclass
class Mailer:
    """A plain function that sends mail; whether it tells is up to the test."""

    sent: int = 0
    error: BaseException | None = None

    def send(self, event: Any) -> str:
        """Sends, and perhaps does not tell."""
        self.sent += 1
        if self.error is not None:
            raise self.error
        return "sent"


def mailing(ledger: Ledger, style: Style, mailer: Mailer, **options: Any) -> Gate:
    """A process whose handler is one opaque call."""
    gate = ledger.gate(options.pop("crashpoints", None))
    style.register(gate, "mails", mailer.send, **options)
    return gate


def test_an_opaque_call_in_doubt_is_named_and_decided(ledger: Ledger, style: Style) -> None:
    """A plain function that raised may have acted: its one step is called `call`."""
    mailer = Mailer(error=TimeoutError("no answer"))
    gate = mailing(ledger, style, mailer)
    with pytest.raises(TimeoutError):
        style.admit(gate, "mails", EVENT)
    with pytest.raises(RulingRefused, match="step call at "):
        gate.people.approve(1, **ADA)
    gate.people.approve(1, **ADA, steps={"call": StepDecision(happened=True, result=b'"sent"')})
    answer = style.admit(gate, "mails", EVENT)
    assert (answer.verdict, answer.value, mailer.sent) == (Verdict.RUN, "sent", 1)


def test_an_opaque_call_that_did_not_happen_is_called_again_once(ledger: Ledger, style: Style) -> None:
    """And if that one is interrupted, the question is open again."""
    mailer = Mailer(error=TimeoutError("no answer"))
    with pytest.raises(TimeoutError):
        style.admit(mailing(ledger, style, mailer), "mails", EVENT)
    mailer.error = None
    ledger.gate().people.approve(1, **ADA, steps={"call": DID_NOT})
    with pytest.raises(CrashReached):
        style.admit(mailing(ledger, style, mailer, crashpoints=DeadAfter("effect.after")), "mails", EVENT)
    ledger.lapse()
    with pytest.raises(OutcomeUnknown):
        style.admit(mailing(ledger, style, mailer), "mails", EVENT)
    assert (mailer.sent, ledger.state()) == (2, "unknown")


def test_a_last_attempt_that_was_interrupted_is_not_run_again_on_a_bare_approval(
    ledger: Ledger, style: Style
) -> None:
    """I1: given up while in flight, nothing says whether it acted; the approval leads to the question."""
    mailer = Mailer()
    dying = mailing(ledger, style, mailer, attempts_max=1, crashpoints=DeadAfter("effect.after"))
    with pytest.raises(CrashReached):
        style.admit(dying, "mails", EVENT)
    ledger.lapse()
    gate = mailing(ledger, style, mailer, attempts_max=1)
    assert style.admit(gate, "mails", EVENT).verdict is Verdict.HOLD
    gate.people.approve(1, **ADA)
    with pytest.raises(OutcomeUnknown):
        style.admit(gate, "mails", EVENT)
    assert (mailer.sent, ledger.state()) == (1, "unknown")


# --- attempts used up ------------------------------------------------------------------------------


def test_attempts_count_anew_after_an_approval(ledger: Ledger, style: Style) -> None:
    """Held after its last attempt, mended by a person, tried again as often as a new one."""
    gate, runs = ledger.gate(), []

    def body(event, once):
        runs.append(once.attempt)
        if len(runs) < 5:
            raise RuntimeError("closed")
        return "open"

    style.register(gate, "bookings", body, attempts_max=2)
    for _ in range(2):
        for _ in range(2):
            with pytest.raises(RuntimeError):
                style.admit(gate, "bookings", EVENT)
        assert ledger.state() == "held"
        assert style.admit(gate, "bookings", EVENT).verdict is Verdict.HOLD
        gate.people.approve(1, actor="Ada", reason="they are open now")
    assert style.admit(gate, "bookings", EVENT).value == "open"
    assert runs == [1, 2, 1, 2, 1]


def test_an_approved_second_call_still_asks_first(ledger: Ledger, style: Style) -> None:
    """I1: counting anew does not make it a first call: the probe finds what an earlier attempt got."""
    terminal, gate = Terminal(), ledger.gate()
    ect = gate.downstream("ect", probe=style.function(terminal.find))
    fail = [True]

    def body(event, once):
        slot = yield once.effect(ect, style.function(terminal.claim), "7")
        if fail.pop():
            raise RuntimeError("no luck")
        return slot["id"]

    style.register(gate, "bookings", body, attempts_max=1)
    with pytest.raises(RuntimeError):
        style.admit(gate, "bookings", EVENT)
    ledger.rows("DELETE FROM oncegate_step")  # as if the process had died before it was recorded
    fail.append(False)
    gate.people.approve(1, actor="Ada", reason="again")
    assert style.admit(gate, "bookings", EVENT).value == "7-1"
    assert terminal.sold == 1


# --- downstreams that can do something, only not any more -------------------------------------------


class Port:
    """A process at a terminal that honours keys for a day, or that can be asked what a key owns."""

    def __init__(self, ledger: Ledger, style: Style, *, asks: bool) -> None:
        self.ledger, self.style, self.asks = ledger, style, asks
        self.terminal = Terminal()

    def process(self, crashpoints: Any = None) -> Gate:
        """Starts a process."""
        gate, style = self.ledger.gate(crashpoints), self.style
        able: dict[str, Any] = {"probe": style.function(self.terminal.find)} if self.asks else {}
        ect = gate.downstream("ect", **(able or {"honours_key": "1d"}))

        def book(event, once):
            return (yield once.effect(ect, style.function(self.terminal.claim), "7"))["id"]

        style.register(gate, "bookings", book)
        return gate

    def die(self, point: str) -> None:
        """A process dies on its way, and its lease lapses two days ago."""
        with pytest.raises(CrashReached):
            self.style.admit(self.process(DeadAfter(point)), "bookings", EVENT)
        self.ledger.clock.advance(2 * 24 * 3600)

    def admit(self) -> Any:
        """The event comes again."""
        return self.style.admit(self.process(), "bookings", EVENT)


def test_a_key_that_is_honoured_no_longer_is_decided_by_name(ledger: Ledger, style: Style) -> None:
    """Its step is on record as in doubt; the word is used up by the call, so that a crash asks again."""
    port = Port(ledger, style, asks=False)
    port.die("effect.before")
    with pytest.raises(OutcomeUnknown):
        port.admit()
    with pytest.raises(RulingRefused, match="step claim at ect may or may not"):
        ledger.gate().people.approve(1, **ADA)
    ledger.gate().people.approve(1, **ADA, steps={"claim": DID_NOT})
    port.die("effect.after")
    with pytest.raises(OutcomeUnknown):
        port.admit()
    assert (ledger.state(), port.terminal.sold) == ("unknown", 1)
    ledger.gate().people.approve(1, **ADA, steps={"claim": HAPPENED})
    assert port.admit().value == "S-1"
    assert port.terminal.sold == 1


def test_of_two_resources_for_one_key_a_person_says_which(ledger: Ledger, style: Style) -> None:
    """A9: the probe found two; nothing is guessed, and the person's answer is what the handler gets."""
    port = Port(ledger, style, asks=True)
    port.die("effect.after")
    key = next(iter(port.terminal.slots))
    port.terminal.slots[key].append("7-2")
    with pytest.raises(OutcomeUnknown):
        port.admit()
    assert ledger.state() == "held"
    with pytest.raises(RulingRefused, match="step claim at ect may or may not"):
        ledger.gate().people.approve(1, **ADA)
    ledger.gate().people.approve(1, **ADA, steps={"claim": StepDecision(happened=True, resource="7-2")})
    assert port.admit().value == "7-2"
    assert len(port.terminal.keys) == 1


# --- quarantine ------------------------------------------------------------------------------------


def at(ledger: Ledger, **distance: float) -> str:
    return (from_wall_ms(ledger.clock.wall_ms()) + timedelta(**distance)).isoformat()


QUARANTINES: dict[str, Callable[[Ledger], dict[str, Any]]] = {
    "skew": lambda ledger: {"id": 1, "at": at(ledger, minutes=9)},
    "no offset": lambda ledger: {"id": 1, "at": "2026-05-28T20:26:40"},
    "beyond retention": lambda ledger: {"id": 1, "at": at(ledger, days=-400)},
    "missing id": lambda ledger: {"at": at(ledger)},
    "malformed id": lambda ledger: {"id": {"deep": 1}, "at": at(ledger)},
    "drifted type": lambda ledger: {"id": 1.5, "at": at(ledger)},
}


class Yard:
    """A surface with a time gate and a terminal that honours keys, and events it cannot take."""

    def __init__(self, ledger: Ledger, style: Style) -> None:
        self.ledger, self.style = ledger, style
        self.terminal = Terminal(honours_key=True)

    def process(self, crashpoints: Any = None) -> Gate:
        """Starts a process."""
        gate, style = self.ledger.gate(crashpoints), self.style
        ect = gate.downstream("ect", honours_key="7d")

        def book(event, once):
            return (yield once.effect(ect, style.function(self.terminal.claim), "x"))["id"]

        style.register(gate, "routes", book, occurred_at="at")
        return gate


@pytest.mark.parametrize("by_reconciler", [True, False], ids=["reconciler", "arrival"])
@pytest.mark.parametrize("kind", QUARANTINES)
def test_a_released_event_runs_once_under_the_key_it_has(
    ledger: Ledger, style: Style, kind: str, by_reconciler: bool
) -> None:
    """E3, E7: the time gate is not asked again, the key not derived again, and every replay is one."""
    yard = Yard(ledger, style)
    gate, event = yard.process(), QUARANTINES[kind](ledger)
    first = style.admit(gate, "routes", event)
    assert first.verdict is Verdict.QUARANTINE
    ledger.clock.advance(30 * 24 * 3600)  # longer than the terminal remembers keys: it was never called

    gate.people.release(1, actor="Ada", reason="the truck was there")
    if by_reconciler:
        Desk(ledger, style).reconcile(gate)
    else:
        assert style.admit(gate, "routes", event).verdict is Verdict.RUN

    assert ledger.state() == "committed"
    for _ in range(2):
        again = style.admit(gate, "routes", event)
        assert (again.verdict, again.key) == (Verdict.REPLAY, first.key)
    assert list(yard.terminal.slots) == [f"{first.key}:claim"]
    assert yard.terminal.sold == 1
    decided = [LogKind.QUARANTINED, LogKind.RELEASED]
    assert ledger.log_kinds() == [*decided, LogKind.TAKEN_UP, LogKind.COMMITTED]


def test_releasing_twice_is_one_release(ledger: Ledger, style: Style) -> None:
    """The second one is told who released it and what came of it; nothing runs again."""
    yard = Yard(ledger, style)
    gate, event = yard.process(), QUARANTINES["skew"](ledger)
    style.admit(gate, "routes", event)
    gate.people.release(1, actor="Ada", reason="fine")
    with pytest.raises(RulingRefused, match=r"entry 1 is retryable now: Ada released it at .* \(fine\)"):
        gate.people.release(1, actor="Ben", reason="fine, too")
    style.admit(gate, "routes", event)
    with pytest.raises(RulingRefused, match="entry 1 is committed now: Ada released it"):
        gate.people.release(1, actor="Ben", reason="fine, too")
    with pytest.raises(RulingRefused, match="committed now"):
        gate.people.discard(1, actor="Ben", reason="no")
    assert yard.terminal.sold == 1


def test_a_discarded_key_stays_known(ledger: Ledger, style: Style) -> None:
    """The same event again is a replay of the discard; other content under its key is a conflict."""
    yard = Yard(ledger, style)
    gate, event = yard.process(), QUARANTINES["skew"](ledger)
    style.admit(gate, "routes", event)
    gate.people.discard(1, actor="Ada", reason="a test message")
    again = style.admit(gate, "routes", event)
    assert (again.verdict, again.error) == (Verdict.REPLAY, "discarded by Ada: a test message")
    corrected = {**event, "at": at(ledger)}
    assert style.admit(gate, "routes", corrected).verdict is Verdict.CONFLICT
    assert yard.terminal.sold == 0


def test_an_event_of_nobody_is_not_released(ledger: Ledger, style: Style) -> None:
    """I8: without a tenant, or with another than its sender's, nobody can say whose key it would be."""
    gate, runs = ledger.gate(), []
    style.register(gate, "bookings", lambda event, once: runs.append(event), tenant="owner")
    style.admit(gate, "bookings", {"id": 1, "owner": "one"}, tenant="two")
    with pytest.raises(RulingRefused, match="tenant is not known"):
        gate.people.release(1, actor="Ada", reason="why not")
    gate.people.discard(1, actor="Ada", reason="told the sender")
    assert (runs, ledger.state()) == ([], "failed")


# --- approval first --------------------------------------------------------------------------------


def test_an_approval_first_surface_runs_nothing_by_itself(ledger: Ledger, style: Style) -> None:
    """Stored and answered with Hold, as often as it comes; approved, it runs once."""
    yard, gate = Yard(ledger, style), ledger.gate()
    ect = gate.downstream("ect", honours_key="7d")

    def book(event, once):
        return (yield once.effect(ect, style.function(yard.terminal.claim), "x"))["id"]

    style.register(gate, "payouts", book, approve_first=True, decide_within="4h")
    for _ in range(2):
        answer = style.admit(gate, "payouts", EVENT)
        assert answer.verdict is Verdict.HOLD
        assert answer.reason == "waits for approval, to be decided within 4h"
    assert Desk(ledger, style).reconcile(gate) == []
    assert (ledger.states(), yard.terminal.sold) == (["held"], 0)

    ledger.clock.advance(30 * 24 * 3600)
    gate.people.approve(1, actor="Ada", reason="seen the invoice")
    assert Desk(ledger, style).reconcile(gate) == ["finished"]
    assert style.admit(gate, "payouts", EVENT).verdict is Verdict.REPLAY
    assert yard.terminal.sold == 1
    decided = [LogKind.HELD, LogKind.APPROVED]
    assert ledger.log_kinds() == [*decided, LogKind.TAKEN_UP, LogKind.COMMITTED]


@pytest.mark.parametrize("same_database", [True, False])
def test_approval_first_holds_for_same_database_handlers_and_plain_functions(
    ledger: Ledger, style: Style, same_database: bool
) -> None:
    """Whatever the handler is, the reservation holds it."""
    gate = ledger.gate()
    runs: list[Any] = []
    options: dict[str, Any] = {"approve_first": True, "same_database": same_database}
    style.register(gate, "payouts", runs.append, **options)
    assert style.admit(gate, "payouts", EVENT).verdict is Verdict.HOLD
    assert runs == []
    gate.people.approve(1, actor="Ada", reason="fine")
    assert style.admit(gate, "payouts", EVENT).verdict is Verdict.RUN
    assert len(runs) == 1


def test_the_time_to_decide_is_part_of_the_rule(ledger: Ledger) -> None:
    """Signals read it from there; nonsense is refused."""
    gate = ledger.gate()
    gate.handler("payouts", key="{id}", approve_first=True, decide_within="4h")(lambda event: None)
    rule: SurfaceRule = gate.engine.surface("payouts").rule
    assert (rule.approve_first, rule.decide_within) == (True, timedelta(hours=4))
    with pytest.raises(ConfigError, match="not positive"):
        gate.handler("others", key="{id}", decide_within="0s")


# --- whose word, and how often ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"reason": ""}, "say why"),
        ({"reason": " \n\t"}, "say why"),
        ({"reason": "x" * 501}, "501 characters"),
        ({"reason": "\x1b[2J"}, "do not show"),
        ({"reason": "\ud800"}, "not UTF-8"),
        ({"reason": None}, "a reason is text"),
        ({"actor": ""}, "person's name"),
        ({"actor": "A\u202eda"}, "person's name"),
    ],
)
def test_a_word_without_a_name_or_a_reason_is_refused(
    ledger: Ledger, wrong: dict[str, Any], message: str
) -> None:
    """Clear message, no effect."""
    gate = ledger.gate()
    gate.handler("payouts", key="{id}", approve_first=True)(lambda event: None)
    gate.admit_sync("payouts", EVENT)
    with pytest.raises(ConfigError, match=message):
        gate.people.approve(1, **{"actor": "Ada", "reason": "fine", **wrong})
    assert ledger.state() == "held"
    assert ledger.log_kinds() == [LogKind.HELD]


def test_unknown_ids_and_old_fences_are_refused(ledger: Ledger) -> None:
    """What is not there, and what is not as it was seen, is left alone."""
    gate = ledger.gate()
    gate.handler("payouts", key="{id}", approve_first=True)(lambda event: None)
    gate.admit_sync("payouts", EVENT)
    with pytest.raises(RulingRefused, match="there is no entry 99"):
        gate.people.approve(99, **ADA)
    with pytest.raises(RulingRefused, match="entry 1 is held now; nothing was changed"):
        gate.people.approve(1, **ADA, fence=5)
    with pytest.raises(RulingRefused, match="entry 1 is another event than the one you saw"):
        gate.people.say(1, EntryDecision(Verb.APPROVE, **ADA), key=bytes(24))
    assert ledger.state() == "held"


def test_of_many_operators_at_once_one_is_heard(desk: Desk) -> None:
    """I20: all saw the same; one word counts, the others learn whose it was; one effect follows."""
    entry = desk.strand("effect.before")
    gates = [desk.ledger.gate() for _ in range(6)]
    start = threading.Barrier(len(gates))

    def speak(number: int) -> Any:
        start.wait(DEADLINE_SECONDS)
        people = gates[number].people
        if number % 2:
            return people.reject(entry, actor=f"operator {number}", reason="no", fence=2)
        told = {"slot": DID_NOT}
        return people.approve(entry, actor=f"operator {number}", reason="yes", steps=told, fence=2)

    with running(*(lambda number=n: speak(number) for n in range(len(gates)))) as answers:
        pass

    kinds = Counter(type(answer).__name__ for answer in answers)
    assert kinds == {"Entry": 1, "RulingRefused": len(gates) - 1}
    winner = next(n for n, answer in enumerate(answers) if type(answer).__name__ == "Entry")
    for answer in answers:
        if isinstance(answer, RulingRefused):
            assert f"operator {winner} " in str(answer)
    desk.reconcile()
    assert desk.ledger.state() == ("failed" if winner % 2 else "committed")
    assert desk.terminal.sold == (0 if winner % 2 else 1)
    rulings = [kind for kind in desk.ledger.log_kinds() if kind >= LogKind.APPROVED]
    assert len(rulings) == 1
