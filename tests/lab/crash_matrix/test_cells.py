"""A selection of the crash matrix in every run, and all of it in a soak (I6).

The selection has every crash point, struck in one or two manners, on alternating ledgers, once and
repeatedly, in normal work and in recovery; that workers killed at every point are recovered from is in
`tests/test_crash_matrix.py`, `tests/stores/postgres/test_crashes.py` and `tests/lanes/test_crashes.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.crash_matrix.cells import Cell, Ledger, Manner, Phase, Times, all_cells
from lab.crash_matrix.stage import Stage, stage
from oncegate.crashpoints import ALL_CRASH_POINTS, RESTORE_CRASH_POINTS
from oncegate.testing.postgres import GivenServer, PostgresServer
from oncegate.testing.spare_ledgers import SpareLedgers

SHORT_MANNERS = (Manner.EXCEPTION, Manner.STALL, Manner.UNKNOWN)


@pytest.fixture(scope="module")
def players(
    tmp_path_factory: pytest.TempPathFactory,
    postgres: PostgresServer | GivenServer,
    spare_ledgers: SpareLedgers,
) -> Iterator[Stage]:
    with stage(tmp_path_factory.mktemp("stage"), postgres, spare_ledgers) as made:
        yield made


def selected(point: str) -> Iterator[Cell]:
    """A few cells of a point, so chosen that all cells together have every value of every axis."""
    number = list(ALL_CRASH_POINTS).index(point)
    for turn in (number,) if number % 3 else (number, number + 2):
        manner = SHORT_MANNERS[turn % 3]
        ledger, times = list(Ledger)[turn % 2], list(Times)[turn // 2 % 2]
        cell = Cell(point, ledger, manner, times, list(Phase)[turn // 3 % 2])
        yield Cell(point, ledger, manner, times, Phase.RECOVERY) if cell.why_impossible else cell
    if point in RESTORE_CRASH_POINTS:
        yield from (Cell(point, ledger, Manner.KILL, Times.ONCE, Phase.NORMAL) for ledger in Ledger)


def test_the_selection_leaves_out_what_takes_seconds() -> None:
    """A worker stopped inside a commit holds the lock, and others wait for it: only in the whole matrix."""
    assert not any(cell.manner is Manner.STALL for cell in selected("commit.before"))


def test_the_selection_has_every_value_of_every_axis() -> None:
    cells = [cell for point in ALL_CRASH_POINTS for cell in selected(point)]

    assert {cell.point for cell in cells} == set(ALL_CRASH_POINTS)
    assert {cell.ledger for cell in cells} == set(Ledger)
    assert {(cell.times, cell.phase) for cell in cells} == {(t, p) for t in Times for p in Phase}
    assert {cell.manner for cell in cells} == set(Manner)


@pytest.mark.slow
@pytest.mark.parametrize("point", ALL_CRASH_POINTS)
def test_strikes_at_this_point_break_no_promise(players: Stage, point: str) -> None:
    for cell in selected(point):
        assert players.play(cell, handlers_max=1).strikes


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("ledger", Ledger, ids=lambda ledger: ledger.value)
@pytest.mark.parametrize("point", ALL_CRASH_POINTS)
def test_every_cell_of_this_point(players: Stage, point: str, ledger: Ledger) -> None:
    for cell in all_cells():
        if (cell.point, cell.ledger) == (point, ledger) and not cell.why_impossible:
            assert players.play(cell).strikes
