"""Surfaces with nothing to call: an event is reserved and settled in one transaction, and told like any."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from oncegate import Admission, Gate, Verdict
from oncegate.commit.operations import Reserve
from oncegate.errors import StoreUnavailable
from oncegate.gate.flows.record_only import OUTCOME, Record
from oncegate.gate.surface import record
from oncegate.model.states import Decision, State
from oncegate.model.trace import Context
from oncegate.store import EntryDetail, LogKind, Reservation, Reserved, Session
from oncegate.store.recording import record_in_two_steps
from oncegate.stores.sqlite import SqliteStore
from oncegate.testing import ArmedCrashPoints, CrashReached, Fault, Faults, ManualClock, faulty
from tests.support.gates import Ledger

TRACE = "0" * 31 + "1"
WANTED = Reservation(b"k" * 24, "", "plain", "a", b"f" * 16, b"{}", 1_000, 20_000, 8, token=7)


class Site:
    """A ledger that counts its units, and a gate with a surface of each kind on it."""

    def __init__(self, path: Path) -> None:
        self.clock, self.faults = ManualClock(), Faults()
        self.store = faulty(SqliteStore(path, clock=self.clock), self.faults)
        self.gate = Gate(store=self.store, clock=self.clock)
        self.gate.handler("plain", key="{id}")(record)

        @self.gate.handler("called", key="{id}")
        async def nothing(event: Any, once: Any) -> None: ...

        self.gate.check_surfaces()
        self.faults.units = 0

    def admit(self, *events: Any, surface: str = "plain", **options: Any) -> list[Admission]:
        """Admits events at the same moment."""

        async def scene() -> list[Admission]:
            return await asyncio.gather(
                *(self.gate.admit(surface, event, tenant="t", **options) for event in events)
            )

        return asyncio.run(scene())

    def detail(self, admission: Admission) -> EntryDetail:
        """What the ledger has of an event."""
        with self.store.look() as session:
            (entry,) = session.read([bytes.fromhex(admission.key)])
            assert entry is not None
            found = session.detail(entry.entry_id)
        assert found is not None
        return found


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    opened = Site(tmp_path / "ledger.db")
    yield opened
    opened.gate.close()


def test_an_event_takes_one_transaction_and_leaves_what_a_handler_leaves(site: Site) -> None:
    (called,) = site.admit({"id": "a"}, surface="called")
    two = site.faults.units
    (plain,) = site.admit({"id": "a"})

    assert (two, site.faults.units - two) == (2, 1)
    assert (plain.verdict, plain.value) == (called.verdict, called.value) == (Verdict.RUN, None)
    ours, theirs = site.detail(plain), site.detail(called)
    assert (ours.outcome, ours.body) == (theirs.outcome, theirs.body)
    for name in ("state", "attempt", "lease_until_ticks", "reason", "fingerprint"):
        assert getattr(ours.entry, name) == getattr(theirs.entry, name), name
    assert [one.kind for one in ours.records] == [one.kind for one in theirs.records]
    assert [one.actor for one in ours.records] == ["gate"]


def test_many_events_are_recorded_together_and_replayed_afterwards(site: Site) -> None:
    events = [{"id": str(number)} for number in range(40)]

    first, units = site.admit(*events), site.faults.units
    second = site.admit(*events)

    assert site.faults.units == units, "what was recorded here is answered from memory"
    assert {one.verdict for one in first} == {Verdict.RUN}
    assert {one.verdict for one in second} == {Verdict.REPLAY}
    assert {site.detail(one).entry.state for one in first} == {State.COMMITTED}
    assert max(site.faults.sizes("record")) > 1
    assert sum(site.faults.sizes("record")) == len(events)
    assert not site.faults.sizes("settle")


def test_the_same_event_twice_at_once_is_one_record_and_one_replay(site: Site) -> None:
    """Whoever comes in the same batch need not be told to come again: it is settled already (C2)."""
    found = site.admit({"id": "a"}, {"id": "b"}, {"id": "a"}, {"id": "a"})

    assert Counter(one.verdict for one in found) == {Verdict.RUN: 2, Verdict.REPLAY: 2}
    assert [one.kind for one in site.detail(found[0]).records] == [LogKind.COMMITTED]


def test_another_content_in_the_same_batch_is_a_conflict(site: Site) -> None:
    found = site.admit({"id": "a", "n": 1}, {"id": "a", "n": 2})

    assert [one.verdict for one in found] == [Verdict.RUN, Verdict.CONFLICT]
    assert site.detail(found[0]).body == b'{"id":"a","n":1}'


def test_what_must_not_run_is_not_settled(site: Site) -> None:
    """Given one that cannot be read and one that is held, both wait for a person as ever."""
    site.gate.handler("held", key="{id}", approve_first=True)(record)
    (unread,), (held,) = site.admit({"no": "id"}), site.admit({"id": "a"}, surface="held")

    assert (unread.verdict, held.verdict) == (Verdict.QUARANTINE, Verdict.HOLD)
    assert site.detail(unread).entry.state is State.QUARANTINED
    assert site.detail(held).entry.state is State.HELD


def test_an_event_with_a_journey_has_its_link_and_so_its_two_steps(site: Site) -> None:
    before = site.faults.sizes("settle")
    (found,) = site.admit({"id": "a"}, context=Context(trace_id=TRACE))

    assert found.verdict is Verdict.RUN
    with site.store.look() as session:
        assert len(session.linked(TRACE, 10)) == 1
    assert len(site.faults.sizes("settle")) == len(before) + 1
    assert site.detail(found).entry.state is State.COMMITTED


@pytest.mark.parametrize(
    ("point", "verdict"), [("commit.before", Verdict.RUN), ("commit.after", Verdict.REPLAY)]
)
def test_a_crash_leaves_all_of_it_or_nothing(ledger: Ledger, point: str, verdict: Verdict) -> None:
    """Nothing is ever found in flight: there is no moment between reservation and end."""
    dying, next_one = ledger.gate(ArmedCrashPoints.raising(point)), ledger.gate()
    for gate in (dying, next_one):
        gate.handler("plain", key="{id}")(record)
    with pytest.raises(CrashReached):
        asyncio.run(dying.admit("plain", {"id": "a"}))
    assert ledger.states() in ([], ["committed"])

    assert asyncio.run(next_one.admit("plain", {"id": "a"})).verdict is verdict
    assert ledger.states() == ["committed"]


@pytest.mark.parametrize(("fault", "units"), [(Fault.LOST_REPLY, 1), (Fault.UNDONE, 0)])
def test_a_commit_in_doubt_is_read_back(site: Site, fault: Fault, units: int) -> None:
    """Told as recorded if it is; else refused, and the next try records it (I5, I19)."""
    site.faults.plan.append(fault)
    if units:
        assert site.admit({"id": "a"})[0].verdict is Verdict.RUN
    else:
        with pytest.raises(StoreUnavailable, match="nothing was changed"):
            site.admit({"id": "a"})
    (again,) = site.admit({"id": "a"})
    assert again.verdict is (Verdict.REPLAY if units else Verdict.RUN)
    assert [one.kind for one in site.detail(again).records] == [LogKind.COMMITTED]


def recalled(site: Site, wanted: Reservation, **changed: Any) -> Reserved | None:
    """What reading back `wanted` finds after something else was recorded under its key."""
    session = site.store.connect()
    try:
        with session.unit():
            Record.run(session, [Record(replace(wanted, **changed))])
            return Record(wanted).recall(session)
    finally:
        session.close()


@pytest.mark.parametrize(
    "changed", [{"token": 8}, {"token": 8, "fingerprint": b"g" * 16}, {"hold": "wait"}]
)
def test_what_somebody_else_recorded_is_not_taken_for_ours(site: Site, changed: dict[str, Any]) -> None:
    assert recalled(site, WANTED, **changed) is None


def test_what_is_ours_is_found_again(site: Site) -> None:
    found = recalled(site, WANTED)
    assert found is not None
    assert (found.decision, found.received_at_ms) == (Decision.RUN, WANTED.received_at_ms)


def test_a_key_that_is_claimed_elsewhere_stays_busy(site: Site) -> None:
    session = site.store.connect()
    try:
        with session.unit():
            Reserve.run(session, [Reserve(WANTED)])
            others = [replace(WANTED, key=b"o" * 24), WANTED]
            found = Record.run(session, [Record(one) for one in others])
    finally:
        session.close()
    assert [one.decision for one in found] == [Decision.RUN, Decision.BUSY]


def test_a_claim_that_cannot_be_settled_undoes_the_batch(site: Site) -> None:
    """It cannot happen in one transaction; if it does, nobody is told that an event is on record."""

    class Losing:
        """A session that finds every fence lost."""

        def __init__(self, session: Session) -> None:
            self.reserve = session.reserve

        def settle(self, ends: Any) -> list[bool]:
            return [False for _ in ends]

    session = site.store.connect()
    try:
        with pytest.raises(StoreUnavailable), session.unit():
            record_in_two_steps(Losing(session), [WANTED], OUTCOME)
        with session.unit():
            assert session.read([WANTED.key]) == [None]
    finally:
        session.close()


def test_another_process_replays_what_is_on_record(ledger: Ledger) -> None:
    """Its outcome reads as that of a handler that returned nothing."""
    gates = [ledger.gate(), ledger.gate()]
    for gate in gates:
        gate.handler("plain", key="{id}")(record)

    first, second = [asyncio.run(gate.admit("plain", {"id": "a"})) for gate in gates]

    assert (first.verdict, second.verdict) == (Verdict.RUN, Verdict.REPLAY)
    assert (first.value, second.value) == (None, None)
    assert ledger.rows("SELECT body FROM oncegate_outcome") == [(OUTCOME,)]
