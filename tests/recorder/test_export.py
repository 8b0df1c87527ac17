"""What a ledger knows of arrivals: first ones exactly, repeats by their counts, never without a limit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oncegate.errors import ConfigError
from oncegate.model.repeats import RepeatClass
from oncegate.recorder import Rules
from oncegate.recorder.export import Exporter, moments_of
from oncegate.recorder.pseudonyms import Pseudonyms
from oncegate.recorder.reading import read_recording
from oncegate.recorder.writing import RecordingFile
from oncegate.store import EntryFilter, Observations, Repeat
from tests.support.gates import Ledger

START_MS = 1_780_000_000_000


def admit(ledger: Ledger, *repeats: tuple[RepeatClass, int, int]) -> Any:
    """One event, and repeats of it as (class, times, seconds until the last); returns a session."""
    gate = ledger.gate()

    @gate.handler("s", key="{id}", lease="10m")
    def act(event: Any) -> int:
        return 1

    gate.admit_sync("s", {"id": "a", "name": "Anna"})
    session = gate.engine.store.connect()
    seen = tuple(
        Repeat(1, kind, START_MS + 1000, START_MS + seconds * 1000, times, "said so")
        for kind, times, seconds in repeats
    )
    with session.unit():
        session.observe([Observations((), seen)])
    return session


def test_repeats_are_spread_between_the_first_and_the_last(ledger: Ledger, tmp_path: Path) -> None:
    """Given three replays and a race, when they are exported, then what is guessed is marked."""
    session = admit(ledger, (RepeatClass.LATE_REPLAY, 3, 5), (RepeatClass.RACE, 1, 1))
    with session.unit():
        moments = moments_of(session, EntryFilter(), 10)
        file = RecordingFile.begun_at(tmp_path / "r.jsonl", moments[0].at_ms)
        Exporter({"s": Rules()}, {}, Pseudonyms()).write(session, moments, file)
    session.close()
    file.close()
    found = read_recording(tmp_path / "r.jsonl")
    told = [
        (one.at_ms, one.about, found.answers[one.n].verdict, found.answers[one.n].repeat)
        for one in found.arrivals
    ]
    assert told == [
        (0, False, "run", None),
        (1000, False, "replay", "late_replay"),
        (1000, False, "busy", "race"),
        (3000, True, "replay", "late_replay"),
        (5000, False, "replay", "late_replay"),
    ]
    assert len({one.event for one in found.arrivals}) == len({one.content for one in found.arrivals}) == 1


def test_classes_of_events_of_their_own_are_no_further_arrivals(ledger: Ledger) -> None:
    session = admit(ledger, (RepeatClass.NEW_ID_PER_RETRY, 4, 5), (RepeatClass.NEW_INTENT, 2, 9))
    with session.unit():
        assert len(moments_of(session, EntryFilter(), 10)) == 1
    session.close()


def test_more_repeats_than_a_recording_can_hold_are_refused_before_they_are_made(ledger: Ledger) -> None:
    """A counter says how many there were; that many moments must not be made in memory first."""
    session = admit(ledger, (RepeatClass.EXPECTED_REPLAY, 2**40, 5))
    with session.unit(), pytest.raises(ConfigError, match="more than 1000000 arrivals"):
        moments_of(session, EntryFilter(), 10)
    session.close()


def test_content_that_is_no_json_is_left_out_with_the_reason(ledger: Ledger, tmp_path: Path) -> None:
    session = admit(ledger)
    ledger.rows("UPDATE oncegate_payload SET body = x'ff00'")
    with session.unit():
        moments = moments_of(session, EntryFilter(), 10)
        file = RecordingFile.begun_at(tmp_path / "r.jsonl", moments[0].at_ms)
        Exporter({"s": Rules()}, {}, Pseudonyms()).write(session, moments, file)
    session.close()
    file.close()
    (one,) = read_recording(tmp_path / "r.jsonl").arrivals
    assert (one.has_payload, one.why) == (False, "what the ledger has of it is no JSON")
