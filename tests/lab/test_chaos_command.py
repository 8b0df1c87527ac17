"""`python -m lab chaos`: what it prints, which code it ends with, and how it goes on from a tally."""

from __future__ import annotations

import json

import pytest

from lab.simulator.workload import make_schedule


@pytest.mark.slow
def test_short_run_that_missed_faults_does_not_count(call):
    ended = call("chaos", "run", "--schedules", "5", "--processes", "1")

    assert ended.code == 1
    assert "5 schedules from seed 1" in ended.out
    assert "ms of processor time each" in ended.out
    assert "this run does not count" in ended.out


@pytest.mark.slow
def test_tally_is_added_to_and_gone_on_with(call, tmp_path):
    tally = tmp_path / "tally.json"

    for _ in range(2):
        call("chaos", "run", "--schedules", "4", "--processes", "1", "--tally", str(tally))

    document = json.loads(tally.read_text("utf-8"))
    assert (document["schedules"], document["failed"], document["next_seed"]) == (8, 0, 9)
    assert [campaign["first_seed"] for campaign in document["campaigns"]] == [1, 5]


def test_tally_that_is_none_is_refused(call, tmp_path):
    tally = tmp_path / "tally.json"
    tally.write_text("[]", "utf-8")

    ended = call("chaos", "run", "--schedules", "1", "--tally", str(tally))

    assert ended.code == 2
    assert "is not a tally" in ended.err


def test_replay_by_seed_and_by_schedule_are_the_same(call):
    by_seed = call("chaos", "replay", "7")
    by_line = call("chaos", "replay", make_schedule(7).encode())

    assert by_seed.code == 0
    assert "every promise was kept" in by_seed.out
    assert by_seed.out == by_line.out


def test_replay_of_nonsense_is_one_line(call):
    for nonsense in ("xx", "{}", '{"seed":1,"events":[],"deliveries":[]}'):
        ended = call("chaos", "replay", nonsense)

        assert ended.code == 2
        assert len(ended.err.splitlines()) == 1
