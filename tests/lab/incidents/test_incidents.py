"""Incidents: recorded, played without a gate and with it, judged by one rule for all (E10, I1, I2)."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import lab.incidents.incident
from lab import ROOT
from lab.__main__ import main as lab_main
from lab.incidents.catalogue import INCIDENTS, STORM
from lab.incidents.guide import told
from lab.incidents.incident import WITH_GATE, Incident, Numbers, Place
from oncegate.cli.main import main
from oncegate.demo.storm.run import DEFAULT_SEED
from oncegate.demo.storm.story import tell
from oncegate.model.durations import parse_duration
from oncegate.model.surface import SurfaceRule, read_arrival
from oncegate.model.template import KeyTemplate
from oncegate.recorder.reading import read_recording
from oncegate.testing.postgres import PostgresServer

FIXTURES = Path(lab.incidents.incident.__file__).parent / "fixtures"
PAGE = ROOT / "docs" / "incidents.md"
DAMAGE = ("done twice", "never done", "cancelled bookings that came back")
KEYS = {
    "monday-storm": "{notificationId}:{equipment_number}",
    "clock-change": "{event_id}",
    "routes-doubled": "{event_id}",
    "retry-storm": "{payment}",
    "forgotten-keys": "{credit}",
    "delayed-commit": "{id}",
    "visibility-lapse": "{invoice}",
    "lost-keys": "{voucher}",
    "deploy-kills": "{order}",
    "partition": "{transfer}",
    "outage-half-a-minute": "{order}",
    "outage-half-an-hour": "{order}",
    "outage-flapping": "{order}",
    "outage-accepting": "{order}",
    "outage-ledger": "{order}",
    "outage-endpoint": "{id}",
}


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A folder, and the server that all tests share, unless it is somebody else's: its socket is needed."""
    shared = request.getfixturevalue("postgres")
    with contextlib.ExitStack() as stack:
        server = (
            shared if hasattr(shared, "folder") else stack.enter_context(PostgresServer(in_memory=True))
        )
        yield Place(tmp_path, lambda: contextlib.nullcontext(server))


@pytest.mark.slow
@pytest.mark.parametrize("name", INCIDENTS)
def test_the_gate_is_right_where_everything_else_does_damage(name: str, place: Place) -> None:
    """Played once: what each side left behind, how it is judged, and what the page says about it."""
    # Given an incident, when it is played without a gate and with it
    incident = INCIDENTS[name]
    ending = incident.play(place)
    # Then the gate did no damage and everything else did
    assert ending.problems == []
    *naive, gated = ending.sides.values()
    assert list(ending.sides)[-1] == WITH_GATE
    assert naive
    for numbers in naive:
        assert any(numbers.get(label) for label in DAMAGE), numbers
    assert not any(gated.get(label) for label in DAMAGE)
    # And with any of the others in the gate's place the incident would have failed: one rule judges all
    for title, numbers in ending.sides.items():
        assert bool(incident.wrong(numbers)) is (title != WITH_GATE)
    # And the page tells just this. Regenerate: python -m lab.incidents.guide > docs/incidents.md
    assert told(incident, ending) in PAGE.read_text("utf-8")


def test_the_page_tells_every_incident_in_order() -> None:
    titles = re.findall(r"^## (.*)$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert titles == [incident.title() for incident in INCIDENTS.values()]


STORMY = INCIDENTS["retry-storm"]


class Replaced(Incident):
    """An incident whose gate is as naive as the rest."""

    name = "retry-storm"

    def naive(self) -> dict[str, Callable[[Place], Numbers]]:
        return STORMY.naive()

    def gated(self, place: Place) -> Numbers:
        (naive,) = self.naive().values()
        return naive(place)

    def wrong(self, numbers: Numbers) -> list[str]:
        return STORMY.wrong(numbers)


def test_an_incident_played_with_a_naive_gate_does_not_pass(tmp_path: Path) -> None:
    ending = Replaced().play(Place(tmp_path))
    assert not ending.passed
    assert ending.problems == [
        "with the gate: cards charged is 24, not 12",
        "with the gate: done twice is 12, not 0",
    ]


def test_a_naive_side_that_shows_no_damage_is_a_problem_too(tmp_path: Path) -> None:
    """A demo in which nothing goes wrong without a gate would prove nothing (I21)."""

    class Harmless(Replaced):
        """Nothing goes wrong."""

        def naive(self) -> dict[str, Callable[[Place], Numbers]]:
            return {"lucky": STORMY.gated}

        def gated(self, place: Place) -> Numbers:
            return STORMY.gated(place)

    assert Harmless().play(Place(tmp_path)).problems == ["lucky: nothing went wrong, so this shows nothing"]


def rule(name: str) -> SurfaceRule:
    ignore = ("sqs",) if name == "visibility-lapse" else ()
    key = KeyTemplate.parse(KEYS[name])
    return SurfaceRule("s", key, retention=parse_duration("90d"), fingerprint_ignore=ignore)


def test_every_incident_has_a_recording_and_every_recording_an_incident() -> None:
    assert {file.stem for file in FIXTURES.iterdir()} == {*INCIDENTS, STORM} == set(KEYS)


@pytest.mark.parametrize("name", KEYS)
def test_a_recording_is_small_and_says_of_each_arrival_what_it_is(name: str) -> None:
    """`event` is equal where the key is, and `content` where the fingerprint is."""
    path = FIXTURES / f"{name}.jsonl"
    found = read_recording(path)
    assert path.stat().st_size < 64 * 1024
    assert found.header.story
    read = [read_arrival(rule(name), one.decoded(), None, 0) for one in found.arrivals]
    events = {(one.event, arrival.key.digest) for one, arrival in zip(found.arrivals, read, strict=True)}
    contents = {
        (one.content, arrival.fingerprint) for one, arrival in zip(found.arrivals, read, strict=True)
    }
    for pairs in (events, contents):
        assert len(pairs) == len({left for left, _ in pairs}) == len({right for _, right in pairs})
    assert all(one.note for one in found.arrivals)


def test_the_recording_of_the_storm_is_the_story_of_the_storm() -> None:
    found, story = read_recording(FIXTURES / f"{STORM}.jsonl"), tell(DEFAULT_SEED)
    told = sorted(
        message.event["notificationId"]
        for message in (*story.storm, *story.late)
        for _ in range(message.deliveries)
    )
    assert sorted(one.decoded()["notificationId"] for one in found.arrivals) == told
    assert len({one.event for one in found.arrivals}) == len(story.events)


def test_the_storm_replays_to_39_effects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the documentation shows, from the shipped recording to a handler of the user's own."""
    (tmp_path / "storm_app.py").write_text(
        "from oncegate import Gate\n"
        "gate = Gate('sqlite:///never-opened.db')\n"
        "terminal = gate.downstream('terminal', honours_key='7d')\n"
        "async def claim_slot(number, idempotency_key=''):\n    return {'id': number}\n"
        "@gate.handler('demo.container-notifications', key='{notificationId}:{equipment_number}')\n"
        "async def book(event, once):\n"
        "    return await once.effect(terminal, claim_slot, event['equipment_number'])\n"
    )
    shutil.copy(FIXTURES / f"{STORM}.jsonl", tmp_path / "monday.jsonl")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    words = ["replay", "monday.jsonl", "--app", "storm_app:gate", "--expect", "effects=39", "--json"]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out) == {
        "arrivals": 87,
        "events": 39,
        "keys": 39,
        "effects": 39,
        "verdicts": {"replay": 48, "run": 39},
        "calls": {"claim_slot": 39},
    }


def test_the_command_plays_an_incident_and_lists_them(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert lab_main(["incidents", "visibility-lapse", "--json", "--keep", str(tmp_path)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["incident"], document["passed"]) == ("visibility-lapse", True)
    assert document["sides"][WITH_GATE]["invoices mailed"] == 6
    assert (tmp_path / "visibility-lapse" / "gated" / "ledger.db").exists()
    assert lab_main(["incidents", "--list"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert listed == [STORM, *INCIDENTS]
    assert lab_main(["incidents", "none"]) == 2
    assert lab_main(["incidents", STORM]) == 2
    assert "run 'oncegate demo'" in capsys.readouterr().err


def test_an_incident_that_goes_wrong_ends_with_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(INCIDENTS, "retry-storm", Replaced())
    assert lab_main(["incidents", "retry-storm"]) == 1
    assert "went wrong: with the gate: cards charged is 24, not 12" in capsys.readouterr().err
