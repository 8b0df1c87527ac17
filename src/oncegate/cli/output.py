"""What the commands print: data on stdout, talk on stderr, and nothing that could steer a terminal.

Stored text comes from senders and is not to be trusted: every character that does not simply show is
written as its escape. Colour is for terminals only, and never where NO_COLOR is set.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TextIO

from oncegate.model.visible import visible

CELL_WIDTH_MAX: Final = 40  # on a terminal, so that one long label does not push the rest away
_GAP: Final = "  "
_MORE: Final = "…"


class Colour(Enum):
    """The few colours in use, as terminal codes."""

    NONE = ""
    GREEN = "32"
    YELLOW = "33"
    RED = "31"
    DIM = "2"
    BOLD = "1"


def tell(message: str) -> None:
    """Prints talk: what a person wants to know and a program does not."""
    with suppress(OSError):  # nobody listens any more: the exit code still tells
        print(visible(message), file=sys.stderr, flush=True)


def complain(message: str) -> None:
    """Prints what went wrong, on one line."""
    tell(f"oncegate: {message}")


def paint(text: str, colour: Colour, stream: TextIO | None = None) -> str:
    """Colours a text if the stream is a terminal that may have colour."""
    if colour is Colour.NONE or not may_colour(stream or sys.stdout):
        return text
    return f"\x1b[{colour.value}m{text}\x1b[0m"


def may_colour(stream: TextIO) -> bool:
    """Tells whether a stream is a terminal whose user has not asked for plain text."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return not plain and stream.isatty()


def display_width(text: str) -> int:
    """How many columns a terminal gives the text."""
    return len(text) if text.isascii() else sum(_width_of(character) for character in text)


def _width_of(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def shorten(text: str, width_max: int) -> str:
    """Cuts a text to a width, showing that it was cut."""
    if display_width(text) <= width_max:
        return text
    taken, used = [], 1
    for character in text:
        used += _width_of(character)
        if used > width_max:
            break
        taken.append(character)
    return "".join(taken) + _MORE


@dataclass(frozen=True, slots=True)
class Cell:
    """One value of a table, already safe to show."""

    text: str
    colour: Colour = Colour.NONE

    @classmethod
    def of(cls, text: object, colour: Colour = Colour.NONE) -> Cell:
        """Makes a cell of any value; a line break must not break the table."""
        return cls(visible(str(text)), colour)


def print_table(
    headers: Sequence[str], rows: Sequence[Sequence[Cell]], stream: TextIO | None = None
) -> None:
    """Prints aligned columns; a column without any value is left out, a terminal's edge is kept."""
    target = stream or sys.stdout
    used = [number for number in range(len(headers)) if any(row[number].text for row in rows)]
    lines = [[Cell(headers[number], Colour.BOLD) for number in used]]
    lines += [[row[number] for number in used] for row in rows]
    edge = shutil.get_terminal_size().columns if target.isatty() else None
    if edge is not None:
        lines = [[*(_narrow(cell) for cell in line[:-1]), line[-1]] for line in lines]
    widths = [max(display_width(line[number].text) for line in lines) for number in range(len(used))]
    for line in lines:
        print(_joined(line, widths, edge, target), file=target)


def _narrow(cell: Cell) -> Cell:
    return Cell(shorten(cell.text, CELL_WIDTH_MAX), cell.colour)


def _joined(line: Sequence[Cell], widths: Sequence[int], edge: int | None, target: TextIO) -> str:
    padded = [
        paint(cell.text, cell.colour, target) + " " * (width - display_width(cell.text))
        for cell, width in zip(line[:-1], widths, strict=False)
    ]
    last = line[-1].text
    if edge is not None:
        room = edge - sum(width + len(_GAP) for width in widths[:-1])
        last = shorten(last, max(room, len(_MORE)))
    return _GAP.join([*padded, paint(last, line[-1].colour, target)]).rstrip()


def print_fields(fields: Sequence[tuple[str, Cell]]) -> None:
    """Prints names and values one below the other; a name without a value is left out."""
    shown = [(name, cell) for name, cell in fields if cell.text]
    width = max(len(name) for name, _ in shown)
    for name, cell in shown:
        print(f"{name:<{width}}{_GAP}{paint(cell.text, cell.colour)}")


def print_json(value: dict[str, Any]) -> None:
    """Prints one object on one line, in ASCII: JSON's own escapes keep it harmless."""
    import msgspec

    print(ascii_json(msgspec.json.encode(value)))


def ascii_json(body: bytes) -> str:
    """Rewrites JSON text so that it is plain ASCII; only inside strings can it have been anything else."""
    return _NOT_PLAIN.sub(_json_escape, body.decode("utf-8", "replace"))


_NOT_PLAIN: Final = re.compile(r"[^\x20-\x7e]")


def _json_escape(match: re.Match[str]) -> str:
    units = match.group().encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def stored_json(body: bytes | None) -> Any:
    """A stored JSON body as a value for `print_json`, numbers untouched; text if it is not JSON."""
    import msgspec

    if not body:
        return None
    try:
        return msgspec.Raw(msgspec.json.format(body, indent=-1))
    except msgspec.DecodeError:
        return body.decode("utf-8", "replace")


def pretty_json(body: bytes) -> list[str]:
    """A stored JSON body as lines for people."""
    import msgspec

    try:
        formatted = msgspec.json.format(body, indent=2)
    except msgspec.DecodeError:
        formatted = body
    return [visible(line) for line in formatted.decode("utf-8", "replace").split("\n")]


def utc(wall_ms: int | None) -> str:
    """A stored time as RFC 3339 in UTC; empty for none."""
    if wall_ms is None:
        return ""
    from oncegate.clock import from_wall_ms
    from oncegate.model.timestamps import format_timestamp

    try:
        return format_timestamp(from_wall_ms(wall_ms))
    except (ValueError, OverflowError, OSError):
        return f"(no time: {wall_ms})"


def age(milliseconds: int) -> str:
    """How long ago, in the largest fitting unit."""
    if milliseconds < 0:
        return "in the future"
    seconds = milliseconds // 1000
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
