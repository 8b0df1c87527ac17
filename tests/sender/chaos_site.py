"""Where delivery over HTTP meets failures: a receiver that flaps and records durably, and senders that die.

The receiver is a process of its own. It appends every arrival, and every event that it takes, to a file
with fsync before it answers; that file is what is judged. Senders are processes on a clock that all share.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import cycle
from pathlib import Path

from msgspec.structs import replace

from oncegate.commit.group_commit import GroupCommit
from oncegate.crashpoints import CrashPoints
from oncegate.errors import StoreError
from oncegate.sender.addresses import AddressPolicy
from oncegate.sender.delivery import DeliveryService
from oncegate.sender.endpoint_registry import EndpointChange
from oncegate.sender.endpoints import new_endpoint
from oncegate.sender.sender import SenderOnCommits
from oncegate.store import LaneState, Store
from oncegate.testing import Forked, SharedClock, wait_until
from oncegate.testing.waiting import DEADLINE_SECONDS
from tests.lanes.lane_site import stop_between_commits

KEYS = ("a", "b", "c", "d")
ENDPOINT = "orders"
SECRET = "whsec_" + "c2VjcmV0" * 8
TIMEOUT = timedelta(milliseconds=150)
POLICY = AddressPolicy.of(allow_http=True, allow_loopback=True)
TURNS_MAX = 2_000

# In these moods the event is not taken.
LOSING = {"hangs", "resets", "half an answer", "refuses", "asks for time", "half closes", "drips"}

Headers = dict[str, str]
Apply = Callable[[Headers, bytes], Awaitable[int]]

OK, FAIL = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n"
MOODS = (
    "well", "well", "well", "well", "slow", "refuses", "hangs", "resets", "half an answer",
    "takes and resets", "takes and hangs", "answers twice", "asks for time",
)  # fmt: skip
# With some that take the sender's whole time limit: each in turn, where every one must have been met.
EVERY_MOOD = (*dict.fromkeys(MOODS), "half closes", "takes and half closes", "drips", "takes and drips")


class Journal:
    """A file that outlives every process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()

    def add(self, *words: object) -> None:
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(file, (" ".join(map(str, words)) + "\n").encode())
            os.fsync(file)
        finally:
            os.close(file)

    def lines(self) -> list[list[str]]:
        return [line.split() for line in self._path.read_text().splitlines()]


class FlappingReceiver:
    """Serves in a process of its own and has a mood for each request."""

    def __init__(
        self, journal: Journal, seed: int, apply: Apply | None = None, in_turn: Sequence[str] = ()
    ) -> None:
        self._journal = journal
        choose, turns = random.Random(seed), cycle(in_turn)
        self._next_mood = (lambda: next(turns)) if in_turn else (lambda: choose.choice(MOODS))
        self._apply = apply or self._take
        self._arrivals, self._arrival = 0, asyncio.Event()
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/hook"

    def process(self) -> Forked:
        return Forked(lambda: asyncio.run(self._serve()))

    def close(self) -> None:
        self._socket.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._converse, sock=self._socket)
        await server.serve_forever()

    async def _take(self, headers: Headers, body: bytes) -> int:
        return 200

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.transport.abort()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request; tells whether the connection goes on."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        headers = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
        body = await reader.readexactly(int(headers["content-length"]))
        event = (headers["x-key"], headers["x-seq"], headers["idempotency-key"].strip('"'))
        self._journal.add("arrived", *event)
        self._arrivals += 1
        self._arrival.set()
        mood = self._next_mood()
        if mood in LOSING:
            return await self._be(mood, writer)
        status = await self._apply(headers, body)
        if status == 200:
            self._journal.add("taken", *event)
        return await self._be(mood if status == 200 else "refuses", writer)

    async def _until_another_comes(self) -> None:
        """Answers later than the next arrival, if one comes while the sender still waits."""
        with suppress(TimeoutError):
            async with asyncio.timeout(TIMEOUT.total_seconds() / 4):
                seen = self._arrivals
                while self._arrivals == seen:
                    self._arrival.clear()
                    await self._arrival.wait()

    async def _never_ends(self, writer: asyncio.StreamWriter, answer: bytes) -> bool:
        """Ends its own side at once, or sends an answer byte by byte, until the sender has had enough."""
        if not answer:
            writer.write_eof()
        for place in range(len(answer)):
            writer.write(answer[place : place + 1])
            await asyncio.sleep(TIMEOUT.total_seconds() / 10)
        await asyncio.sleep(TIMEOUT.total_seconds())
        return False

    async def _be(self, mood: str, writer: asyncio.StreamWriter) -> bool:
        if mood.endswith("hangs"):
            await asyncio.sleep(TIMEOUT.total_seconds() * 2)
            return False
        if mood.endswith("resets"):
            return False
        if mood.endswith(("half closes", "drips")):
            return await self._never_ends(writer, b"" if mood.endswith("closes") else OK[:-4])
        if mood == "slow":
            await self._until_another_comes()
        answers = {"refuses": FAIL, "half an answer": b"HTTP/1.1 200 OK\r\ncont", "answers twice": OK + OK}
        answers["asks for time"] = OK.replace(b"200 OK", b"503 Later\r\nretry-after: 2")
        writer.write(answers.get(mood, OK))
        await writer.drain()
        if mood == "half an answer":
            writer.write_eof()
        return mood != "half an answer"


class HttpScene:
    """A ledger, a clock that all processes share, a receiver, and senders in processes of their own."""

    def __init__(self, make_store: Callable[[SharedClock], Store], folder: Path, seed: int = 1) -> None:
        self.clock = SharedClock()
        self.journal = Journal(folder / "journal")
        self._at_work = Journal(folder / "at-work")
        self.receiver = FlappingReceiver(self.journal, seed)
        self.make_store = make_store
        self.events = 0

    def store(self) -> Store:
        return self.make_store(self.clock)

    def open(self, events: int, url: str | None = None) -> None:
        """Registers the endpoint and emits the first events."""
        commits = GroupCommit(self.store(), clock=self.clock)
        endpoint = new_endpoint(
            ENDPOINT, url or self.receiver.url, secret=SECRET, timeout=TIMEOUT, attempts_max=100,
            retry_cap=timedelta(seconds=8), in_flight_max=3,
        )  # fmt: skip
        SenderOnCommits(commits, clock=self.clock, policy=POLICY).endpoints.add(
            endpoint, EndpointChange("ann", "test")
        )
        commits.close()
        self.emit(events)

    def emit(self, count: int) -> None:
        """Emits so many more events of each key."""
        commits = GroupCommit(self.store(), clock=self.clock)
        sender = SenderOnCommits(commits, clock=self.clock, policy=POLICY)
        for number in range(self.events + 1, self.events + count + 1):
            for key in KEYS:
                event_id = f"{key}-{number}"
                sender.emit_sync(ENDPOINT, key=key, type="t", payload={"n": number}, event_id=event_id)
        self.events += count
        commits.close()

    def sender(self, points: CrashPoints | None = None) -> Forked:
        """A process that delivers until nothing is left."""
        return Forked(lambda: asyncio.run(self._deliver(points or CrashPoints())))

    def stop_between_commits(self, name: str) -> None:
        """Stops the sender that comes here, at a moment when it holds no lock of the ledger."""
        stop_between_commits(self._commits, name)

    async def _deliver(self, points: CrashPoints) -> int:
        commits = GroupCommit(self.store(), clock=self.clock, crashpoints=points, inline=False)
        self._commits = commits
        sender = SenderOnCommits(commits, clock=self.clock, policy=POLICY)
        async with DeliveryService(sender, crashpoints=points, runs=False) as service:
            self._at_work.add("began", str(os.getpid()))
            for _ in range(TURNS_MAX):
                try:
                    due = (await service.engine.run_once()).next_due_in_ms
                except StoreError:
                    await asyncio.to_thread(wait_until, self._ledger_answers, what="the server to be back")
                    continue
                if due is None:
                    commits.close()
                    return service.engine.counts()[0]
                self.clock.advance(max(due, 1) / 1000)
        raise AssertionError("there is no end to it")

    def _ledger_answers(self) -> bool:
        try:
            with self.store().look() as reader:
                return reader.destinations() is not None
        except StoreError:
            return False

    def move_endpoint(self) -> None:
        """Points the endpoint at the present receiver."""
        commits = GroupCommit(self.store(), clock=self.clock)
        book = SenderOnCommits(commits, clock=self.clock, policy=POLICY).endpoints
        moved = EndpointChange("ann", "moved")
        book.change(ENDPOINT, lambda one: replace(one, url=self.receiver.url), moved, "moved")
        commits.close()

    def finish(self) -> None:
        """Lets leases lapse and one more sender do the rest; then looks at everything."""
        self.clock.advance(61)
        with self.sender() as last:
            assert last.wait(2 * DEADLINE_SECONDS) == 0
        self.check()

    def are_at_work(self, *senders: Forked) -> bool:
        """Whether each of the senders has opened the ledger and begun."""
        return {str(sender.pid) for sender in senders} <= {pid for _, pid in self._at_work.lines()}

    def has_seen(self, lines: int) -> bool:
        """Whether the receiver's journal has so many lines."""
        return len(self.journal.lines()) >= lines

    def check(self) -> None:
        """I10, I11: every event, in order at first sight, with one id; each only after the one before."""
        check_journal(self.journal, self.events)
        with self.store().look() as reader:
            (view,) = reader.destinations()
            assert (view.waiting, view.leased, view.blocked, view.events) == (0, 0, 0, 0)
            for key in KEYS:
                lane = reader.find_lane(ENDPOINT, "", key)
                assert lane is not None
                assert (lane.state, lane.head_seq) == (LaneState.IDLE, self.events + 1)


def check_journal(journal: Journal, events: int) -> None:
    """Judges a receiver's journal by itself."""
    taken = dict.fromkeys(KEYS, 0)
    for what, key, text, event_id in journal.lines():
        seq = int(text)
        assert event_id == f"{key}-{seq}", "a repeat has the same Idempotency-Key"
        assert seq <= taken[key] + 1, f"{key} {seq} came before {taken[key] + 1} was taken"
        if what == "taken":
            taken[key] = max(taken[key], seq)
    assert taken == dict.fromkeys(KEYS, events), "nothing is lost"
