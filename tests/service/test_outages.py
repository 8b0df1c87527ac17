"""Outages over HTTP: a provider hears 503 for as long as the handler is down, and 200 when it is back."""

from __future__ import annotations

import asyncio
import json
import socket
from functools import partial
from pathlib import Path

import pytest

from lab.incidents.catalogue import INCIDENTS
from lab.incidents.outages import Outage
from oncegate.maintenance.reconciler import Reconciler
from oncegate.model.states import State
from oncegate.recorder.planning import make_plan
from oncegate.signals.alerts import Signal, evaluate
from oncegate.signals.definition import Level
from oncegate.signals.measures import measure
from oncegate.testing import ManualClock
from oncegate.wiring import Gate
from tests.service.site import Site, TeamHandler, forwarding

pytestmark = [pytest.mark.slow, pytest.mark.waits]
PLAYED = ("outage-half-a-minute", "outage-half-an-hour", "outage-flapping")


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty ledger, of both kinds."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/ledger.db"
    return str(request.getfixturevalue("ledger_url"))


def _states(gate: Gate) -> dict[State, int]:
    with gate.engine.store.look() as session:
        return {state: count for state, count in session.counts().items() if count}


def test_handler_that_is_not_reached_is_503_at_the_ninth_and_the_hundredth_delivery(
    tmp_path: Path, url: str
) -> None:
    """A6: eight times 503 and then 202 made the provider content with work that was never done."""
    clock = ManualClock()
    gate = Gate(url, clock=clock)
    with socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))  # refuses while it does not listen
        nowhere = f"http://127.0.0.1:{dead.getsockname()[1]}/"
        with Site(tmp_path, forwarding(nowhere, honours_key="7d"), gate).serving() as site:
            answers = []
            for _ in range(100):
                answers.append(site.hook({"id": "n-1"}))
                clock.advance(18)
            assert _states(gate) == {State.RETRYABLE: 1}

    assert {answer.status for answer in answers} == {503}
    assert {answer.problem for answer in answers} == {"handler-failed"}
    assert all(1 <= int(answer.headers["retry-after"]) <= 60 for answer in answers)


def test_half_an_hour_of_503_ends_with_every_event_done_once_and_nobody_asked(
    tmp_path: Path, url: str
) -> None:
    """B4, B5: deliveries of eight events, a minute apart; the handler is called by the schedule only."""
    clock, team = ManualClock(), TeamHandler()
    gate = Gate(url, clock=clock)
    events = [{"id": f"n-{number}"} for number in range(8)]
    settings = partial(forwarding, honours_key="7d")
    with team.serving() as there, Site(tmp_path, settings(there), gate).serving() as site:
        team.status = 503
        for _ in range(30):
            assert {site.hook(event).status for event in events} <= {503, 409}
            clock.advance(60)
        calls_while_down = len(team.got)
        assert calls_while_down < 8 * 15
        team.status, left = 200, events
        for _ in range(12):
            left = [event for event in left if site.hook(event).status != 200]
            clock.advance(60)
        assert left == []
        assert _states(gate) == {State.COMMITTED: 8}

    assert len(team.got) == calls_while_down + 8


def _signal(gate: Gate, name: str) -> Signal:
    gate.engine.sightings.flush()
    with gate.engine.store.look() as session:
        found = evaluate(measure(session, gate.engine.clock))
    return next(one for one in found if one.definition.name == name)


def test_outage_of_ours_never_says_that_the_sender_misbehaves(tmp_path: Path, url: str) -> None:
    """A7: it hears 503, comes again as asked, and in the end finds that a worker was faster."""
    clock, team = ManualClock(), TeamHandler()
    gate, other = Gate(url, clock=clock), Gate(url, clock=clock)
    events = [{"id": f"n-{number}"} for number in range(12)]
    with team.serving() as there:
        settings = forwarding(there, honours_key="7d")
        with (
            Site(tmp_path, settings, gate).serving() as site,
            Site(tmp_path, settings, other).serving() as beside,
        ):
            team.status = 503
            for _ in range(6):
                assert {site.hook(event).status for event in events} <= {503, 409}
                clock.advance(60)
                assert _signal(gate, "repeat_ratio_high").level <= Level.OK
            team.status = 200
            for _ in range(4):
                clock.advance(60)
                asyncio.run(Reconciler(gate).run_once_async())
            assert _states(gate) == {State.COMMITTED: 12}
            # The load balancer sends the retries to another process than the one that answered 503.
            assert {beside.hook(event).status for event in events} == {200}
            beside.gate.engine.sightings.flush()
            assert _signal(gate, "repeat_ratio_high").level <= Level.OK
            assert _signal(gate, "repeat_ratio_zero").level <= Level.OK
            # A sender that repeats what was answered with 200 does misbehave.
            assert {beside.hook(event).status for event in events} == {200}
            beside.gate.engine.sightings.flush()
            found = _signal(gate, "repeat_ratio_high")
    assert (found.level, found.detail) == (Level.PAGE, "12 of 12")


def test_event_that_fails_alone_is_409_inside_its_wait_and_holds_up_no_other(tmp_path: Path) -> None:
    """I11: 503 with Retry-After would make the sender leave every event alone."""
    team, slow = TeamHandler(), {"retry_base": "10m", "retry_cap": "1h"}
    with team.serving() as url, Site(tmp_path, forwarding(url, slow, honours_key="7d")).serving() as site:
        team.status = 500
        failed, again = site.hook({"id": "bad"}), site.hook({"id": "bad"})
        team.status = 200
        other = site.hook({"id": "good"})

    assert (failed.status, "retry-after" in failed.headers) == (503, False)
    assert (again.status, again.problem) == (409, "busy")
    assert int(again.headers["retry-after"]) >= 1
    assert other.status == 200
    assert len(team.got) == 2


@pytest.mark.parametrize(
    ("url", "name"),
    [
        *(("sqlite", name) for name in PLAYED),
        ("postgres", "outage-flapping"),
        *(pytest.param("postgres", name, marks=pytest.mark.soak) for name in PLAYED[:-1]),
    ],
    indirect=["url"],
)
def test_recorded_outage_is_ridden_out_behind_the_service(name: str, tmp_path: Path, url: str) -> None:
    """B4, B5: senders come again over HTTP, the handler answers 503 while it is down; each is done once."""
    outage, clock, team = INCIDENTS[name], ManualClock(), TeamHandler()
    assert isinstance(outage, Outage)
    coming = [(one.at_ms // 1000, {"id": one.payload["order"]}) for one in make_plan(outage.recording)]
    wanted = sorted(event["id"] for _, event in coming)
    gate, step, done = Gate(url, clock=clock), outage.step_seconds * 3, list[bytes]()
    with (
        team.serving() as there,
        Site(tmp_path, forwarding(there, honours_key="7d"), gate).serving() as site,
    ):
        for second in range(0, outage.lasts_seconds, step):
            team.status, before = 503 if outage.is_down(second) else 200, len(team.got)
            due = [one for one in coming if one[0] <= second]
            taken = [one for one in due if site.hook(one[1]).status == 200]
            coming = [one for one in coming if one not in taken]
            done += [body for _, body in team.got[before:]] if team.status == 200 else []
            clock.advance(step)
        assert (coming, _states(gate)) == ([], {State.COMMITTED: len(wanted)})
    assert sorted(json.loads(body)["id"] for body in done) == wanted
