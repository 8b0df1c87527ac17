"""Where crash tests happen: a ledger, a shared clock, terminals with records of their own, and workers.

Each scenario is a handler as a user would write it. Workers that are to be killed at a crash point, or run
beside others, are forked processes; one that only finishes what the dead have left works right here, with a
gate of its own, because a fork of the whole test run takes longer than the work. What they did is judged by
the terminal's own record, the business table and the ledger, never by what a worker says. Who forks here
has no ledger open.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from oncegate import Admission, AsyncOnce, Gate, Once
from oncegate.crashpoints import CRASH_POINTS, CrashPoints
from oncegate.demo.terminal_client import KeyMode, TerminalClient, TerminalProcess
from oncegate.errors import OncegateError
from oncegate.maintenance.reconciler import Reconciler
from oncegate.model.keys import derive_key
from oncegate.model.states import State
from oncegate.store import EntryDetail, LogKind, Session, StepState, Store
from oncegate.stores.sqlite import SqliteStore
from oncegate.testing import ArmedCrashPoints, Forked, SharedClock

SURFACE, TEMPLATE, WINDOW = "bookings", "{id}", "2026-06-01T07:00Z/PT1H"
ROUND_SECONDS = 120.0  # past the lease, past how long a request may still be under way, past the backoff
ROUNDS_MAX = 6
KILLED = -9
FINAL = {State.COMMITTED, State.UNKNOWN, State.HELD, State.FAILED}

Crash = tuple[str, int]  # a crash point, and which time it is reached
Event = dict[str, Any]


class CountingCrashPoints(CrashPoints):
    """Lives through every crash point and counts it."""

    def __init__(self) -> None:
        self.reached: Counter[str] = Counter()

    def hit(self, name: str) -> None:
        assert name in CRASH_POINTS, name
        self.reached[name] += 1


@contextlib.contextmanager
def started_terminals(folder: Path) -> Iterator[dict[KeyMode, TerminalProcess]]:
    """One terminal of each kind; every event has equipment of its own."""
    started = {mode: TerminalProcess(folder / f"{mode}.jsonl", key_mode=mode) for mode in KeyMode}
    with contextlib.ExitStack() as stack:
        for terminal in started.values():
            stack.enter_context(terminal)
        yield started


def armed(crash: Crash) -> ArmedCrashPoints:
    """Crash points that kill the worker at one of them."""
    return ArmedCrashPoints(crash[0], occurrence=crash[1])


class Sales:
    """A terminal's own record, read on from where it was left."""

    def __init__(self, record: Path) -> None:
        self._record = record
        self._offset = 0
        self._sold: dict[str, list[str]] = defaultdict(list)

    def of(self, equipment: str) -> list[str]:
        """The keys under which slots were sold for this equipment."""
        with self._record.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                self._offset += len(line)
                sale = json.loads(line)
                self._sold[sale["equipment"]].append(sale["key"])
        return self._sold[equipment]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A handler, the terminal it buys from, and what is promised of it."""

    name: str
    register: Callable[[Site, Gate], None]
    key_mode: KeyMode | None
    steps: tuple[str, ...] = ()
    exactly_once: bool = True
    books: bool = True
    is_async: bool = False
    start_is_recorded: bool = True

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Answer:
    """What a worker was told for each event, and the crash points that it passed."""

    told: list[str]
    reached: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class Site:
    """One ledger and the terminals around it."""

    path: Path
    terminals: dict[KeyMode, TerminalProcess]
    clock: SharedClock = field(default_factory=SharedClock)
    sales: dict[KeyMode, Sales] = field(default_factory=dict)
    wrap: Callable[[Any], Any] = lambda inside: inside  # what workers get instead of a store or a client
    _events: int = 0
    _clients: list[TerminalClient] = field(default_factory=list)

    def __post_init__(self) -> None:
        socket.getaddrinfo("127.0.0.1", None)  # loads what every worker would otherwise load again
        self.sales = {mode: Sales(terminal.record) for mode, terminal in self.terminals.items()}
        with contextlib.closing(sqlite3.connect(self.path)) as connection:
            connection.execute("CREATE TABLE booking (ref TEXT, slot TEXT)")
        SqliteStore(self.path, clock=self.clock).connect().close()

    def new_event(self, scenario: Scenario) -> Event:
        self._events += 1
        return {"id": f"{self.path.stem}-{scenario.name}-{self._events}"}

    def client(self, mode: KeyMode) -> TerminalClient:
        self._clients.append(TerminalClient(self.terminals[mode].url))
        return self.wrap(self._clients[-1])  # type: ignore[no-any-return]

    def store(self) -> Store:
        return SqliteStore(self.path, clock=self.clock)

    def looking(self) -> contextlib.AbstractContextManager[Session]:
        """One moment of the ledger, for evidence."""
        return self.store().look()

    def gate(self, scenario: Scenario, crashpoints: CrashPoints | None = None) -> Gate:
        store = self.wrap(self.store())
        gate = Gate(store=store, clock=self.clock, crashpoints=crashpoints, replay_cache_max=1)
        scenario.register(self, gate)
        return gate

    @contextlib.contextmanager
    def own_transaction(self, event: Event, slot: str) -> Iterator[object]:
        """A user's transaction on a connection of their own, with the booking in it; commits at the end."""
        with contextlib.closing(sqlite3.connect(self.path, isolation_level=None)) as own:
            own.execute("BEGIN IMMEDIATE")
            own.execute(*_book(event, slot))
            yield own
            own.execute("COMMIT")

    # --- workers, each in a process of its own ---

    def die_at(self, scenario: Scenario, crash: Crash) -> Event:
        """An event whose first worker was killed at the crash point."""
        event = self.new_event(scenario)
        with self.fork_delivery(scenario, event, crashpoints=armed(crash)) as worker:
            assert worker.wait() == KILLED, (scenario.name, crash)
        return event

    def passes(self, scenarios: Iterable[Scenario]) -> dict[str, Counter[str]]:
        """The crash points that an undisturbed delivery of each scenario passes, and how often."""
        found: dict[str, Counter[str]] = {}
        for scenario in scenarios:
            event = self.new_event(scenario)
            answer = self.deliver(scenario, event)
            assert answer.told == ["run"], (scenario.name, answer)
            self.check(scenario, event, (scenario.name, "undisturbed"))
            self.check_replayed(scenario, event, (scenario.name, "undisturbed"))
            found[scenario.name] = answer.reached
        return found

    def fork_delivery(
        self, scenario: Scenario, *events: Event, crashpoints: CrashPoints | None = None
    ) -> Forked:
        """A worker that is handed events."""

        def work() -> dict[str, Any]:
            return asdict(_deliver(self.gate(scenario, crashpoints), scenario, events))

        return Forked(work)

    def fork_reconciler(self, scenario: Scenario, crashpoints: CrashPoints) -> Forked:
        """A worker that looks once after everything that is stranded, and dies on the way."""
        return Forked(lambda: _reconcile(self.gate(scenario, crashpoints), scenario))

    # --- workers that live, in this process ---

    @contextlib.contextmanager
    def worker(self, scenario: Scenario, points: CrashPoints | None = None) -> Iterator[Gate]:
        """A gate of its own, as another process would have; nothing of it is open afterwards."""
        gate = self.gate(scenario, points)
        try:
            yield gate
        finally:
            gate.close()
            while self._clients:
                self._clients.pop().close()

    def deliver(self, scenario: Scenario, *events: Event) -> Answer:
        """Hands events to a worker that lives."""
        points = CountingCrashPoints()
        with self.worker(scenario, points) as gate:
            told = _deliver(gate, scenario, events).told
            return Answer(told, Counter(points.reached))  # closing the gate may commit once more

    def reconcile(self, scenario: Scenario) -> Answer:
        """Lets a worker that lives look once after everything that is stranded."""
        points = CountingCrashPoints()
        with self.worker(scenario, points) as gate:
            _reconcile(gate, scenario)
            return Answer([], Counter(points.reached))

    # --- what an at-least-once world does after a crash ---

    def recover(
        self,
        scenario: Scenario,
        event: Event,
        *,
        by_reconciler: bool,
        crash: tuple[int, Crash] | None = None,
    ) -> list[Counter[str]]:
        """Lets time pass and workers try, until the event has its outcome.

        Dies once at `crash`, in the round that it names. Returns the crash points that each round reached.
        """
        reached: list[Counter[str]] = []
        for turn in range(ROUNDS_MAX):
            state = self.state(event)
            if state in FINAL:
                break
            self.clock.advance(ROUND_SECONDS)
            points = armed(crash[1]) if crash and crash[0] == turn else None
            alone = by_reconciler and state is not None
            if points is None:
                answer = self.reconcile(scenario) if alone else self.deliver(scenario, event)
                reached.append(answer.reached)
                continue
            with (
                self.fork_reconciler(scenario, points)
                if alone
                else self.fork_delivery(scenario, event, crashpoints=points)
            ) as worker:
                assert worker.wait() == KILLED, (scenario.name, event, crash)
            reached.append(Counter())
        return reached

    # --- evidence ---

    def detail(self, event: Event) -> EntryDetail | None:
        key = derive_key("", SURFACE, TEMPLATE, (event["id"],)).digest
        with self.looking() as session:
            (entry,) = session.read([key])
            return None if entry is None else session.detail(entry.entry_id)

    def state(self, event: Event) -> State | None:
        found = self.detail(event)
        return None if found is None else found.entry.state

    def bookings(self, event: Event) -> list[str]:
        with contextlib.closing(sqlite3.connect(self.path)) as connection:
            rows = connection.execute("SELECT slot FROM booking WHERE ref = ?", (event["id"],))
            return [slot for (slot,) in rows]

    def sold(self, scenario: Scenario, event: Event) -> list[str]:
        return [] if scenario.key_mode is None else self.sales[scenario.key_mode].of(event["id"])

    def check(self, scenario: Scenario, event: Event, case: object) -> None:
        """The invariants of one event after everything has settled (I1, I2, I4, I6, I16)."""
        found = self.detail(event)
        assert found is not None, case
        sold, bookings = self.sold(scenario, event), self.bookings(event)
        committed = [record.kind for record in found.records].count(LogKind.COMMITTED)
        assert len(sold) == len(set(sold)), (case, sold)
        if not scenario.exactly_once and found.entry.state is State.UNKNOWN:
            assert (bookings, committed) == ([], 0), case
            started = any(step.state is StepState.STARTED for step in found.steps)
            assert started or not scenario.start_is_recorded, (case, "unknown without a recorded start")
            return
        assert found.entry.state is State.COMMITTED, (case, found.entry)
        assert committed == 1, (case, found.records)
        key = found.entry.key.hex()
        assert sold == [f"{key}:{step}" for step in scenario.steps], (case, sold)
        assert len(bookings) == scenario.books, (case, bookings)
        assert found.entry.token is not None, case
        assert found.steps == (), (case, found.steps)

    def check_replayed(self, scenario: Scenario, event: Event, case: object) -> None:
        """Another delivery of a finished event changes nothing: no slot, no booking, no record."""
        before = (self.detail(event), list(self.sold(scenario, event)), self.bookings(event))
        (told,) = self.deliver(scenario, event).told
        after = (self.detail(event), list(self.sold(scenario, event)), self.bookings(event))
        assert after == before, case
        assert told == ("replay" if self.state(event) is State.COMMITTED else "hold"), (case, told)


def _deliver(gate: Gate, scenario: Scenario, events: Iterable[Event]) -> Answer:
    return Answer([_told(lambda event=event: _admit(gate, scenario, event)) for event in events])  # type: ignore[misc]


def _reconcile(gate: Gate, scenario: Scenario) -> None:
    worker = Reconciler(gate, at_once=True)
    if scenario.is_async:
        asyncio.run(worker.run_once_async())
    else:
        worker.run_once()


def _admit(gate: Gate, scenario: Scenario, event: Event) -> Admission:
    if scenario.is_async:
        return asyncio.run(gate.admit(SURFACE, event))
    return gate.admit_sync(SURFACE, event)


def _told(admit: Callable[[], Admission]) -> str:
    try:
        return admit().verdict.value
    except OncegateError as error:
        return type(error).__name__


# --- handlers ---------------------------------------------------------------------------------------


def _claim(client: TerminalClient, event: Event) -> Callable[..., dict[str, str]]:
    def claim(idempotency_key: str) -> dict[str, str]:
        return {"id": client.claim(event["id"], WINDOW, idempotency_key).slot_id}

    return claim


def _book(event: Event, slot: str) -> tuple[str, tuple[str, str]]:
    return ("INSERT INTO booking VALUES (?, ?)", (event["id"], slot))


def honoured(site: Site, gate: Gate) -> None:
    """A terminal that honours the key; the booking is handed over as data."""
    client = site.client(KeyMode.HONOUR)
    terminal = gate.downstream("terminal", honours_key="30d")

    @gate.handler(SURFACE, key=TEMPLATE)
    def book(event: Event, once: Once) -> str:
        slot = once.effect(terminal, _claim(client, event))
        once.commit(resource=slot["id"], writes=[_book(event, slot["id"])])
        return slot["id"]


def asked(site: Site, gate: Gate) -> None:
    """A terminal that can only be asked what a key owns; the booking is the handler's own transaction."""
    client = site.client(KeyMode.LOOKUP_ONLY)

    def owned_by(key: str) -> list[dict[str, str]]:
        return [{"id": slot.slot_id} for slot in client.owned_by(key)]

    terminal = gate.downstream("terminal", probe=owned_by)

    @gate.handler(SURFACE, key=TEMPLATE)
    def book(event: Event, once: Once) -> str:
        slot = once.effect(terminal, _claim(client, event))
        with once.commit() as tx:
            tx.execute(*_book(event, slot["id"]))
        return slot["id"]


def unrepeatable(site: Site, gate: Gate) -> None:
    """A terminal that ignores keys and cannot be asked: at most one slot."""
    client = site.client(KeyMode.IGNORE)

    @gate.handler(SURFACE, key=TEMPLATE)
    def book(event: Event, once: Once) -> str:
        slot = once.step("claim", _claim(client, event))
        once.commit(writes=[_book(event, slot["id"])])
        return slot["id"]


def two_steps(site: Site, gate: Gate) -> None:
    """A slot that nobody can be asked about, then one that is honoured, then the booking (D4)."""
    client = site.client(KeyMode.IGNORE)
    terminal = gate.downstream("terminal", honours_key="30d")
    honouring = site.client(KeyMode.HONOUR)

    @gate.handler(SURFACE, key=TEMPLATE)
    def book(event: Event, once: Once) -> str:
        first = once.step("claim", _claim(client, event))
        second = once.effect(terminal, _claim(honouring, event), name="second")
        with once.commit(outcome=first["id"]) as tx:
            tx.execute(*_book(event, first["id"] + second["id"]))
        return first["id"]


def written_step(site: Site, gate: Gate) -> None:
    """The booking is a step of its own, before the slot."""
    client = site.client(KeyMode.HONOUR)
    terminal = gate.downstream("terminal", honours_key="30d")

    @gate.handler(SURFACE, key=TEMPLATE)
    def book(event: Event, once: Once) -> str:
        once.write("book", [_book(event, "pending")])
        return once.effect(terminal, _claim(client, event))["id"]


def same_database(site: Site, gate: Gate) -> None:
    """Reservation, booking and outcome are one transaction."""

    @gate.handler(SURFACE, key=TEMPLATE, same_database=True)
    def book(event: Event, once: Once) -> str:
        once.tx.execute(*_book(event, "here"))
        return "here"


def joined(site: Site, gate: Gate) -> None:
    """The outcome is committed in the user's own transaction, on their own connection."""
    client = site.client(KeyMode.HONOUR)
    terminal = gate.downstream("terminal", honours_key="30d")

    @gate.handler(SURFACE, key=TEMPLATE)
    def book(event: Event, once: Once) -> str:
        slot = once.effect(terminal, _claim(client, event))
        with site.own_transaction(event, slot["id"]) as own:
            once.commit(tx=own, outcome=slot["id"])
        return slot["id"]


def opaque(site: Site, gate: Gate) -> None:
    """A handler that knows nothing of the gate, at a terminal that honours the key."""
    client = site.client(KeyMode.HONOUR)
    terminal = gate.downstream("terminal", honours_key="30d")

    @gate.handler(SURFACE, key=TEMPLATE, downstream=terminal)
    def book(event: Event, idempotency_key: str = "") -> str:
        return client.claim(event["id"], WINDOW, idempotency_key).slot_id


def opaque_unrepeatable(site: Site, gate: Gate) -> None:
    """A handler that knows nothing of the gate, at a terminal of which nothing is known."""
    client = site.client(KeyMode.IGNORE)

    @gate.handler(SURFACE, key=TEMPLATE)
    def book(event: Event, idempotency_key: str = "") -> str:
        return client.claim(event["id"], WINDOW, idempotency_key).slot_id


def from_a_task(site: Site, gate: Gate) -> None:
    """An async handler with an async commit block."""
    client = site.client(KeyMode.HONOUR)
    terminal = gate.downstream("terminal", honours_key="30d")

    @gate.handler(SURFACE, key=TEMPLATE)
    async def book(event: Event, once: AsyncOnce) -> str:
        slot = await once.effect(terminal, _claim(client, event))
        async with once.commit() as tx:
            await tx.execute(*_book(event, slot["id"]))
        return str(slot["id"])


CLAIM = ("claim",)
HONOURED = Scenario("honoured", honoured, KeyMode.HONOUR, CLAIM)
ASKED = Scenario("asked", asked, KeyMode.LOOKUP_ONLY, CLAIM)
UNREPEATABLE = Scenario("unrepeatable", unrepeatable, KeyMode.IGNORE, CLAIM, exactly_once=False)
JOINED = Scenario("joined", joined, KeyMode.HONOUR, CLAIM)
SAME_DATABASE = Scenario("same database", same_database, None)
FROM_A_TASK = Scenario("from a task", from_a_task, KeyMode.HONOUR, CLAIM, is_async=True)
SCENARIOS = (
    HONOURED,
    ASKED,
    UNREPEATABLE,
    Scenario("two steps", two_steps, KeyMode.IGNORE, CLAIM, exactly_once=False),
    Scenario("written step", written_step, KeyMode.HONOUR, CLAIM),
    SAME_DATABASE,
    JOINED,
    Scenario("opaque", opaque, KeyMode.HONOUR, ("call",), books=False),
    Scenario(
        "opaque unrepeatable",
        opaque_unrepeatable,
        KeyMode.IGNORE,
        ("call",),
        exactly_once=False,
        books=False,
        start_is_recorded=False,
    ),
    FROM_A_TASK,
)
