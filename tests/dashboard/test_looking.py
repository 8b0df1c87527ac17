"""Strangers do not get to the ledger, and few requests look at it at a time (I18)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import cast

import psycopg
import pytest

from oncegate.dashboard import read_limits
from oncegate.dashboard.operators import Role
from oncegate.dashboard.read_limits import ASK_AGAIN_MS, LOOKS_MAX, WAITING_MAX, Strangers
from oncegate.store import Session
from oncegate.testing.clock import ManualClock
from oncegate.testing.waiting import DEADLINE_SECONDS, wait_until
from tests.dashboard.conftest import Client, Reply, Site
from tests.dashboard.scene import Scene


@pytest.fixture
def site(ledger_url, stage):
    scene = Scene(ledger_url)
    scene.quiet()
    with stage.showing(scene.gate.dashboard(login=True)) as address:
        yield Site(scene, address)
    scene.gate.close()


@contextmanager
def nobody_reads(url: str) -> Iterator[psycopg.Connection]:
    """Whatever reads the ledger's secret, as every request with a session does, waits meanwhile."""
    with psycopg.connect(url) as connection:
        connection.execute("LOCK TABLE oncegate_meta IN ACCESS EXCLUSIVE MODE")
        yield connection
        connection.rollback()


@contextmanager
def asking(site: Site, cookie: str, count: int) -> Iterator[list[Reply]]:
    """Requests at the same time, whose answers come when they come."""
    replies: list[Reply] = []

    def ask() -> None:
        client = Client(site.address)
        client.cookie = cookie
        replies.append(client.get("/entries"))

    threads = [threading.Thread(target=ask) for _ in range(count)]
    for thread in threads:
        thread.start()
    yield replies
    for thread in threads:
        thread.join(DEADLINE_SECONDS)


def waiting_on(connection: psycopg.Connection) -> int:
    """How many connections wait for the table."""
    row = connection.execute(
        "SELECT count(*) FROM pg_locks WHERE relation = 'oncegate_meta'::regclass AND NOT granted"
    ).fetchone()
    assert row is not None
    return int(row[0])


def test_strangers_are_turned_away_without_the_ledger(site: Site, ledger_url: str) -> None:
    """Also with a cookie that nobody signed, once the page knows the ledger's key."""
    assert site.client(Role.VIEWER).get("/entries").status == 200
    stranger = Client(site.address)
    with nobody_reads(ledger_url) as connection:
        for cookie in ("", "oncegate_page=1.0.99999999999999.aa.YQ.forged", "oncegate_page=x", "other=1"):
            stranger.cookie = cookie
            assert stranger.get("/entries").status == 303
            assert stranger.post("/lanes/replay", {"reason": "why"}).status == 401
            assert stranger.post("/logout", {}).status == 303
        assert waiting_on(connection) == 0


@pytest.mark.slow
def test_few_requests_look_at_the_ledger_at_a_time(site: Site, ledger_url: str) -> None:
    """The others wait for their turn, without a connection; too many are refused at once."""
    cookie = site.client(Role.VIEWER).cookie
    count = LOOKS_MAX + WAITING_MAX + 5
    with ExitStack() as stack:
        with nobody_reads(ledger_url) as connection:
            replies = stack.enter_context(asking(site, cookie, count))
            wait_until(lambda: waiting_on(connection) >= LOOKS_MAX, what="all places to be taken")
            wait_until(lambda: len(replies) >= 5, what="the refusals")
            most = waiting_on(connection)
        wait_until(lambda: len(replies) == count, what="all answers")

    assert most == LOOKS_MAX
    assert sorted(reply.status for reply in replies) == [200] * (count - 5) + [503] * 5
    assert {reply.headers.get("retry-after") for reply in replies if reply.status == 503} == {"1"}


def test_a_key_that_changed_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a restore from a copy the page asks the ledger again, at most once in a while."""
    keys, clock = {"now": b"first"}, ManualClock()
    monkeypatch.setattr(read_limits, "session_key", lambda session: keys["now"])
    monkeypatch.setattr(read_limits, "is_signed", lambda key, cookie: cookie == key.decode())
    strangers, session = Strangers(clock), cast(Session, None)
    learn = partial(strangers.learn, session)

    assert strangers.has("")
    assert not strangers.has("first")  # nothing is known yet
    learn()
    assert (strangers.has("first"), strangers.has("second")) == (False, True)
    keys["now"] = b"second"
    learn()
    assert strangers.has("second")
    clock.advance(ASK_AGAIN_MS / 1000 + 1)
    assert not strangers.has("second")  # the ledger is to say
    learn()
    assert (strangers.has("first"), strangers.has("second")) == (True, False)
    keys["now"] = b"third"
    strangers.renew(session)  # a sign-in reads it at once
    assert not strangers.has("third")
