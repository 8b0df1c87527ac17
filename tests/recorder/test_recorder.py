"""The recorder: every arrival is on record before it is answered, and nothing of it disturbs the gate."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from oncegate import ConfigError, Gate, UsageError, Verdict
from oncegate.model.surface import read_arrival
from oncegate.recorder import Recorder, Rules
from oncegate.recorder.planning import make_plan
from oncegate.recorder.reading import read_recording, read_recordings
from oncegate.recorder.recording import Recording
from oncegate.recorder.replaying import Counted, deliver_to, replay
from oncegate.testing import ManualClock
from oncegate.testing.forking import run_forked
from tests.support.gates import Ledger

CANARY = "Anna-Jansen-0612345678"
RULES = {"orders": Rules(keep=["status"])}


def make_gate(ledger: Ledger) -> Gate:
    gate = ledger.gate()

    @gate.handler("orders", key="{id}", occurred_at="at", lease="10m")
    def order(event: Any, once: Any) -> Any:
        if event["status"] == "broken":
            raise ValueError(event["name"])
        return {"done": event["id"]}

    @gate.handler("private", key="{id}", lease="10m")
    def private(event: Any) -> Any:
        return 1

    return gate


def event(number: int, **more: Any) -> dict[str, Any]:
    made = {"id": f"o-{number}", "status": "new", "name": CANARY, "at": "2026-05-28T20:26:40Z"}
    return {**made, **more}


def recorded(folder: Path) -> Recording:
    return read_recordings([folder])


class NoPace:
    async def until(self, at_ms: int) -> None:
        """Now."""


def test_arrivals_are_recorded_with_what_they_were_told(ledger: Ledger, tmp_path: Path) -> None:
    """Given a gate with a recorder, when events come, come again and fail, then all of it is on record."""
    gate = make_gate(ledger)
    Recorder(tmp_path / "r", RULES).attach(gate)
    gate.admit_sync("orders", event(1))
    ledger.clock.advance(7)
    gate.admit_sync("orders", event(1))
    gate.admit_sync("orders", event(1, name="other"))
    gate.admit_sync("orders", event(2, id=None))
    with pytest.raises(ValueError, match="Anna"):
        gate.admit_sync("orders", event(3, status="broken"))
    gate.close()

    found = recorded(tmp_path / "r")
    told = [(one.verdict, one.error) for one in found.answers.values()]
    assert told == [
        ("run", None),
        ("replay", None),
        ("conflict", None),
        ("quarantine", None),
        (None, "ValueError"),
    ]
    assert [one.at_ms for one in found.arrivals] == [0, 7000, 7000, 7000, 7000]
    first, again, other, *_ = found.arrivals
    assert (first.event, first.content) == (again.event, again.content)
    assert first.event == other.event
    assert first.content != other.content
    assert first.decoded()["status"] == "new"
    assert first.occurred_at == "2026-05-28T20:26:40Z"


def test_no_value_is_in_the_file_unless_a_rule_keeps_it(ledger: Ledger, tmp_path: Path) -> None:
    """A canary over the whole file: payloads, errors, names, keys; and others cannot read it."""
    gate = make_gate(ledger)
    recorder = Recorder(tmp_path / "r", RULES).attach(gate)
    gate.admit_sync("orders", event(1), tenant="acme-with-a-name")
    with pytest.raises(ValueError, match="Anna"):
        gate.admit_sync("orders", event(2, status="broken"))
    gate.admit_sync("private", {"id": CANARY, CANARY: 1})
    path = recorder.path
    assert path is not None
    gate.close()

    text = path.read_text()
    for word in (CANARY, "acme", "o-1", "Anna"):
        assert word not in text
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    (private,) = [one for one in read_recording(path).arrivals if one.surface == "private"]
    assert not private.has_payload
    assert private.why == "no rules for this surface"


def test_a_recording_plays_to_the_same_verdicts(ledger: Ledger, tmp_path: Path) -> None:
    """Given a recording that shows nothing, when it is played to a fresh gate, then all is as it was."""
    gate = make_gate(ledger)
    Recorder(tmp_path / "r", RULES).attach(gate)
    for given in (
        event(1),
        event(1),
        event(2),
        event(1, name="other"),
        event(3, id=""),
        event(4, at="soon"),
    ):
        gate.admit_sync("orders", given)
        ledger.clock.advance(60)
    gate.close()
    found = recorded(tmp_path / "r")

    (tmp_path / "again").mkdir()
    fresh = Ledger(tmp_path / "again", ManualClock())
    counted, again = Counted(), fresh.gate()
    again.engine.adopt(make_gate(Ledger(tmp_path)).engine, counted.surface)
    report = asyncio.run(replay(make_plan(found), deliver_to(again), NoPace()))
    fresh.close()
    before = [one.verdict for one in found.answers.values()]
    assert before == ["run", "replay", "run", "conflict", "quarantine", "quarantine"]
    assert report.verdicts == {"run": 2, "replay": 1, "conflict": 1, "quarantine": 2}
    assert (report.keys, report.events, counted.effects) == (4, 4, 2)


def test_an_event_that_would_be_read_in_another_way_has_no_payload(ledger: Ledger, tmp_path: Path) -> None:
    """Given an id that the gate refuses, when its hash would pass, then it is not written as if fine."""
    gate = make_gate(ledger)
    Recorder(tmp_path / "r", RULES).attach(gate)
    assert gate.admit_sync("orders", event(1, id=" padded ")).verdict is Verdict.QUARANTINE
    gate.close()
    (one,) = recorded(tmp_path / "r").arrivals
    assert not one.has_payload
    assert one.why == "the rules would change how the gate reads it"


def test_a_recorder_that_cannot_write_disturbs_nobody(
    ledger: Ledger,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Given a folder that is a file, when events come, then they are answered, and one line tells."""
    (tmp_path / "r").write_text("in the way")
    gate = make_gate(ledger)
    Recorder(tmp_path / "r", RULES).attach(gate)
    verdicts = [gate.admit_sync("orders", event(n)).verdict for n in (1, 1, 2)]
    assert verdicts == [Verdict.RUN, Verdict.REPLAY, Verdict.RUN]
    assert [record.message.partition(":")[0] for record in caplog.records] == ["arrivals are not recorded"]


def test_an_observer_that_raises_changes_no_answer(
    ledger: Ledger,
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken:
        def arrived(self, *_: Any) -> int:
            raise RuntimeError(CANARY)

        def answered(self, *_: Any) -> None:
            raise RuntimeError(CANARY)

        def close(self) -> None:
            pass

    gate = make_gate(ledger)
    gate.engine.observe(Broken())
    assert gate.admit_sync("orders", event(1)).verdict is Verdict.RUN
    assert CANARY not in caplog.text


def test_the_type_and_a_tenant_are_shown_where_a_rule_says_so(ledger: Ledger, tmp_path: Path) -> None:
    gate = make_gate(ledger)
    Recorder(tmp_path / "r", {"orders": Rules(type="status", tenant="keep")}).attach(gate)
    gate.admit_sync("orders", event(1), tenant="acme")
    gate.close()
    (one,) = recorded(tmp_path / "r").arrivals
    assert (one.tenant, one.type, one.decoded()["status"]) == ("acme", "new", "new")


def test_one_recorder_at_a_time(ledger: Ledger, tmp_path: Path) -> None:
    """A second one would take the first one's place without a word."""
    gate = make_gate(ledger)
    Recorder(tmp_path / "a", RULES).attach(gate)
    with pytest.raises(UsageError, match="already"):
        Recorder(tmp_path / "b", RULES).attach(gate)


def test_a_full_file_says_how_much_is_missing(ledger: Ledger, tmp_path: Path) -> None:
    gate = make_gate(ledger)
    Recorder(tmp_path / "r", RULES, bytes_max=1500).attach(gate)
    for number in range(10):
        gate.admit_sync("orders", event(number))
    gate.close()
    found = recorded(tmp_path / "r")
    assert 0 < len(found.arrivals) < 10
    assert len(found.arrivals) + found.left_out == 10
    assert sum(file.stat().st_size for file in (tmp_path / "r").iterdir()) <= 1500


@pytest.mark.slow
def test_each_forked_process_writes_a_file_of_its_own(ledger: Ledger, tmp_path: Path) -> None:
    """Given a recorder that has begun, when a child records too, then both files play as one."""
    recorder = Recorder(tmp_path / "r", RULES)
    gate = make_gate(ledger)
    rule = gate.engine.surface("orders").rule

    def arrive(number: int) -> int:
        at_ms = 1_780_000_000_000 + number
        arrival = read_arrival(rule, event(number), None, at_ms)
        return recorder.arrived(rule, arrival, at_ms)

    def work() -> int:
        number = arrive(2)
        recorder.close()
        return number

    assert arrive(1) == 1
    assert run_forked(work) == (0, 1)
    assert arrive(3) == 2
    recorder.close()
    found = recorded(tmp_path / "r")
    assert len(list((tmp_path / "r").iterdir())) == 2
    assert [one.at_ms for one in found.arrivals] == [0, 1, 2]
    assert len({one.event for one in found.arrivals}) == 3


def test_threads_at_once_leave_whole_lines(ledger: Ledger, tmp_path: Path) -> None:
    gate = make_gate(ledger)
    Recorder(tmp_path / "r", RULES).attach(gate)
    threads = [
        threading.Thread(target=lambda: [gate.admit_sync("orders", event(n)) for n in range(20)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    gate.close()
    found = recorded(tmp_path / "r")
    assert (len(found.arrivals), len(found.answers)) == (80, 80)
    assert len({one.event for one in found.arrivals}) == 20


def test_rules_are_checked_before_anything_is_recorded(ledger: Ledger, tmp_path: Path) -> None:
    """A spelling mistake in a surface or a rule that takes the key away is told at once."""
    gate = make_gate(ledger)
    with pytest.raises(ConfigError, match="no surface is called 'order'"):
        Recorder(tmp_path, {"order": Rules()}).attach(gate)
    with pytest.raises(ConfigError, match="the gate reads 'id'"):
        Recorder(tmp_path, {"orders": Rules(drop=["id"])}).attach(gate)
    with pytest.raises(ConfigError, match="at least 16"):
        Recorder(tmp_path, RULES, key=b"short")


@pytest.mark.slow
def test_a_killed_process_leaves_the_arrival_that_it_died_of(ledger: Ledger, tmp_path: Path) -> None:
    """An arrival is written before anything runs: the one that killed its worker is there, unanswered."""

    def work() -> None:
        gate = Ledger(tmp_path).gate()

        @gate.handler("deadly", key="{id}")
        def die(event: Any) -> None:
            os.kill(os.getpid(), 9)

        Recorder(tmp_path / "r", {"deadly": Rules()}).attach(gate)
        gate.admit_sync("deadly", {"id": 1})

    assert run_forked(work)[0] == -9
    (file,) = (tmp_path / "r").iterdir()
    found = read_recording(file, partial=True)
    assert (len(found.arrivals), found.answers, found.is_whole) == (1, {}, False)


def test_every_line_is_one_json_object(ledger: Ledger, tmp_path: Path) -> None:
    gate = make_gate(ledger)
    Recorder(tmp_path / "r", {"orders": Rules(keep=["*"])}).attach(gate)
    gate.admit_sync("orders", event(1, name="line\nbreak \u2028 \x00"))
    gate.close()
    (file,) = (tmp_path / "r").iterdir()
    kinds = [json.loads(line)["line"] for line in file.read_text().split("\n") if line]
    assert kinds == ["recording", "surface", "arrival", "answer", "end"]
