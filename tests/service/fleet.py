"""Several service processes on one ledger, killed and started again, and callers that load them meanwhile.

A listening socket belongs to the test and outlives the processes that serve it: callers see resets and
waits, as behind a load balancer. What was done is judged by the team's own count and by the feed.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import itertools
import json
import os
import random
import signal
import socket
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from oncegate.clock import Clock, SystemClock
from oncegate.crashpoints import CrashPoints
from oncegate.service.application import Service
from oncegate.service.partners import PartnerBook, PartnerRole
from oncegate.service.serving import make_server
from oncegate.service.settings import Settings
from oncegate.testing.forking import Forked
from oncegate.testing.waiting import DEADLINE_SECONDS
from oncegate.wiring import Gate
from tests.service.site import BEARER, SECRET, Answer, Site
from tests.support.serving import running_server

PUSH = "/push"
CALL_ERRORS = (OSError, http.client.HTTPException, ValueError)


class HonouringTeam:
    """A handler that honours keys: one slot for each key, however often it is called."""

    def __init__(self) -> None:
        self._guard, self._numbers = threading.Lock(), itertools.count(1)
        self.slots: dict[str, int] = {}
        self.keys: dict[str, set[str]] = defaultdict(set)  # by the event's own id
        # By key: seq and id, as they came and were taken.
        self.pushed: dict[str, list[tuple[int, str]]] = defaultdict(list)
        # Which tries are refused: those of the n-th time that a thing is asked for.
        self.refuses: Callable[[str, int], bool] = lambda event_id, turn: False
        self._asked: Counter[str] = Counter()

    @contextlib.contextmanager
    def serving(self) -> Iterator[str]:
        team = self

        class Handle(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                event = json.loads(self.rfile.read(int(self.headers["content-length"])))
                key = self.headers["idempotency-key"]
                is_push = self.path.endswith(PUSH)
                event_id = key.strip('"') if is_push else event["id"]
                body = b"{}"
                if is_refused := team.refuse(event_id):
                    pass
                elif is_push:
                    team.pushed[event["key"]].append((event["seq"], event_id))
                else:
                    body = json.dumps({"slot": team.book(key, event_id)}).encode()
                self.send_response((500 if is_push else 429) if is_refused else 200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: Any) -> None:
                pass  # whoever called was killed

        with running_server(Server(("127.0.0.1", 0), Handle)) as port:
            yield f"http://127.0.0.1:{port}/bookings"

    def refuse(self, event_id: str) -> bool:
        with self._guard:
            self._asked[event_id] += 1
            return self.refuses(event_id, self._asked[event_id])

    def book(self, key: str, event_id: str) -> int:
        with self._guard:
            self.keys[event_id].add(key)
            return self.slots.setdefault(key, next(self._numbers))


class Member:
    """One process of the fleet, and the socket that stays when it dies."""

    def __init__(self, url: str, settings: Settings) -> None:
        self._url, self._settings = url, settings
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.caller = Site.__new__(Site)
        self.caller.port = self.listener.getsockname()[1]
        self.process: Forked | None = None

    def start(self, points: CrashPoints | None = None, seconds_later: float = 0) -> Forked:
        """Starts a process; one that starts `seconds_later` finds the leases of the dead lapsed."""
        clock = LaterClock(seconds_later)
        self.process = Forked(lambda: _serve(self.listener, self._url, self._settings, points, clock))
        return self.process

    def kill(self) -> None:
        """Ends the process as a machine that loses power would."""
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.__exit__(None, None, None)
        self.process = None

    def close(self) -> None:
        if self.process is not None:
            self.kill()
        self.listener.close()


class LaterClock(SystemClock):
    """The machine's clock with its ticks so much later."""

    def __init__(self, seconds: float) -> None:
        self._ahead_ms = int(seconds * 1000)

    def ticks_ms(self) -> int:
        return super().ticks_ms() + self._ahead_ms


def _serve(
    listener: socket.socket, url: str, settings: Settings, points: CrashPoints | None, clock: Clock
) -> None:
    gate = Gate(url, clock=clock, crashpoints=points)
    service = Service(
        gate, settings, PartnerBook(gate.engine.commits, gate.engine.clock), {"HOOKS": SECRET}
    )
    server = make_server(service)

    async def run() -> None:
        async with gate.worker(without=("watch", "accepted", "deliveries")):
            await server.serve(sockets=[listener])

    asyncio.run(run())


def add_partner(url: str) -> str:
    """Adds a partner of all roles; its token."""
    with Gate(url) as gate:
        return PartnerBook(gate.engine.commits, gate.engine.clock).add("exec-1", "acme", list(PartnerRole))


class Load:
    """Callers in threads: webhooks and publications, each to any member. Keeps what was answered 200."""

    def __init__(self, members: list[Member], token: str, callers: int = 6, hooks: float = 0.7) -> None:
        self._members, self._token, self._hooks_share = members, token, hooks
        self._numbers = itertools.count(1)
        self._stopping = threading.Event()
        self.hooks: dict[str, Any] = {}
        self.accepted: set[str] = set()
        self.published: dict[str, tuple[str, int]] = {}
        self.refused = 0
        self._threads = [threading.Thread(target=self._call, args=(n,)) for n in range(callers)]

    @property
    def answered(self) -> int:
        return len(self.hooks) + len(self.accepted) + len(self.published)

    @contextlib.contextmanager
    def running(self) -> Iterator[Load]:
        for thread in self._threads:
            thread.start()
        try:
            yield self
        finally:
            self._stopping.set()
            for thread in self._threads:
                thread.join(2 * DEADLINE_SECONDS)

    def _call(self, number: int) -> None:
        choose = random.Random(number)
        while not self._stopping.is_set():
            event_id = f"e-{next(self._numbers)}"
            send = self._hook if choose.random() < self._hooks_share else self._publish
            for _ in range(3):
                if self._stopping.is_set() or send(event_id, choose.choice(self._members).caller):
                    break

    def _hook(self, event_id: str, caller: Site) -> bool:
        answer = tried(lambda: caller.call("POST", "/in/hooks", hook_of(event_id), BEARER))
        if answer is not None and answer.status == 202:
            self.accepted.add(event_id)
            return True
        if answer is None or answer.status != 200:
            self.refused += 1
            return False
        self.hooks[event_id] = answer.document["outcome"]
        return True

    def _publish(self, event_id: str, caller: Site) -> bool:
        key = f"k-{int(event_id[2:]) % 5}"
        body = {"id": event_id, "key": key, "data": event_id}
        answer = tried(lambda: caller.partner("POST", "/v1/events", body, self._token))
        if answer is None or answer.status != 200:
            self.refused += 1
            return False
        self.published[event_id] = (key, answer.document["seq"])
        return True


def hook_of(event_id: str) -> dict[str, str]:
    """A webhook's body: its id, and the order that it belongs to."""
    return {"id": event_id, "order": f"o-{int(event_id[2:]) % 20}"}


def tried(call: Callable[[], Answer]) -> Answer | None:
    """What came back, or None where the other side died."""
    try:
        return call()
    except CALL_ERRORS:
        return None


def follow(caller: Site, token: str, since: str | None = None) -> list[dict[str, Any]]:
    """Reads the feed by cursors to its end."""
    events: list[dict[str, Any]] = []
    while True:
        place = "" if since is None else f"&since={since}"
        page = caller.partner("GET", f"/wes/v1/dispatch/pending?limit=50{place}", token=token).document
        events += page["events"]
        since = page["next_cursor"]
        if not page["events"]:
            return events
