"""What a measurement gives: events a second and latencies of one run, and the spread over several."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import median
from typing import Any


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of one workload."""

    events: int
    seconds: float
    latencies_ms: tuple[float, ...]

    @property
    def rate(self) -> float:
        """Events a second."""
        return self.events / self.seconds

    def percentile(self, share: float) -> float:
        """The latency that this share of the events stayed under, in milliseconds."""
        ordered = sorted(self.latencies_ms)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def joined(parts: list[Sample]) -> Sample:
    """One run that was made in several parts."""
    latencies = [latency for part in parts for latency in part.latencies_ms]
    return Sample(len(latencies), sum(part.seconds for part in parts), tuple(latencies))


@dataclass(frozen=True, slots=True)
class SampleSummary:
    """Several runs of one workload: the median with the lowest and highest."""

    name: str
    concurrency: int
    runs: int
    events: int
    rate: float
    rate_low: float
    rate_high: float
    p50_ms: float
    p99_ms: float

    @classmethod
    def of(cls, name: str, concurrency: int, samples: list[Sample]) -> SampleSummary:
        """Sums up the runs of one workload."""
        rates = [sample.rate for sample in samples]
        return cls(
            name,
            concurrency,
            len(samples),
            samples[0].events,
            median(rates),
            min(rates),
            max(rates),
            median(sample.percentile(0.5) for sample in samples),
            median(sample.percentile(0.99) for sample in samples),
        )

    def as_json(self) -> dict[str, Any]:
        """The summary as plain values, rounded to what the machine can tell."""
        return {k: round(v, 3) if isinstance(v, float) else v for k, v in asdict(self).items()}
