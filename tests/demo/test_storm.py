"""The Monday storm: its story as pure numbers, its small parts alone, and once as a whole."""

from __future__ import annotations

import argparse
import dataclasses
import io
import json
import os
import sqlite3
import urllib.request
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from oncegate import open_store
from oncegate.cli import demo
from oncegate.demo.storm import evidence
from oncegate.demo.storm.bookings import Booking
from oncegate.demo.storm.containers import is_valid
from oncegate.demo.storm.delivery_queue import REDELIVERY_DELAY_MS, DeliveryQueue
from oncegate.demo.storm.evidence import Count, Recoveries
from oncegate.demo.storm.handlers import SURFACE
from oncegate.demo.storm.progress import StormProgress
from oncegate.demo.storm.report import StormResult, find_problems, format_table
from oncegate.demo.storm.run import DEFAULT_SEED, StormBroken, run_storm
from oncegate.demo.storm.story import Message, StormFault, Story, tell
from oncegate.demo.terminal_client import Slot, read_record
from oncegate.errors import ConfigError
from oncegate.model.states import State
from oncegate.store import EntryFilter, LogKind, What
from oncegate.testing.clock import ManualClock
from tests.dashboard.serving import served

SEEDS = range(20)


def deliveries_by_notification(story: Story) -> Counter[str]:
    counts: Counter[str] = Counter()
    for message in (*story.storm, *story.late):
        counts[message.event["notificationId"]] += message.deliveries
    return counts


# --- the story ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_every_story_has_the_numbers_of_that_monday(seed):
    story = tell(seed)

    counts = deliveries_by_notification(story)
    repeated = [count for count in counts.values() if count > 1]

    assert len(counts) == 39
    assert story.deliveries == counts.total() == 87
    assert len(repeated) == 17
    assert all(2 <= count <= 6 for count in repeated)
    assert sum(repeated) == 65


@pytest.mark.parametrize("seed", SEEDS)
def test_every_story_has_39_different_valid_containers(seed):
    containers = {event["equipment_number"] for event in tell(seed).events}

    assert len(containers) == 39
    assert all(is_valid(container) for container in containers)


def test_check_digit_agrees_with_the_example_of_the_standard():
    assert is_valid("CSQU3054383")
    assert not is_valid("CSQU3054384")


@pytest.mark.parametrize("seed", SEEDS)
def test_every_story_kills_loses_fails_and_replays_late(seed):
    story = tell(seed)

    assert story.faults(StormFault.KILL) >= 5
    assert story.faults(StormFault.ERROR) >= 2
    assert story.lost >= 2
    assert len(story.late) >= 5
    assert any(message.faults == (StormFault.KILL, StormFault.KILL) for message in story.storm)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_copy_travels_beside_a_message_that_fails(seed):
    """Else the copy could finish the work first, and the fault would never be met."""
    story = tell(seed)

    copies = Counter(message.event["notificationId"] for message in story.storm)
    failing = [message for message in story.storm if message.faults]

    assert all(copies[message.event["notificationId"]] == 1 for message in failing)
    assert not any(message.faults for message in story.late)


def test_same_seed_tells_the_same_story_and_another_seed_another():
    assert tell(5) == tell(5)
    assert tell(5) != tell(6)


# --- the queue ----------------------------------------------------------------------------------


def test_message_is_delivered_again_until_it_is_acknowledged():
    clock = ManualClock()
    queue = DeliveryQueue(clock)
    queue.put([Message({"notificationId": "A"}, (StormFault.ERROR,))])
    first = queue.receive()
    assert first is not None
    assert first.fault is StormFault.ERROR

    queue.give_back(first)

    assert queue.receive() is None
    assert not queue.is_empty
    clock.advance(REDELIVERY_DELAY_MS / 1000)
    second = queue.receive()
    assert second is not None
    assert second.fault is None
    queue.acknowledge(second)
    assert queue.is_empty
    assert queue.delivered == 2


def test_lost_message_is_never_delivered_again():
    clock = ManualClock()
    queue = DeliveryQueue(clock)
    queue.put([Message({"notificationId": "A"}, (StormFault.KILL,), lost=True)])
    delivery = queue.receive()
    assert delivery is not None

    queue.give_back(delivery)

    assert queue.is_empty
    assert queue.lost == 1


# --- counting and judging -----------------------------------------------------------------------

RIGHT = Count(
    deliveries=87,
    slots=39,
    bookings=39,
    ghost_slots=0,
    double_slots=0,
    containers_without_booking=0,
    late_cancellations_eur=0,
    killed=8,
    errors=4,
    recoveries=Recoveries(by_redelivery=5, by_reconciler=3, unfinished=0),
)
FAULTY = dataclasses.replace(RIGHT, slots=87, bookings=75, ghost_slots=12, double_slots=48, recoveries=None)


def problems_of(without_gate: Count, with_gate: Count) -> list[str]:
    return list(find_problems(tell(DEFAULT_SEED), without_gate, with_gate))


def test_ghosts_and_doubles_are_counted_by_slot_and_container():
    slots = [Slot(f"SLOT-{number}", equipment, "w", None) for number, equipment in enumerate("AABC")]
    bookings = [Booking("SLOT-0", "A"), Booking("SLOT-2", "B"), Booking("SLOT-3", "X")]

    assert evidence.surplus(slots) == 1
    assert evidence.ghosts(slots, bookings) == 2
    assert evidence.unbooked(["A", "B", "C"], bookings) == 1


def test_cancelled_slot_is_no_longer_counted(tmp_path):
    record = tmp_path / "record.jsonl"
    sold = {"event": "sold", "equipment": "A", "window": "w", "key": None}
    lines = [
        {**sold, "slot": "SLOT-1"},
        {**sold, "slot": "SLOT-2"},
        {"event": "cancelled", "slot": "SLOT-1"},
    ]
    record.write_text("".join(json.dumps(line) + "\n" for line in lines))

    assert [slot.slot_id for slot in evidence.sold_slots(record)] == ["SLOT-2"]


def test_right_numbers_have_no_problems():
    assert problems_of(FAULTY, RIGHT) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("slots", 40),
        ("bookings", 38),
        ("ghost_slots", 1),
        ("double_slots", 1),
        ("containers_without_booking", 1),
        ("killed", 7),
        ("errors", 3),
        ("deliveries", 86),
        ("recoveries", None),
        ("recoveries", Recoveries(by_redelivery=4, by_reconciler=3, unfinished=0)),
        ("recoveries", Recoveries(by_redelivery=6, by_reconciler=2, unfinished=0)),
        ("recoveries", Recoveries(by_redelivery=5, by_reconciler=3, unfinished=1)),
    ],
)
def test_any_wrong_number_of_the_gated_run_is_a_problem(field, value):
    assert problems_of(FAULTY, dataclasses.replace(RIGHT, **{field: value}))


def test_demo_that_does_not_show_the_fault_is_a_problem():
    assert problems_of(dataclasses.replace(RIGHT, recoveries=None), RIGHT)


# --- the whole of it ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stormed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, StormResult]:
    folder = tmp_path_factory.mktemp("storm")
    return folder, run_storm(folder)


def sold_in(folder: Path) -> Counter[str]:
    events = read_record(folder / "terminal.jsonl")
    assert {event["event"] for event in events} == {"sold"}
    return Counter(event["equipment"] for event in events)


@pytest.mark.slow
def test_storm_passes(stormed):
    _, result = stormed

    assert result.problems == ()
    assert result.passed


def test_without_the_gate_every_delivery_buys_a_slot(stormed):
    folder, result = stormed

    sold = sold_in(folder / "without-gate")

    assert sold.total() == result.without_gate.slots == result.without_gate.deliveries == 87
    assert len(sold) == 39
    assert result.without_gate.double_slots == 48
    assert result.without_gate.ghost_slots == result.without_gate.killed + result.without_gate.errors


def test_with_the_gate_every_container_has_one_slot_and_one_booking(stormed):
    folder, _ = stormed

    sold = sold_in(folder / "with-gate")
    with sqlite3.connect(folder / "with-gate" / "oncegate.db") as connection:
        booked = connection.execute("SELECT slot, equipment FROM demo_bookings").fetchall()
    connection.close()

    assert set(sold.values()) == {1}
    assert set(sold) == {event["equipment_number"] for event in tell(DEFAULT_SEED).events}
    slots = {
        (event["slot"], event["equipment"]) for event in read_record(folder / "with-gate/terminal.jsonl")
    }
    assert len(booked) == 39
    assert set(booked) == slots


def test_its_page_tells_the_rule_and_nearly_all_that_came(stormed):
    """Killed workers take little more along than the arrival they died at."""
    _, result = stormed
    with demo.page_gate(open_store(result.ledger)) as gate, served(gate.dashboard()) as address:
        with urllib.request.urlopen(f"{address}/surfaces") as answer:
            surfaces = answer.read().decode()
        with gate.engine.store.look() as session:
            tallies = session.tallies(0, 2**40)
    counted = sum(one.count for one in tallies if What.FRESH <= one.what <= What.HOLD)

    assert "{notificationId}:{equipment_number}" in surfaces
    assert counted >= result.with_gate.deliveries - 2 * result.with_gate.killed


def test_with_the_gate_every_crash_is_in_the_ledger_and_recovered(stormed):
    _, result = stormed
    story = tell(DEFAULT_SEED)

    with evidence.connected(open_store(result.ledger)) as session:
        entries = session.entries(EntryFilter(surface=SURFACE), None, 1_000)
        log = session.read_log(0, 10_000)

    assert len(entries) == 39
    assert {entry.state for entry in entries} == {State.COMMITTED}
    recovered = [record for record in log if record.kind is LogKind.RECOVERED]
    assert len(recovered) >= result.with_gate.killed == story.faults(StormFault.KILL)
    reconciled = {record.entry_id for record in log if record.actor == evidence.RECONCILER}
    assert len(reconciled) == story.lost


CHILDREN = Path(f"/proc/self/task/{os.getpid()}/children")


def storm_children() -> list[str]:
    """The storm's own processes that still run; other tests' servers are none of them."""
    found = []
    for number in CHILDREN.read_text().split():
        try:
            words = Path(f"/proc/{number}/cmdline").read_bytes()
        except FileNotFoundError:
            continue
        if b"oncegate.demo." in words:
            found.append(words.replace(b"\0", b" ").decode())
    return found


def test_storm_leaves_no_process_behind(stormed):
    if not CHILDREN.exists():
        pytest.skip("this kernel does not list children")

    assert storm_children() == []


def test_second_storm_in_the_same_folder_or_ledger_is_refused(stormed, tmp_path):
    folder, result = stormed

    with pytest.raises(ConfigError, match="already holds a demo run"):
        run_storm(folder)
    with pytest.raises(ConfigError, match="already holds a demo run"):
        run_storm(tmp_path, url=result.ledger)


def test_storm_that_hangs_is_broken_off_and_its_processes_end(tmp_path):
    with pytest.raises(StormBroken, match="within 0 s"):
        run_storm(tmp_path, deadline_seconds=0.0)

    assert not CHILDREN.exists() or storm_children() == []


# --- how it is shown ----------------------------------------------------------------------------


def result_of(with_gate: Count) -> StormResult:
    problems = tuple(problems_of(FAULTY, with_gate))
    return StormResult(DEFAULT_SEED, 4, 8.0, "sqlite:///x.db", FAULTY, with_gate, problems)


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    demo.add_parser(parser.add_subparsers())
    return parser.parse_args(["demo", *words])


def test_table_shows_both_runs_side_by_side():
    rows = {line[:40].strip(): line[40:].split() for line in format_table(result_of(RIGHT)).splitlines()}

    assert rows["slots claimed"] == ["87", "39"]
    assert rows["ghost slots (no booking)"] == ["12", "0"]
    assert rows["reconciled"] == ["-", "3"]


def test_command_exits_0_for_a_right_storm_and_prints_one_json_object(monkeypatch, capsys):
    monkeypatch.setattr(demo, "run_storm", lambda folder, **_: result_of(RIGHT))

    assert demo.run(parsed("--json")) == 0

    document = json.loads(capsys.readouterr().out)
    assert document["passed"] is True
    assert document["with_gate"]["recoveries"]["by_reconciler"] == 3


def test_command_exits_1_and_says_what_was_wrong(monkeypatch, capsys):
    wrong = result_of(dataclasses.replace(RIGHT, slots=40))
    monkeypatch.setattr(demo, "run_storm", lambda folder, **_: wrong)

    assert demo.run(parsed()) == 1

    assert "40 slots instead of 39" in capsys.readouterr().err


def test_command_exits_1_when_the_storm_breaks_off(monkeypatch, capsys):
    def hang(folder: Path, **_: object) -> StormResult:
        raise StormBroken("the workers have not finished their deliveries within 60 s")

    monkeypatch.setattr(demo, "run_storm", hang)

    assert demo.run(parsed()) == 1

    assert "within 60 s" in capsys.readouterr().err


@pytest.mark.parametrize("workers", ["0", "-1", "17", "two", "1.5"])
def test_command_refuses_an_unusable_number_of_workers(workers, capsys):
    with pytest.raises(SystemExit):
        parsed(f"--workers={workers}")

    assert "is not a number from 1 to 16" in capsys.readouterr().err


class Screen(io.StringIO):
    """A stream that says that a person watches."""

    def isatty(self) -> bool:
        return True


def test_progress_is_one_updating_line_on_a_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    screen, clock = Screen(), ManualClock()
    progress = StormProgress(screen, clock)

    for number in range(3):
        clock.advance(1)
        progress.update(partial("delivered {}".format, number))
    progress.close()

    assert screen.getvalue() == "".join(f"\r\x1b[2Kdelivered {number}" for number in range(3)) + "\r\x1b[2K"


def test_progress_is_an_occasional_plain_line_elsewhere():
    log, clock = io.StringIO(), ManualClock()
    progress = StormProgress(log, clock)

    for number in range(40):
        clock.advance(0.1)
        progress.update(partial("delivered {}".format, number))
    progress.close()

    assert log.getvalue() == "delivered 19\ndelivered 39\n"
