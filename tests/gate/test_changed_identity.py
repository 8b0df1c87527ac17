"""A key template or a function that changed: refused until a person accepts it, and never a second effect.

Each gate stands for one process. Time is the ledger's own, moved by hand.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from oncegate import Conflict, Gate, Verdict
from oncegate.crashpoints import CrashPoints
from oncegate.errors import ConfigError, StoreBusy, StoreError
from oncegate.gate.functions import surface_of
from oncegate.maintenance.reconciler import Reconciler
from oncegate.model.identity import (
    KIND,
    OVERLAP_MIN_MS,
    VALID_MS,
    KeyRule,
    LedgerNow,
    accepted,
    read_identity,
    rekeyed,
)
from oncegate.model.paths import parse_path
from oncegate.model.template import KeyTemplate
from oncegate.store import DocumentChange
from oncegate.testing import CrashReached, ManualClock
from tests.support.gates import LEASE, DeadAfter

OVERLAP_SECONDS = OVERLAP_MIN_MS // 1000
EVENT = {"id": "A-1", "org": "acme"}
OLD, NEW, NEWER = "order:{id}", "order-{id}", "{id:str}"


class Place:
    """One ledger, and the processes on it."""

    def __init__(self, url: str) -> None:
        self.url, self.clock = url, ManualClock()
        self.ran: list[Any] = []
        self._gates: list[Gate] = []

    def process(
        self,
        key: str = OLD,
        *,
        crash: str | None = None,
        points: CrashPoints | None = None,
        **options: Any,
    ) -> Gate:
        """A program that declares the surface, as it was deployed."""
        points = points if crash is None else DeadAfter(crash)
        gate = Gate(self.url, clock=self.clock, crashpoints=points)
        self._gates.append(gate)
        options.setdefault("downstream", gate.downstream("bank", honours_key="7d"))

        def pay(event: Any, idempotency_key: str = "") -> str:
            self.ran.append((event["id"], idempotency_key.partition(":")[0]))
            return "paid"

        if options.get("same_database"):
            options.pop("downstream")

            def book(event: Any, once: Any) -> str:
                self.ran.append((event["id"], once.key))
                return "paid"

            gate.handler("orders", key=key, lease=LEASE, **options)(book)
        else:
            gate.handler("orders", key=key, lease=LEASE, **options)(pay)
        return gate

    def rekey(self, new: str, tenant: str | None = None) -> None:
        """A person accepts another template."""
        self.change(
            lambda kept, now: rekeyed(
                kept,
                KeyRule(KeyTemplate.parse(new), None if tenant is None else parse_path(tenant)),
                now,
                OVERLAP_MIN_MS,
            )
        )

    def change(self, change: Any) -> None:
        with closing(self._gates[0].engine.store.connect()) as session, session.unit():
            found = session.document(KIND, "orders")
            assert found is not None
            made = change(read_identity(found.body), LedgerNow(session.now_ticks(), self.clock.wall_ms()))
            wanted = DocumentChange(KIND, "orders", found.version, made.encoded(), 1, "ann", "because")
            assert session.change_document(wanted)

    def end_overlap(self) -> None:
        self.clock.advance(OVERLAP_SECONDS)

    def stops_after_comparing(self, gate: Gate) -> None:
        """The process compared long ago and is about to reserve: nothing tells it how late it is."""
        plans = gate.engine._context.plans
        plans["orders"] = replace(plans["orders"], recheck_at_ticks_ms=2**63 - 1)

    def verdict(self, gate: Gate, event: Any = EVENT) -> Verdict:
        return gate.admit_sync("orders", event).verdict

    def close(self) -> None:
        for gate in self._gates:
            gate.close()


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[Place]:
    url = (
        request.getfixturevalue("ledger_url")
        if request.param == "postgres"
        else f"sqlite:///{tmp_path}/l.db"
    )
    made = Place(url)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("key", "tenant", "command"),
    [
        (
            "{id:str}",
            None,
            "oncegate surfaces rekey orders --from 'order:{id}' --to '{id:str}' --reason WHY",
        ),
        ("order-{id}", None, "--to 'order-{id}' --reason WHY"),
        (OLD, "{org}", "--to 'order:{id}' --tenant org --reason WHY"),
    ],
)
def test_another_key_template_is_refused_before_anything_runs(
    place: Place, key: str, tenant: str | None, command: str
) -> None:
    assert place.verdict(place.process()) is Verdict.RUN
    other = place.process(key, tenant=tenant)
    for attempt in (lambda: place.verdict(other), lambda: place.verdict(other), other.check_surfaces):
        with pytest.raises(ConfigError) as refused:
            attempt()
        assert command in str(refused.value)
    assert len(place.ran) == 1
    assert place.verdict(place.process()) is Verdict.REPLAY


def test_a_refused_program_does_not_take_up_what_another_left(place: Place) -> None:
    with pytest.raises(CrashReached):
        place.verdict(place.process(crash="reserve.after"))
    place.clock.advance(601)
    other = place.process(NEW)
    with other.engine.store.look() as session:
        (stranded,) = session.stranded(10)
    with pytest.raises(ConfigError, match="rekey"):
        other.engine.recover_sync(stranded)
    assert place.ran == []


@pytest.mark.parametrize("same_database", [False, True], ids=["outside", "same database"])
def test_an_event_known_by_its_old_key_is_a_replay(place: Place, same_database: bool) -> None:
    """During the overlap, after it, and for a program that ran all the while."""
    old = place.process(same_database=same_database)
    place.verdict(old)
    place.rekey(NEW)
    new = place.process(NEW, same_database=same_database)
    assert place.verdict(new) is Verdict.REPLAY
    place.end_overlap()
    fresh = place.process(NEW, same_database=same_database)
    assert [place.verdict(gate) for gate in (new, fresh)] == [Verdict.REPLAY] * 2
    assert len(place.ran) == 1


def test_old_and_new_program_side_by_side_are_one_gate(place: Place) -> None:
    """A rolling deploy: whichever has an event first, the other one replays it."""
    old = place.process()
    place.verdict(old)
    place.rekey(NEW)
    new, late = place.process(NEW), place.process(OLD)
    events = [{"id": f"B-{number}"} for number in range(4)]
    for event, order in zip(events, [(old, new), (new, old), (late, new), (new, late)], strict=True):
        assert [place.verdict(gate, event) for gate in order] == [Verdict.RUN, Verdict.REPLAY]
    place.end_overlap()
    assert [place.verdict(new, event) for event in events] == [Verdict.REPLAY] * 4
    assert len(place.ran) == 5


def test_after_the_overlap_the_old_program_is_refused_and_the_new_template_makes_the_keys(
    place: Place,
) -> None:
    old = place.process()
    place.verdict(old)
    place.rekey(NEW)
    new = place.process(NEW)
    place.verdict(new, {"id": "B-1"})
    place.end_overlap()
    assert place.verdict(new, {"id": "B-2"}) is Verdict.RUN
    for stale in (old, place.process(OLD)):
        with pytest.raises(ConfigError, match="rekey"):
            place.verdict(stale, {"id": "B-3"})
    first, overlapping, after = (key for _, key in place.ran)
    assert len({first, overlapping, after}) == 3
    with new.engine.store.look() as session:
        (entry,) = session.read([bytes.fromhex(after)])
    assert entry is not None


def test_a_program_that_slept_over_the_overlap_runs_nothing(place: Place) -> None:
    """Its check and its reservation are far apart: the ledger's time of the reservation tells."""
    old = place.process()
    place.verdict(old)
    place.rekey(NEW)
    new = place.process(NEW)
    place.end_overlap()
    place.stops_after_comparing(old)
    with pytest.raises(StoreBusy, match="too long ago"):
        place.verdict(old, {"id": "B-1"})
    with pytest.raises(ConfigError, match="rekey"):
        place.verdict(old, {"id": "B-1"})
    assert len(place.ran) == 1
    # What it had reserved is taken up under the key it has, by the program that may.
    new.check_surfaces()
    assert place.verdict(new, {"id": "B-1"}) is Verdict.RUN
    assert len(place.ran) == 2


def test_a_wall_clock_that_is_set_back_does_not_put_off_the_comparison(place: Place) -> None:
    """A process compares again by its own ticks, before it reserves anything by an old template."""
    old = place.process()
    place.verdict(old)
    place.rekey(NEW)
    place.end_overlap()
    place.clock.step_wall(-OVERLAP_SECONDS)
    with pytest.raises(ConfigError, match="rekey"):
        place.verdict(old, {"id": "B-1"})
    assert len(place.ran) == 1


class Dying(CrashPoints):
    """Dies with the first commit after it was told to."""

    is_due = False

    def hit(self, name: str) -> None:
        if self.is_due and name == "commit.after":
            raise CrashReached(name)


@pytest.mark.parametrize("same_database", [False, True], ids=["outside", "same database"])
@pytest.mark.parametrize(
    "dies", [False, True], ids=["gives its claim back", "dies before it gives it back"]
)
def test_claim_of_a_program_that_slept_is_given_up_where_the_new_key_is_known(
    place: Place, dies: bool, same_database: bool
) -> None:
    """Recovery looks the new key up before it takes up a claim under the old one."""
    points = Dying()
    old = place.process(points=points)
    place.verdict(old)
    place.rekey(NEW)
    new = place.process(NEW, same_database=same_database)
    place.end_overlap()
    assert place.verdict(new, {"id": "B-1"}) is Verdict.RUN
    place.stops_after_comparing(old)
    points.is_due = dies
    with pytest.raises((CrashReached, StoreError)):
        place.verdict(old, {"id": "B-1"})
    place.clock.advance(601)
    (looked,) = Reconciler(place.process(NEW, same_database=same_database), at_once=True).run_once().looked
    assert looked.became == "failed for good"
    assert "nothing was called for it" in str(looked.reason)
    assert Reconciler(new, at_once=True).run_once().looked == []
    assert place.verdict(place.process(NEW, same_database=same_database), {"id": "B-1"}) is Verdict.REPLAY
    assert len(place.ran) == 2


@pytest.mark.parametrize("crash", ["reserve.after", "settle.before"])
def test_claim_under_the_new_key_is_recovered_though_a_program_that_slept_left_the_old_one(
    place: Place, crash: str
) -> None:
    """Of two claims of one event the newer key's goes on, and the other one ends: one effect."""
    points = Dying()
    old = place.process(points=points)
    place.verdict(old)
    place.rekey(NEW)
    place.end_overlap()
    with pytest.raises(CrashReached):
        place.verdict(place.process(NEW, crash=crash), {"id": "B-1"})
    place.stops_after_comparing(old)
    points.is_due = True
    with pytest.raises((CrashReached, StoreError)):
        place.verdict(old, {"id": "B-1"})
    place.clock.advance(601)
    looked = Reconciler(place.process(NEW), at_once=True).run_once().looked
    assert sorted(one.became for one in looked) == ["failed for good", "finished"]
    assert len(set(place.ran)) == 2
    assert place.verdict(place.process(NEW), {"id": "B-1"}) is Verdict.REPLAY


def test_an_event_in_flight_under_its_old_key_is_recovered_under_it(place: Place) -> None:
    """The downstream knows the old key: another one would be a second payment."""
    with pytest.raises(CrashReached):
        place.verdict(place.process(crash="settle.before"))
    place.rekey(NEW)
    place.end_overlap()
    assert place.verdict(place.process(NEW)) is Verdict.RUN
    first, again = place.ran
    assert first == again


def test_another_content_under_an_old_key_is_a_conflict_with_it(place: Place) -> None:
    place.verdict(place.process())
    place.rekey(NEW)
    place.end_overlap()
    admission = place.process(NEW).admit_sync("orders", {**EVENT, "cents": 7})
    assert admission.verdict is Verdict.CONFLICT
    assert admission.key == place.ran[0][1]
    with pytest.raises(Conflict):
        admission.result()


def test_two_changes_in_a_row_look_up_every_key(place: Place) -> None:
    """The third template knows what the first and the second one ran; and back to the first again."""
    place.verdict(place.process(), {"id": "B-1"})
    for number, key in enumerate((NEW, NEWER, OLD), 2):
        place.rekey(key)
        with pytest.raises(ConfigError, match="until the overlap"):
            place.rekey("other:{id}")
        place.end_overlap()
        gate = place.process(key)
        known = [{"id": f"B-{past}"} for past in range(1, number)]
        assert [place.verdict(gate, event) for event in known] == [Verdict.REPLAY] * len(known)
        assert place.verdict(gate, {"id": f"B-{number}"}) is Verdict.RUN
    assert len(place.ran) == 4


def test_another_source_of_the_tenant_finds_what_the_old_one_ran(place: Place) -> None:
    place.verdict(place.process())
    place.rekey(OLD, "org")
    place.end_overlap()
    gate = place.process(OLD, tenant="{org}")
    assert place.verdict(gate) is Verdict.REPLAY
    assert place.verdict(gate, {"id": "A-1", "org": "other"}) is Verdict.CONFLICT
    assert len(place.ran) == 1


def test_an_event_that_only_one_template_can_read_runs_once(place: Place) -> None:
    place.verdict(place.process("{id}"), {"id": "x"})
    place.rekey("{number}")
    new = place.process("{number}")
    assert place.verdict(new, {"id": "x"}) is Verdict.REPLAY
    assert place.verdict(new, {"id": None, "number": 7}) is Verdict.RUN
    place.end_overlap()
    assert place.verdict(new, {"id": "x"}) is Verdict.REPLAY
    assert place.verdict(new, {"id": None, "number": 7}) is Verdict.REPLAY
    assert place.verdict(new, {"id": "y"}) is Verdict.QUARANTINE
    assert len(place.ran) == 2


def test_old_keys_are_looked_up_for_as_long_as_entries_are_kept(place: Place) -> None:
    place.verdict(place.process())
    place.rekey(NEW)
    place.clock.advance(OVERLAP_SECONDS + 90 * 86_400)
    gate = place.process(NEW)
    assert place.verdict(gate) is Verdict.REPLAY
    place.clock.advance(2 * 86_400)
    gate.check_surfaces()
    assert gate.engine._context.plans["orders"].is_plain


def test_a_surface_is_compared_once_and_not_for_every_event(place: Place, monkeypatch: Any) -> None:
    gate = place.process()
    place.verdict(gate)
    monkeypatch.setattr("oncegate.gate.gate.identify_flow", None)
    assert [place.verdict(gate, {"id": f"C-{n}"}) for n in range(3)] == [Verdict.RUN] * 3
    place.clock.advance(VALID_MS / 1000)
    with pytest.raises(TypeError):  # it is compared again
        place.verdict(gate, {"id": "C-9"})


def _once(gate: Gate, ran: list[str], name: str, **options: Any) -> Any:
    def charge(order: str) -> str:
        ran.append(f"charge {order}")
        return "charged"

    def refund(order: str) -> str:
        ran.append(f"refund {order}")
        return "refunded"

    function = {"charge": charge, "refund": refund}[name]
    return gate.once(key="{order}", name="orders", **options)(function)


def test_two_functions_under_one_name_do_not_answer_for_each_other(place: Place) -> None:
    """The refund is not made, and its caller learns that, instead of the charge's result."""
    ran: list[str] = []
    charge = _once(Gate(place.url, clock=place.clock), ran, "charge")
    place._gates += [gate := Gate(place.url, clock=place.clock)]
    assert charge("A-1") == "charged"
    refund = _once(gate, ran, "refund")
    with pytest.raises(ConfigError) as refused:
        refund("A-1")
    origin = f"{__name__}:_once.<locals>.refund"
    assert f"accept orders --origin '{origin}' --reason WHY" in str(refused.value)
    assert ran == ["charge A-1"]
    # Where a person says that it is the same function, both are known by the name.
    place.change(lambda kept, now: accepted(kept, origin))
    assert refund("A-1") == charge("A-1") == "charged"
    assert ran == ["charge A-1"]


def test_a_handler_and_a_function_are_two_things(place: Place) -> None:
    place.verdict(place.process(key="{order}"), {"order": "A-1", "id": "x"})
    gate = Gate(place.url, clock=place.clock)
    place._gates.append(gate)
    with pytest.raises(ConfigError, match="belongs to handler"):
        _once(gate, [], "charge")("A-1")


@pytest.mark.parametrize(
    ("module", "variables"),
    [
        ("__main__", {}),
        ("__main__", {"__file__": "/srv/refunds/main.py"}),
        ("__mp_main__", {"__file__": "/srv/charges/App.py"}),
        ("main", {}),
        ("app.main", {}),
        ("src.app", {}),
    ],
)
def test_a_module_that_every_program_has_needs_a_name(module: str, variables: dict[str, str]) -> None:
    made: dict[str, Any] = {"__name__": module, "__spec__": None, **variables}
    exec("def charge(order): ...", made)
    with pytest.raises(ConfigError, match=r"name='orders\.charge'"):
        surface_of(made["charge"])


@pytest.mark.parametrize("file", ["/srv/orders.py", "/elsewhere/orders.py"])
def test_a_module_that_says_what_it_is_needs_none(file: str) -> None:
    made: dict[str, Any] = {"__name__": "__main__", "__spec__": None, "__file__": file}
    exec("def charge(order): ...", made)
    assert surface_of(made["charge"]) == "orders.charge"


def test_the_program_of_the_guide_is_refused_with_the_command(
    tmp_path: Any, monkeypatch: Any, capsys: Any
) -> None:
    """docs/changing-keys.md, as it stands there."""
    guide = (Path(__file__).parents[2] / "docs" / "changing-keys.md").read_text("utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    made: dict[str, Any] = {"__name__": "guide"}
    exec(compile(program, "changing-keys.md", "exec"), made)
    assert (
        "oncegate surfaces rekey orders --from '{order_id}' --to '{order_id:str}'"
        in capsys.readouterr().out
    )
    made["gate"].close()
    made["reworded"].close()


def test_a_surface_used_only_in_the_callers_transactions_is_registered_there(tmp_path: Any) -> None:
    """On SQLite the caller has the only lock for writing; what it undoes was never registered."""
    place = Place(f"sqlite:///{tmp_path}/l.db")
    old, other = place.process(same_database=True), place.process(NEW, same_database=True)
    old.engine.store.connect().close()
    connection = sqlite3.connect(tmp_path / "l.db", isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    assert old.admit_sync("orders", EVENT, tx=connection).verdict is Verdict.RUN
    connection.execute("ROLLBACK")
    connection.execute("BEGIN IMMEDIATE")
    assert old.admit_sync("orders", EVENT, tx=connection).verdict is Verdict.RUN
    connection.execute("COMMIT")
    connection.execute("BEGIN IMMEDIATE")
    with pytest.raises(ConfigError, match="rekey"):
        other.admit_sync("orders", EVENT, tx=connection)
    connection.execute("ROLLBACK")
    connection.close()
    place.close()
