"""What every peer's script shares: events, the counted downstream, the business row, the driver's line.

Only the standard library, as each script runs in an environment of its own. A script defines a subject and
calls `serve`; the driver sends one JSON object a line and gets one back. Must never do a peer's work.
"""

from __future__ import annotations

import asyncio
import json
import os
import queue
import signal
import sqlite3
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, cycle, islice
from pathlib import Path
from time import perf_counter
from typing import IO, Any, Final

REPEAT_EVERY: Final = 33  # one event in 33 is a repeat: 3 %
CONNECTIONS: Final = 16  # for business rows, of the 100 that a server allows by default
WARM_UP: Final = 2  # events for each worker, before anything is timed
WARM_UP_SECONDS_MAX: Final = 0.5
_FILLER: Final = "x" * 330  # brings an event to about half a kilobyte

Event = dict[str, Any]


def make_event(number: int, prefix: str = "N") -> Event:
    """The event of `oncegate.bench.workload`, which a peer's environment has not got."""
    return {
        "notificationId": f"{prefix}-{number:09d}",
        "equipment_number": f"MSKU{number % 10_000_000:07d}",
        "window": "2026-06-01T06:00:00Z/PT1H",
        "terminal": {"code": "ECT-DELTA", "berth": number % 40},
        "remarks": _FILLER,
    }


def key_of(event: Event) -> str:
    """The key that every subject uses."""
    return f"{event['notificationId']}:{event['equipment_number']}"


@dataclass(frozen=True)
class Settings:
    """What a subject is opened with."""

    store: str  # sqlite, postgres, or what else the peer offers
    url: str  # a path for sqlite
    folder: str  # for files of its own
    durability: str = "ours"  # "ours": each commit is flushed; "theirs": as the peer comes
    lease_s: float = 20.0
    effects: str = ""  # the downstream's own book, kept where every process sees it
    moment: str = ""  # "before call" in the handler, "in call" on its way out, or "after call"
    fault: str = ""  # "kill" or "stall" at that moment
    rows: bool = True  # whether a business row is written beside the ledger, where it cannot be in it


class Line:
    """One JSON object a line, to and from the driver; whatever a library prints goes elsewhere."""

    def __init__(self) -> None:
        self._out: IO[str] = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def say(self, reply: dict[str, Any]) -> None:
        """Sends one object."""
        self._out.write(json.dumps(reply) + "\n")
        self._out.flush()

    def hear(self) -> dict[str, Any] | None:
        """Waits for the next object; None at the end."""
        line = sys.stdin.readline()
        found: dict[str, Any] | None = json.loads(line) if line else None
        return found


class Downstream:
    """The outside world: counts its effects, never refuses a repeat, and can be asked what a key owns.

    With a book it appends a line for each effect, which outlives the process that asked for it.
    """

    def __init__(self, settings: Settings, line: Line) -> None:
        self.count = 0
        self._book = settings.effects
        self._fault = (settings.moment, settings.fault)
        self._line = line

    def approach(self) -> None:
        """The moment in a handler's own code before it makes its call."""
        self._come_to("before call")

    def call(self, key: str, *, approached: bool = False) -> str:
        """The effect: one more, whatever happened before."""
        if not approached:
            self.approach()
        if self._book:
            self._come_to("in call")
            with Path(self._book).open("a", encoding="utf-8") as book:
                book.write(key + "\n")
                book.flush()
                os.fsync(book.fileno())
        self.count += 1
        if self._book:
            self._come_to("after call")
        return f"slot-{key[:12]}"

    def owned_by(self, key: str) -> str | None:
        """What a key owns, as a provider's own query would tell."""
        book = Path(self._book)
        known = book.read_text("utf-8").splitlines() if self._book and book.exists() else []
        return f"slot-{key[:12]}" if key in known else None

    def _come_to(self, moment: str) -> None:
        if self._fault[0] != moment:
            return
        if self._fault[1] == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self._fault[1] == "stall":
            self._line.say({"stalled": moment})
            self._line.hear()  # the driver stops this process here, and lets it go on later


class SqliteBookings:
    """The business table in a file of its own, so that no peer waits for its own lock."""

    def __init__(self, settings: Settings) -> None:
        self._lock = threading.Lock()
        path = Path(settings.folder) / "bookings.db"
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30)
        self._connection.execute("PRAGMA journal_mode = WAL")
        level = "FULL" if settings.durability == "ours" else "NORMAL"
        self._connection.execute(f"PRAGMA synchronous = {level}")
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS booking (ref TEXT PRIMARY KEY, equipment TEXT, slot TEXT)"
        )

    def add(self, event: Event, slot: str) -> None:
        """Writes the business row, in a transaction of its own; a second one for the same event is none."""
        row = (key_of(event), event["equipment_number"], slot)
        with self._lock:
            self._connection.execute("INSERT OR IGNORE INTO booking VALUES (?, ?, ?)", row)

    def rows(self, key: str) -> int:
        """How many rows a key has."""
        with self._lock:
            found = self._connection.execute(
                "SELECT count(*) FROM booking WHERE ref = ?", (key,)
            ).fetchone()
        return int(found[0])


CREATE_BOOKING: Final = (
    "CREATE TABLE IF NOT EXISTS booking (ref text PRIMARY KEY, equipment text, slot text)"
)
INSERT_BOOKING: Final = "INSERT INTO booking VALUES (%s, %s, %s) ON CONFLICT (ref) DO NOTHING"


class PostgresBookings:
    """The business table on the server, over at most CONNECTIONS connections."""

    def __init__(self, settings: Settings) -> None:
        import psycopg

        self._connect: Callable[[], Any] = lambda: psycopg.connect(settings.url, autocommit=True)
        self._places: queue.LifoQueue[Any] = queue.LifoQueue()
        for _ in range(CONNECTIONS):
            self._places.put(None)
        self._execute(CREATE_BOOKING, ())

    def _execute(self, statement: str, values: tuple[Any, ...]) -> Any:
        connection = self._places.get()
        try:
            connection = connection or self._connect()
            return connection.execute(statement, values)
        finally:
            self._places.put(connection)

    def add(self, event: Event, slot: str) -> None:
        """Writes the business row, in a transaction of its own; a second one for the same event is none."""
        self._execute(INSERT_BOOKING, (key_of(event), event["equipment_number"], slot))

    def rows(self, key: str) -> int:
        """How many rows a key has."""
        found = self._execute("SELECT count(*) FROM booking WHERE ref = %s", (key,)).fetchone()
        return int(found[0])


def bookings_at(settings: Settings) -> SqliteBookings | PostgresBookings:
    """The business table beside a peer's own tables."""
    return PostgresBookings(settings) if settings.store == "postgres" else SqliteBookings(settings)


class Subject:
    """What a script fills in. `work` is a function for threads, or a coroutine function for tasks."""

    tasks = False

    def __init__(self, settings: Settings, downstream: Downstream) -> None:
        self.settings, self.downstream = settings, downstream

    def open(self) -> dict[str, Any]:
        """Gets ready and returns what should be printed of its settings."""
        return {}

    async def open_async(self) -> None:
        """The part of getting ready that needs the loop."""

    def work(self, event: Event) -> Any:
        """Reserve, effect, outcome, business row. Returns the outcome; raises if the event is refused."""
        raise NotImplementedError

    def rows(self, key: str) -> int:
        """How many business rows a key has."""
        raise NotImplementedError


def stream_of(kind: str, prefix: str, settled: int, concurrency: int) -> Iterator[Event]:
    """Events: all fresh, all of settled keys over and over or once each, or 3 % repeats."""
    if kind in ("replay", "reread"):
        known = [make_event(number, prefix) for number in range(settled)]
        return cycle(known) if kind == "replay" else iter(known)
    if kind == "fresh":
        return (make_event(number, prefix) for number in count())
    back = 4 * concurrency  # what came so long ago has been settled by now

    def mixed() -> Iterator[Event]:
        for number in count():
            repeats = number % REPEAT_EVERY == REPEAT_EVERY - 1 and number > back
            yield make_event(number - back if repeats else number, prefix)

    return mixed()


class Run:
    """One measured run: workers take events until the time is up, and each finishes what it has begun."""

    def __init__(self, events: Iterator[Event], seconds: float) -> None:
        self._events, self._lock = events, threading.Lock()
        self._begun = perf_counter()
        self._ends = self._begun + seconds
        self._last = self._begun
        self.latencies: list[float] = []

    def take(self) -> Event | None:
        """The next event, or None when the time is up."""
        if perf_counter() >= self._ends:
            return None
        with self._lock:
            return next(self._events, None)

    def note(self, begun: float) -> None:
        """Counts an event that has been finished."""
        self._last = perf_counter()
        self.latencies.append((self._last - begun) * 1000)

    def report(self) -> dict[str, Any]:
        """Events, seconds and latencies."""
        ordered = sorted(self.latencies) or [0.0]
        return {
            "events": len(self.latencies),
            "seconds": self._last - self._begun,
            "p50_ms": ordered[len(ordered) // 2],
            "p99_ms": ordered[int(len(ordered) * 0.99)],
        }


def run_threads(subject: Subject, run: Run, concurrency: int) -> None:
    """Lets threads work until the time is up; the first error ends the run."""
    failures: list[BaseException] = []

    def worker() -> None:
        try:
            while not failures and (event := run.take()) is not None:
                begun = perf_counter()
                subject.work(event)
                run.note(begun)
        except BaseException as error:  # noqa: BLE001 - told to the driver, with the run
            failures.append(error)

    threads = [threading.Thread(target=worker, daemon=True) for _ in range(concurrency)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


async def run_tasks(subject: Subject, run: Run, concurrency: int) -> None:
    """Lets tasks work until the time is up."""

    async def worker() -> None:
        while (event := run.take()) is not None:
            begun = perf_counter()
            await subject.work(event)
            run.note(begun)

    await asyncio.gather(*(worker() for _ in range(concurrency)))


class Server:
    """Does what the driver asks for."""

    def __init__(self, make: type[Subject], line: Line) -> None:
        self._make, self._line = make, line
        self._loop = asyncio.new_event_loop()

    def open(self, **words: Any) -> dict[str, Any]:
        """Opens the subject."""
        settings = Settings(**words)
        self._downstream = Downstream(settings, self._line)
        self._subject = self._make(settings, self._downstream)
        found = self._subject.open()
        self._loop.run_until_complete(self._subject.open_async())
        return {"python": sys.version.split()[0], "settings": found}

    def run(
        self, *, stream: str, prefix: str, seconds: float, concurrency: int, settled: int = 0
    ) -> dict[str, Any]:
        """Measures one stream at one concurrency, after a warm-up with keys of its own."""
        if stream in ("fresh", "mixed"):
            warm_up = islice(stream_of("fresh", f"{prefix}-warm", 0, 1), WARM_UP * concurrency)
            self._work(Run(warm_up, min(seconds, WARM_UP_SECONDS_MAX)), concurrency)
        before = self._downstream.count
        run = Run(stream_of(stream, prefix, settled, concurrency), seconds)
        self._work(run, concurrency)
        return {**run.report(), "effects": self._downstream.count - before}

    def _work(self, run: Run, concurrency: int) -> None:
        if self._subject.tasks:
            self._loop.run_until_complete(run_tasks(self._subject, run, concurrency))
        else:
            run_threads(self._subject, run, concurrency)

    def deliver(self, *, event: Event) -> dict[str, Any]:
        """Delivers one event once and tells what came of it."""
        before = self._downstream.count
        try:
            outcome = self._subject.work(event)
            if asyncio.iscoroutine(outcome):
                outcome = self._loop.run_until_complete(outcome)
        except Exception as error:  # noqa: BLE001 - refusing is an answer, which the driver judges
            return {"refused": f"{type(error).__name__}: {error}"[:160]}
        return {"outcome": outcome, "ran": self._downstream.count > before}

    def rows(self, *, key: str) -> dict[str, Any]:
        """Counts business rows."""
        return {"rows": self._subject.rows(key)}


def serve(make: type[Subject]) -> None:
    """Answers the driver until it hangs up."""
    line = Line()
    server = Server(make, line)
    while (request := line.hear()) is not None:
        number = {"number": request.pop("number", None)}
        try:
            line.say({**number, **getattr(server, request.pop("do"))(**request)})
        except Exception as error:  # noqa: BLE001 - told to the driver, which prints it in the table
            trace = traceback.format_exc()[-1500:]
            line.say({**number, "error": f"{type(error).__name__}: {error}"[:300], "trace": trace})
    os._exit(0)  # libraries' own threads must not keep the process
