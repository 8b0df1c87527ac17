"""A ledger restored from a dump, on a server whose transactions have lower numbers, is read on as before.

The log and the marks of content are ordered by the numbers of transactions. On a fresh server those of the
dump lie in its future: the scan for duplicates and readers of the log saw nothing of them, and nothing new
behind them (I12, A13).
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import pairwise

import pytest

from oncegate import Content, Gate, Once
from oncegate.clock import SystemClock
from oncegate.maintenance.content_scan import ContentScan
from oncegate.store import EntryFilter, LogKind, LogRecord, Session
from oncegate.store.feed import EventToPublish, FeedEvent, FeedWanted
from oncegate.stores.postgres import PostgresStore
from oncegate.testing.postgres import PostgresServer
from tests.stores.postgres.test_bad_input import run_sql

pytestmark = pytest.mark.slow

ROUTES = Content(("date",), "{client}")
USE_UP_NUMBERS = (
    "DO $$ BEGIN FOR number IN 1..4000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$"
)


class Office:
    """Takes events whose contents are compared."""

    def __init__(self, url: str) -> None:
        self.gate = Gate(url)
        self.gate.handler("routes", key="{id}", content=ROUTES)(self.plan)

    def plan(self, event: dict[str, str], once: Once) -> str:
        return event["id"]

    def send(self, number: str, client: str) -> None:
        self.gate.admit_sync("routes", {"id": number, "client": client, "date": "2025-10-26"})

    def scan(self) -> list[tuple[str, str]]:
        """The pairs that a scan finds, by the labels of their entries."""
        pairs = ContentScan(self.gate.engine.store, SystemClock()).run_once().pairs
        with self.gate.engine.store.look() as session:
            labels = {entry.entry_id: entry.label for entry in session.entries(EntryFilter(), None, 100)}
        return [(labels[pair.entry_id], labels[pair.other_id]) for pair in pairs]

    def log_after(self, position: int) -> list[LogRecord]:
        """The rest of the log, read in small pages."""
        found: list[LogRecord] = []
        with closing(PostgresStore(self.gate.engine.store._url).connect()) as session:  # type: ignore[attr-defined]
            while True:
                with session.unit():
                    page = session.read_log(found[-1].position if found else position, 2)
                found += page
                if not page:
                    return found

    def log_back(self) -> list[LogRecord]:
        """The log from its end, in small pages."""
        found: list[LogRecord] = []
        with self.gate.engine.store.look() as session:
            while page := session.log_before(found[-1].position if found else None, 2, by_people=False):
                found += page
        return found


def labels_of(records: list[LogRecord], office: Office) -> list[str]:
    """The events that were settled, in the order of their records."""
    with office.gate.engine.store.look() as session:
        labels = {entry.entry_id: entry.label for entry in session.entries(EntryFilter(), None, 100)}
    return [labels[record.entry_id] for record in records if record.kind is LogKind.COMMITTED]


def moved(old: PostgresServer, url: str, new: PostgresServer) -> str:
    """Dumps a database and restores it on another server."""
    there = new.new_database()
    dumped = subprocess.run(
        [str(old.programs / "pg_dump"), "--no-owner", url], capture_output=True, check=True
    )
    subprocess.run(
        [str(new.programs / "psql"), "-q", "-v", "ON_ERROR_STOP=1", there],
        input=dumped.stdout, capture_output=True, check=True,
    )  # fmt: skip
    return there


@pytest.fixture
def servers() -> Iterator[list[PostgresServer]]:
    """Three of their own: nobody else's transactions run there, and the first has used up numbers."""
    with ExitStack() as stack:
        made = [stack.enter_context(PostgresServer(in_memory=True)) for _ in range(3)]
        run_sql(made[0].url(), USE_UP_NUMBERS, USE_UP_NUMBERS)
        run_sql(made[1].url(), USE_UP_NUMBERS)
        yield made


def test_scan_and_log_go_on_after_each_restore(servers: list[PostgresServer]) -> None:
    # Given a ledger that was scanned up to its first event
    url = servers[0].new_database()
    office = Office(url)
    office.send("A-1", "c1")
    assert office.scan() == []
    seen = office.log_after(0)[-1].position
    # When it has an event that no scan has seen, and moves to a server with lower numbers, twice
    expected = ["A-1"]
    for number, (old, new) in enumerate(pairwise(servers), start=1):
        office.send(f"B-{number}", f"x{number}")
        office.gate.close()
        url = moved(old, url, new)
        office = Office(url)
        office.send(f"C-{number}", f"x{number}")
        office.send(f"D-{number}", "c1")
        # Then the scan pairs what came after the move with what came before it, in the order of arrival
        previous = "A-1" if number == 1 else f"D-{number - 1}"
        assert office.scan() == [(f"C-{number}", f"B-{number}"), (f"D-{number}", previous)]
        assert office.scan() == []
        expected += [f"B-{number}", f"C-{number}", f"D-{number}"]
    # And the log is read on from the old position, to its end, in order and both ways
    records = office.log_after(seen)
    assert labels_of(records, office) == expected[1:]
    assert labels_of(office.log_back()[::-1], office) == expected
    positions = [record.position for record in office.log_after(0)]
    assert positions == sorted(set(positions))
    office.gate.close()


def test_feed_goes_on_after_a_restore(servers: list[PostgresServer]) -> None:
    """Positions of the feed are given by its readers, and no transaction's number has a part in them."""
    url = servers[0].new_database()
    with closing(PostgresStore(url).connect()) as session:
        publish(session, "1")
        (first,) = read(session, 0)
        publish(session, "2")
    there = moved(servers[0], url, servers[1])
    with closing(PostgresStore(there).connect()) as session:
        publish(session, "3")
        assert [event.event_id for event in read(session, first.position)] == ["2", "3"]


def publish(session: Session, number: str) -> None:
    with session.unit():
        session.publish([EventToPublish("acme", number, "k", b"{}", b"f" * 16, 1_780_000_000_000)])


def read(session: Session, after: int) -> tuple[FeedEvent, ...]:
    with session.unit():
        return tuple(session.read_feed(FeedWanted("acme", "reader", after, 10)).events)
