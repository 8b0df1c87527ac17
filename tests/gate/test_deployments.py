"""A new version of the program recovers what the old one left: never a second effect (I1, I24, A4, A6).

Every pair of declarations, with a crash right before and right after the effect; every third pair side by
side. On PostgreSQL each version is the old one and the new one, which shows that the ledger keeps what the
decision needs; `make soak` plays every pair with every crash, and side by side, on both ledgers. The bank
keeps its own count and does no more than what was declared when it was called: it knows a key only if that
was sent under a declaration that it honours keys, and is found by its probe only if it was sent for one.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oncegate import Downstream, Gate, StepNameWarning
from oncegate.crashpoints import CrashPoints
from oncegate.model.keys import derive_key
from oncegate.model.states import State
from oncegate.review.decisions import Decisions, StepDecision
from oncegate.store import EntryDetail, StepState
from oncegate.testing import CrashReached, ManualClock
from tests.support.gates import LEASE, LEASE_SECONDS, DeadAfter

SURFACE, TEMPLATE = "orders", "{id}"
ROUND_SECONDS = 120.0
SETTLED = (State.COMMITTED, State.FAILED)
BEFORE_A_PERSON = (State.UNKNOWN, State.HELD)
ROW = "INSERT INTO charged (id) VALUES (?)"


class Bank:
    """Charges: what it has done, by event, and which keys it knows."""

    def __init__(self) -> None:
        self.charged: Counter[str] = Counter()
        self._honoured: set[str] = set()
        self._findable: dict[str, str] = {}

    def charge(self, event_id: str, key: str, downstream: Downstream | None) -> dict[str, str]:
        honours = downstream is not None and downstream.capability.honours_key_for is not None
        if not (honours and key in self._honoured):
            self.charged[event_id] += 1
        if honours:
            self._honoured.add(key)
        if downstream is not None and downstream.capability.can_be_asked:
            self._findable[key] = event_id
        return {"id": f"c-{event_id}"}

    def find(self, key: str) -> dict[str, str] | None:
        return {"id": f"c-{self._findable[key]}"} if key in self._findable else None


Register = Callable[[Gate, Bank], None]


def by_effect(step: str, at: str = "bank", *, asks: bool = False, honours: str | None = None) -> Register:
    """A handler that takes once and charges as one step."""

    def register(gate: Gate, bank: Bank) -> None:
        downstream = gate.downstream(at, honours_key=honours, probe=bank.find if asks else None)

        @gate.handler(SURFACE, key=TEMPLATE, lease=LEASE)
        def handle(event: Any, once: Any) -> Any:
            def charge(idempotency_key: str) -> dict[str, str]:
                return bank.charge(event["id"], idempotency_key, downstream)

            return once.effect(downstream, charge, name=step)["id"]

    return register


def after_another_step(gate: Gate, bank: Bank) -> None:
    """A handler that got a step before its charge, at the same downstream."""
    downstream = gate.downstream("bank", honours_key="7d")

    @gate.handler(SURFACE, key=TEMPLATE, lease=LEASE)
    def handle(event: Any, once: Any) -> Any:
        def look(idempotency_key: str) -> bool:
            return True

        def charge(idempotency_key: str) -> dict[str, str]:
            return bank.charge(event["id"], idempotency_key, downstream)

        once.effect(downstream, look, name="look")
        return once.effect(downstream, charge, name="charge")["id"]


def by_step(gate: Gate, bank: Bank) -> None:
    """A handler whose charge is a step at no declared downstream."""

    @gate.handler(SURFACE, key=TEMPLATE, lease=LEASE)
    def handle(event: Any, once: Any) -> Any:
        return once.step("charge", lambda: bank.charge(event["id"], "", None))["id"]


def opaque(*, honours: str | None = None, asks: bool = False, is_declared: bool = True) -> Register:
    """A handler that knows nothing of the gate."""

    def register(gate: Gate, bank: Bank) -> None:
        declared = gate.downstream("bank", honours_key=honours, probe=bank.find if asks else None)

        def handle(event: Any, idempotency_key: str = "") -> Any:
            return bank.charge(event["id"], idempotency_key, declared if is_declared else None)["id"]

        options: dict[str, Any] = {"downstream": declared} if is_declared else {}
        gate.handler(SURFACE, key=TEMPLATE, lease=LEASE, **options)(handle)

    return register


def same_database(gate: Gate, bank: Bank) -> None:
    """A handler whose effect is a row in the ledger's own database."""

    @gate.handler(SURFACE, key=TEMPLATE, lease=LEASE, same_database=True)
    def handle(event: Any, once: Any) -> Any:
        once.tx.execute(ROW, (event["id"],))
        return "row"


def by_write(name: str) -> Register:
    """A handler whose effect is a row, written as a step."""

    def register(gate: Gate, bank: Bank) -> None:
        @gate.handler(SURFACE, key=TEMPLATE, lease=LEASE)
        def handle(event: Any, once: Any) -> Any:
            once.write(name, [(ROW, (event["id"],))])
            return "row"

    return register


VERSIONS: dict[str, Register] = {
    "neither": by_effect("charge"),
    "neither, renamed": by_effect("charge_card"),
    "honours": by_effect("charge", honours="7d"),
    "honours, renamed": by_effect("charge_card", honours="7d"),
    "honours, shorter": by_effect("charge", honours="1m"),
    "probe": by_effect("charge", asks=True),
    "probe, renamed": by_effect("charge_card", asks=True),
    "honours and probe": by_effect("charge", honours="7d", asks=True),
    "another downstream": by_effect("charge", "bank-2", honours="7d"),
    "all renamed": by_effect("charge_card", "bank-2", honours="7d"),
    "another step": after_another_step,
    "undeclared step": by_step,
    "opaque": opaque(is_declared=False),
    "opaque, neither": opaque(),
    "opaque, honours": opaque(honours="7d"),
    "opaque, probe": opaque(asks=True),
    "same database": same_database,
    "write": by_write("row"),
    "write, renamed": by_write("charge"),
}
ON_THE_LEDGER = ("same database", "write", "write, renamed")
CRASHES = (("effect.after", True), ("effect.after", False), ("effect.before", True))
CRASHES_ON_THE_LEDGER = (("settle.before", True),)
Cell = tuple[str, tuple[str, bool]]  # the new version; where the old one dies, and whether it was warm
FAR = 7  # any distance that shares no divisor with the number of versions
FINISHED_BY_THEMSELVES = {
    "honours", "honours, renamed", "probe", "probe, renamed", "honours and probe", "another downstream",
    "all renamed", "another step", "same database", "write", "write, renamed",
}  # fmt: skip


class DeadLater(DeadAfter):
    """Dies at a crash point, counted from when it is armed."""

    is_armed = False

    def hit(self, name: str) -> None:
        if self.is_armed:
            super().hit(name)


class Site:
    """One ledger, its clock, and a bank; each gate stands for a process of one version."""

    def __init__(self, url: str) -> None:
        self.url, self.clock, self.bank, self._gates = url, ManualClock(), Bank(), list[Gate]()
        self.is_server = url.startswith("postgres")
        self._asking = self.process("opaque").engine.store.connect()
        self.execute("CREATE TABLE charged (id TEXT)")

    def process(self, version: str, crashpoints: CrashPoints | None = None) -> Gate:
        gate = Gate(self.url, clock=self.clock, crashpoints=crashpoints, replay_cache_max=1)
        VERSIONS[version](gate, self.bank)
        self._gates.append(gate)
        return gate

    def close(self) -> None:
        for gate in self._gates:
            gate.close()
        self._gates.clear()

    def end(self) -> None:
        self.close()
        self._asking.close()

    def die(self, version: str, event_id: str, crash: str, *, is_warm: bool = False) -> bool:
        """Lets a process of this version die at a crash point; tells whether it came to that.

        One that is warm has handled another event before: it knows its steps.
        """
        crashpoints = DeadLater(crash, 2 if version == "another step" and crash != "settle.before" else 1)
        gate = self.process(version, crashpoints)
        if is_warm:
            gate.admit_sync(SURFACE, {"id": f"before {event_id}"})
        crashpoints.is_armed = True
        with contextlib.suppress(CrashReached, Exception):
            gate.admit_sync(SURFACE, {"id": event_id})
        self.clock.advance(LEASE_SECONDS + 1)
        return crashpoints.is_dead

    def settle(self, version: str, event_id: str) -> EntryDetail:
        """Delivers the event to a version until it is settled or in front of a person."""
        gate = self.process(version)
        for _ in range(12):
            with contextlib.suppress(Exception):
                gate.admit_sync(SURFACE, {"id": event_id})
            found = self.entry(gate, event_id)
            if found.entry.state in SETTLED + BEFORE_A_PERSON:
                return found
            self.clock.advance(ROUND_SECONDS)
        raise AssertionError(f"{event_id} is neither settled nor in front of a person: {found}")

    def entry(self, gate: Gate, event_id: str) -> EntryDetail:
        key = derive_key("", SURFACE, TEMPLATE, (event_id,)).digest
        with gate.engine.store.look(again=True) as session:
            (entry,) = session.read([key])
            assert entry is not None
            found = session.detail(entry.entry_id)
        assert found is not None
        return found

    def effects(self, event_id: str) -> int:
        """What the bank and the business table say, past the gate."""
        ((rows,),) = self.execute("SELECT count(*) FROM charged WHERE id = ?", (event_id,))
        return self.bank.charged[event_id] + int(rows)

    def execute(self, sql: str, parameters: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        with self._asking.unit():
            return self._asking.execute(sql, parameters)


@pytest.fixture(params=["sqlite", "postgres"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    is_file = request.param == "sqlite"
    made = Site(f"sqlite:///{tmp_path}/ledger.db" if is_file else request.getfixturevalue("ledger_url"))
    yield made
    made.end()


def crashes_of(old: str) -> tuple[tuple[str, bool], ...]:
    return CRASHES_ON_THE_LEDGER if old in ON_THE_LEDGER else CRASHES


def chosen(old: str, *, on_server: bool) -> list[Cell]:
    """Every pair with a warm process that dies after its effect; other crashes with every fourth."""
    names, first, *others = [*VERSIONS], *crashes_of(old)
    begin = names.index(old)
    if on_server:
        return [(old, first), (names[(begin + FAR) % len(names)], first)]
    more = [
        (new, crash)
        for place, crash in enumerate(others, 1)
        for at, new in enumerate(names, begin)
        if at % 4 == place
    ]
    return [*((new, first) for new in names), *more]


@pytest.mark.slow
@pytest.mark.parametrize("old", VERSIONS)
def test_every_pair_of_versions_has_one_effect_at_most(site: Site, old: str) -> None:
    """The old one dies at any point around its effect; the new one settles the event or asks a person."""
    for new, (crash, is_warm) in chosen(old, on_server=site.is_server):
        check_pair(site, old, new, crash, is_warm=is_warm)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("old", VERSIONS)
def test_soak_every_pair_of_versions_with_every_crash(site: Site, old: str) -> None:
    for new, (crash, is_warm) in itertools.product(VERSIONS, crashes_of(old)):
        check_pair(site, old, new, crash, is_warm=is_warm)


def check_pair(site: Site, old: str, new: str, crash: str, *, is_warm: bool) -> None:
    event_id = f"{old}:{new}:{crash}:{is_warm}"
    assert site.die(old, event_id, crash, is_warm=is_warm)
    found = site.settle(new, event_id)
    assert site.effects(event_id) <= 1, (event_id, found.entry.reason)
    if found.entry.state is State.COMMITTED:
        assert site.effects(event_id) == 1, event_id
    elif old == new:
        assert old not in FINISHED_BY_THEMSELVES, (event_id, found.entry.reason)
    site.close()


@pytest.mark.slow
@pytest.mark.parametrize("old", VERSIONS)
def test_old_and_new_side_by_side_have_one_effect_at_most(site: Site, old: str) -> None:
    """A rolling deployment: the old one dies, the new one dies as it recovers, the old one comes again."""
    first, begin = crashes_of(old)[0], [*VERSIONS].index(old)
    pairs = [new for new, crash in chosen(old, on_server=site.is_server) if crash == first]
    for new in pairs if site.is_server else pairs[begin // 3 % 3 :: 3]:
        check_rolling(site, old, new)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("old", VERSIONS)
def test_soak_every_old_and_new_side_by_side(site: Site, old: str) -> None:
    for new in VERSIONS:
        check_rolling(site, old, new)


def check_rolling(site: Site, old: str, new: str) -> None:
    event_id = f"{old}:{new}:rolling"
    assert site.die(old, event_id, crashes_of(old)[0][0], is_warm=True)
    site.die(new, event_id, "effect.after", is_warm=site.is_server)
    found = site.settle(old, event_id)
    assert site.effects(event_id) <= 1, (event_id, found.entry.reason)
    site.close()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("neither", "neither, renamed"),
        ("honours", "honours, renamed"),
        ("honours", "neither"),
        ("probe", "neither"),
        ("honours", "honours, shorter"),
        ("opaque", "honours"),
        ("opaque", "undeclared step"),
        ("opaque", "same database"),
        ("honours", "opaque"),
        ("write", "write, renamed"),
        ("neither", "honours"),
    ],
)
@pytest.mark.parametrize("happened", [True, False], ids=["happened", "did not"])
def test_a_persons_word_ends_the_doubt(site: Site, old: str, new: str, happened: bool) -> None:
    """One answer is enough: what happened is not done again, what did not is done once."""
    crash = "step.after" if old == "write" else "effect.after" if happened else "effect.before"
    assert site.die(old, "A-1", crash, is_warm=True)
    found = site.settle(new, "A-1")
    assert found.entry.state is State.UNKNOWN
    done = site.effects("A-1")
    doubts = [step.name for step in found.steps if step.state is StepState.STARTED]
    assert len(doubts) == 1

    gate = site.process(new)
    word = StepDecision(happened=happened, resource="c-1" if happened else None)
    Decisions(gate.engine.commits, site.clock).approve(
        found.entry.entry_id, actor="ann", reason="looked", steps={doubts[0]: word}
    )

    found = site.settle(new, "A-1")
    assert found.entry.state is State.COMMITTED, found.entry.reason
    assert site.effects("A-1") == (done if happened else done + 1)


def test_the_reason_names_both_steps_and_what_to_do(tmp_path: Path) -> None:
    """A person reads which step was open, what the new version calls it, and how to keep names."""
    site = Site(f"sqlite:///{tmp_path}/ledger.db")
    assert site.die("honours", "A-1", "effect.after")

    found = site.settle("honours, renamed", "A-1")

    assert found.entry.reason is not None
    assert "step charge at bank" in found.entry.reason
    assert "charge_card" in found.entry.reason
    assert "name=" in found.entry.reason
    site.end()


def test_an_entry_of_before_has_nothing_to_rely_on(tmp_path: Path) -> None:
    """What was claimed before declarations were kept goes to a person, whatever is declared now."""
    site = Site(f"sqlite:///{tmp_path}/ledger.db")
    for version in ("honours", "probe", "opaque, honours", "opaque", "same database"):
        assert site.die("honours", version, "effect.after")
        site.execute("UPDATE oncegate_entry SET declared = NULL")
        site.execute("DELETE FROM oncegate_step")

        found = site.settle(version, version)

        assert (found.entry.state, site.effects(version)) == (State.UNKNOWN, 1), version
    site.end()


def test_a_known_step_costs_no_write_of_its_own(tmp_path: Path) -> None:
    """From its second event on, a process calls a repeatable downstream between two commits, as before."""
    site = Site(f"sqlite:///{tmp_path}/ledger.db")
    counted = CountedCommits()
    gate = site.process("honours", counted)

    commits = []
    for number in range(3):
        before = counted.commits
        gate.admit_sync(SURFACE, {"id": f"A-{number}"})
        commits.append(counted.commits - before)

    assert commits == [3, 2, 2]
    site.end()


class CountedCommits(CrashPoints):
    """Counts commits."""

    commits = 0

    def hit(self, name: str) -> None:
        self.commits += name == "commit.after"


def test_the_program_of_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/deploying.md, as it stands there; its steps have names of their own, so that nothing warns."""
    guide = (Path(__file__).parents[2] / "docs" / "deploying.md").read_text("utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exec(compile(program, "deploying.md", "exec"), {"__name__": "guide"})


def test_a_step_named_after_its_function_warns_once(tmp_path: Path) -> None:
    """Renaming the function would make it another step."""
    site = Site(f"sqlite:///{tmp_path}/ledger.db")
    gate = Gate(site.url, clock=site.clock)
    bank = gate.downstream("bank", honours_key="7d")

    def charge(idempotency_key: str) -> str:
        return "c-1"

    @gate.handler("charges", key="{id}")
    def handle(event: Any, once: Any) -> Any:
        return once.effect(bank, charge)

    with pytest.warns(StepNameWarning, match='name="charge"'):
        gate.admit_sync("charges", {"id": 1})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gate.admit_sync("charges", {"id": 2})
    gate.close()
    site.end()
