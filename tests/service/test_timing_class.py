"""Another tenant's id is not told from one that never was, not even by a clock: the work is the same (I8).

What is compared is the work itself: which operations are asked of the ledger, in which batches, with which
statements, and on SQLite how many steps its machine takes to look one up. That holds on any machine; a
comparison of times would not.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from oncegate.commit import transactions
from oncegate.service.settings import DeliverySettings
from oncegate.stores.postgres.wire import Wire
from oncegate.wiring import Gate
from tests.service.site import BEARER, HOOKS, Answer, Site, settings

BACKGROUND = {"Observe", "ChangeDocument"}  # what is told the ledger later, whatever was asked
LITERAL = re.compile(r"[xX]?'(?:[^']|'')*'|\b\d+\b")


class Work:
    """What the ledger was asked for, by the requests of a test."""

    def __init__(self) -> None:
        self.done: list[Any] = []
        self.steps = 0
        self._is_on = False

    def run_on(self, run: Callable[..., None]) -> Callable[..., None]:
        def recorded(session: Any, tickets: Any) -> None:
            kinds = [type(ticket.operation).__name__ for ticket in tickets]
            self._is_on = not BACKGROUND & set(kinds)
            if self._is_on:
                self.done.append(kinds)
            try:
                run(session, tickets)
            finally:
                self._is_on = False

        return recorded

    def said(self, sql: str) -> None:
        if self._is_on:
            self.done.append(LITERAL.sub("?", sql))

    def step(self) -> int:
        self.steps += self._is_on
        return 0

    def of(self, ask: Callable[[], Answer]) -> tuple[list[Any], int]:
        """The work that one request makes."""
        self.done, self.steps = [], 0
        ask()
        return self.done, self.steps


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    """Listens to every ledger that is opened from now on."""
    work = Work()
    connect, send = sqlite3.connect, Wire.send

    def listening(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments, **options)
        connection.set_trace_callback(work.said)
        connection.set_progress_handler(work.step, 1)
        return connection

    def sending(self: Wire, commands: Any, *then: Any) -> Any:
        for command in commands:
            work.said(command.sql)
        return send(self, commands, *then)

    monkeypatch.setattr(sqlite3, "connect", listening)
    monkeypatch.setattr(Wire, "send", sending)
    monkeypatch.setattr(transactions, "_run_on", work.run_on(transactions._run_on))
    return work


@pytest.fixture(params=["sqlite", "postgres"])
def watched(request: pytest.FixtureRequest, tmp_path: Path, work: Work) -> Iterator[Site]:
    """A service with a surface for each of two tenants, that does nothing beside its requests."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    if request.param == "postgres":
        url = request.getfixturevalue("ledger_url")
    two = {"hooks": HOOKS, "theirs": msgspec.structs.replace(HOOKS, tenant="other")}
    quiet = settings(surfaces=two, delivery=DeliverySettings(enabled=False))
    gate = Gate(url)
    gate.engine.store.migrate()
    with Site(tmp_path, quiet, gate).serving() as site:
        yield site


def alike(work: Work, known: Callable[[], Answer], unknown: Callable[[], Answer]) -> None:
    """The first request of all may prepare statements or read names: it is made before."""
    found, unfound = work.of(known), work.of(unknown)
    assert found[0] == unfound[0]
    assert found[0], "nothing was seen"


def test_an_event_of_another_tenant(watched: Site, work: Work) -> None:
    assert watched.partner("POST", "/v1/events", {"id": "mine", "key": "k", "data": 1}).status == 200

    def find(event_id: str) -> Callable[[], Answer]:
        return lambda: watched.partner("GET", f"/v1/events/{event_id}", token=watched.other)

    find("warm")()
    alike(work, find("mine"), find("none"))
    assert work.of(find("mine"))[1] == work.of(find("none"))[1]  # steps of SQLite's machine


def test_an_id_that_another_tenant_has_published(watched: Site, work: Work) -> None:
    def publish(event_id: str, token: str) -> Callable[[], Answer]:
        body = {"id": event_id, "key": "k", "data": 1}
        return lambda: watched.partner("POST", "/v1/events", body, token)

    for number in range(3):
        assert publish(f"mine-{number}", watched.token)().status == 200
    publish("warm", watched.other)()
    alike(work, publish("mine-1", watched.other), publish("never", watched.other))


def test_a_correlation_id_that_another_tenant_has_used(watched: Site, work: Work) -> None:
    def realtime(correlation_id: str, token: str) -> Callable[[], Answer]:
        return lambda: watched.partner(
            "POST", "/wes/v1/realtime", {"correlation_id": correlation_id}, token
        )

    used = str(uuid4())
    for _ in range(3):
        assert realtime(used, watched.token)().status == 200
    realtime(str(uuid4()), watched.other)()
    alike(work, realtime(used, watched.other), realtime(str(uuid4()), watched.other))


def test_a_body_that_memory_knows_from_another_tenant(watched: Site, work: Work) -> None:
    """What was replayed from memory for one is new for the other, and takes the way of anything new."""

    def hook(surface: str, event_id: str) -> Callable[[], Answer]:
        return lambda: watched.call("POST", f"/in/{surface}", {"id": event_id}, BEARER)

    for replay in (False, True, True):
        assert hook("hooks", "known")().document["replay"] is replay
    assert work.of(hook("hooks", "known"))[0] == []  # from memory
    hook("theirs", "warm")()
    alike(work, hook("theirs", "known"), hook("theirs", "unknown"))


def test_a_cursor_of_another_tenant(watched: Site, work: Work) -> None:
    """Refused before anything is asked, like a forged one."""
    watched.partner("POST", "/v1/events", {"id": "mine", "key": "k", "data": 1})
    theirs = watched.partner("GET", "/wes/v1/dispatch/pending").document["next_cursor"]
    forged = theirs[:-1] + ("B" if theirs[-1] != "B" else "A")

    def pending(cursor: str) -> Callable[[], Answer]:
        where = f"/wes/v1/dispatch/pending?since={cursor}"
        return lambda: watched.partner("GET", where, token=watched.other)

    def ack(cursor: str) -> Callable[[], Answer]:
        where = "/wes/v1/dispatch/ack"
        return lambda: watched.partner("POST", where, {"cursor": cursor}, watched.other)

    for ask in (pending, ack):
        ask(forged)()
        assert work.of(ask(theirs)) == work.of(ask(forged))


def test_a_second_question_would_be_noticed(watched: Site, work: Work) -> None:
    """What is compared here tells one way of looking from two: a check that cannot fail proves nothing."""
    assert watched.partner("POST", "/v1/events", {"id": "mine", "key": "k", "data": 1}).status == 200

    def find(event_id: str) -> Callable[[], Answer]:
        return lambda: watched.partner("GET", f"/v1/events/{event_id}", token=watched.other)

    def twice() -> Answer:
        find("mine")()
        return find("mine")()

    find("warm")()
    with pytest.raises(AssertionError):
        alike(work, twice, find("none"))
