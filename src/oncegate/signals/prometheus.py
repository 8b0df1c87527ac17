"""The signals' raw values for Prometheus: counters of this process, gauges of its ledger.

Needs `pip install 'oncegate[metrics]'`. Names are in base units; labels are surfaces, states and kinds of
reasons, never an id, a key or a tenant. Counters are this process's own and are added up by the server;
gauges are the ledger's, the same from every process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from oncegate.errors import ConfigError
from oncegate.gate.gate import Gate
from oncegate.model.states import State
from oncegate.model.surface import Reason
from oncegate.signals.alerts import age_seconds, blocked_seconds, late_seconds, undelivered_seconds
from oncegate.signals.measures import measure
from oncegate.signals.snapshot import Snapshot
from oncegate.store import What
from oncegate.store.tallies import LATENCY_BUCKETS, class_of, latency_bound_us, of_latency

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_HINT: Final = "metrics need their library: pip install 'oncegate[metrics]'"
_VERDICTS: Final = {
    What.FRESH: ("run", "no"),
    What.QUARANTINED: ("quarantine", "no"),
    What.HELD: ("hold", "no"),
    What.RETRY: ("run", "yes"),
    What.RECOVER: ("run", "yes"),
    What.REPLAY: ("replay", "yes"),
    What.BUSY: ("busy", "yes"),
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

    def __init__(self, gate: Gate) -> None:
        _library()
        self._gate = gate

    def collect(self) -> Iterator[Metric]:
        """Reads this process's counters and one moment of the ledger."""
        yield from counters(self._gate.sightings.totals())
        with self._gate.store.look() as session:
            snapshot = measure(session, self._gate.clock, windows=())  # counters are the process's own
        yield from gauges(snapshot)


def exposition(gate: Gate) -> bytes:
    """Everything in the text format, for a `/metrics` of one's own."""
    library = _library()
    registry = library.CollectorRegistry()
    registry.register(GateCollector(gate))
    return bytes(library.generate_latest(registry))


def counters(totals: Totals) -> Iterator[Metric]:
    """What this process has counted since it began."""
    core = _library().core
    arrivals = core.CounterMetricFamily(
        "oncegate_arrivals", "Arrivals by what they got, and whether their key was known",
        labels=("surface", "verdict", "known"),
    )  # fmt: skip
    for (surface, verdict, known), count in sorted(_arrivals(totals).items()):
        arrivals.add_metric((surface, verdict, known), count)
    repeats = core.CounterMetricFamily("oncegate_repeats", "Repeats by class", labels=("surface", "class"))
    for (surface, what), (count, _) in sorted(totals.items()):
        kind = class_of(what)
        if kind is not None:
            repeats.add_metric((surface, kind.label), count)
    yield arrivals
    yield repeats
    yield _plain_counter(totals, What.RECONCILED, "oncegate_reconciliations", "Entries a caretaker took up")
    yield _plain_counter(totals, What.LOST, "oncegate_sightings_lost", "Arrivals that were not counted")
    yield _latencies(totals)


def _arrivals(totals: Totals) -> dict[tuple[str, str, str], int]:
    found: dict[tuple[str, str, str], int] = {}
    for (surface, what), (count, _) in totals.items():
        if what in _VERDICTS:
            place = (surface, *_VERDICTS[What(what)])
            found[place] = found.get(place, 0) + count
    return found


def _plain_counter(totals: Totals, wanted: What, name: str, text: str) -> Metric:
    family = _library().core.CounterMetricFamily(name, text, labels=("surface",))
    for (surface, what), (count, _) in sorted(totals.items()):
        if what == wanted:
            family.add_metric((surface,), count)
    return family  # type: ignore[no-any-return]


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
    if snapshot.clock_ahead_ms is not None:
        ahead: Values = {(): snapshot.clock_ahead_ms / 1000}
        yield _gauge("oncegate_clock_offset_seconds", "This clock before the ledger's", (), ahead)


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
