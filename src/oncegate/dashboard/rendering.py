"""Templates to HTML. Everything that is shown is made visible and then escaped, from any author."""

from __future__ import annotations

import re
from math import floor
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup, escape

from oncegate.clock import Clock, from_wall_ms, utc_text
from oncegate.dashboard.fields import MASKED
from oncegate.dashboard.operators import Role
from oncegate.dashboard.sparklines import sparkline
from oncegate.model.durations import format_duration
from oncegate.model.escape import visible
from oncegate.model.timestamps import format_timestamp
from oncegate.sender.responses import without_excerpt

FOLDER: Final = Path(__file__).parent
_LONG: Final = re.compile(r"(?<![\w.:#&-])[1-9][0-9]{3,14}(?![\w.:;-])", re.ASCII)
_UNITS: Final = (("d", 86_400), ("h", 3_600), ("min", 60))


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
    environment.filters["moment"] = moment
    environment.filters["minute"] = lambda ms: f"{utc_text(ms)[:19].replace('T', ' ')} UTC"
    environment.globals["server_now"] = clock.wall_ms
    environment.filters["span"] = span
    environment.filters["answer"] = answer
    environment.filters["share"] = share
    environment.filters["took"] = lambda ms: f"{ms} ms" if ms < 10_000 else span(ms)
    environment.filters["later"] = later
    environment.filters["number"] = grouped
    environment.filters["duration"] = format_duration
    environment.filters["digits"] = with_digits
    environment.filters["count"] = lambda *given: with_digits(counted(*given))
    environment.filters["sentence"] = sentence
    environment.globals["sparkline"] = lambda *given, **named: Markup(sparkline(*given, **named))
    return environment


def harmless(value: Any) -> Any:
    """Makes text visible: no control, format or right-to-left character reaches a browser as such.

    Every expression in a template goes through here; text that our own code marked as HTML stays.
    """
    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(value) if not value.isprintable() else value
    return value


@pass_context
def answer(context: Context, text: str | None) -> str:
    """What a receiver said, for those who may see content; the others see its status alone."""
    may_see = context["visitor"].may(Role.OPERATOR)
    return text or "" if may_see else without_excerpt(text or "", MASKED)


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


def sentence(text: str) -> str:
    """Text with a capital; an address at its beginning stays as it is."""
    return text if "://" in text.partition(" ")[0] else text[:1].upper() + text[1:]


def share(part: float) -> str:
    """A part of a whole as a percentage; 100 % is said only where nothing is missing."""
    return "100 %" if part >= 1 else f"{floor(part * 1_000) / 10:.1f} %"


def moment(wall_ms: int) -> str:
    """A time of day, where the day is clear."""
    return f"{format_timestamp(from_wall_ms(wall_ms))[11:19]} UTC"


def span(milliseconds: float) -> str:
    """A length of time in its largest fitting unit: seconds to a minute, minutes to two hours."""
    seconds = int(milliseconds // 1000)
    for unit, size in _UNITS:
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s" if seconds < 60 else f"{(seconds + 30) // 60} min"


def later(milliseconds: int) -> str:
    """How long after the beginning something was, to the millisecond where that tells something."""
    size = abs(milliseconds)
    text = f"{size} ms" if size < 1_000 else f"{size / 1000:.3f} s" if size < 120_000 else span(size)
    return f"{'-' if milliseconds < 0 else '+'}{text}"


def grouped(number: int) -> Markup:
    """A number with its digits in groups of three, narrow spaces between them.

    Marked as HTML, because `harmless` spells such a space out in text that others wrote.
    """
    return Markup(f"{number:,}".replace(",", "&#8239;"))


def with_digits(text: str) -> Markup:
    """Text of ours with its long numbers grouped."""
    return Markup(_LONG.sub(lambda found: grouped(int(found[0])), str(escape(visible(text)))))


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number with its noun, as plain text."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def as_text(lines: list[str]) -> Markup:
    """Lines for a <pre>: each made visible by itself, so that line breaks stay."""
    return Markup("\n").join(escape(visible(line)) for line in lines)
