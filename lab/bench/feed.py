"""Days of a real feed, compressed: real HTTP to real server processes, in front of a handler that counts.

The feed is that of a container terminal: 14,800 notifications in two months, more by day than by night, a
few of them delivered two to six times at once or much later, and a tenth sent again at the end, as a person
does who is not sure. The handler honours nothing: each call books. What is judged is its own count: one
booking for each event that was answered 200, and none besides.
"""

from __future__ import annotations

import http.client
import json
import math
import random
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from lab.bench.servers import SECRET, postgres_url, service
from oncegate.clock import SystemClock
from oncegate.errors import ConfigError

EVENTS: Final = 14_800
DAYS: Final = 61.0
REPEATED_SHARE: Final = 0.02
REDRIVEN_SHARE: Final = 0.1
CALLERS: Final = 32
TRIES_MAX: Final = 60
RETRY_SECONDS: Final = 0.2
CALL_SECONDS: Final = 60.0
_FORWARD: Final = """forward = "team"
[downstreams.team]
url = "{url}"
honours_key = "7d"
"""


class Arrival(Struct, frozen=True):
    """One delivery of an event, so many seconds after the beginning."""

    at_seconds: float
    event_id: str


class Report(Struct, frozen=True):
    """What came of it. `lost` were answered 200 and never booked, `doubled` were booked more than once."""

    events: int
    deliveries: int
    seconds: float
    replays: int
    tries_again: int
    unanswered: int
    lost: int
    doubled: int
    p50_ms: float
    p99_ms: float

    @property
    def is_right(self) -> bool:
        """Whether every event had its one effect."""
        return not (self.lost or self.doubled or self.unanswered)

    def facts(self) -> dict[str, Any]:
        """For programs."""
        found: dict[str, Any] = msgspec.structs.asdict(self)
        return found


def make_feed(days: float, seconds: float, seed: int) -> list[Arrival]:
    """The deliveries of so many days in so many seconds, in order of time."""
    choose = random.Random(seed)
    arrivals: list[Arrival] = []
    for number in range(max(1, round(EVENTS * days / DAYS))):
        event_id = f"notice-{number}"
        at = _moment(choose, days) * seconds / days
        arrivals.append(Arrival(at, event_id))
        if choose.random() < REPEATED_SHARE:
            times = choose.randint(1, 5)
            later = (
                0.0 if choose.random() < 0.5 else choose.random() * (seconds - at) for _ in range(times)
            )
            arrivals += [Arrival(at + wait, event_id) for wait in later]
        if choose.random() < REDRIVEN_SHARE:
            arrivals.append(Arrival(seconds, event_id))
    return sorted(arrivals, key=lambda one: one.at_seconds)


def _moment(choose: random.Random, days: float) -> float:
    """A time within so many days, by the hours that people work."""
    while True:
        moment = choose.random() * days
        if choose.random() < 0.55 - 0.45 * math.cos(2 * math.pi * moment):
            return moment


class CountingTeam:
    """A handler that books at every call, and counts."""

    def __init__(self) -> None:
        self.booked: Counter[str] = Counter()
        self._guard = threading.Lock()

    def book(self, event_id: str) -> int:
        """Books."""
        with self._guard:
            self.booked[event_id] += 1
            return self.booked.total()

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Serves on a free port; its address."""
        team = self

        class Desk(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                event = json.loads(self.rfile.read(int(self.headers["content-length"])))
                body = json.dumps({"slot": team.book(event["id"])}).encode()
                self.send_response(200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Says nothing."""

        with ThreadingHTTPServer(("127.0.0.1", 0), Desk) as server:
            server.daemon_threads = True
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
            thread.start()
            try:
                yield f"http://127.0.0.1:{server.server_port}/bookings"
            finally:
                server.shutdown()
                thread.join()


class Upstream:
    """Delivers at least once: what is not answered 200 is sent again."""

    def __init__(self, ports: list[int]) -> None:
        self._ports = ports
        self._clock = SystemClock()
        self._own = threading.local()
        self._connections: list[http.client.HTTPConnection] = []
        self.latencies_us: list[int] = []
        self.answered: set[str] = set()
        self.unanswered: set[str] = set()
        self.replays = 0
        self.tries_again = 0
        self._guard = threading.Lock()

    def deliver(self, event_id: str) -> None:
        """Delivers one event, and tries again until it is answered."""
        for turn in range(TRIES_MAX):
            began = self._clock.elapsed_us()
            answer = self._call(event_id, turn)
            with self._guard:
                self.tries_again += turn > 0
                if answer is not None:
                    self.latencies_us.append(self._clock.elapsed_us() - began)
                    self.answered.add(event_id)
                    self.replays += answer["replay"]
                    return
            self._clock.pause(RETRY_SECONDS)
        self.unanswered.add(event_id)

    def _call(self, event_id: str, turn: int) -> dict[str, Any] | None:
        port = self._ports[(hash(event_id) + turn) % len(self._ports)]
        body = json.dumps({"id": event_id, "equipment": event_id[-4:], "terminal": "Delta"})
        headers = {"authorization": f"Bearer {SECRET}", "content-type": "application/json"}
        connection = self._connection(port)
        try:
            connection.request("POST", "/in/bench", body, headers)
            response = connection.getresponse()
            found = json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError):
            connection.close()
            return None
        return found if response.status == 200 else None

    def _connection(self, port: int) -> http.client.HTTPConnection:
        """This thread's own connection to a process."""
        kept: dict[int, http.client.HTTPConnection] = self._own.__dict__.setdefault("kept", {})
        if port not in kept:
            kept[port] = http.client.HTTPConnection("127.0.0.1", port, timeout=CALL_SECONDS)
            self._connections.append(kept[port])
        return kept[port]

    def close(self) -> None:
        """Ends all connections."""
        for connection in self._connections:
            connection.close()


class FeedBench:
    """Plays one feed."""

    def __init__(
        self,
        *,
        days: float,
        seconds: float,
        processes: int,
        postgres: bool,
        seed: int,
        talk: Callable[[str], None],
    ) -> None:
        if not (0 < days <= DAYS and seconds > 0):
            raise ConfigError(f"--days must be from 0 to {DAYS:g}, --seconds above 0")
        self._feed = make_feed(days, seconds, seed)
        self._processes, self._postgres, self._talk = processes, postgres, talk
        self._clock = SystemClock()

    def run(self) -> Report:
        """Plays it and counts."""
        team = CountingTeam()
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="oncegate-feed-")))
            more = _FORWARD.format(url=stack.enter_context(team.serving()))
            url = stack.enter_context(postgres_url()) if self._postgres else f"sqlite:///{folder}/l.db"
            names = [f"service-{number}" for number in range(self._processes)]
            servers = [stack.enter_context(service(folder, name, url, more)) for name in names]
            upstream = Upstream([server.port for server in servers])
            stack.callback(upstream.close)
            self._talk(f"{len(self._feed)} deliveries to {self._processes} process(es)")
            seconds = self._play(upstream)
        return _report(self._feed, seconds, upstream, team)

    def _play(self, upstream: Upstream) -> float:
        began = self._clock.elapsed_us()
        with ThreadPoolExecutor(CALLERS) as pool:
            for arrival in self._feed:
                wait = arrival.at_seconds - (self._clock.elapsed_us() - began) / 1e6
                if wait > 0:
                    self._clock.pause(wait)
                pool.submit(upstream.deliver, arrival.event_id)
        return (self._clock.elapsed_us() - began) / 1e6


def _report(feed: list[Arrival], seconds: float, upstream: Upstream, team: CountingTeam) -> Report:
    events = {arrival.event_id for arrival in feed}
    latencies = sorted(upstream.latencies_us) or [0]
    return Report(
        events=len(events),
        deliveries=len(feed),
        seconds=round(seconds, 1),
        replays=upstream.replays,
        tries_again=upstream.tries_again,
        unanswered=len(events - upstream.answered),
        lost=sum(team.booked[one] == 0 for one in upstream.answered),
        doubled=sum(count > 1 for count in team.booked.values()),
        p50_ms=round(latencies[len(latencies) // 2] / 1000, 2),
        p99_ms=round(latencies[int(len(latencies) * 0.99)] / 1000, 2),
    )


def as_text(report: Report) -> str:
    """For people."""
    return (
        f"{report.events:,} events, {report.deliveries:,} deliveries in {report.seconds:g} s"
        f" ({report.deliveries / report.seconds:,.0f}/s)\n"
        f"{report.replays:,} answered as replays; {report.tries_again:,} sent again for want of a 200\n"
        f"p50 {report.p50_ms:g} ms, p99 {report.p99_ms:g} ms, with the handler's own time\n"
        f"lost: {report.lost}, doubled: {report.doubled}, never answered: {report.unanswered}"
    )
