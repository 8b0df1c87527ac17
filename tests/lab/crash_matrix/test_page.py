"""docs/proof.md shows the crash matrix as it was last played, with every crash point that exists."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from lab import ROOT
from lab.crash_matrix import history_cells
from lab.crash_matrix.cells import Ledger, all_cells
from lab.crash_matrix.table import BEGIN, END, PAGE, RECORD, Record, rendered
from oncegate.crashpoints import ALL_CRASH_POINTS
from oncegate.testing.crashing import KNOWN


@pytest.fixture
def record() -> Record:
    found: Record = json.loads(RECORD.read_text("utf-8"))
    return found


@pytest.fixture
def table() -> str:
    return PAGE.read_text("utf-8").partition(BEGIN)[2].partition(END)[0]


def test_every_cell_that_can_exist_was_played_and_nothing_else(record: Record) -> None:
    assert set(record) == {str(cell) for cell in all_cells() if not cell.why_impossible}


def test_nobody_was_spared_in_any_cell(record: Record) -> None:
    assert all(found["strikes"] >= found["tries"] >= 1 for found in record.values())


def test_the_page_shows_the_record(record: Record, table: str) -> None:
    assert table == f"\n{rendered(record)}"


def test_the_page_lists_every_crash_point_once_for_each_ledger(table: str) -> None:
    listed = re.findall(r"^\| `([a-z.]+)` \|", table, re.MULTILINE)

    assert listed == [*ALL_CRASH_POINTS] * len(Ledger)


def test_the_matrix_of_history_was_played_whole_and_is_on_the_page() -> None:
    """Sealing, snapshots and roll-backs (I6, I17)."""
    record = history_cells.read_record()
    begin, end = history_cells.MARKS

    assert set(record) == {str(cell) for cell in history_cells.history_cells()}
    assert all(found["strikes"] >= 1 and found["ends"] == {"as planned": 1} for found in record.values())
    shown = PAGE.read_text("utf-8").partition(begin)[2].partition(end)[0]
    assert shown == f"\n{history_cells.rendered(record)}"


@pytest.mark.slow
def test_every_crash_point_of_the_code_has_a_name_in_the_list() -> None:
    hit = set()
    for path in sorted(Path(ROOT / "src" / "oncegate").rglob("*.py")):
        text = path.read_text("utf-8")
        for call in re.findall(r"\bhit\(([^)]*)\)", text):
            hit |= set(re.findall(r'"([a-z.]+)"', call))

    assert hit == set(KNOWN)
