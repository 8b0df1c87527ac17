"""Property: whatever is replayed around any boundary, with pruning in between, no event runs twice (I14).

Replays come one second and one millisecond before and after each boundary that retention has, around month
ends and the nights in which clocks are changed. The gate's own memory is switched off, so that only the
ledger can know. What comes too late is quarantined.
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from oncegate import Gate, Verdict
from oncegate.clock import from_wall_ms
from oncegate.maintenance.pruner import Pruner, sight
from oncegate.model.retention import FORGET_GRACE
from oncegate.model.states import State
from oncegate.testing import ManualClock
from oncegate.testing.postgres import GivenServer, PostgresServer
from tests.support.properties import tried

pytestmark = pytest.mark.slow

SECOND, MILLISECOND = timedelta(seconds=1), timedelta(milliseconds=1)
NEAR = (-SECOND, -MILLISECOND, timedelta(0), MILLISECOND, SECOND)
BERLIN, NEW_YORK = ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York")

# Month ends, a leap day, a year's end, and the hours that are left out or come twice.
TURNS = (
    datetime(2026, 2, 1, tzinfo=UTC),
    datetime(2026, 3, 1, tzinfo=UTC),
    datetime(2026, 6, 1, tzinfo=UTC),
    datetime(2027, 1, 1, tzinfo=UTC),
    datetime(2028, 3, 1, tzinfo=UTC),
    datetime(2026, 3, 29, 1, tzinfo=UTC),
    datetime(2026, 10, 25, 1, tzinfo=UTC),
    datetime(2026, 3, 8, 7, tzinfo=UTC),
    datetime(2026, 11, 1, 6, tzinfo=UTC),
)
RULES = (("14d", "5m"), ("14d", "60d"), ("30d", "6h"), ("90d", "5m"), ("24h", "10m"))


@dataclass(frozen=True)
class Story:
    """A surface's settings and an event: when it arrives, what time it bears, when it is replayed."""

    retention: str
    skew_max: str
    received_at: datetime
    occurred_at: datetime
    replays: tuple[tuple[datetime, bool], ...]
    zone: ZoneInfo

    def event(self, name: str) -> dict[str, str]:
        return {"id": name, "at": self.occurred_at.astimezone(self.zone).isoformat()}


def length(text: str) -> timedelta:
    units = {"m": "minutes", "h": "hours", "d": "days"}
    return timedelta(**{units[text[-1]]: int(text[:-1])})


def boundaries(received_at: datetime, occurred_at: datetime, kept: timedelta, skew: timedelta):
    gone_at = received_at + kept + skew + FORGET_GRACE
    return [
        received_at + timedelta(minutes=27),
        received_at + timedelta(hours=1),
        datetime(received_at.year + received_at.month // 12, received_at.month % 12 + 1, 1, tzinfo=UTC),
        received_at + kept,
        occurred_at + kept,
        occurred_at + skew,
        received_at + kept + skew,
        gone_at,
        gone_at + timedelta(days=31),
    ]


@st.composite
def stories(draw: st.DrawFn) -> Story:
    kept, skew = draw(st.sampled_from(RULES))
    turn, near = draw(st.sampled_from(TURNS)), st.sampled_from(NEAR)
    # Either the arrival or the day on which its key expires lies at the turn.
    received_at = draw(st.sampled_from((turn, turn - length(kept)))) + draw(near)
    distances = (timedelta(0), length(skew), -length(skew), length(skew) - SECOND, length(skew) / 2)
    occurred_at = received_at + draw(st.sampled_from(distances))
    moments = boundaries(received_at, occurred_at, length(kept), length(skew))
    replay = st.tuples(st.sampled_from(moments), near, st.booleans())
    chosen = draw(st.lists(replay, min_size=3, max_size=8))
    replays = sorted((at + by, prunes) for at, by, prunes in chosen if at + by >= received_at)
    return Story(
        kept, skew, received_at, occurred_at, tuple(replays), draw(st.sampled_from((BERLIN, NEW_YORK)))
    )


def play(url: str, story: Story) -> Counter[str]:
    """Plays a story and its ending, checks every answer, and counts how often each event ran."""
    runs: Counter[str] = Counter()
    clock = ManualClock(int(story.received_at.timestamp() * 1000))
    with Gate(url, clock=clock, replay_cache_max=0) as gate:
        with closing(gate.engine.store.connect()) as session:
            sight(session, clock, is_certain=True)  # as a worker does from the first minute on

        @gate.handler(
            "dated",
            key="{id}",
            occurred_at="at",
            retention=story.retention,
            skew_max=story.skew_max,
            retention_floor="24h",
            lease="10m",
        )
        def handle(event):
            runs[event["id"]] += 1

        pruner = Pruner(gate)
        gate.admit_sync("dated", story.event("event"))
        for moment, prunes in story.replays:
            clock.advance((moment - from_wall_ms(clock.wall_ms())) / SECOND)
            if prunes:
                pruner.run_once()
            expected = _expected(gate)
            assert gate.admit_sync("dated", story.event("event")).verdict is expected
        _play_the_end(gate, clock, pruner, story)
    return runs


def _play_the_end(gate: Gate, clock: ManualClock, pruner: Pruner, story: Story) -> None:
    """Long after, the key has gone if it ever ran, and a replay is too old."""
    clock.advance((length(story.retention) + length(story.skew_max)) / SECOND + 10 * 86_400)
    pruner.run_once()
    answer = gate.admit_sync("dated", story.event("event"))
    assert answer.verdict is Verdict.QUARANTINE
    late = gate.admit_sync("dated", story.event("late"))
    assert late.verdict is Verdict.QUARANTINE
    assert str(late.reason).startswith("beyond_retention")


def _expected(gate: Gate) -> Verdict:
    """A replay while the key is known as committed; else it was refused, or it is too late."""
    with gate.engine.store.look() as session:
        return Verdict.REPLAY if State.COMMITTED in session.counts() else Verdict.QUARANTINE


@pytest.mark.slow
@tried(30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(story=stories())
def test_no_replay_around_a_boundary_runs_twice(tmp_path_factory, story: Story) -> None:
    """On the embedded ledger."""
    path: Path = tmp_path_factory.mktemp("story") / "ledger.db"

    assert play(f"sqlite:///{path}?synchronous=NORMAL", story)["event"] <= 1


@tried(3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(story=stories())
def test_no_replay_around_a_boundary_runs_twice_on_postgres(
    postgres: PostgresServer | GivenServer, story: Story
) -> None:
    """On a real server, partitions of months and all."""
    assert play(postgres.new_database(), story)["event"] <= 1


def test_forgetting_at_the_retention_itself_is_caught(tmp_path: Path, monkeypatch) -> None:
    """The same story fails when keys are not kept for the skew beyond the retention."""

    def too_soon(now_ms: int, kept: timedelta, skew_max: timedelta) -> int:
        return now_ms - kept // MILLISECOND

    monkeypatch.setattr("oncegate.maintenance.pruner.forget_before_ms", too_soon)
    arrival = datetime(2026, 5, 31, 23, 59, 59, tzinfo=UTC)
    replay = arrival + timedelta(days=14, seconds=1)
    story = Story("14d", "60d", arrival, arrival + timedelta(days=10), ((replay, True),), BERLIN)

    with pytest.raises(AssertionError):
        play(f"sqlite:///{tmp_path / 'ledger.db'}", story)
