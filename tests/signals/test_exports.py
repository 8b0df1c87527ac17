"""Metrics and spans: the names the rules ask for, no ids in labels, nothing of the event."""

from __future__ import annotations

import asyncio
import re
import sys
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families

from oncegate import Failed, Gate
from oncegate.errors import ConfigError
from oncegate.signals.definitions import DEFINITIONS
from oncegate.signals.prometheus import GateCollector, exposition, gauges
from oncegate.signals.snapshot import Snapshot
from oncegate.signals.tracing import trace
from oncegate.store import GivenUp, HeadsWanted, Outgoing, Policy

ORDER = ("surface", "destination", "state", "reason", "verdict", "known", "class", "le")
ONE = "0190a5c2-7b3e-7ccc-8f00-0123456789ab"
TWO = "0197f3e2-7c1a-7000-8000-0000000000f2"


@pytest.fixture
def gate(tmp_path: Any) -> Any:
    with Gate(f"sqlite:///{tmp_path / 'ledger.db'}") as made:
        shop = made.downstream("shop", honours_key="7d")

        def sell(item: str, idempotency_key: str) -> dict[str, str]:
            return {"id": f"slot-{item}"}

        @made.handler("orders", key="{id}")
        def order(event: dict[str, str], once: Any) -> str:
            if event.get("item") == "closed":
                raise Failed("the shop is closed")
            once.effect(shop, sell, event["item"])
            return "done"

        yield made


def samples(gate: Gate) -> dict[str, dict[tuple[Any, ...], float]]:
    found: dict[str, dict[tuple[Any, ...], float]] = {}
    for family in text_string_to_metric_families(exposition(gate).decode()):
        for sample in family.samples:
            labels = tuple(sample.labels.get(name) for name in ORDER if name in sample.labels)
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


def test_every_counter_of_a_surface_begins_at_zero(gate: Gate) -> None:
    """One that appears with its first event has no increase, and no rule sees 400 quarantines at once."""
    gate.engine.store.migrate()
    found = samples(gate)
    assert found["oncegate_arrivals_total"]["orders", "quarantine", "no"] == 0
    assert found["oncegate_repeats_total"]["orders", "conflict"] == 0
    assert found["oncegate_reconciliations_total"]["orders",] == 0


def test_arrivals_are_counters_by_verdict(gate: Gate) -> None:
    for _ in range(3):
        gate.admit_sync("orders", {"id": ONE, "item": "tulip"})
    gate.admit_sync("orders", {"item": "no id"})
    found = samples(gate)
    assert {place: count for place, count in found["oncegate_arrivals_total"].items() if count} == {
        ("orders", "run", "no"): 1,
        ("orders", "replay", "yes"): 2,
        ("orders", "quarantine", "no"): 1,
    }
    repeats = found["oncegate_repeats_total"]
    assert {place: count for place, count in repeats.items() if count} == {("orders", "expected_replay"): 2}
    assert found["oncegate_reservation_duration_seconds_count"] == {("orders",): 1}
    assert found["oncegate_entries_waiting"] == {("orders", "quarantined", "key_input"): 1}
    # Scraping again counts nothing twice.
    assert samples(gate)["oncegate_arrivals_total"] == found["oncegate_arrivals_total"]


def test_buckets_add_up(gate: Gate) -> None:
    for number in range(20):
        gate.admit_sync("orders", {"id": str(number), "item": "tulip"})
    found = samples(gate)
    buckets = [value for _, value in sorted(found["oncegate_reservation_duration_seconds_bucket"].items())]
    assert max(buckets) == 20
    assert found["oncegate_reservation_duration_seconds_bucket"]["orders", "+Inf"] == 20


def test_every_metric_that_a_rule_asks_for_exists(gate: Gate) -> None:
    gate.admit_sync("orders", {"id": ONE, "item": "tulip"})
    ahead = Snapshot(0, 0, {}, clock_ahead_ms=5)
    exposed = {family.name for family in (*GateCollector(gate).collect(), *gauges(ahead))}
    asked = {name for one in DEFINITIONS for name in re.findall(r"oncegate_\w+", one.query)}
    assert {re.sub(r"_(total|bucket)$", "", name) for name in asked} <= exposed


def test_no_id_and_no_value_is_in_the_metrics(gate: Gate) -> None:
    gate.admit_sync("orders", {"id": ONE, "item": "tulip"}, tenant="acme")
    text = exposition(gate).decode()
    for secret in (ONE, "tulip", "acme", "slot-"):
        assert secret not in text


def test_without_the_library_the_error_says_what_to_install(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ConfigError, match=r"pip install 'oncegate\[metrics\]'"):
        exposition(gate)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ConfigError, match=r"pip install 'oncegate\[otel\]'"):
        trace(gate)


@pytest.fixture
def spans() -> tuple[TracerProvider, InMemorySpanExporter]:
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider, exporter


def tree(exporter: InMemorySpanExporter) -> list[tuple[str, str | None]]:
    """Each span with its parent, in the order they began."""
    found = sorted(exporter.get_finished_spans(), key=lambda span: span.start_time or 0)
    names = {span.context.span_id: span.name for span in found if span.context}
    return [(span.name, names.get(span.parent.span_id) if span.parent else None) for span in found]


def test_an_admission_is_a_tree_of_spans(gate: Gate, spans: Any) -> None:
    provider, exporter = spans
    gate.admit_sync("orders", {"id": TWO, "item": "rose"})  # its step leaves a record once in a process
    trace(gate, provider.get_tracer("test"))
    gate.admit_sync("orders", {"id": ONE, "item": "tulip"})
    assert tree(exporter) == [
        ("oncegate.admit", None),
        ("oncegate.reserve", "oncegate.admit"),
        ("oncegate.call order", "oncegate.admit"),
        ("oncegate.effect", "oncegate.call order"),
        ("oncegate.call sell", "oncegate.effect"),
        ("oncegate.settle", "oncegate.admit"),
    ]
    (admit,) = [span for span in exporter.get_finished_spans() if span.name == "oncegate.admit"]
    assert admit.attributes["oncegate.surface"] == "orders"
    assert admit.attributes["oncegate.verdict"] == "run"
    assert "tulip" not in str([span.attributes for span in exporter.get_finished_spans()])


def test_a_task_has_spans_too_and_errors_pass_unchanged(tmp_path: Any, spans: Any) -> None:
    provider, exporter = spans
    with Gate(f"sqlite:///{tmp_path / 'other.db'}") as gate:
        trace(gate, provider.get_tracer("test"))

        @gate.handler("orders", key="{id}")
        async def order(event: dict[str, str], once: Any) -> str:
            raise Failed("the shop is closed")

        async def admit() -> None:
            with pytest.raises(Failed):
                await gate.admit("orders", {"id": ONE})

        asyncio.run(admit())
        (detail,) = _details(gate)
    assert detail.entry.state.label == "failed"
    assert [name for name, _ in tree(exporter)] == [
        "oncegate.admit", "oncegate.reserve", "oncegate.call order", "oncegate.settle"
    ]  # fmt: skip


def _details(gate: Gate) -> list[Any]:
    with gate.engine.store.look() as session:
        return [session.detail(1)]


def test_blocked_keys_are_a_gauge_of_their_destination(gate: Gate) -> None:
    """How many keys, for how long, and how much stands behind them."""
    at_ms = gate.engine.clock.wall_ms()
    events = [Outgoing("shop", "", "A-17", f"e-{n}", "t", b"{}", b"f", at_ms) for n in range(3)]
    with gate.engine.commits.transaction() as session:
        session.enqueue(events)
        (head,) = session.lease_heads(HeadsWanted((("shop", 9),), 60_000, 7)).deliveries
        given_up = GivenUp(
            head.lane_id,
            head.seq,
            head.fence,
            head.holder,
            head.event_id,
            at_ms - 5_000,
            "500",
            Policy.BLOCK,
            "sender",
        )
        session.dead_letter([given_up])
    found = samples(gate)
    assert found["oncegate_lanes_blocked"] == {("shop",): 1}
    assert found["oncegate_lane_events_waiting"] == {("shop",): 3}
    assert found["oncegate_lane_blocked_oldest_age_seconds"]["shop",] >= 5
