"""Sources of one timeline that disagree on time, side by side: aligned by id, clocks compared. Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any, Final

import msgspec
from msgspec import Struct

from oncegate.errors import BadTimestamp, ConfigError
from oncegate.model.timestamps import parse_timestamp, to_utc

SOURCES_MAX: Final = 3
ROWS_MAX: Final = 1_000_000
ID_FIELDS: Final = ("id", "event_id", "message_id", "delivery_id", "webhook_id")
TIME_FIELDS: Final = ("time", "at", "timestamp", "sent_at", "delivered_at", "created_at", "created")
FAR: Final = 5  # times the usual spread


class SourceLog(Struct, frozen=True):
    """What one source says: when each id was seen, in its own clock; and how often an id comes again."""

    name: str
    times: dict[str, int]
    repeats: int = 0


class ClockOffset(Struct, frozen=True):
    """How far a source's clock is ahead of the first source's, from ids that both have."""

    name: str
    offset_ms: int
    spread_ms: int  # half of the differences are within this
    shared: int


class TimelineRow(Struct, frozen=True):
    """One id: its time in each source as it is written, corrected by the offset, and what stands out."""

    id: str
    times: tuple[int | None, ...]
    corrected: tuple[int | None, ...]
    remark: str


class Comparison(Struct, frozen=True):
    """Sources side by side, by the corrected time of the first that has the id."""

    sources: tuple[SourceLog, ...]
    offsets: tuple[ClockOffset, ...]
    rows: tuple[TimelineRow, ...]


def compare(sources: Sequence[SourceLog]) -> Comparison:
    """Aligns sources by id; the first one's clock is the measure."""
    if not 2 <= len(sources) <= SOURCES_MAX:
        raise ConfigError(f"compare two or three sources, not {len(sources)}")
    offsets = tuple(_offset(sources[0], one) for one in sources)
    ids = dict.fromkeys(name for one in sources for name in one.times)
    rows = [_row(name, sources, offsets) for name in ids]
    rows.sort(key=lambda row: (min(at for at in row.corrected if at is not None), row.id))
    return Comparison(tuple(sources), offsets, tuple(rows))


def _offset(first: SourceLog, other: SourceLog) -> ClockOffset:
    gaps = [at - first.times[name] for name, at in other.times.items() if name in first.times]
    if not gaps:
        return ClockOffset(other.name, 0, 0, 0)
    middle = median(gaps)
    return ClockOffset(other.name, round(middle), round(median(abs(g - middle) for g in gaps)), len(gaps))


def _row(name: str, sources: Sequence[SourceLog], offsets: Sequence[ClockOffset]) -> TimelineRow:
    times = tuple(one.times.get(name) for one in sources)
    corrected = tuple(
        None if at is None else at - one.offset_ms for at, one in zip(times, offsets, strict=True)
    )
    known = [at for at in corrected if at is not None]
    missing = [one.name for one, at in zip(sources, times, strict=True) if at is None]
    usual = max(one.spread_ms for one in offsets)
    remarks = [f"not in {', '.join(missing)}"] if missing else []
    if max(known) - min(known) > FAR * max(usual, 1):
        remarks.append(f"{(max(known) - min(known)) / 1000:g} s apart after correction")
    return TimelineRow(name, times, corrected, "; ".join(remarks))


def read_source(
    name: str, text: str, id_field: str | None = None, time_field: str | None = None
) -> SourceLog:
    """Reads a provider's log: CSV with a header, or one JSON object a line."""
    lines = text.lstrip("\ufeff \r\n")
    rows: Iterable[Mapping[str, Any]]
    if lines.startswith("{"):
        rows = (
            _object(name, number, line) for number, line in enumerate(lines.splitlines(), 1) if line.strip()
        )
    else:
        rows = csv.DictReader(io.StringIO(lines))
    times: dict[str, int] = {}
    repeats = 0
    for number, row in enumerate(rows, 1):
        if number > ROWS_MAX:
            raise ConfigError(f"{name}: more than {ROWS_MAX} rows; cut the file to the time in question")
        one = str(_field(name, number, row, id_field, ID_FIELDS))
        at = _moment(name, number, _field(name, number, row, time_field, TIME_FIELDS))
        repeats += one in times
        times[one] = min(at, times.get(one, at))
    if not times:
        raise ConfigError(f"{name}: no row was found; give CSV with a header, or one JSON object a line")
    return SourceLog(name, times, repeats)


def _object(name: str, number: int, line: str) -> Mapping[str, Any]:
    try:
        found = msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{name}, line {number}: not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{name}, line {number}: not a JSON object")
    return found


def _field(name: str, number: int, row: Mapping[str, Any], given: str | None, usual: Sequence[str]) -> Any:
    for field in (given,) if given else usual:
        if row.get(field) not in (None, ""):
            return row[field]
    among = ", ".join(str(one) for one in row)[:100]
    raise ConfigError(f"{name}, row {number}: no {given or ' or '.join(usual[:3])}; its fields are {among}")


def _moment(name: str, number: int, value: Any) -> int:
    """Milliseconds since 1970, from RFC 3339 or from seconds or milliseconds since 1970."""
    try:
        if isinstance(value, (int, float)) or str(value).replace(".", "", 1).isdigit():
            given = float(value)
            return round(given if given > 1e11 else given * 1000)
        return round(to_utc(parse_timestamp(value)).timestamp() * 1000)
    except (BadTimestamp, ValueError, OverflowError) as error:
        raise ConfigError(f"{name}, row {number}: {str(value)[:40]!r} is no time: {error}") from None
