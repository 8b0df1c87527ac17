"""The signals' raw values for Prometheus: counters of this process, gauges of its ledger.

Needs `pip install 'oncegate[metrics]'`. Names are in base units; labels are surfaces, states and kinds of
reasons, never an id, a key or a tenant. Counters are this process's own and are added up by the server;
gauges are the ledger's, the same from every process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from oncegate.errors import ConfigError
from oncegate.gate.facade import GateOnStore
from oncegate.model.repeats import RepeatClass
from oncegate.model.states import State
from oncegate.model.surface import Reason
from oncegate.signals.alerts import (
    age_seconds,
    blocked_seconds,
    late_seconds,
    open_seconds,
    reader_name,
    seal_overdue_seconds,
    snapshot_overdue_seconds,
    two_of_target,
    two_resources,
    undelivered_seconds,
    unread_seconds,
    unscanned_seconds,
    watch_absent,
    worker_absent,
)
from oncegate.signals.measures import measure
from oncegate.signals.snapshot import Snapshot
from oncegate.store import What
from oncegate.store.tallies import LATENCY_BUCKETS, latency_bound_us, of_class, of_latency

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_HINT: Final = "metrics need their library: pip install 'oncegate[metrics]'"
_VERDICTS: Final = {
    What.FRESH: ("run", "no"),
    What.QUARANTINED: ("quarantine", "no"),
    What.HELD: ("hold", "no"),
    What.RETRY: ("run", "retry"),
    What.RECOVER: ("run", "retry"),
    What.REPLAY: ("replay", "yes"),
    What.BUSY: ("busy", "retry"),
    What.AWAITED: ("replay", "retry"),
    What.CONFLICT: ("conflict", "yes"),
    What.HOLD: ("hold", "yes"),
    What.QUARANTINED_AGAIN: ("quarantine", "yes"),
}
# A reason that is not listed is "other": whatever a later version or a person writes makes no new label.
_REASONS: Final = frozenset(
    {"", "attempts_used_up", "two_resources", "approval", "in_doubt", "content_duplicate"}
    | {reason.value for reason in Reason}
)

Totals = Mapping[tuple[str, int], tuple[int, int]]


class GateCollector:
    """A collector for `prometheus_client`: `REGISTRY.register(GateCollector(gate))`."""

    def __init__(self, gate: GateOnStore) -> None:
        _library()
        self._gate = gate

    def collect(self) -> Iterator[Metric]:
        """Reads this process's counters and one moment of the ledger."""
        surfaces = [surface.name for surface in self._gate.engine.surfaces]
        yield from counters(self._gate.engine.sightings.totals(), surfaces)
        with self._gate.engine.store.look() as session:
            snapshot = measure(
                session, self._gate.engine.clock, windows=()
            )  # counters are the process's own
        yield from gauges(snapshot)


def exposition(gate: GateOnStore) -> bytes:
    """Everything in the text format, for a `/metrics` of one's own."""
    library = _library()
    registry = library.CollectorRegistry()
    registry.register(GateCollector(gate))
    return bytes(library.generate_latest(registry))


def counters(totals: Totals, registered: Iterable[str] = ()) -> Iterator[Metric]:
    """What this process has counted since it began.

    Every counter of a registered surface is there from the beginning, at 0: one that appears with its first
    event has no increase for a rule to see.
    """
    core = _library().core
    surfaces = sorted({surface for surface, _ in totals} | set(registered))
    arrivals = core.CounterMetricFamily(
        "oncegate_arrivals", "Arrivals by what they got, and whether their key was known (retry: asked)",
        labels=("surface", "verdict", "known"),
    )  # fmt: skip
    for (surface, verdict, known), count in sorted(_arrivals(totals, surfaces).items()):
        arrivals.add_metric((surface, verdict, known), count)
    repeats = core.CounterMetricFamily("oncegate_repeats", "Repeats by class", labels=("surface", "class"))
    for surface in surfaces:
        for kind in RepeatClass:
            repeats.add_metric((surface, kind.label), totals.get((surface, of_class(kind)), (0, 0))[0])
    yield arrivals
    yield repeats
    recovered = (What.RECONCILED, What.RECOVER)
    for wanted, name, text in (
        (recovered, "oncegate_reconciliations", "Interrupted or failed events taken up again"),
        ((What.FAILED,), "oncegate_failed", "Events that ended as failed"),
        ((What.KEYLESS,), "oncegate_effects_without_key", "Calls that did not take the key"),
        ((What.LOST,), "oncegate_sightings_lost", "Arrivals that were not counted"),
    ):
        family = core.CounterMetricFamily(name, text, labels=("surface",))
        for surface in surfaces:
            count = sum(totals.get((surface, what), (0, 0))[0] for what in wanted)
            family.add_metric((surface,), count)
        yield family
    yield _latencies(totals)


def _arrivals(totals: Totals, surfaces: Iterable[str]) -> dict[tuple[str, str, str], int]:
    found = {(surface, *place): 0 for surface in surfaces for place in _VERDICTS.values()}
    for (surface, what), (count, _) in totals.items():
        if what in _VERDICTS:
            place = (surface, *_VERDICTS[What(what)])
            found[place] += count
    return found


def _latencies(totals: Totals) -> Metric:
    family = _library().core.HistogramMetricFamily(
        "oncegate_reservation_duration_seconds", "Time that reserving a new key took", labels=("surface",)
    )
    first = of_latency(0)
    for surface in sorted({surface for surface, what in totals if latency_bound_us(what) is not None}):
        counted = [totals.get((surface, first + bucket), (0, 0)) for bucket in range(LATENCY_BUCKETS)]
        buckets, seen = [], 0
        for bucket, (count, _) in enumerate(counted[:-1]):
            seen += count
            buckets.append((f"{(latency_bound_us(first + bucket) or 0) / 1e6:g}", seen))
        buckets.append(("+Inf", seen + counted[-1][0]))
        family.add_metric((surface,), buckets, sum_value=sum(total for _, total in counted) / 1e6)
    return family  # type: ignore[no-any-return]


def gauges(snapshot: Snapshot) -> Iterator[Metric]:
    """What stands open in the ledger."""
    waiting = snapshot.waiting
    ages = [(item, age_seconds(snapshot, item)) for item in waiting]
    flying = [item for item in waiting if item.state is State.IN_FLIGHT]
    yield _gauge(
        "oncegate_in_flight_oldest_age_seconds", "Age of the oldest entry in flight", ("surface",),
        _largest(((item.surface,), age) for item, age in ages if item.state is State.IN_FLIGHT),
    )  # fmt: skip
    yield _gauge(
        "oncegate_retried_seconds", "Longest time from an arrival to its last failed attempt", ("surface",),
        _largest(((item.surface,), item.tried_ms / 1000) for item in waiting if item.tried_ms),
    )  # fmt: skip
    yield _gauge(
        "oncegate_waiting_oldest_age_seconds", "Longest time in a state", ("surface", "state"),
        _largest(((item.surface, item.state.label), age) for item, age in ages),
    )  # fmt: skip
    yield _gauge(
        "oncegate_decision_late_seconds", "Longest time past the limit for a decision", ("surface",),
        _largest(
            ((item.surface,), late_seconds(snapshot, item))
            for item in waiting if item.decide_within_ms is not None
        ),
    )  # fmt: skip
    yield _gauge(
        "oncegate_entries_waiting", "Entries that are not final", ("surface", "state", "reason"),
        _summed(((item.surface, item.state.label, _reason(item.reason)), item.count) for item in waiting),
    )  # fmt: skip
    yield _gauge(
        "oncegate_claims_lapsed", "Claims under a lease that is over", ("surface",),
        _summed(((item.surface,), item.lapsed) for item in flying),
    )  # fmt: skip
    yield _gauge(
        "oncegate_lanes_blocked", "Keys that are blocked by a dead letter", ("destination",),
        {(one.name,): one.blocked for one in snapshot.destinations},
    )  # fmt: skip
    yield _gauge(
        "oncegate_lane_blocked_oldest_age_seconds", "Longest time that a key is blocked", ("destination",),
        {(one.name,): blocked_seconds(snapshot, one) for one in snapshot.destinations},
    )  # fmt: skip
    yield _gauge(
        "oncegate_lane_oldest_event_age_seconds", "Age of the oldest event not delivered", ("destination",),
        {(one.name,): undelivered_seconds(snapshot, one) for one in snapshot.destinations},
    )  # fmt: skip
    yield _gauge(
        "oncegate_lane_events_waiting", "Events that are not delivered yet", ("destination",),
        {(one.name,): one.events for one in snapshot.destinations},
    )  # fmt: skip
    yield _gauge(
        "oncegate_doubled_pairs", "Open pairs of equal changes that both ran", ("surface",),
        {(one.surface,): one.count for one in snapshot.doubled},
    )  # fmt: skip
    yield _gauge(
        "oncegate_keys_with_two_resources", "Keys that own two resources or more", ("surface",),
        {(name,): two_resources(snapshot, name)[0] for name in snapshot.surfaces},
    )  # fmt: skip
    yield _gauge(
        "oncegate_targets_with_two_resources", "Targets that got two resources or more", ("surface",),
        {(name,): two_of_target(snapshot, name)[0] for name in snapshot.surfaces},
    )  # fmt: skip
    yield _gauge(
        "oncegate_circuit_open_seconds", "Time since a destination's circuit opened", ("destination",),
        {(name,): open_seconds(snapshot, name) for name in _with_circuits(snapshot)},
    )  # fmt: skip
    yield _gauge(
        "oncegate_feed_oldest_unread_age_seconds", "Age of the oldest event not acknowledged", ("reader",),
        {(reader_name(one),): unread_seconds(snapshot, one) for one in snapshot.readers},
    )  # fmt: skip
    yield _gauge(
        "oncegate_worker_absent_seconds", "Time since a worker ran, once it is overdue", ("surface",),
        {(name,): worker_absent(snapshot, name)[0] for name in _looked_after(snapshot)},
    )  # fmt: skip
    yield _gauge(
        "oncegate_watch_absent_seconds", "Time since a watch looked, once it is overdue",
        (), {(): watch_absent(snapshot)[0]},
    )  # fmt: skip
    yield _gauge(
        "oncegate_content_scan_behind_seconds", "Age of the oldest event the content scan has not seen",
        (), {(): unscanned_seconds(snapshot)},
    )  # fmt: skip
    yield from _of_ledger(snapshot)
    yield _gauge(
        "oncegate_windows_with_drift", "Windows whose confirmation differs from realtime", ("partner",),
        {(name,): word.windows for name, word in snapshot.drifts.items() if not word.is_behind},
    )  # fmt: skip
    if snapshot.clock_ahead_ms is not None:
        ahead: Values = {(): snapshot.clock_ahead_ms / 1000}
        yield _gauge("oncegate_clock_offset_seconds", "This clock before the ledger's", (), ahead)


def _of_ledger(snapshot: Snapshot) -> Iterator[Metric]:
    """Gauges with one value for the whole ledger."""
    yield _gauge(
        "oncegate_ledger_went_back", "Times the ledger went back, not decided yet",
        (), {(): float(len(snapshot.went_back))},
    )  # fmt: skip
    yield _gauge(
        "oncegate_snapshot_overdue_seconds", "Time since a snapshot was due and none was taken",
        (), {(): snapshot_overdue_seconds(snapshot)},
    )  # fmt: skip
    yield _gauge(
        "oncegate_seal_overdue_seconds", "Time since log records should have been sealed",
        (), {(): seal_overdue_seconds(snapshot)},
    )  # fmt: skip


def _with_circuits(snapshot: Snapshot) -> list[str]:
    """Every destination, and the downstreams that are down."""
    return sorted({one.name for one in snapshot.destinations} | snapshot.circuits.keys())


def _looked_after(snapshot: Snapshot) -> set[str]:
    """Surfaces that some worker has spoken of."""
    return {surface for one in snapshot.workers for surface in one.word.surfaces}


def _reason(reason: str) -> str:
    return reason if reason in _REASONS else "other"


Values = dict[tuple[str, ...], float]


def _largest(items: Iterable[tuple[tuple[str, ...], float]]) -> Values:
    found: Values = {}
    for place, value in items:
        found[place] = max(found.get(place, 0.0), value)
    return found


def _summed(items: Iterable[tuple[tuple[str, ...], float]]) -> Values:
    found: Values = {}
    for place, value in items:
        found[place] = found.get(place, 0.0) + value
    return found


def _gauge(name: str, text: str, labels: tuple[str, ...], values: Values) -> Metric:
    family = _library().core.GaugeMetricFamily(name, text, labels=labels)
    for place, value in sorted(values.items()):
        family.add_metric(place, value)
    return family  # type: ignore[no-any-return]


def _library() -> Any:
    try:
        import prometheus_client
        import prometheus_client.core
    except ModuleNotFoundError as error:
        raise ConfigError(_HINT) from error
    return prometheus_client
