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

from oncegate.model.escape import visible

CELL_WIDTH_MAX: Final = 40  # on a terminal, so that one long label does not push the rest away
LAST_WIDTH_MIN: Final = 36  # of a table's last column, before columns that matter less are dropped
INDENT: Final = 4
# Columns that a narrow terminal does without, the least important first; `--json` has them all.
DROPPED_FIRST: Final = (
    "RECEIVED (UTC)", "KEY", "ATTEMPT", "FLAGGED (UTC)", "TENANT", "TARGET", "FENCE", "OTHER STATE", "AGE",
    "SEQ", "SURFACE",
)  # fmt: skip
_GAP: Final = "  "
_MORE: Final = "…"
# Numbers of a count; not those of a time, an address, a key or a version.
_LONG: Final = re.compile(r"(?<![\w.,:#/-])[1-9][0-9]{3,14}(?![\w.:/-]|,\d)", re.ASCII)


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


def grouped(text: object) -> str:
    """A count, or text of ours with counts in it, with the digits of long numbers in groups of three.

    Not for numbers that people copy into the next command: entries, lanes, sequence numbers.
    """
    return _LONG.sub(lambda found: f"{int(found[0]):,}", str(text))


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
    """Prints aligned columns; a column without any value is left out.

    On a terminal no line passes the edge: columns that matter least are dropped until there is room for the
    last one, which says why, and is always shown whole, on several lines if need be.
    """
    target = stream or sys.stdout
    used = [number for number in range(len(headers)) if any(row[number].text for row in rows)]
    edge = shutil.get_terminal_size().columns if target.isatty() else None
    lines = _lines(headers, rows, used, edge)
    while edge is not None and _room(lines, edge) < min(LAST_WIDTH_MIN, _widest(lines)):
        shown = [headers[number] for number in used[:-1]]
        least = next((name for name in DROPPED_FIRST if name in shown and _is_spare(name, shown)), None)
        if least is None:
            break
        used = [number for number in used if headers[number] != least]
        lines = _lines(headers, rows, used, edge)
    widths = [max(display_width(line[number].text) for line in lines) for number in range(len(used))]
    for line in lines:
        print(_joined(line, widths, edge, target), file=target)


def _is_spare(name: str, shown: Sequence[str]) -> bool:
    """A key is spare beside a label; where there is no label it is the name of the row."""
    return name != "KEY" or "LABEL" in shown


def _lines(
    headers: Sequence[str], rows: Sequence[Sequence[Cell]], used: Sequence[int], edge: int | None
) -> list[list[Cell]]:
    lines = [[Cell(headers[number], Colour.BOLD) for number in used]]
    lines += [[row[number] for number in used] for row in rows]
    if edge is None:
        return lines
    return [[*(_narrow(cell) for cell in line[:-1]), line[-1]] for line in lines]


def _room(lines: Sequence[Sequence[Cell]], edge: int) -> int:
    """How many columns are left for the last value."""
    columns = range(len(lines[0]) - 1)
    return edge - sum(
        max(display_width(line[number].text) for line in lines) + len(_GAP) for number in columns
    )


def _widest(lines: Sequence[Sequence[Cell]]) -> int:
    return max(display_width(line[-1].text) for line in lines)


def _narrow(cell: Cell) -> Cell:
    return Cell(shorten(cell.text, CELL_WIDTH_MAX), cell.colour)


def _joined(line: Sequence[Cell], widths: Sequence[int], edge: int | None, target: TextIO) -> str:
    padded = [
        paint(cell.text, cell.colour, target) + " " * (width - display_width(cell.text))
        for cell, width in zip(line[:-1], widths, strict=False)
    ]
    last, colour = line[-1].text, line[-1].colour
    indent = sum(width + len(_GAP) for width in widths[:-1])
    if edge is None or display_width(last) <= edge - indent:
        return _GAP.join([*padded, paint(last, colour, target)]).rstrip()
    if edge - indent < LAST_WIDTH_MIN:  # too narrow beside the rest: below it
        below = [" " * INDENT + paint(part, colour, target) for part in _wrapped(last, edge - INDENT)]
        return "\n".join([_GAP.join(padded).rstrip(), *below])
    first, *others = [paint(part, colour, target) for part in _wrapped(last, edge - indent)]
    return "\n".join([_GAP.join([*padded, first]), *(" " * indent + part for part in others)])


def _wrapped(text: str, width: int) -> list[str]:
    """A text in lines of at most a width, broken between words where that is possible."""
    lines, line = [], ""
    for word in text.split(" "):
        joined = f"{line} {word}" if line else word
        if display_width(joined) <= width:
            line = joined
            continue
        lines += [line] if line else []
        line = word
        while display_width(line) > width:
            part = shorten(line, width + 1).removesuffix(_MORE)
            lines.append(part)
            line = line[len(part) :]
    return [*lines, line] if line else lines


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
