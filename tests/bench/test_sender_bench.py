"""The sender's measurement judges order by itself, and measures something."""

from __future__ import annotations

from oncegate.bench.hookpeer import POISONED, Record
from oncegate.bench.sender import SenderBench


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


def test_measurement_of_one_point_over_real_http() -> None:
    document = SenderBench(
        keys=(10,), delays_ms=(0,), seconds=0.2, rounds=1, postgres=False, rivals=False
    ).run()

    (point,) = document["curve"]
    assert point["rate"] > 0
    assert point["successor_ms"] > 0
    assert (point["reordered"], point["repeated"]) == (0, 0)
