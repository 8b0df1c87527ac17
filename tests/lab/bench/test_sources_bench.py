"""The bench of sources: its ratios and aims, and one small measurement through a real queue."""

from __future__ import annotations

from lab.bench.sources import SourcesBench, ratios, sources_part
from lab.bench.targets import judge


def test_a_source_is_judged_beside_the_gate_and_the_bare_client() -> None:
    """By medians over the rounds; the added time of one message is that over the bare client."""
    bare = {"kind": "nats", "who": "bare client", "rate": 9_000, "us": 50.0, "single_ms": 1.0}
    gate = {"kind": "nats", "who": "gate, sqlite", "rate": 1_000, "us": 200.0}
    through = {"kind": "nats", "who": "source, sqlite", "rate": 850, "us": 250.0, "single_ms": 2.5}

    (found,) = ratios([bare, gate, through])

    assert (found["of_gate"], found["of_gate_processor"]) == (0.85, 0.8)
    assert (found["added_us"], found["added_ms"]) == (50.0, 1.5)
    verdicts = [one.met for one in judge({"sources": {"ratios": [found]}}) if "source nats" in one.what]
    assert verdicts == [True, False]


def test_events_pass_through_a_real_queue_and_are_counted() -> None:
    """Every event is acknowledged, or the measurement would not end."""
    document = SourcesBench(kinds=("redis",), events=40, singles=2, rounds=1, postgres=False).run()

    assert [turn["who"] for turn in document["turns"]] == ["bare client", "gate, sqlite", "source, sqlite"]
    assert "| redis, sqlite |" in sources_part({"sources": document})
