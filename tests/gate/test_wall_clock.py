"""E1, I15: whatever the wall clock does, a key has one effect, and leases run on time of their own."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncegate import Downstream, Gate, NotApplied, OutcomeUnknown, Verdict
from oncegate.testing import CrashReached
from tests.support.gates import DeadAfter, Ledger, Style, Terminal
from tests.support.properties import tried

pytestmark = pytest.mark.slow

PLAIN = Style("plain")
HOUR = 3600
YEAR = 365 * 24 * HOUR

CRASHES = ["reserve.after", "start.after", "effect.before", "effect.after", "step.after", "settle.before"]
ABILITIES = ["honours keys", "can be asked", "neither", "opaque"]

arrivals = st.tuples(st.just("arrive"), st.sampled_from(["a", "b"]))
crashes = st.tuples(st.just("crash"), st.sampled_from(CRASHES))
ticks = st.tuples(st.just("advance"), st.sampled_from([1, 61, 601, 662]))
wall_steps = st.tuples(st.just("step"), st.sampled_from([-2 * HOUR, YEAR, -YEAR, 61]))
stories = st.lists(st.one_of(arrivals, crashes, ticks, wall_steps), min_size=2, max_size=10)


class World:
    """One ledger and one terminal, through a story of arrivals, crashes and clocks."""

    def __init__(self, folder: str, ability: str) -> None:
        self.ledger = Ledger(Path(folder))
        self.terminal = Terminal(honours_key=ability == "honours keys")
        self.ability = ability
        self.verdicts: list[str] = []
        self.values: dict[str, set[str]] = {}

    def declare(self, gate: Gate) -> Downstream | None:
        """Declares the terminal as what it is."""
        if self.ability == "honours keys":
            return gate.downstream("ect", honours_key="7d")
        if self.ability == "can be asked":
            return gate.downstream("ect", probe=self.terminal.find)
        return gate.downstream("ect") if self.ability == "neither" else None

    def process(self, crash: str | None) -> Gate:
        """A process of its own for every arrival."""
        gate = self.ledger.gate(DeadAfter(crash) if crash else None)
        downstream = self.declare(gate)

        def book(event, once):
            return once.effect(downstream, self.terminal.claim, event["id"])["id"]

        def book_opaquely(event):
            return self.terminal.claim(event["id"], event["id"])["id"]

        PLAIN.register(gate, "bookings", book if downstream else book_opaquely, attempts_max=99)
        return gate

    def arrive(self, key: str, crash: str | None = None) -> str:
        """Admits an event and says in a word what came of it."""
        gate = self.process(crash)
        try:
            answer = gate.admit_sync("bookings", {"id": key})
        except CrashReached:
            return "crashed"
        except NotApplied:
            return "not yet"
        except OutcomeUnknown:
            return "unknown"
        finally:
            gate.close()
        if answer.verdict in (Verdict.RUN, Verdict.REPLAY):
            self.values.setdefault(key, set()).add(answer.value)
        return str(answer.verdict.value)

    def play(self, story: list[tuple[str, Any]]) -> None:
        """Plays a story to its end."""
        for what, how in story:
            if what == "advance":
                self.ledger.clock.advance(how)
            elif what == "step":
                self.ledger.clock.step_wall(how)
            elif what == "crash":
                self.verdicts.append(self.arrive("a", how))
            else:
                self.verdicts.append(self.arrive(how))

    def check(self) -> None:
        """At most one effect for each key, and never two different answers."""
        assert self.terminal.most_for_one_key <= 1
        assert all(len(values) == 1 for values in self.values.values())


def played(ability: str, story: list[tuple[str, Any]]) -> World:
    """Plays a story in a new world."""
    with tempfile.TemporaryDirectory() as folder:
        world = World(folder, ability)
        world.play(story)
        world.check()
        return world


@pytest.mark.parametrize("ability", ABILITIES)
@pytest.mark.hypothesis
def test_no_story_of_crashes_and_clocks_has_two_effects_for_one_key(ability: str) -> None:
    """Arrivals, crashes, passing time and wall clock steps in any order."""

    @tried(12)
    @given(stories)
    def check(story: list[tuple[str, Any]]) -> None:
        played(ability, story)

    check()


@pytest.mark.parametrize("ability", ["can be asked", "neither", "opaque"])
@pytest.mark.hypothesis
def test_wall_clock_steps_change_no_verdict(ability: str) -> None:
    """The same story without its wall clock steps has the same verdicts, one by one.

    A downstream that honours keys for a limited time is left out: there a clock that is wrong may make us
    more careful, which test_recovery.py shows.
    """

    @tried(8)
    @given(stories)
    def check(story: list[tuple[str, Any]]) -> None:
        steady = [act for act in story if act[0] != "step"]
        assert played(ability, story).verdicts == played(ability, steady).verdicts

    check()


@pytest.mark.parametrize("step", [-2 * HOUR, YEAR], ids=["back two hours", "on a year"])
def test_a_wall_clock_step_between_two_arrivals_is_not_noticed(
    ledger: Ledger, style: Style, step: float
) -> None:
    """A replay stays a replay, a conflict a conflict, a lease as long as it was."""
    gate, verdicts = ledger.gate(), []
    other = ledger.gate()
    PLAIN.register(other, "bookings", lambda event, once: "by the other")

    def body(event, once):
        if event["id"] == "held":
            ledger.clock.step_wall(step)
            verdicts.append(other.admit_sync("bookings", {"id": "held"}))
        return "done"

    style.register(gate, "bookings", body)
    style.admit(gate, "bookings", {"id": "settled"})
    # When the wall clock steps while a handler runs, its lease is neither over nor longer
    style.admit(gate, "bookings", {"id": "held"})
    assert (verdicts[0].verdict, verdicts[0].retry_after_seconds) == (Verdict.BUSY, 600)
    # When it steps between two arrivals, the second one is what it would have been
    ledger.clock.step_wall(step)
    assert style.admit(gate, "bookings", {"id": "settled"}).verdict is Verdict.REPLAY
    assert other.admit_sync("bookings", {"id": "settled"}).verdict is Verdict.REPLAY
    assert style.admit(gate, "bookings", {"id": "settled", "x": 1}).verdict is Verdict.CONFLICT
