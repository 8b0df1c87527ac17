"""Templates to HTML. Everything that is shown is escaped, and made visible first, whoever wrote it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from oncegate.clock import Clock, from_wall_ms
from oncegate.dashboard.sparklines import sparkline
from oncegate.model.timestamps import format_timestamp
from oncegate.model.visible import visible

FOLDER: Final = Path(__file__).parent
_UNITS: Final = (("d", 86_400), ("h", 3_600), ("m", 60))


def make_environment(clock: Clock) -> Environment:
    """The templates with their filters. An undefined name is an error, not an empty text."""
    environment = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=harmless,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["when"] = lambda ms: when(ms, clock.wall_ms())
    environment.filters["span"] = span
    environment.filters["later"] = later
    environment.filters["number"] = lambda value: f"{value:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")
    environment.filters["count"] = counted
    environment.filters["sentence"] = lambda text: text[:1].upper() + text[1:]
    environment.globals["sparkline"] = lambda *given, **named: Markup(sparkline(*given, **named))
    return environment


def harmless(value: Any) -> Any:
    """Makes text visible: no control, format or right-to-left character reaches a browser as such.

    Every expression in a template goes through here; text that our own code marked as HTML stays.
    """
    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(value) if not value.isprintable() else value
    return value


def when(wall_ms: int | None, now_ms: int) -> Markup | str:
    """A moment: how long ago, with UTC beside it; the script adds local time."""
    if wall_ms is None:
        return ""
    try:
        utc = format_timestamp(from_wall_ms(wall_ms))
    except (ValueError, OverflowError, OSError):
        return f"(no time: {wall_ms})"
    ago = f"{span(now_ms - wall_ms)} ago" if now_ms >= wall_ms else f"in {span(wall_ms - now_ms)}"
    shown = f"{utc[:10]} {utc[11:19]} UTC"
    return Markup(
        '<time datetime="{utc}" title="{shown}" data-ms="{ms}" data-utc="{shown}">{ago}</time>'
    ).format(utc=utc, shown=shown, ms=wall_ms, ago=ago)


def span(milliseconds: float) -> str:
    """A length of time in its largest fitting unit."""
    seconds = int(milliseconds // 1000)
    for unit, size in _UNITS:
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def later(milliseconds: int) -> str:
    """How long after the beginning something was, to the millisecond where that tells something."""
    size = abs(milliseconds)
    text = f"{size} ms" if size < 1_000 else f"{size / 1000:.3f} s" if size < 120_000 else span(size)
    return f"{'-' if milliseconds < 0 else '+'}{text}"


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number with its noun."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def as_text(lines: list[str]) -> Markup:
    """Lines for a <pre>: each made visible by itself, so that line breaks stay."""
    return Markup("\n").join(escape(visible(line)) for line in lines)
