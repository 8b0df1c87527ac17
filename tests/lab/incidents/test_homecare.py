"""The home-care incident, and clocks that are wrong: no route is made twice (E1-E3, E6, E7, E10, I15)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from lab.incidents import homecare
from lab.incidents.homecare import ROUTES, arrivals, as_it_was, play, tally
from oncegate import Gate, Verdict
from oncegate.maintenance.content_scan import ContentScan, ScanReport
from oncegate.testing import ManualClock
from tests.support.gates import Ledger

RECORDED = arrivals()
MINUTE, HOUR, YEAR = 60, 3600, 365 * 86_400


class Bureau:
    """One ledger on either store, and gates whose clocks are set by hand."""

    def __init__(self, url: str, rows: Callable[[str], list[tuple[Any, ...]]]) -> None:
        self.url = url
        self.rows = rows
        self._gates: list[Gate] = []
        self.gate().engine.store.connect().close()
        rows(homecare.TABLE)

    def gate(self, clock: ManualClock | None = None) -> Gate:
        gate = Gate(self.url, clock=clock or ManualClock())
        homecare.register(gate)
        self._gates.append(gate)
        return gate

    def routes(self) -> list[str]:
        return [route for (route,) in self.rows("SELECT id FROM route ORDER BY id")]

    def scan(self) -> ScanReport:
        return ContentScan(self._gates[0].engine.store, ManualClock()).run_once()

    def close(self) -> None:
        for gate in self._gates:
            gate.close()


@pytest.fixture(params=["sqlite", "postgres"])
def bureau(request: pytest.FixtureRequest) -> Iterator[Bureau]:
    if request.param == "sqlite":
        ledger = Ledger(request.getfixturevalue("tmp_path"))
        fresh = Bureau(ledger.url, ledger.rows)
        yield fresh
        fresh.close()
        return
    url = request.getfixturevalue("ledger_url")
    with closing(psycopg.connect(url, autocommit=True)) as connection:

        def rows(sql: str) -> list[tuple[Any, ...]]:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

        fresh = Bureau(url, rows)
        yield fresh
        fresh.close()


def setter(clock: ManualClock, wrong_by: Callable[[int], float] = lambda _: 0.0) -> Callable[[int], None]:
    """Sets a clock to each arrival's time, wrong by so many seconds; ticks go on as time passes."""
    last: list[int] = []

    def set_clock(at_ms: int) -> None:
        passed = (at_ms - last[0]) / 1000 if last else 0.0
        last[:] = [at_ms]
        clock.advance(max(0.0, passed))
        clock.step_wall((at_ms - clock.wall_ms()) / 1000 + wrong_by(at_ms))

    return set_clock


def always(seconds: float) -> Callable[[int], float]:
    return lambda at_ms: seconds


def test_the_handler_that_stood_there_doubles_every_route() -> None:
    """The contrast: 312 become 624, the first ones through a window of one hour."""
    made = as_it_was(RECORDED)
    assert (len(made), set(Counter(made).values())) == (2 * ROUTES, {2})


def test_behind_the_gate_312_routes_stay_312(bureau: Bureau) -> None:
    """Replays, whenever they come; and what cannot be judged waits for a person."""
    clock = ManualClock()
    counts = tally(play(bureau.gate(clock), RECORDED, setter(clock)))
    assert len(set(bureau.routes())) == len(bureau.routes()) == ROUTES
    assert counts == {
        "run": 19,
        "replay": 21,
        "quarantined: skew": 2,
        "quarantined: bad_time": 1,
        "quarantined: key_input": 1,
    }
    # And the scan pairs each event under a new id with the one it repeats
    report = bureau.scan()
    assert (len(report.pairs), report.stopped) == (3, [])
    assert len(set(bureau.routes())) == len(bureau.routes()) == ROUTES


def test_playing_the_recording_again_changes_nothing(bureau: Bureau) -> None:
    """E10, E7: eleven days later, by another process, everything is a replay or still in quarantine."""
    clock = ManualClock()
    list(play(bureau.gate(clock), RECORDED, setter(clock)))
    late = ManualClock()
    again = tally(play(bureau.gate(late), RECORDED, setter(late, lambda _: 11 * 86_400)))
    assert (again["run"], again["replay"], len(bureau.routes())) == (0, 40, ROUTES)


STEPS = [1, -1, 5 * MINUTE, -5 * MINUTE, 2 * HOUR, -2 * HOUR, YEAR, -YEAR]


@pytest.mark.parametrize(
    ("bureau", "step"),
    [
        *(("sqlite", step) for step in STEPS),
        *(("postgres", step) for step in STEPS[-2:]),  # the ledger's time is the server's, not this clock's
        *(pytest.param("postgres", step, marks=pytest.mark.soak) for step in STEPS[:-2]),
    ],
    indirect=["bureau"],
)
def test_a_clock_that_steps_halfway_doubles_nothing(bureau: Bureau, step: int) -> None:
    """Within the skew limit all is as it was; beyond it new events wait, and known ones are replays."""
    clock, middle = ManualClock(), RECORDED[len(RECORDED) // 2].arrived_at_ms
    wrong = setter(clock, lambda at_ms: step if at_ms >= middle else 0)
    counts = tally(play(bureau.gate(clock), RECORDED, wrong))
    made = bureau.routes()
    assert len(made) == len(set(made))
    assert counts["replay"] + counts["run"] + sum_of(counts, "quarantined") == len(RECORDED)
    if abs(step) < 5 * MINUTE:
        assert len(made) == ROUTES
    if abs(step) > 10 * MINUTE:
        assert counts["run"] < 19
        assert sum_of(counts, "quarantined: skew") + sum_of(counts, "quarantined: beyond_retention") > 2


def sum_of(counts: Counter[str], start: str) -> int:
    return sum(count for name, count in counts.items() if name.startswith(start))


def test_a_clock_that_freezes_or_drifts_doubles_nothing(bureau: Bureau) -> None:
    """Past the limit new events wait, and nothing runs twice."""
    begin = RECORDED[0].arrived_at_ms
    frozen, drifting = ManualClock(), ManualClock()
    freeze = setter(frozen, lambda at_ms: (begin - at_ms) / 1000)
    stopped = tally(play(bureau.gate(frozen), RECORDED, freeze))
    assert (stopped["run"], stopped["replay"]) == (1, 2)
    drift = setter(drifting, lambda at_ms: (at_ms - begin) / 1000 * 0.005)
    drifted = tally(play(bureau.gate(drifting), RECORDED, drift))
    assert drifted["run"] == 0
    assert len(bureau.routes()) == len(set(bureau.routes())) == 24


@pytest.mark.slow
def test_workers_whose_clocks_differ_share_one_truth(bureau: Bureau) -> None:
    """Each arrival goes to another worker: right, four minutes ahead, four behind, a year off."""
    clocks = [ManualClock() for _ in range(4)]
    skews = (0, 4 * MINUTE, -4 * MINUTE, YEAR)
    gates = [bureau.gate(clock) for clock in clocks]
    setters = [setter(clock, always(skew)) for clock, skew in zip(clocks, skews, strict=True)]
    for number, arrival in enumerate(RECORDED):
        worker = number % 3
        for set_clock in setters:
            set_clock(arrival.arrived_at_ms)
        gates[worker].admit_sync(homecare.SURFACE, arrival.event)
        # The one that is a year off may know a key or not; it never runs one
        answer = gates[3].admit_sync(homecare.SURFACE, arrival.event)
        assert answer.verdict in (Verdict.REPLAY, Verdict.QUARANTINE)
    assert len(bureau.routes()) == len(set(bureau.routes())) == ROUTES


@pytest.mark.parametrize(
    "fired_at",
    [
        "2016-12-31T23:59:60Z",
        "2025-10-26T02:30:00",
        "2025-10-26T02:30:00+25:00",
        "2025-02-30T00:00:00Z",
        "26 Oct 2025",
        1761442200,
        None,
    ],
    ids=str,
)
def test_a_time_that_cannot_be_read_waits_and_never_runs(bureau: Bureau, fired_at: object) -> None:
    """A leap second, a fold without offset, nonsense: kept, visible, with a reason."""
    event = {**RECORDED[0].event, "fired_at": fired_at}
    answer = bureau.gate().admit_sync(homecare.SURFACE, event)
    assert answer.verdict is Verdict.QUARANTINE
    assert bureau.routes() == []
