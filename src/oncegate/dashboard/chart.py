"""The stacked chart of the page Now: arrivals of the last hour, six hours, day or week, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from markupsafe import Markup, escape
from msgspec import Struct

from oncegate.clock import utc_text
from oncegate.dashboard.buckets import Bucket, ChartMemory
from oncegate.dashboard.rendering import with_digits
from oncegate.model.escape import visible
from oncegate.signals.measures import MINUTE_MS
from oncegate.store import Session

# Minutes of the whole chart and of one bucket.
RANGES: Final = {"1h": (60, 2), "6h": (360, 10), "24h": (1_440, 30), "7d": (10_080, 240)}
USUAL: Final = "24h"
WIDTH: Final = 1_000
HEIGHT: Final = 100
Span = tuple[int, float]  # the first minute, and the moment of its end
# From the bottom up; the classes of the style sheet.
SERIES: Final = (
    ("new", "new"),
    ("repeats", "repeats absorbed"),
    ("stopped", "held or quarantined"),
    ("failed", "failed"),
)


class Chart(Struct, frozen=True):
    """What a template shows: the drawing, its legend with sums, and where it begins and ends."""

    svg: Markup
    legend: tuple[tuple[str, str, int], ...]
    begin_ms: int
    end_ms: int
    chosen: str


def chart_of(
    session: Session, memory: ChartMemory, now_ms: int, chosen: str, marks: Sequence[tuple[int, str, str]]
) -> Chart:
    """The chart up to this moment. `marks` are moments with their class and what they say.

    Heights are arrivals a minute. A last bucket that is not over is narrower, not lower. One that has just
    begun belongs to the bucket before it.
    """
    chosen = chosen if chosen in RANGES else USUAL
    length, step = RANGES[chosen]
    now = now_ms / MINUTE_MS
    begin, end = (int(now) - length) // step * step, int(now) + 1
    firsts = [first for first in range(begin, end, step) if now - first >= step / 5]
    spans: list[Span] = [*pairwise(firsts), (firsts[-1], now)]
    buckets = [memory.read(session, first, last, end) for first, last in pairwise(firsts)]
    buckets.append(memory.read(session, firsts[-1], end, end))
    scale = Scale(begin, now)
    drawn = [_mark(scale, *one) for one in marks if begin <= one[0] / MINUTE_MS <= now]
    sums = tuple(sum(bucket[place] for bucket in buckets) for place in range(len(SERIES)))
    legend = tuple((name, words, amount) for (name, words), amount in zip(SERIES, sums, strict=True))
    told = ", ".join(f"{amount} {words}" for _, words, amount in legend)
    svg = (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img"'
        f' aria-label="Arrivals of the last {chosen}: {told}">{"".join(_areas(buckets, spans, scale))}'
        f"{''.join(drawn)}{''.join(_titles(buckets, spans, scale))}</svg>"
    )
    return Chart(Markup(svg), legend, begin * MINUTE_MS, now_ms, chosen)


class Scale(Struct, frozen=True):
    """Minutes to places from left to right."""

    begin: float
    end: float

    def x(self, minute: float) -> int:
        """Where a minute is."""
        return round(WIDTH * (minute - self.begin) / (self.end - self.begin))


def _areas(buckets: Sequence[Bucket], spans: Sequence[Span], scale: Scale) -> list[str]:
    """A filled shape for each series, each on top of those below it."""
    lengths = [last - first for first, last in spans]
    top = max(sum(bucket) / length for bucket, length in zip(buckets, lengths, strict=True)) or 1
    below, found = [0.0] * len(buckets), list[str]()
    for place, (name, _) in enumerate(SERIES):
        rates = [bucket[place] / length / top for bucket, length in zip(buckets, lengths, strict=True)]
        above = [under + rate for under, rate in zip(below, rates, strict=True)]
        if any(rates):
            points = [*_edge(above, spans, scale), *reversed(_edge(below, spans, scale))]
            found.append(f'<polygon class="{name}" points="{" ".join(points)}"/>')
        below = above
    return found


def _edge(heights: Sequence[float], spans: Sequence[Span], scale: Scale) -> list[str]:
    """The steps of one edge: a bucket is as high from its first minute to its last."""
    ys = [f"{HEIGHT - (HEIGHT - 4) * height:.1f}" for height in heights]
    return [f"{scale.x(minute)},{y}" for y, span in zip(ys, spans, strict=True) for minute in span]


def _mark(scale: Scale, at_ms: int, name: str, words: str) -> str:
    x, title = scale.x(at_ms / MINUTE_MS), f"{_clock(at_ms // MINUTE_MS)} UTC: {words}"
    return (
        f'<line class="{name}" x1="{x}" x2="{x}" y1="0" y2="{HEIGHT}">'
        f"<title>{escape(visible(title))}</title></line>"
    )


def _clock(minute: float) -> str:
    return utc_text(int(minute * MINUTE_MS))[11:16]


def _titles(buckets: Sequence[Bucket], spans: Sequence[Span], scale: Scale) -> list[str]:
    """What a pointer reads above each bucket in which anything arrived."""
    found = list[str]()
    for bucket, (first, last) in zip(buckets, spans, strict=True):
        parts = [f"{amount} {words}" for amount, (_, words) in zip(bucket, SERIES, strict=True) if amount]
        if parts:
            text = f"{_clock(first)} to {_clock(last)} UTC: {with_digits(' · '.join(parts))}"
            x, wide = scale.x(first), scale.x(last) - scale.x(first)
            found.append(f'<rect x="{x}" width="{wide}" height="{HEIGHT}"><title>{text}</title></rect>')
    return found
