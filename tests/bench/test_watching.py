"""The measured overhead of signals and workers is the overhead of something."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from oncegate.bench.watching import WatchingBench, interval_of_median


@pytest.mark.slow
def test_one_gate_is_watched_and_the_other_is_not(tmp_path: Path) -> None:
    """Otherwise nothing would be compared with nothing."""
    found = asyncio.run(WatchingBench(pairs=2, events=300).run(tmp_path))

    assert found["pairs"] == 2
    assert found["with_us"] > 0 < found["without_us"]
    assert _tallied(tmp_path / "watched.db") > 0
    assert _tallied(tmp_path / "blind.db") == 0


def test_interval_holds_the_median_and_narrows_with_more_pairs() -> None:
    """A hundred pairs say more than nine."""
    few = interval_of_median([float(n) for n in range(9)])
    many = interval_of_median([n / 100 * 9 for n in range(100)])

    assert few == (1.0, 7.0)
    assert few[0] < many[0] < 4.5 < many[1] < few[1]


def _tallied(path: Path) -> int:
    connection = sqlite3.connect(path)
    try:
        (count,) = connection.execute("SELECT count(*) FROM oncegate_tally").fetchone()
        return int(count)
    finally:
        connection.close()
