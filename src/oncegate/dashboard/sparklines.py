"""Small curves as SVG, drawn on the server: no script, no style attribute."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

WIDTH: Final = 160
HEIGHT: Final = 32


def sparkline(values: Sequence[float | None], label: str, limit: float | None = None) -> str:
    """A curve of values, oldest first, with a dashed line at the limit where that is in sight.

    None is a moment of which nothing is known: the curve begins after, ends before, or passes over it.
    """
    top = max([*(value for value in values if value is not None), 1e-9])
    shown_limit = limit is not None and 0 < limit <= top * 4
    if shown_limit and limit is not None:
        top = max(top, limit)
    step = WIDTH / max(1, len(values) - 1)
    points = [(number * step, _y(value, top)) for number, value in enumerate(values) if value is not None]
    if len(points) == 1:  # one point is no line
        points.insert(0, (points[0][0] - step, points[0][1]))
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    begin, end = (points[0][0], points[-1][0]) if points else (0, WIDTH)
    area = f"{begin:.1f},{HEIGHT} {line} {end:.1f},{HEIGHT}"
    mark = ""
    if shown_limit and limit is not None:
        y = _y(limit, top)
        mark = f'<line class="limit" x1="0" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
    return (
        f'<svg class="spark" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img"'
        f' aria-label="{escape(label)}" preserveAspectRatio="none"><polygon points="{area}"/>'
        f'<polyline points="{line}"/>{mark}</svg>'
    )


def _y(value: float, top: float) -> float:
    return HEIGHT - 2 - (HEIGHT - 4) * min(value / top, 1.0)
