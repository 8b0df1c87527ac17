"""The sender's measurement judges order by itself, and measures something."""

from __future__ import annotations

import pytest

from lab.bench import sender
from lab.bench.hookpeer import POISONED, Record
from lab.bench.sender import SenderBench
from lab.bench.targets import judge
from lab.cli.bench_sender import as_text


def taken(record: Record, key: bytes, seq: int, now: float) -> bool:
    found = record.arrived(key, seq, now)
    if found:
        record.acknowledged(key, seq, now - 1, now)
    return found


def test_receiver_counts_what_came_out_of_order_and_what_came_again() -> None:
    record = Record(0.0)

    for seq in (1, 2, 2, 4, 3):
        taken(record, b"k", seq, float(seq))

    seen = record.report()
    assert (seen["reordered"], seen["repeated"]) == (1, 2)


def test_receiver_refuses_a_share_once_and_the_poisoned_key_always() -> None:
    record = Record(100.0)

    assert [taken(record, b"k", 1, 1.0) for _ in range(2)] == [False, True]
    assert [taken(record, POISONED, 1, 1.0) for _ in range(3)] == [False, False, False]
    assert record.report()["reordered"] == 0


def test_only_an_event_that_was_there_already_counts_as_a_successor() -> None:
    """Given an acknowledgement at 1.0; what was emitted before counts from there, what came later not."""
    record = Record(0.0)
    taken(record, b"k", 1, 1.0)
    record.arrived(b"k", 2, 1.004, emitted_at=0.5)
    record.acknowledged(b"k", 2, 0.5, 1.004)
    record.arrived(b"k", 3, 9.0, emitted_at=8.0)

    seen = record.report()
    assert (seen["successors"], seen["successor_ms"]) == (1, 4.0)


def test_the_sender_is_judged_by_its_aims() -> None:
    """Given a document; then each aim of the sender is met or missed by its own figure, and an even flow's
    successor counts, not a backlog's."""
    successors = [{"store": "sqlite", "paced_ms": 1.5, "backlogs": [{"successor_ms": 40.0}]}]
    ratios = {"sqlite, 1000 keys / bare client": 0.29, "postgres / procrastinate with a lock per key": 6.0}
    found = {"ratios": ratios, "turns": [{"bare": 9_000, "sqlite": 2_600}], "successors": successors}

    verdicts = [one.met for one in judge({"sender": found}) if one.what.startswith("sender")]

    assert verdicts == [False, True, False, True]


@pytest.mark.slow
def test_measurement_of_one_point_over_real_http(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "SCENE_KEYS", 100)
    monkeypatch.setattr(sender, "SCENE_SECONDS_MIN", 0.5)
    document = SenderBench(
        keys=(10,), delays_ms=(0,), seconds=0.2, rounds=1, postgres=False, rivals=False
    ).run()

    (point,) = document["curve"]
    assert point["rate"] > 0
    assert point["successor_ms"] > 0
    assert (point["reordered"], point["repeated"]) == (0, 0)
    (followed,) = document["successors"]
    assert followed["paced_ms"] > 0
    assert [one["in_flight"] for one in followed["backlogs"]] == [16, 256]
    assert "aim: 5 ms" in as_text(document)
