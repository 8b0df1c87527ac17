"""Where failures on PostgreSQL happen: a database, a shared clock, a terminal that counts, and deliveries.

What was done is judged by the terminal's own count, the business table and the ledger, read past the gate
and past any proxy; never by what a delivery says of itself.
"""

from __future__ import annotations

import queue
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import psycopg

from oncegate import Gate, Once
from oncegate.crashpoints import CrashPoints
from oncegate.errors import Busy, ClaimLost, StoreError, StoreUnavailable, StoreUnknown
from oncegate.maintenance.reconciler import Reconciler
from oncegate.model.states import State
from oncegate.store import LogKind, LogRecord, Reservation, Reserved, Session, Settlement
from oncegate.stores.postgres import PostgresStore
from oncegate.testing import ManualClock
from oncegate.testing.waiting import DEADLINE_SECONDS, wait_until

SURFACE, TEMPLATE = "bookings", "{id}"
BOOKING = "CREATE TABLE booking (ref text NOT NULL, slot text NOT NULL)"
BOOK = "INSERT INTO booking (ref, slot) VALUES (?, ?)"
ROUND_SECONDS = 120.0  # past the lease, past how long a request may still be under way, past the backoff
ROUNDS_MAX = 8
THREADS = 16
# What a delivery may be told while the server or the network fails; everything else is a bug.
TOLERATED = (StoreUnavailable, StoreUnknown, Busy, ClaimLost)
BLOCKED = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
)

Event = dict[str, str]


def reservation(key: int, **changes: Any) -> Reservation:
    """A reservation of a numbered key."""
    values: dict[str, Any] = {
        "key": key.to_bytes(24, "big"),
        "tenant": "",
        "surface": SURFACE,
        "label": f"key {key}",
        "fingerprint": b"f" * 16,
        "body": b"{}",
        "received_at_ms": 1_780_000_000_000,
        "lease_ms": 30_000,
        "attempts_max": 5,
        "token": random.getrandbits(62),
    }
    return Reservation(**(values | changes))


def settlement(claim: Reserved, **changes: Any) -> Settlement:
    """A claim's good end."""
    return Settlement(*claim.claim, State.COMMITTED, 1_780_000_000_000, "gate", **changes)


def finish(session: Session, key: int) -> int:
    """Reserves and settles a key inside the open unit; returns its entry."""
    (reserved,) = session.reserve([reservation(key)])
    assert session.settle([settlement(reserved)]) == [True]
    return reserved.entry_id


def whole_log(session: Session, step: int = 100) -> list[LogRecord]:
    """Follows the log from its beginning to its present end."""
    found: list[LogRecord] = []
    while more := session.read_log(found[-1].position if found else 0, step):
        found += more
    return found


class CountingTerminal:
    """A downstream that honours keys and counts what it did for each."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self.calls: Counter[str] = Counter()
        self.effects: Counter[str] = Counter()

    def claim(self, ref: str, key: str) -> str:
        """Sells one slot a key."""
        with self._guard:
            self.calls[key] += 1
            if not self.effects[key]:
                self.effects[key] += 1
            return f"slot of {ref}"

    @property
    def total(self) -> int:
        """How many slots were sold."""
        return self.effects.total()


class PostgresSite:
    """One database and the deliveries to it; `url` may lead through a proxy, `direct` never does."""

    def __init__(self, direct: str, url: str | None = None) -> None:
        self.direct = direct
        self.url = url or direct
        self.clock = ManualClock()
        self.terminal = CountingTerminal()
        self.told: Counter[str] = Counter()
        self.gates: list[Gate] = []
        PostgresStore(direct).connect().close()
        self.rows(BOOKING)

    def rows(self, sql: str, parameters: Iterable[Any] = ()) -> list[tuple[Any, ...]]:
        """Asks the server itself."""
        with psycopg.connect(self.direct, autocommit=True) as connection:
            cursor = connection.execute(sql.encode(), tuple(parameters))
            return cursor.fetchall() if cursor.description else []

    def gate(self, crashpoints: CrashPoints | None = None) -> Gate:
        """A gate with the one handler of this site."""
        gate = Gate(self.url, clock=self.clock, crashpoints=crashpoints, replay_cache_max=1)
        terminal = gate.downstream("terminal", honours_key="30d")

        @gate.handler(SURFACE, key=TEMPLATE)
        def book(event: Event, once: Once) -> str:
            slot = once.effect(
                terminal, lambda idempotency_key: self._sell(event, idempotency_key), name="claim"
            )
            once.commit(writes=[(BOOK, (event["id"], slot))])
            return str(slot)

        self.gates.append(gate)
        return gate

    def _sell(self, event: Event, key: str) -> str:
        return self.terminal.claim(event["id"], key)

    def has_sold(self, count: int) -> bool:
        return self.terminal.total >= count

    def deliver(self, gate: Gate, events: Iterable[Event], threads: int = THREADS) -> set[str]:
        """Delivers every event once, from many threads; returns the ids that were answered."""
        waiting: queue.SimpleQueue[Event] = queue.SimpleQueue()
        for event in events:
            waiting.put(event)
        answered: set[str] = set()
        wrong: list[BaseException] = []

        def work() -> None:
            while True:
                try:
                    event = waiting.get_nowait()
                except queue.Empty:
                    return
                try:
                    verdict = gate.admit_sync(SURFACE, event).verdict.value
                    self.told[verdict] += 1
                    if verdict in ("run", "replay"):
                        answered.add(event["id"])
                except TOLERATED as error:
                    self.told[type(error).__name__] += 1
                except BaseException as error:  # noqa: BLE001  shown by the test
                    wrong.append(error)

        workers = [threading.Thread(target=work, daemon=True) for _ in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(2 * DEADLINE_SECONDS)
            assert not worker.is_alive(), "a delivery hangs"
        assert not wrong, wrong[:3]
        return answered

    def recover(self, gate: Gate, events: list[Event], answered: set[str]) -> None:
        """Lets time pass and delivers again what has no answer, as every sender does."""
        for turn in range(ROUNDS_MAX):
            left = [event for event in events if event["id"] not in answered]
            if not left:
                return
            self.clock.advance(ROUND_SECONDS)
            if turn % 2:
                Reconciler(gate, at_once=True).run_once()
            answered |= self.deliver(gate, left)
        raise AssertionError(f"{len(events) - len(answered)} events were never answered: {self.told}")

    def check(self, events: list[Event]) -> None:
        """The invariants of every event after everything has settled (I1, I2, I4, I16)."""
        refs = sorted(event["id"] for event in events)
        booked = Counter(ref for (ref,) in self.rows("SELECT ref FROM booking"))
        assert booked == Counter(refs), (booked - Counter(refs), Counter(refs) - booked, self.told)
        assert self.terminal.total == len(refs)
        assert set(self.terminal.effects.values()) <= {1}
        assert self.rows("SELECT state, count(*) FROM oncegate_entries GROUP BY state") == [
            ("committed", len(refs))
        ]
        assert self.rows("SELECT count(*) FROM oncegate_open") == [(0,)]
        committed = self.rows(
            "SELECT count(*), count(DISTINCT entry) FROM oncegate_log WHERE kind = %s",
            [LogKind.COMMITTED.value],
        )
        assert committed == [(len(refs), len(refs))]

    def close(self) -> None:
        for gate in self.gates:
            gate.close()


def events_of(count: int) -> list[Event]:
    """Numbered events."""
    return [{"id": f"E-{number}"} for number in range(count)]


def during(work: Callable[[], Any], disturb: Callable[[], Any], when: Callable[[], object]) -> Any:
    """Runs `work`, and beside it `disturb` once `when` is true; returns what the work returned."""
    answers: list[Any] = []
    wrong: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(work())
        except BaseException as error:  # noqa: BLE001  shown by the test
            wrong.append(error)

    worker = threading.Thread(target=run, daemon=True)
    worker.start()
    wait_until(lambda: when() or not worker.is_alive(), what="the moment to disturb")
    disturb()
    worker.join(3 * DEADLINE_SECONDS)
    assert not worker.is_alive(), "the work hangs"
    assert not wrong, wrong[:3]
    return answers[0]


def raises_store_error(work: Callable[[], Any]) -> StoreError | None:
    """Runs work and returns the store error that it raised."""
    try:
        work()
    except StoreError as error:
        return error
    return None
