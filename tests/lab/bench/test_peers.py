"""Peers are run as processes of their own, judged by what happened, and never silently left out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lab.bench.peers.environments import COMPLETE, FOLDER_SETTING, NotInstalled, interpreter_of
from lab.bench.peers.faults import (
    Cell,
    Judgement,
    Stage,
    changed,
    killed,
    stalled_after,
    stalled_before,
)
from lab.bench.peers.line import NoAnswer, PeerFailed, PeerProcess
from lab.bench.peers.measuring import Measuring, effects_expected
from lab.bench.peers.roster import OURS, PEERS, Peer, Variant
from lab.bench.peers.scripts.stand import REPEAT_EVERY, key_of, make_event, stream_of
from oncegate.bench import workload

SQLITE = Variant("sqlite")
RUNS_AGAIN = Peer("runs-again", "", str(Path(__file__).with_name("runs_again_peer.py")), (SQLITE,))


def stage(peer: Peer, folder: Path) -> Stage:
    return Stage(peer, SQLITE, str(folder / "ledger.db"), folder)


@pytest.mark.slow
def test_our_own_script_measures_fresh_events_and_replays() -> None:
    measuring = Measuring((), None, seconds=0.2, concurrencies=(4,))
    measuring.prepare()

    measuring.take_round()

    (found,) = [turns.as_json() for turns in measuring.turns]
    assert not found["missing"]
    assert {cell["stream"] for cell in found["cells"]} == {"fresh", "replay", "mixed", "reread"}
    assert all(cell["effects_again"] == 0 for cell in found["cells"])


@pytest.mark.slow
def test_event_whose_worker_was_killed_after_the_effect_has_one_effect_and_one_row(tmp_path: Path) -> None:
    cell = killed(stage(OURS, tmp_path))

    assert (cell.judgement, cell.effects, cell.rows) == (Judgement.RIGHT, 1, 1), cell


@pytest.mark.slow
def test_other_payload_under_the_same_key_is_refused(tmp_path: Path) -> None:
    cell = changed(stage(OURS, tmp_path))

    assert (cell.judgement, cell.effects) == (Judgement.RIGHT, 1), cell


@pytest.mark.parametrize(("scene", "deliveries"), [(killed, 2), (changed, 3)])
def test_subject_that_runs_everything_again_is_judged_wrong(
    tmp_path: Path, scene: Callable[[Stage], Cell], deliveries: int
) -> None:
    cell = scene(stage(RUNS_AGAIN, tmp_path))

    assert (cell.judgement, cell.effects) == (Judgement.WRONG, deliveries), cell


@pytest.mark.slow
def test_repeats_that_ran_again_are_counted() -> None:
    measuring = Measuring((RUNS_AGAIN,), None, seconds=0.2, concurrencies=(2,))
    measuring.prepare()
    measuring.turns = [turns for turns in measuring.turns if turns.peer is RUNS_AGAIN]

    measuring.take_round()

    cells = {cell["stream"]: cell for cell in measuring.turns[0].as_json()["cells"]}
    assert cells["fresh"]["effects_again"] == 0
    assert cells["replay"]["effects_again"] > 0


def test_peer_that_is_not_installed_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_SETTING, str(tmp_path))
    measuring = Measuring(PEERS, None, seconds=0.1)

    measuring.prepare()

    missing = {turns.peer.name: turns.missing for turns in measuring.turns if turns.peer is not OURS}
    assert missing
    assert all("not installed" in reason for reason in missing.values())
    with pytest.raises(NotInstalled):
        interpreter_of(PEERS[0], install=False)


def test_environment_of_other_versions_is_not_taken_for_the_right_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_SETTING, str(tmp_path))
    folder = tmp_path / f"{PEERS[0].name}-{PEERS[0].version}"
    folder.mkdir()
    (folder / COMPLETE).write_text("\n".join(PEERS[0].installs), "utf-8")
    assert interpreter_of(PEERS[0], install=False) == folder / "bin" / "python"

    (folder / COMPLETE).write_text("exactly-once==0.2.0", "utf-8")

    with pytest.raises(NotInstalled):
        interpreter_of(PEERS[0], install=False)


@pytest.mark.slow
def test_answer_that_comes_too_late_is_not_taken_for_the_next_one(tmp_path: Path) -> None:
    with stage(RUNS_AGAIN, tmp_path).worker() as process:
        with pytest.raises(NoAnswer):
            process.ask("run", 0.01, stream="fresh", prefix="x", seconds=0.5, concurrency=1)

        assert process.ask("rows", key="none") == {"rows": 0}


@pytest.mark.soak
@pytest.mark.parametrize("scene", [stalled_before, stalled_after])
def test_worker_that_sleeps_past_its_lease_adds_no_effect(
    tmp_path: Path, scene: Callable[[Stage], Cell]
) -> None:
    cell = scene(stage(OURS, tmp_path))

    assert (cell.judgement, cell.effects, cell.rows) == (Judgement.RIGHT, 1, 1), cell


@pytest.mark.slow
def test_script_that_fails_says_why() -> None:
    with PeerProcess(OURS) as process, pytest.raises(PeerFailed, match="AttributeError"):
        process.ask("nonsense")


def test_mixed_stream_repeats_three_per_cent_of_settled_keys() -> None:
    events = stream_of("mixed", "m", 0, concurrency=2)
    taken = [key_of(next(events)) for _ in range(1_000)]

    assert len(set(taken)) == effects_expected("mixed", 1_000, 2)
    assert 1_000 - len(set(taken)) == len(range(REPEAT_EVERY - 1, 1_000, REPEAT_EVERY))


def test_event_is_half_a_kilobyte() -> None:
    assert 450 <= len(str(make_event(1))) <= 550


@pytest.mark.slow
def test_subject_that_fails_in_one_round_keeps_what_the_others_saw(monkeypatch: pytest.MonkeyPatch) -> None:
    measuring = Measuring((RUNS_AGAIN,), None, seconds=0.05, concurrencies=(1,))
    measuring.prepare()
    measuring.turns = [turns for turns in measuring.turns if turns.peer is RUNS_AGAIN]
    measuring.take_round()

    def fail(*_: object, **__: object) -> None:
        raise PeerFailed("too many clients")

    monkeypatch.setattr(PeerProcess, "ask", fail)
    measuring.take_round()

    found = measuring.turns[0].as_json()
    assert not found["missing"]
    assert found["cells"]
    assert "in one round: failed: too many clients" in found["note"]


def test_peers_get_the_events_of_our_own_bench() -> None:
    """Their environments have no oncegate, so their scripts have a copy of it."""
    assert [make_event(number, "x") for number in (0, 41)] == [
        workload.make_event(number, "x") for number in (0, 41)
    ]
