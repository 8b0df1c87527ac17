"""A gate on a ledger with claims only: everything that needs no other facet works, the rest says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from oncegate import Failed, Gate, Sender
from oncegate.errors import ConfigError, NotApplied, Quarantined, StoreUnavailable
from oncegate.feed.feed import Feed
from oncegate.gate.admission import Admission, Verdict
from oncegate.gate.once import AsyncOnce, Once
from oncegate.maintenance.accepted_events import AcceptedWork
from oncegate.model.content import Content
from oncegate.receiver import Receiver
from oncegate.store import Facet, What, require
from oncegate.testing import ManualClock
from oncegate.testing.simulation import Ledger
from oncegate.testing.simulation.store import CommitFault
from tests.support.claims_only_store import ClaimsOnlyStore

ORDER = {"id": "o-1", "amount": 7}


class Process:
    """One process with a gate on the ledger, and the orders that its handler has run."""

    def __init__(self, ledger: Ledger, clock: ManualClock, **options: Any) -> None:
        self.store = ClaimsOnlyStore(ledger, clock)
        self.gate = Gate(store=self.store, clock=clock)
        self.bank = self.gate.downstream("bank", honours_key="1d")
        self.calls: list[str] = []
        self.during: Callable[[], object] = lambda: None
        self.gate.handler("orders", key="{id}", **options)(self.run)

    def run(self, event: Any, once: Once) -> str:
        return once.effect(self.bank, self.charge, event["id"])

    def charge(self, order: str, idempotency_key: str = "") -> str:
        self.calls.append(idempotency_key)
        self.during()
        return f"paid {order}"

    def admit(self, **changes: Any) -> Any:
        return self.gate.admit_sync("orders", {**ORDER, **changes})


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def process(ledger: Ledger, clock: ManualClock) -> Iterator[Process]:
    made = Process(ledger, clock)
    with made.gate:
        yield made


def test_first_arrival_runs_and_a_repeat_is_replayed(
    process: Process, ledger: Ledger, clock: ManualClock
) -> None:
    """By the process that ran it, and by another one, which only the ledger can tell."""
    other = Process(ledger, clock)

    first, again, elsewhere = process.admit(), process.admit(), other.admit()
    other.gate.close()

    assert (first.verdict, again.verdict, elsewhere.verdict) == (
        Verdict.RUN,
        Verdict.REPLAY,
        Verdict.REPLAY,
    )
    assert {first.value, again.value, elsewhere.value} == {"paid o-1"}
    assert (len(process.calls), other.calls) == (1, [])


def test_repeat_of_a_running_event_is_busy(process: Process) -> None:
    """The second arrival comes while the first one is at its downstream."""
    seen: list[Verdict] = []
    process.during = lambda: seen.append(process.admit().verdict)

    process.admit()

    assert seen == [Verdict.BUSY]
    assert len(process.calls) == 1


def test_other_content_under_a_known_key_is_refused_and_not_kept(process: Process, ledger: Ledger) -> None:
    """There is no person who could decide about it."""
    process.admit()

    answer = process.admit(amount=8)

    assert (answer.verdict, answer.reason) == (Verdict.CONFLICT, None)
    assert len(ledger.tables.rows) == 1


@pytest.mark.slow
def test_failure_is_recorded_and_a_passing_one_is_tried_again(process: Process, clock: ManualClock) -> None:
    """A final failure is replayed; what a retry may mend runs again when its wait is over."""

    def refuse() -> None:
        raise Failed("no such account")

    def break_down() -> None:
        raise ConnectionError("bank is down")

    process.during = refuse
    with pytest.raises(Failed):
        process.admit(id="bad")
    process.during = break_down
    with pytest.raises(ConnectionError):
        process.admit(id="later")
    process.during = lambda: None
    clock.advance(60)

    assert process.admit(id="bad").verdict is Verdict.REPLAY
    assert process.admit(id="later").value == "paid later"
    assert len(process.calls) == 3


def test_arrival_that_is_refused_before_anything_was_done_leaves_nothing(
    process: Process, ledger: Ledger
) -> None:
    """A first claim is known as such without a fence that is the entry's number."""

    class NotNow(NotApplied):
        leaves_nothing = True

    def refuse() -> None:
        raise NotNow("not now")

    process.gate.handler("refusing", key="{id}")(lambda event: refuse())

    with pytest.raises(NotApplied):
        process.gate.admit_sync("refusing", ORDER)

    assert ledger.tables.rows == {}


def test_crash_is_recovered_when_the_event_is_delivered_again(
    process: Process, ledger: Ledger, clock: ManualClock
) -> None:
    """The dead process has called the bank; the next one shows it the same key after the lease is over."""

    class Died(BaseException):
        pass

    def die() -> None:
        process.store.fail_next(*[CommitFault.DOWN] * 20)
        raise Died

    process.during = die
    with pytest.raises(Died):
        process.admit()
    survivor = Process(ledger, clock)

    early = survivor.admit()
    clock.advance(21)
    late = survivor.admit()
    survivor.gate.close()

    assert early.verdict is Verdict.BUSY
    assert (late.verdict, late.value) == (Verdict.RUN, "paid o-1")
    assert survivor.calls == process.calls


def test_event_that_a_failover_lost_is_recovered_and_not_simply_run_again(
    process: Process, ledger: Ledger
) -> None:
    """The process remembers that it called the bank: it writes that down, and the bank is shown the key."""
    process.admit()
    ledger.go_back(16)
    assert ledger.tables.rows == {}

    process.store.connect()
    (row,) = ledger.tables.rows.values()
    again = process.admit()

    assert (row.reason or "").startswith("the ledger went back")
    assert again.value == "paid o-1"
    assert len(set(process.calls)) == 1


@pytest.mark.parametrize("commit", range(3))
def test_doubtful_commit_is_read_back_by_its_key(process: Process, commit: int) -> None:
    """The reservation, the start of the call and the settlement have happened, although no reply came."""
    process.store.fail_next(*[CommitFault.NONE] * commit, CommitFault.LOST_REPLY)

    assert process.admit().value == "paid o-1"
    assert len(process.calls) == 1


def test_reservation_that_was_undone_runs_nothing(process: Process) -> None:
    """Its token is not there; the sender is told to come again, and then it runs."""
    process.store.fail_next(CommitFault.UNDONE)

    with pytest.raises(StoreUnavailable):
        process.admit()

    assert process.calls == []
    assert process.admit().verdict is Verdict.RUN


def test_events_of_many_tasks_share_batches_and_each_commits_by_itself(
    ledger: Ledger, clock: ManualClock
) -> None:
    """One commit is in doubt: what came before it stands, what came after is sent again and runs once."""
    store = ClaimsOnlyStore(ledger, clock)
    ran: list[str] = []
    refused: list[str] = []

    async def send(gate: Gate, order: str) -> Any:
        try:
            return await gate.admit("orders", {"id": order})
        except StoreUnavailable:
            refused.append(order)
            return await gate.admit("orders", {"id": order})

    async def admit_all(gate: Gate) -> list[Any]:
        return await asyncio.gather(*(send(gate, f"o-{n % 40}") for n in range(80)))

    with Gate(store=store, clock=clock) as gate:
        bank = gate.downstream("bank", honours_key="1d")

        async def charge(order: str, idempotency_key: str = "") -> str:
            ran.append(order)
            return "paid"

        @gate.handler("orders", key="{id}", on_busy="wait")
        async def run(event: Any, once: AsyncOnce) -> str:
            return await once.effect(bank, charge, event["id"])

        store.fail_next(*[CommitFault.NONE] * 5, CommitFault.LOST_REPLY)
        answers = asyncio.run(admit_all(gate))

    assert {answer.value for answer in answers} == {"paid"}
    assert sorted(ran) == sorted(f"o-{n}" for n in range(40))
    assert 0 < len(refused) < 80


def test_event_that_would_wait_for_a_person_is_refused_with_an_error(
    process: Process, ledger: Ledger
) -> None:
    """The ledger keeps no events and nobody could release it: its sender must not think it is stored."""
    with pytest.raises(Quarantined, match="it was not stored: this ledger lists no open entries"):
        process.gate.admit_sync("orders", {"amount": 7})

    assert ledger.tables.rows == {}


def test_process_counts_what_it_sees_without_telling_the_ledger(process: Process) -> None:
    """Counters for scraping go on; what no ledger takes is not kept."""
    process.admit()
    process.admit()

    assert process.gate.engine.sightings.flush()
    assert process.gate.engine.sightings.totals()["orders", What.FRESH] == (1, 0)
    assert process.gate.engine.sightings._untold == {}


OPTIONS: dict[str, dict[str, Any]] = {
    "no lanes in this ledger": {"mode": "accept"},
    "approvals need SQLite, PostgreSQL": {"approve_first": True},
    "no review in this ledger": {"content": Content(("amount",), "{id}")},
    "commits no statements with a claim": {"same_database": True},
    "writes= need SQLite or PostgreSQL": {"writes": lambda event: []},
    "this ledger keeps no events": {"on_busy": "acknowledge"},
}


@pytest.mark.parametrize("message", OPTIONS)
def test_surface_that_needs_more_than_claims_is_refused_when_it_is_declared(
    process: Process, message: str
) -> None:
    """In one line, with the stores that have it."""
    with pytest.raises(ConfigError, match=message):
        process.gate.handler("more", key="{id}", **OPTIONS[message])(lambda event: None)


FEATURES: dict[str, Callable[[Gate], object]] = {
    "no lanes .*deliveries need": lambda gate: Sender(gate=gate),
    "no feed .*feeds need": Feed,
    "no open entries .*reconcilers need": lambda gate: gate.worker(),
    "no lanes .*accepted events need": AcceptedWork,
    "no open entries .*decisions need": lambda gate: gate.people,
    "no open entries .*operations pages need": lambda gate: gate.dashboard(),
    "no lanes .*receivers with ordered": lambda gate: Receiver(gate, "in", secrets=["whsec_" + "A" * 32]),
}


@pytest.mark.parametrize("message", FEATURES)
def test_feature_that_needs_a_missing_facet_says_so_at_its_start(process: Process, message: str) -> None:
    """In one line, with the stores that have it."""
    with pytest.raises(ConfigError, match=message) as refused:
        FEATURES[message](process.gate)

    assert str(refused.value).endswith(("need SQLite or PostgreSQL", "PostgreSQL, Redis or DynamoDB"))
    assert "claims-only: claims only" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_business_writes_of_a_handler_are_refused_when_they_are_made(
    ledger: Ledger, clock: ManualClock
) -> None:
    """A commit block, a staged write and a user's transaction each say what they need."""
    with Gate(store=ClaimsOnlyStore(ledger, clock), clock=clock) as gate:

        @gate.handler("orders", key="{id}", final_errors=(ConfigError,))
        def run(event: Any, once: Once) -> None:
            if event["how"] == "block":
                with once.commit():
                    pass
            elif event["how"] == "staged":
                once.commit(writes=[("INSERT INTO t VALUES (?)", (1,))])
            elif event["how"] == "step":
                once.write("book", [("INSERT INTO t VALUES (?)", (1,))])
            else:
                once.commit(tx=object())

        for number, how in enumerate(("block", "staged", "step", "joined")):
            with pytest.raises(ConfigError, match="commits no statements with a claim"):
                gate.admit_sync("orders", {"id": number, "how": how})


def test_every_facet_that_is_declared_is_granted(process: Process) -> None:
    """Claims are there."""
    require(process.store, Facet.CLAIMS, "gates")


@pytest.mark.parametrize("verdict", [Verdict.HOLD, Verdict.QUARANTINE, Verdict.CONFLICT])
def test_what_no_ledger_has_kept_is_not_acknowledged(verdict: Verdict) -> None:
    """The queue's message is the only copy then."""
    assert Admission(verdict, "k").acknowledge
    assert not Admission(verdict, "k", is_kept=False).acknowledge
