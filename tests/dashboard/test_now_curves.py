"""Now: every signal has its curve, gauges too where a worker watches (E5)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncegate import Gate
from oncegate.dashboard.buckets import ChartMemory
from oncegate.dashboard.chart import RANGES, USUAL, chart_of
from oncegate.dashboard.sparklines import sparkline
from oncegate.signals.watch import Watch
from oncegate.store import Reservation
from oncegate.testing import ManualClock
from tests.dashboard.conftest import Client
from tests.dashboard.serving import Stage

NO_HISTORY = "no history"
LAPSED = "Stranded work: claims whose lease is over"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def gate(tmp_path: Path, clock: ManualClock) -> Iterator[Gate]:
    """A gate whose only event was left in flight."""
    made = Gate(f"sqlite:///{tmp_path / 'ledger.db'}", clock=clock)
    session = made.engine.store.connect()
    with session.unit():
        session.reserve(
            [Reservation(b"k" * 24, "", "orders", "one", b"f" * 16, b"{}", clock.wall_ms(), 1000, 8, 1)]
        )
    session.close()
    yield made
    made.close()


def tiles(stage: Stage, gate: Gate) -> dict[str, str]:
    """The signals of the page, by title."""
    with stage.showing(gate.dashboard()) as address:
        text = Client(address).get("/").text
    found = re.findall(r'<tr data-row id="signal-.*?</tr>', text, re.DOTALL)
    return {re.findall(r"</span> (.*?)</td>", row)[0]: row for row in found}


def test_a_gauge_has_a_curve_once_a_caretaker_has_watched(stage, gate, clock):
    watch = Watch(gate.engine.store, clock, notifiers=())
    for _ in range(5):
        clock.advance(60)
        watch.run_once()
    shown = tiles(stage, gate)
    assert len(shown) > 10
    assert [title for title, tile in shown.items() if 'class="spark"' not in tile] == []
    assert not any(NO_HISTORY in tile for tile in shown.values())
    ages = re.findall(r'<polyline points="(.*?)"', shown["Age of the oldest entry in flight"])[0].split()
    heights = [float(point.partition(",")[2]) for point in ages]
    assert len(heights) in (2, 3)  # five minutes, two to a point
    assert heights == sorted(heights, reverse=True)  # older and older: higher and higher
    assert heights[0] > heights[-1]


def test_without_a_caretaker_a_gauge_says_that_it_has_no_history(stage, gate, clock):
    clock.advance(60)
    shown = tiles(stage, gate)
    assert NO_HISTORY in shown[LAPSED]
    assert 'class="spark"' not in shown[LAPSED]
    counted = shown["Recovered after a crash or a failure, last hour"]
    assert 'class="spark"' in counted
    assert NO_HISTORY not in counted


def test_the_chart_shows_arrivals_of_the_chosen_time_at_their_rate(stage, tmp_path):
    """The last moment is counted. A last bucket that is not over is narrower: no cliff at the end."""
    clock = ManualClock()
    gate = Gate(f"sqlite:///{tmp_path / 'steady.db'}", clock=clock)
    gate.handler("orders", key="{id}")(lambda event: None)
    clock.advance(60 - clock.wall_ms() % 60_000 / 1000)
    for number in range(25):
        gate.admit_sync("orders", {"id": str(number)})
        gate.admit_sync("orders", {"id": str(number)})
        gate.engine.sightings.flush()
        clock.advance(60 if number < 24 else 0.5)
    with stage.showing(gate.dashboard()) as address:
        pages = {name: Client(address).get(f"/?range={name}").text for name in (*RANGES, "nonsense")}
        again = Client(address).get("/?range=6h").text
    gate.close()
    for name, text in pages.items():
        assert f'href="?range={name}" aria-current="true"' in text or name == "nonsense"
        assert (
            f"Arrivals of the last {name if name in RANGES else USUAL}: 25 new, 25 repeats absorbed" in text
        )
    edge = re.findall(r'<polygon class="new" points="(.*?)"', pages["6h"])[0].split()
    tops = [float(point.partition(",")[2]) for point in edge[: len(edge) // 2]]
    assert max(tops[-4:]) - min(tops[-4:]) <= 12, "five of a hundred events more in a bucket, no cliff"
    assert re.findall("<svg class=.chart.*?</svg>", again) == re.findall(
        "<svg class=.chart.*?</svg>", pages["6h"]
    )


def test_a_bucket_that_is_over_is_read_once(gate, clock, monkeypatch):
    memory, read = ChartMemory(), []
    with gate.engine.store.look() as session:
        real = session.tally_sums

        def noting(first: int, last: int):
            read.append(first)
            return real(first, last)

        monkeypatch.setattr(session, "tally_sums", noting)
        for _ in range(3):
            chart_of(session, memory, clock.wall_ms(), "24h", [])
    assert len(read) <= 49 + 2 * 2


def test_a_curve_leaves_out_what_is_not_known():
    drawn = sparkline([None, 1.0, None, 2.0, None], "x")
    assert re.findall(r'<polyline points="(.*?)"', drawn) == ["40.0,16.0 120.0,2.0"]
    assert re.findall(r'<polygon points="(.*?)"', drawn) == ["40.0,32 40.0,16.0 120.0,2.0 120.0,32"]
    assert len(re.findall(r'<polyline points="(.*?)"', sparkline([None, 3.0], "x"))[0].split()) == 2
