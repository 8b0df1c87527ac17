"""Curves as SVG, legible on light and dark pages: how a cost grows, over a logarithmic axis of sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import log10
from typing import Final

WIDTH: Final = 640  # pixels, as all of these
HEIGHT: Final = 260
LEFT: Final = 64
TOP: Final = 48
BOTTOM: Final = 40
RIGHT: Final = 130
_STYLE: Final = (
    "text{font:12px system-ui,sans-serif;fill:#222}.axis{stroke:#888;stroke-width:1}"
    ".grid{stroke:#ccc;stroke-width:.5}.a{stroke:#1a6fb5;fill:#1a6fb5}.b{stroke:#b5561a;fill:#b5561a}"
    "polyline{stroke-width:2}text.a,text.b{stroke:none}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}.grid{stroke:#444}.a{stroke:#5aa9e6;fill:#5aa9e6}"
    ".b{stroke:#e6a05a;fill:#e6a05a}}"
)

Points = Sequence[tuple[float, float]]


def curves_svg(title: str, across: str, series: Mapping[str, Points]) -> str:
    """Draws at most two curves from zero; sizes go across, in powers of ten."""
    every = [point for points in series.values() for point in points]
    sizes, top = sorted({size for size, _ in every}), max((value for _, value in every), default=1.0) or 1.0
    plot = _Plot(sizes[0], sizes[-1], top)
    curves = [
        plot.curve(name, points, kind) for (name, points), kind in zip(series.items(), "ab", strict=False)
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
            f"<title>{escape(title)}</title><style>{_STYLE}</style>",
            f'<text x="0" y="16" font-weight="bold">{escape(title)}</text>',
            *plot.axes(sizes, across),
            *curves,
            "</svg>\n",
        ]
    )


class _Plot:
    """Where a point lies."""

    def __init__(self, smallest: float, largest: float, top: float) -> None:
        self._from, self._decades = (
            log10(max(1, smallest)),
            max(0.1, log10(max(1, largest) / max(1, smallest))),
        )
        self._top = top * 1.1

    def x(self, size: float) -> float:
        """Across, by powers of ten."""
        return LEFT + (log10(max(1, size)) - self._from) / self._decades * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """Up, from zero."""
        return HEIGHT - BOTTOM - value / self._top * (HEIGHT - TOP - BOTTOM)

    def axes(self, sizes: Sequence[float], across: str) -> list[str]:
        """Lines and figures."""
        floor, right = HEIGHT - BOTTOM, WIDTH - RIGHT
        lines = [f'<line class="axis" x1="{LEFT}" y1="{floor}" x2="{right}" y2="{floor}"/>']
        lines += [
            f'<text x="{self.x(size):.1f}" y="{floor + 16}" text-anchor="middle">{_short(size)}</text>'
            for size in sizes
        ]
        for value in (self._top / 1.1 * part / 2 for part in (1, 2)):
            up = self.y(value)
            lines.append(f'<line class="grid" x1="{LEFT}" y1="{up:.1f}" x2="{right}" y2="{up:.1f}"/>')
            lines.append(f'<text x="{LEFT - 6}" y="{up + 4:.1f}" text-anchor="end">{_figure(value)}</text>')
        return [*lines, f'<text x="{right}" y="{floor + 32}" text-anchor="end">{escape(across)}</text>']

    def curve(self, name: str, points: Points, kind: str) -> str:
        """One line with its dots, and its name in its colour."""
        places = [(self.x(size), self.y(value)) for size, value in sorted(points)]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        dots = "".join(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in places)
        row = TOP + 16 * (ord(kind) - ord("a"))
        label = f'<text class="{kind}" x="{WIDTH - RIGHT + 16}" y="{row}">{escape(name)}</text>'
        return f'<polyline class="{kind}" style="fill:none" points="{line}"/>{dots}{label}'


def _short(size: float) -> str:
    for step, letter in ((1_000_000, "M"), (1_000, "k")):
        if size >= step:
            return f"{size / step:g}{letter}"
    return f"{size:g}"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
