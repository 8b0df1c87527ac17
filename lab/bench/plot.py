"""A measurement as a picture: bars of events a second, as SVG that is legible on light and dark pages.

Written by `oncegate bench postgres --plot FILE`. Knows only the document that the bench returns.
"""

from __future__ import annotations

from html import escape
from typing import Any, Final

BAR: Final = 18  # pixels, as all of these
GAP: Final = 8
LABELS: Final = 300
BARS: Final = 380
WIDTH: Final = LABELS + BARS + 90
_STYLE: Final = (
    "text{font:13px system-ui,sans-serif;fill:#222}.own{fill:#1a6fb5}.other{fill:#9a9a9a}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}.own{fill:#5aa9e6}.other{fill:#777}}"
)

Bar = tuple[str, float, bool]  # what, events a second, whether it is ours


def bars_of(document: dict[str, Any]) -> list[Bar]:
    """What is drawn of a document, in its order."""
    found: list[Bar] = [(name, item["rate"], False) for name, item in document["pgbench"].items()]
    found += [
        (f"asyncpg, {item['name']}, {item['concurrency']} at once", item["rate"], False)
        for item in document["asyncpg"]
    ]
    found += [
        (f"gate, {item['name']}, {item['concurrency']} at once", item["rate"], True)
        for item in document["gate"]
    ]
    return found + [(f"gate, {name}", run["rate"], True) for name, run in document["processes"].items()]


def as_svg(title: str, bars: list[Bar]) -> str:
    """Draws bars, the longest over the whole width."""
    longest = max((rate for _, rate, _ in bars), default=1.0) or 1.0
    height = 40 + len(bars) * (BAR + GAP)
    rows = [_row(place, bar, longest) for place, bar in enumerate(bars)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
            f"<title>{escape(title)}</title><style>{_STYLE}</style>",
            f'<text x="0" y="16" font-weight="bold">{escape(title)}</text>',
            *rows,
            "</svg>\n",
        ]
    )


def _row(place: int, bar: Bar, longest: float) -> str:
    name, rate, own = bar
    top = 32 + place * (BAR + GAP)
    width = max(1.0, rate / longest * BARS)
    kind = "own" if own else "other"
    return (
        f'<text x="{LABELS - 10}" y="{top + 13}" text-anchor="end">{escape(name)}</text>'
        f'<rect class="{kind}" x="{LABELS}" y="{top}" width="{width:.1f}" height="{BAR}" rx="2"/>'
        f'<text x="{LABELS + width + 6:.1f}" y="{top + 13}">{rate:,.0f}</text>'
    )
