"""Certain failures: a call that certainly did not happen needs no person, however long the outage lasts."""

from __future__ import annotations

import contextlib
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
import requests

from oncegate import Gate, NotApplied, Once
from oncegate.store import StepState
from oncegate.testing import CrashReached
from tests.support.gates import LEASE, DeadAfter, Ledger

pytestmark = pytest.mark.waits
HOUR = 3600
CERTAIN = ["refused", "not applied", "turned away", "own error", "resting"]
DOUBTFUL = ["no answer", "lost answer", "dies before", "dies after"]


class TooMany(Exception):
    """An answer 429."""

    status = 429


class Bank:
    """A downstream that forgets keys after an hour and does what the script says."""

    def __init__(self, ledger: Ledger) -> None:
        self.clock, self.script = ledger.clock, "well"
        self.sold: list[str] = []
        self._known: dict[str, int] = {}

    def pay(self, key: str, *, honours: bool) -> str:
        if self.script == "refused":
            raise ConnectionRefusedError(111, "refused")
        if self.script in ("not applied", "turned away"):
            raise NotApplied("full") if self.script == "not applied" else TooMany
        if self.script == "no answer":
            raise TimeoutError
        now = self.clock.ticks_ms()
        if not honours or now - self._known.get(key, -(10**9)) >= HOUR * 1000:
            self.sold.append(key)
            self._known[key] = now
        if self.script == "lost answer":
            raise TimeoutError
        return f"S-{key[:4]}"


class Process:
    """A program of three steps, or of one opaque call, at one bank."""

    def __init__(self, ledger: Ledger, bank: Bank, kind: str, shape: str, dies: DeadAfter | None) -> None:
        self.gate, self.bank = ledger.gate(dies), bank
        options: dict[str, dict[str, Any]] = {
            "honours": {"honours_key": "1h"},
            "asked": {"probe": self._find},
            "neither": {},
        }
        at, honours = self.gate.downstream("bank", **options[kind]), kind == "honours"

        def pay(idempotency_key: str = "") -> str:
            return bank.pay(idempotency_key, honours=honours)

        def steps(event: dict[str, str], once: Once) -> str:
            self._fail_early()
            for name in ("line-1", "line-2", "notify"):
                once.effect(at, pay, name=name)
            return "done"

        def opaque(event: dict[str, str], idempotency_key: str = "") -> str:
            self._fail_early()
            return pay(idempotency_key)

        if shape == "steps":
            self.gate.handler("orders", key="{id}", lease=LEASE)(steps)
        else:
            self.gate.handler("orders", key="{id}", lease=LEASE, downstream=at)(opaque)

    def _find(self, key: str) -> str | None:
        return "S-1" if key in self.bank.sold else None

    def _fail_early(self) -> None:
        if self.bank.script == "own error":
            raise NotApplied("a bug before any call")


class Story:
    """One event through attempts of one kind of program, each in a process that has met such events."""

    def __init__(self, ledger: Ledger, kind: str, shape: str) -> None:
        self.ledger, self.kind, self.shape, self.bank = ledger, kind, shape, Bank(ledger)
        self._warm = 0

    def process(self, dies: DeadAfter | None = None) -> Gate:
        """A process whose steps are declared: nothing is written before a repeatable call."""
        process = Process(self.ledger, self.bank, self.kind, self.shape, dies)
        if dies is None:
            self._warm += 1
            script, self.bank.script = self.bank.script, "well"
            self.deliver(process.gate, f"warm {self._warm}")
            self.bank.script = script
        return process.gate

    def deliver(self, gate: Gate, event: str = "N-1") -> None:
        with contextlib.suppress(Exception):
            gate.admit_sync("orders", {"id": event})

    def attempt(self, script: str) -> None:
        """One attempt that goes as the script says."""
        self.bank.script = "well" if script.startswith("dies") else script
        if script.startswith("dies"):
            point = "effect.before" if script == "dies before" else "effect.after"
            with contextlib.suppress(CrashReached):
                self.deliver(self.process(DeadAfter(point)))
            self.ledger.lapse()
        elif script == "resting":
            gate = self.process()
            self.bank.script = "refused"
            self.deliver(gate, "another")
            self.deliver(gate)
        else:
            self.deliver(self.process())
        self.ledger.clock.advance(90)

    def end(self) -> str:
        """The bank is well again; what becomes of the event without a person."""
        self.bank.script = "well"
        gate = self.process()
        for _ in range(4):
            self.deliver(gate)
            self.ledger.clock.advance(90)
        ((state,),) = self.ledger.rows("SELECT state FROM oncegate_entries WHERE label LIKE '%N-1'")
        return str(state)

    def check_sold_once(self) -> None:
        assert len(set(self.bank.sold)) == len(self.bank.sold), "one key was sold twice"


@pytest.mark.parametrize("shape", ["steps", "opaque"])
@pytest.mark.parametrize("kind", ["honours", "asked", "neither"])
@pytest.mark.parametrize("history", [[one] for one in CERTAIN] + [["refused", "own error", "turned away"]])
def test_event_that_was_certainly_not_called_resumes_by_itself(
    ledger: Ledger, history: list[str], kind: str, shape: str
) -> None:
    """I26: however long the outage lasts, and whatever the downstream remembers."""
    story = Story(ledger, kind, shape)
    for script in history:
        story.attempt(script)
    ledger.clock.advance(5 * HOUR)
    assert story.end() == "committed"
    story.check_sold_once()


@pytest.mark.parametrize("shape", ["steps", "opaque"])
@pytest.mark.parametrize("kind", ["honours", "neither"])
@pytest.mark.parametrize(
    "history",
    [
        *([one] for one in DOUBTFUL),
        *(["refused", one] for one in DOUBTFUL),
        *([one, "refused"] for one in DOUBTFUL),
        ["own error", "dies after", "own error"],
        ["resting", "lost answer", "refused", "refused"],
    ],
)
def test_doubt_stays_in_front_of_a_person_after_the_keys_memory(
    ledger: Ledger, history: list[str], kind: str, shape: str
) -> None:
    """I9: a certain failure says nothing about the attempts before it."""
    story = Story(ledger, kind, shape)
    for script in history:
        story.attempt(script)
    ledger.clock.advance(5 * HOUR)
    assert story.end() == "unknown"
    story.check_sold_once()


@pytest.mark.parametrize("doubt", DOUBTFUL)
@pytest.mark.parametrize("shape", ["steps", "opaque"])
def test_keys_memory_counts_from_the_first_call_that_may_have_arrived(
    ledger: Ledger, doubt: str, shape: str
) -> None:
    """I26: an outage of five hours that ends with a few lost answers still asks nobody."""
    story = Story(ledger, "honours", shape)
    story.attempt("refused")
    ledger.clock.advance(5 * HOUR)
    for script in ("refused", doubt, "refused"):
        story.attempt(script)
    assert story.end() == "committed"
    story.check_sold_once()


@pytest.mark.parametrize("shape", ["steps", "opaque"])
@pytest.mark.parametrize("doubt", DOUBTFUL)
def test_doubt_within_the_keys_memory_is_called_again_with_the_key(
    ledger: Ledger, doubt: str, shape: str
) -> None:
    """A7: with the same key, and sold once."""
    story = Story(ledger, "honours", shape)
    for script in ("refused", doubt):
        story.attempt(script)
    assert story.end() == "committed"
    story.check_sold_once()


def test_call_under_way_beside_a_failing_step_is_in_doubt(ledger: Ledger) -> None:
    """I9: the attempt ends while another step's call is on its way; that step did not "not happen"."""
    gate, begun, go_on, calls = ledger.gate(), threading.Event(), threading.Event(), list[str]()
    bank = gate.downstream("bank", honours_key="1h")
    threads: list[threading.Thread] = []

    def pay(idempotency_key: str = "") -> str:
        calls.append("pay")
        begun.set()
        go_on.wait(30)
        return "paid"

    @gate.handler("orders", key="{id}", lease=LEASE)
    def order(event: dict[str, Any], once: Once) -> None:
        if event["id"] == "warm":
            once.effect(bank, lambda idempotency_key: "paid", name="pay")
        elif len(threads) < 1:
            threads.append(threading.Thread())
            raise NotApplied("before any call")
        else:
            threads.append(threading.Thread(target=once.effect, args=(bank, pay), kwargs={"name": "pay"}))
            threads[-1].start()
            begun.wait(30)
            raise RuntimeError("beside it")

    gate.admit_sync("orders", {"id": "warm"})
    for error in (NotApplied, RuntimeError):
        with pytest.raises(error):
            gate.admit_sync("orders", {"id": "N-1"})
        ledger.clock.advance(90)
    states = ledger.rows("SELECT state FROM oncegate_step WHERE name = 'pay'")
    go_on.set()
    threads[-1].join()
    assert (states, calls) == ([(StepState.CALLED.value,)], ["pay"])


def test_redirect_that_cannot_be_followed_leaves_its_post_in_doubt(ledger: Ledger) -> None:
    """I9: the bank was paid and answered 303; the page behind it refuses connections."""
    paid: list[str] = []

    class Paid(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            paid.append(self.path)
            self.send_response(303)
            self.send_header("Location", "http://127.0.0.1:1/")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    gate = ledger.gate()
    bank = gate.downstream("bank")
    with HTTPServer(("127.0.0.1", 0), Paid) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()

        @gate.handler("orders", key="{id}", lease=LEASE)
        def order(event: dict[str, str], once: Once) -> str:
            url = f"http://127.0.0.1:{server.server_port}/"
            return once.effect(bank, lambda: requests.post(url, timeout=5).text, name="pay")

        for _ in range(3):
            with contextlib.suppress(Exception):
                gate.admit_sync("orders", {"id": "N-1"})
            ledger.clock.advance(90)
        server.shutdown()
    assert (len(paid), ledger.state()) == (1, "unknown")
