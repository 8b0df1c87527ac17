"""`python -m lab replay`: a recording without payloads is played in the simulator."""

from __future__ import annotations

import json
from pathlib import Path

from lab.incidents import incident
from lab.incidents.catalogue import STORM

RECORDING = Path(incident.__file__).parent / "fixtures" / f"{STORM}.jsonl"


def test_a_recording_is_played_with_the_faults_of_a_seed(call) -> None:
    """Each event has one effect, and every promise is kept."""
    played = call("replay", str(RECORDING), "--seed", "3", "--json", "--expect", "events=39")

    assert (played.code, json.loads(played.out)["effects"]) == (0, 39)


def test_an_expectation_that_fails_ends_with_1(call) -> None:
    """As with any other replay."""
    played = call("replay", str(RECORDING), "--expect", "events=4")

    assert played.code == 1
    assert "expected events=4, but it is: 39" in played.err


def test_a_surface_that_is_not_in_it_is_refused(call) -> None:
    """There is nothing to play."""
    ended = call("replay", str(RECORDING), "--surface", "none")

    assert ended.code == 2
    assert "no arrival to play" in ended.complaint
