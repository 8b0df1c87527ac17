"""The commit of a handler's own block is in doubt: it is told the truth, and nothing stays open (I5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from oncegate import Gate, Once
from oncegate.commit import group_commit
from oncegate.errors import StoreUnknown
from oncegate.gate.admission import Verdict
from oncegate.testing.postgres import PostgresServer
from oncegate.testing.proxy import Proxy

pytestmark = pytest.mark.slow

COMMIT = b"COMMIT\0"
Fault = Callable[[], object]


class Desk:
    """A gate behind a proxy, where one handler has a transaction at a time and another gives up soon."""

    def __init__(self, direct: str, proxy: Proxy) -> None:
        self.direct, self.proxy = direct, proxy
        self.gate = Gate(proxy.url(direct))
        self._blocks: list[Any] = []  # as an error that somebody keeps would keep them
        self._fault: Fault | None = None
        self.gate.handler("bookings", key="{id}")(self._book)

    def _book(self, event: dict[str, str], once: Once) -> None:
        self._blocks.append(once.commit())
        with self._blocks[-1] as tx:
            tx.execute("INSERT INTO booking VALUES (?)", (event["id"],))
            if self._fault is not None:
                self._fault()

    def book(self, ref: str, fault: Fault | None = None) -> Verdict:
        self._fault = fault
        return self.gate.admit_sync("bookings", {"id": ref}).verdict

    def booked(self) -> list[str]:
        with psycopg.connect(self.direct) as connection:
            return [ref for (ref,) in connection.execute("SELECT ref FROM booking ORDER BY ref")]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """One that a proxy can stand before."""
    with PostgresServer(in_memory=True) as started:
        yield started


@pytest.fixture
def desk(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setattr(group_commit, "TRANSACTIONS_MAX", 1)
    monkeypatch.setattr(group_commit, "TURN_WAIT_SECONDS", 0.2)
    direct = server.new_database()
    with psycopg.connect(direct, autocommit=True) as connection:
        connection.execute("CREATE TABLE booking (ref text)")
    with Proxy(server.folder) as proxy:
        made = Desk(direct, proxy)
        with closing(made.gate):
            assert made.book("first") is Verdict.RUN
            yield made


def test_block_whose_reply_is_lost_is_read_back_and_its_place_is_free(desk: Desk) -> None:
    """Given a commit that happened and nobody said so; then it is told as done, and the next has room."""
    assert desk.book("lost", lambda: desk.proxy.lose_reply(COMMIT)) is Verdict.RUN
    assert desk.proxy.happened["lost reply"] == 1

    assert desk.book("next") is Verdict.RUN
    assert desk.booked() == ["first", "lost", "next"]


def test_block_that_cannot_be_read_back_stays_in_doubt(desk: Desk) -> None:
    """Given a server that is gone after the commit; then nobody is told that nothing happened."""
    with pytest.raises(StoreUnknown):
        desk.book("lost", lambda: desk.proxy.lose_reply(COMMIT, for_good=True))

    desk.proxy.allow()
    assert desk.book("lost") is Verdict.REPLAY
    assert desk.book("next") is Verdict.RUN
    assert desk.booked() == ["first", "lost", "next"]


def test_block_whose_commit_never_came_stays_in_doubt_and_its_place_is_free(desk: Desk) -> None:
    """Given a commit that the server never heard of; then it is not told as done."""
    with pytest.raises(StoreUnknown):
        desk.book("lost", desk.proxy.cut)

    assert desk.book("next") is Verdict.RUN
    assert desk.booked() == ["first", "next"]
