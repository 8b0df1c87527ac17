"""`oncegate bench gate` compares what was measured beside each other, and every event was really run."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from oncegate.bench.alone import TURN_EVENTS, WARM_UP_TURNS, measure_alone
from oncegate.bench.gate import GateBench, _document
from oncegate.bench.samples import Sample, joined


@pytest.mark.slow
def test_each_subject_runs_as_many_events_in_turns(tmp_path: Path) -> None:
    """The baseline, a task and a thread, on ledgers of their own; what warms up is left out."""
    found = asyncio.run(measure_alone(tmp_path, 2 * TURN_EVENTS))

    assert list(found) == ["baseline", "fresh", "fresh, a thread"]
    assert {sample.events for sample in found.values()} == {2 * TURN_EVENTS}
    booked = {_rows(tmp_path / f"{name}.db", "booking") for name in ("baseline", "task", "thread")}
    assert booked == {(WARM_UP_TURNS + 2) * TURN_EVENTS}


@pytest.mark.slow
def test_files_in_the_folder_that_is_measured_are_left_alone(tmp_path: Path) -> None:
    """Whatever they are called: a ledger that is removed has forgotten its keys."""
    theirs = {tmp_path / name for name in ("mine.db", "size.db", "gate-0-1.db", "baseline-0.db")}
    for path in theirs:
        path.write_bytes(b"mine")
    bench = GateBench(f"sqlite:///{tmp_path}/mine.db", (1,), rounds=1, size_keys=10, scale=0.01)

    bench.run()

    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == dict.fromkeys(theirs, b"mine")


def test_parts_of_a_run_are_one_run() -> None:
    """With the time of its parts only, not that of the others' turns between them."""
    whole = joined([Sample(2, 1.0, (1.0, 2.0)), Sample(1, 0.5, (3.0,))])

    assert whole == Sample(3, 1.5, (1.0, 2.0, 3.0))
    assert whole.rate == 2.0


@pytest.mark.slow
def test_ratios_are_of_the_same_round_and_come_with_their_spread(tmp_path: Path) -> None:
    """A disk that is slow for a whole round is slow for both sides of a ratio."""
    bench = GateBench(None, concurrencies=(1, 4), rounds=2, scale=0.05)
    document = _document(asyncio.run(bench._measure(tmp_path)), None)

    names = {(one["name"], one["concurrency"]): one["runs"] for one in document["results"]}
    assert set(names.values()) == {2}
    assert {("baseline", 1), ("fresh", 1), ("fresh, a thread", 1), ("fresh", 4)} <= set(names)
    latency = "fresh at 1: median latency against the baseline"
    low, high = document["spread"][latency]
    assert 0 < low <= document["ratios"][latency] <= high
    assert not list(tmp_path.iterdir()), "a ledger was left behind"
    assert document["ratios"].keys() == document["spread"].keys()


def _rows(path: Path, table: str) -> int:
    connection = sqlite3.connect(path)
    try:
        (count,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
        return int(count)
    finally:
        connection.close()
