"""The verdict is made of facts, and green only where somebody has looked (I28)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from oncegate.dashboard.causes import GROUPED
from oncegate.dashboard.facts import fact
from oncegate.dashboard.operators import Role
from oncegate.dashboard.verdict import RESUMES, PageVerdict, summaries_of, verdict_of
from oncegate.lanes.circuit_status import DOWNSTREAM, CircuitView
from oncegate.model.circuit import CircuitState
from oncegate.model.states import State
from oncegate.signals.alerts import evaluate
from oncegate.signals.definitions import DEFINITIONS, FAILED, REPEATS_HIGH, Thresholds
from oncegate.signals.snapshot import DAY, HOUR, TEN_MINUTES, Counts, Snapshot, WorkerStatus
from oncegate.store import Doubled, Waiting, What
from oncegate.store.notices import WorkerWord
from oncegate.store.resources import SecondCount
from tests.dashboard.conftest import Site
from tests.dashboard.scene import Scene
from tests.dashboard.serving import Stage

NOW = 1_700_000_000_000
COUNTS = Counts({int(What.FRESH): (3_615, 0), int(What.REPLAY): (47, 0)})
CALM = Snapshot(
    NOW,
    0,
    {window: {"orders": COUNTS} for window in (TEN_MINUTES, HOUR, DAY)},
    workers=(WorkerStatus("w", 5_000, WorkerWord(15_000, ("orders",))),),
)


def verdict(snapshot: Snapshot, thresholds: Thresholds | None = None) -> PageVerdict:
    return verdict_of(evaluate(snapshot, thresholds), snapshot)


def waiting(state: State, reason: str, count: int, ago_ms: int) -> Waiting:
    return Waiting("orders", state, reason, count, None, NOW - ago_ms, 0)


def test_a_second_resource_is_never_green_whatever_the_limits_are() -> None:
    """One container with two slots, while an operator has raised the limit (F6, I28)."""
    found = SecondCount("orders", False, 1, 1, NOW)
    high = Thresholds({"resources_per_target": (None, 10), "resources_per_key": (None, 10)})
    assert verdict(replace(CALM, second_counts=(found,))).tone == "page"
    said = verdict(replace(CALM, second_counts=(found,)), high)
    assert (said.tone, said.headline) == ("unknown", "1 second resource of a key or target.")


def test_green_says_what_was_observed() -> None:
    said = verdict(CALM)
    assert (said.tone, said.headline) == ("ok", "3615 new events in the last hour.")
    assert said.more == "47 repeats were absorbed. Nothing waits for a person."


@pytest.mark.parametrize(
    ("snapshot", "words"),
    [
        (Snapshot(NOW, 0, {}), "Nothing has been seen yet."),
        (replace(CALM, windows={DAY: {"orders": COUNTS}}), "Nothing has arrived for an hour or more."),
        (replace(CALM, workers=()), "No worker reports, so what a crash interrupts waits"),
    ],
)
def test_what_is_silent_or_unknown_is_grey(snapshot: Snapshot, words: str) -> None:
    quiet = Thresholds({"worker_absent": (None, None), "watch_absent": (None, None)})
    said = verdict(snapshot, quiet)
    assert said.tone == "unknown"
    assert said.headline.startswith(words)


@pytest.mark.parametrize("name", ["orders", f"{DOWNSTREAM}orders"])
def test_calls_that_fail_are_never_green_not_even_in_their_first_minute(name: str) -> None:
    """No signal is raised yet and no person is needed, but all is not well."""
    circuit = CircuitView(CircuitState.OPEN, NOW - 20_000, NOW + 5_000, 1, 3, "no connection", "w", 0)
    again = waiting(State.RETRYABLE, "", 9, 1_000)
    snapshot = replace(CALM, circuits={name: circuit}, waiting=(again,))
    said = verdict(snapshot)
    assert (said.tone, said.headline) == ("ticket", "Calls to orders fail (no connection).")
    assert (said.more, said.since_ms) == (RESUMES, NOW - 20_000)
    tiles = {one.title: one for one in summaries_of(evaluate(snapshot), snapshot, compares=True)}
    told = "calls to orders fail (no connection) · 9 events to be tried again"
    assert (tiles["Stuck"].tone, tiles["Stuck"].value, tiles["Stuck"].detail) == ("ticket", 9, told)


def test_every_signal_is_said_as_a_fact() -> None:
    """The verdict and the list of causes speak in sentences, not in titles with a number behind."""
    for definition in set(DEFINITIONS) - GROUPED:
        said = fact(definition, 3)
        assert not said.startswith(f"{definition.title[:1].lower()}{definition.title[1:]}"), said
        assert "{" not in said, said
    assert fact(REPEATS_HIGH, 0.33, " at orders") == "33% of arrivals at orders are repeats"
    assert fact(FAILED, 1) == "1 event failed within an hour"


def test_one_pair_of_which_both_ran_is_red_and_named_first() -> None:
    snapshot = replace(
        CALM,
        doubled=(Doubled("orders", 12, NOW - 9_000_000),),
        waiting=(waiting(State.HELD, "approval", 155, 1_000),),
    )
    said = verdict(snapshot)
    assert (said.tone, said.headline) == ("page", "12 changes ran twice.")
    assert (said.more, said.since_ms) == ("155 events wait for you.", NOW - 9_000_000)


def test_one_quarantined_event_is_red_until_it_is_decided() -> None:
    said = verdict(replace(CALM, waiting=(waiting(State.QUARANTINED, "skew", 1, 108_000_000),)))
    assert (said.tone, said.headline) == ("page", "1 event waits for you.")


def test_a_tile_without_observation_is_grey() -> None:
    silent = replace(CALM, windows={DAY: {"orders": COUNTS}})
    tones = {one.title: one.tone for one in summaries_of(evaluate(silent), silent, compares=False)}
    assert tones["Doubled"] == "unknown"
    assert tones["Arrived in the last hour"] == "unknown"
    tones = {one.title: one.tone for one in summaries_of(evaluate(CALM), CALM, compares=True)}
    assert set(tones.values()) == {"ok"}


@pytest.fixture
def fresh(tmp_path: Path, stage: Stage) -> Iterator[Site]:
    scene = Scene(f"sqlite:///{tmp_path / 'oncegate.db'}?synchronous=NORMAL")
    with stage.showing(scene.gate.dashboard(login=True)) as address:
        yield Site(scene, address)
    scene.gate.close()


def test_the_page_is_grey_until_events_arrive_and_a_worker_reports(fresh: Site) -> None:
    client = fresh.client(Role.VIEWER)
    assert 'class="state unknown"' in client.get("/").text
    fresh.scene.quiet()
    page = client.get("/").text
    assert 'class="state unknown"' in page
    assert "No worker reports" in page
    assert 'class="state ok"' not in page
    fresh.scene.work()
    page = client.get("/").text
    assert 'class="state ok"' in page
    assert "<strong>12 new events in the last hour.</strong> 1 repeat was absorbed." in page
