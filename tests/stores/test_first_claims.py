"""Claims that run for the first time are in no index of the embedded ledger, and are found all the same."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oncegate.bench.workload import event_blocks, open_gate, prepare_business_table, run_gate_in_thread
from oncegate.model.states import Decision
from oncegate.store import Session
from oncegate.stores.sqlite import SqliteStore, open_entries
from oncegate.testing import ManualClock
from oncegate.testing.conformance.bench import StoreBench

PAGE_BYTES = 4096 + 24  # with its header in the write-ahead log


class Bench(StoreBench):
    """A ledger of four numbers a list."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def make_store(self, clock: ManualClock) -> SqliteStore:
        return SqliteStore(self.path, clock=clock)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr(open_entries, "LISTED_EVERY_BITS", 2)
    opened = Bench(tmp_path / "ledger.db")
    opened.setup_method()
    yield opened
    opened.teardown_method()


def rows(path: Path, sql: str) -> list[Any]:
    with contextlib.closing(sqlite3.connect(path)) as ledger:
        return ledger.execute(sql).fetchall()


def reserve(bench: Bench, session: Session, size: int, total: int) -> list[Any]:
    """Reserves so many keys, in batches of one size."""
    claims: list[Any] = []
    for start in range(0, total, size):
        with session.unit():
            claims += session.reserve([bench.reservation(f"k{start + place}") for place in range(size)])
    return claims


@pytest.mark.parametrize(("size", "mark"), [(1, 27), (2, 26), (3, 27), (6, 24)])
def test_claims_that_never_end_are_found_whatever_came_after(bench: Bench, size: int, mark: int) -> None:
    """In batches of any size: those that the list was made for, and those after it."""
    session = bench.open()
    claims = reserve(bench, session, size, 30)
    left = [claim for place, claim in enumerate(claims) if place % 7 == 0 or place > 26]
    for claim in claims:
        if claim not in left:
            bench.settle(session, claim)

    bench.let_lapse()

    assert [found.entry.entry_id for found in bench.stranded(50)] == [claim.entry_id for claim in left]
    assert rows(bench.path, "SELECT value FROM oncegate_meta WHERE name = 'listed'") == [(mark,)]


def test_list_forgets_claims_that_have_ended(bench: Bench) -> None:
    """Or it would grow for as long as the ledger is used."""
    session = bench.open()
    stays, *others = reserve(bench, session, 1, 10)
    listed = rows(bench.path, "SELECT count(*) FROM oncegate_lasting")
    for claim in others:
        bench.settle(session, claim)

    last = bench.reserve(session, "the number before")
    bench.reserve(session, "the number at which the list is made again")

    assert listed == [(7,)]
    assert rows(bench.path, "SELECT entry FROM oncegate_lasting") == [(stays.entry_id,), (last.entry_id,)]


def test_replays_near_the_next_list_change_nothing(bench: Bench) -> None:
    """Given numbers that end just before it: keys that are known already take none, and write nothing."""
    session = bench.open()
    for claim in reserve(bench, session, 3, 6):
        bench.settle(session, claim)
    log = bench.path.with_name(f"{bench.path.name}-wal")
    before = log.stat().st_size

    with session.unit():
        again = session.reserve([bench.reservation(f"k{place}") for place in range(3)])

    assert {one.decision for one in again} == {Decision.REPLAY}
    assert log.stat().st_size == before


def test_claim_that_is_taken_over_is_found_once(bench: Bench) -> None:
    """It has gone from the list to the index."""
    session = bench.open()
    bench.reserve(session, "event")
    reserve(bench, session, 1, 6)
    bench.let_lapse()
    again = bench.reserve(session, "event")

    bench.let_lapse()

    found = [detail.entry.entry_id for detail in bench.stranded(50)]
    assert sorted(found) == sorted(set(found))
    assert again.entry_id in found


def test_event_changes_seven_pages(tmp_path: Path) -> None:
    """As many as a program by hand: key, entry and payload; entry, outcome, record and the business row."""
    with contextlib.closing(open_gate(f"sqlite:///{tmp_path}/ledger.db", "thread")) as gate:
        prepare_business_table(gate)
        blocks = event_blocks(30)
        run_gate_in_thread(gate, blocks())
        log = tmp_path / "ledger.db-wal"
        before = log.stat().st_size

        run_gate_in_thread(gate, blocks())

        pages = (log.stat().st_size - before) / PAGE_BYTES / 30
    assert 7 <= pages < 8  # a page that is full becomes two
