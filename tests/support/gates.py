"""What the behaviour tests share: a ledger on disk, one body for plain and async handlers, a fake terminal.

Nothing here stands in for the store: every gate works on a real SQLite file. Time is a clock moved by hand,
and a crash is a process that, from one point on, can commit nothing any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from oncegate import Admission, Gate
from oncegate.crashpoints import CrashPoints
from oncegate.testing import CrashReached, ManualClock
from oncegate.testing.waiting import DEADLINE_SECONDS

# Long in real time, so that the keeper's own thread never wakes during a test; short by the manual clock.
LEASE = "10m"
LEASE_SECONDS = 600

BOOKINGS = "CREATE TABLE bookings (equipment TEXT NOT NULL UNIQUE, slot TEXT)"
BOOK = "INSERT INTO bookings (equipment, slot) VALUES (?, ?)"


class Ledger:
    """One ledger file, its clock, and the gates opened on it: each gate stands for one process."""

    def __init__(self, folder: Path, clock: ManualClock | None = None) -> None:
        self.path = folder / "ledger.db"
        self.url = f"sqlite:///{self.path}"
        self.clock = clock or ManualClock()
        self._gates: list[Gate] = []

    def gate(self, crashpoints: CrashPoints | None = None, **options: Any) -> Gate:
        """Opens another gate, as another process would."""
        gate = Gate(self.url, clock=self.clock, crashpoints=crashpoints, **options)
        self._gates.append(gate)
        return gate

    def lapse(self) -> None:
        """Lets every lease of LEASE run out."""
        self.clock.advance(LEASE_SECONDS + 1)

    def create_bookings(self) -> None:
        """Makes the table that stands for the user's own data."""
        self.gate().engine.store.connect().close()
        self.rows(BOOKINGS)

    def bookings(self) -> list[tuple[Any, ...]]:
        """Reads the user's own data."""
        return self.rows("SELECT equipment, slot FROM bookings ORDER BY equipment")

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Asks the file itself, past the gate."""
        with contextlib.closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            return connection.execute(sql, parameters).fetchall()

    def states(self) -> list[str]:
        """The state of every entry, oldest first."""
        return [state for (state,) in self.rows("SELECT state FROM oncegate_entries ORDER BY id")]

    def state(self) -> str:
        """The state of the only entry."""
        (state,) = self.states()
        return state

    def attempt(self) -> int:
        """How often the only entry has been taken up."""
        ((attempt,),) = self.rows("SELECT attempt FROM oncegate_entries")
        return int(attempt)

    def reason(self) -> str:
        """The reason that stands on the only entry."""
        ((reason,),) = self.rows("SELECT reason FROM oncegate_entries")
        return str(reason)

    def log_kinds(self) -> list[int]:
        """What the log tells, in order."""
        return [kind for (kind,) in self.rows("SELECT kind FROM oncegate_log ORDER BY position")]

    def close(self) -> None:
        """Closes every gate."""
        for gate in self._gates:
            gate.close()


@functools.cache
def _empty_ledger() -> bytes:
    """A ledger's file with nothing in it: copying one takes a tenth of making one."""
    with tempfile.TemporaryDirectory() as folder:
        made = Ledger(Path(folder))
        made.gate().engine.store.connect().close()
        made.close()
        return made.path.read_bytes()


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """A fresh ledger, closed afterwards."""
    fresh = Ledger(tmp_path)
    fresh.path.write_bytes(_empty_ledger())
    yield fresh
    fresh.close()


class DeadAfter(CrashPoints):
    """A process that dies at a crash point: from there on it reaches nothing and commits nothing.

    Every later point raises too, `commit.before` among them, so whatever still runs in this process while
    the error travels up cannot change the ledger any more.
    """

    def __init__(self, name: str, occurrence: int = 1) -> None:
        self.is_dead = False
        self._name = name
        self._left = occurrence

    def hit(self, name: str) -> None:
        """Dies, or has died."""
        if name == self._name and not self.is_dead:
            self._left -= 1
            self.is_dead = self._left == 0
        if self.is_dead:
            raise CrashReached(name)


class Style:
    """Plain or async: writes a handler once and registers it either way.

    A handler's body yields what it asks of `once` (`slot = yield once.effect(…)`): a plain handler has the
    answer already, an async one awaits it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_async = name == "async"

    def admit(self, gate: Gate, surface: str, event: Any, **options: Any) -> Admission:
        """Admits from a thread or from a task."""
        if self.is_async:
            return asyncio.run(gate.admit(surface, event, **options))
        return gate.admit_sync(surface, event, **options)

    def register(self, gate: Gate, surface: str, body: Callable[..., Any], **options: Any) -> None:
        """Registers a body as the handler of a surface; the key is {id} unless told otherwise."""
        settings = {"key": "{id}", "lease": LEASE, **options}
        gate.handler(surface, **settings)(self.handler(body))

    def handler(self, body: Callable[..., Any]) -> Callable[..., Any]:
        """Makes a handler of a body, of the same parameters."""
        if len(inspect.signature(body).parameters) == 1:
            return self._opaque(body)
        return _async_handler(body) if self.is_async else _plain_handler(body)

    def _opaque(self, body: Callable[[Any], Any]) -> Callable[..., Any]:
        async def run_async(event: Any) -> Any:
            return body(event)

        def run(event: Any) -> Any:
            return body(event)

        return run_async if self.is_async else run

    def function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Makes an effect's function async where the handler is."""
        if not self.is_async:
            return function

        @functools.wraps(function)
        async def run(*arguments: Any, **keywords: Any) -> Any:
            return function(*arguments, **keywords)

        return run

    def block(self, once: Any, *statements: tuple[str, Sequence[Any]], **options: Any) -> Any:
        """Runs statements in a commit block; a body yields it."""
        if self.is_async:
            return _block_async(once, statements, options)
        with once.commit(**options) as tx:
            for sql, parameters in statements:
                tx.execute(sql, parameters)
        return None

    def call(self, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        """Calls a function made by `gate.once`."""
        if self.is_async:
            return asyncio.run(function(*arguments, **keywords))
        return function(*arguments, **keywords)


@pytest.fixture(params=["plain", "async"])
def style(request: pytest.FixtureRequest) -> Style:
    """Every test that takes it runs for plain and for async handlers."""
    return Style(request.param)


async def _block_async(once: Any, statements: Any, options: dict[str, Any]) -> None:
    async with once.commit(**options) as tx:
        for sql, parameters in statements:
            await tx.execute(sql, parameters)


def _plain_handler(body: Callable[..., Any]) -> Callable[..., Any]:
    def handle(event: Any, once: Any) -> Any:
        flow: Any = body(event, once)
        if not inspect.isgenerator(flow):
            return flow
        answer: Any = None
        while True:
            try:
                answer = flow.send(answer)
            except StopIteration as stop:
                return stop.value

    return handle


def _async_handler(body: Callable[..., Any]) -> Callable[..., Any]:
    async def handle(event: Any, once: Any) -> Any:
        flow: Any = body(event, once)
        if not inspect.isgenerator(flow):
            return flow
        answer: Any = None
        error: BaseException | None = None
        while True:
            try:
                asked = flow.send(answer) if error is None else flow.throw(error)
            except StopIteration as stop:
                return stop.value
            try:
                answer, error = (await asked if inspect.isawaitable(asked) else asked), None
            except BaseException as raised:  # noqa: BLE001  the body decides, as a plain one would
                answer, error = None, raised

    return handle


class Terminal:
    """A downstream that sells slots and remembers every call; what it can do is up to the test."""

    def __init__(self, *, honours_key: bool = False) -> None:
        self.honours_key = honours_key
        self.loses_answers = False
        self.keys: list[str] = []
        self.slots: dict[str, list[str]] = {}

    def claim(self, equipment: str, idempotency_key: str) -> dict[str, str]:
        """Sells a slot; the same key gets the same one, if keys are honoured."""
        self.keys.append(idempotency_key)
        owned = self.slots.setdefault(idempotency_key, [])
        if not (self.honours_key and owned):
            owned.append(f"{equipment}-{len(self.keys)}")
        if self.loses_answers:
            raise TimeoutError("no answer")
        return {"id": owned[-1]}

    def find(self, key: str) -> list[dict[str, str]]:
        """Tells what a key owns."""
        return [{"id": slot} for slot in self.slots.get(key, [])]

    @property
    def sold(self) -> int:
        """How many slots were sold."""
        return sum(len(owned) for owned in self.slots.values())

    @property
    def most_for_one_key(self) -> int:
        """The most slots that any key owns."""
        return max((len(owned) for owned in self.slots.values()), default=0)


@contextlib.contextmanager
def running(*works: Callable[[], Any]) -> Iterator[list[Any]]:
    """Runs works in threads beside the block; on leaving, waits for them and shows what they returned."""
    answers: list[Any] = [None] * len(works)

    def run(place: int, work: Callable[[], Any]) -> None:
        try:
            answers[place] = work()
        except BaseException as error:  # noqa: BLE001  handed to the test, which looks at it
            answers[place] = error

    threads = [threading.Thread(target=run, args=item, daemon=True) for item in enumerate(works)]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        for thread in threads:
            thread.join(DEADLINE_SECONDS)
            assert not thread.is_alive(), "a thread did not end"


async def until(condition: Callable[[], object]) -> None:
    """Lets other tasks run until a condition is true, with a deadline."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        for _ in iter(lambda: bool(condition()), True):
            await asyncio.sleep(0)


def wait_for(event: threading.Event) -> None:
    """Waits for an event with a deadline."""
    assert event.wait(DEADLINE_SECONDS), "the event did not come"
