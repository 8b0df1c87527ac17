"""Reads recordings: line by line, with a limit on everything, and one clear sentence about what is wrong.

Must never trust a file: it may be cut off, of another version, made by a stranger, or no recording at
all. Nothing is played before the whole file was read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from oncegate.errors import BadRecording, BadTimestamp, ConfigError
from oncegate.model.surface import NAME_LENGTH_MAX
from oncegate.model.timestamps import parse_timestamp
from oncegate.recorder.recording import (
    ARRIVALS_MAX,
    LINE_BYTES_MAX,
    VERSION,
    AnswerLine,
    ArrivalLine,
    EndLine,
    Header,
    Line,
    Recording,
    SurfaceLine,
    decode_line,
)

FILE_BYTES_MAX: Final = 1024 * 1024 * 1024
OFFSET_MS_MAX: Final = int(timedelta(days=3660).total_seconds() * 1000)
CUT_OFF: Final = "ends without its last line: it was cut off, or is still being written"


class _AnyVersion(msgspec.Struct):
    line: str = ""
    version: object = None


def read_recordings(paths: Sequence[Path], *, partial: bool = False) -> Recording:
    """Reads files, and the *.jsonl files of folders, as one recording in order of time."""
    files = [file for path in paths for file in _files(path)]
    return merged([read_recording(file, partial=partial) for file in files])


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(path.glob("*.jsonl"))
    if not found:
        raise ConfigError(f"{path} is a folder without any *.jsonl file")
    return found


def read_recording(path: Path, *, partial: bool = False) -> Recording:
    """Reads one file. With `partial`, one that was cut off is taken up to its last whole line."""
    try:
        with path.open("rb") as file:
            return read_stream(file, str(path), partial=partial)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None


def read_stream(file: BinaryIO, name: str, *, partial: bool = False) -> Recording:
    """Reads a recording from an open file; `name` is what messages call it."""
    reading = _Reading(name, partial)
    for number, text in enumerate(_lines(file, name), start=1):
        if not reading.take(number, text):
            break
    return reading.end()


def _lines(file: BinaryIO, name: str) -> Iterator[bytes]:
    left = FILE_BYTES_MAX
    while text := file.readline(LINE_BYTES_MAX + 1):
        left -= len(text)
        if left < 0:
            raise BadRecording(f"{name} is larger than {FILE_BYTES_MAX >> 20} MiB; record shorter spans")
        yield text


class _Reading:
    def __init__(self, name: str, partial: bool) -> None:
        self._name = name
        self._partial = partial
        self._header: Header | None = None
        self._end: EndLine | None = None
        self._surfaces: dict[str, SurfaceLine] = {}
        self._arrivals: list[ArrivalLine] = []
        self._answers: dict[int, AnswerLine] = {}

    def take(self, number: int, text: bytes) -> bool:
        """Takes a line; False where the rest is not to be read."""
        where = f"{self._name}, line {number}"
        if len(text) > LINE_BYTES_MAX:
            raise BadRecording(f"{where} is longer than {LINE_BYTES_MAX >> 20} MiB; this is no recording")
        if number == 1:
            self._header = _header(where, text)
            return True
        if not text.endswith(b"\n"):
            if not self._partial:
                raise BadRecording(f"{where} {_CUT_LINE}")
            return False
        self._add(where, _decoded(where, text))
        return True

    def _add(self, where: str, line: Line) -> None:
        if self._end is not None or isinstance(line, Header):
            raise BadRecording(
                f"{where} stands after the end of the recording, or begins another; split the file"
            )
        if isinstance(line, EndLine):
            self._end = line
        elif isinstance(line, SurfaceLine):
            self._surfaces[_checked_name(where, line.name)] = line
        elif isinstance(line, AnswerLine):
            self._answers[line.of] = line
        else:
            self._arrivals.append(self._checked(where, line))

    def _checked(self, where: str, line: ArrivalLine) -> ArrivalLine:
        _checked_name(where, line.surface)
        if len(self._arrivals) >= ARRIVALS_MAX:
            raise BadRecording(f"{where}: more than {ARRIVALS_MAX} arrivals; record shorter spans")
        if line.n != len(self._arrivals) + 1:
            raise BadRecording(f"{where}: arrival {line.n} stands where {len(self._arrivals) + 1} should")
        if not -OFFSET_MS_MAX <= line.at_ms <= OFFSET_MS_MAX:
            raise BadRecording(f"{where}: at_ms is more than ten years away")
        # Copied: a view would keep the whole line in memory.
        return replace(line, payload=line.payload.copy()) if isinstance(line.payload, Raw) else line

    def end(self) -> Recording:
        """The recording, if that is what was read."""
        if self._header is None:
            raise BadRecording(f"{self._name} is empty; this is no recording")
        if self._end is None and not self._partial:
            raise BadRecording(f"{self._name} {CUT_OFF}; --partial plays what is there")
        if self._end is not None and self._end.arrivals != len(self._arrivals):
            raise BadRecording(
                f"{self._name} has {len(self._arrivals)} arrivals and says that it has "
                f"{self._end.arrivals}: lines were taken out or added"
            )
        left_out = 0 if self._end is None else self._end.left_out
        return Recording(
            self._header,
            tuple(self._arrivals),
            self._surfaces,
            self._answers,
            left_out,
            self._end is not None,
        )


_CUT_LINE: Final = "is cut off in the middle; --partial plays what stands before it"


def _header(where: str, text: bytes) -> Header:
    try:
        found = msgspec.json.decode(text, type=_AnyVersion)
    except (ValueError, RecursionError):
        raise BadRecording(f"{where}: this is not the first line of a recording") from None
    if found.line != "recording":
        raise BadRecording(f"{where}: this is not the first line of a recording")
    if found.version != VERSION:
        raise BadRecording(
            f"{where}: version {str(found.version)[:20]!r} is not known here, only {VERSION}; "
            "use the oncegate that made it, or a newer one"
        )
    header = _decoded(where, text)
    assert isinstance(header, Header)
    try:
        parse_timestamp(header.began_at)
    except BadTimestamp as error:
        raise BadRecording(f"{where}: began_at: {error}") from None
    return header


def _decoded(where: str, text: bytes) -> Line:
    try:
        return decode_line(text)
    except (ValueError, RecursionError) as error:
        told = str(error)[:120] if isinstance(error, msgspec.ValidationError) else "not a line of JSON"
        raise BadRecording(f"{where} cannot be read: {told}") from None


def _checked_name(where: str, name: str) -> str:
    if not 0 < len(name) <= NAME_LENGTH_MAX or not name.isprintable():
        raise BadRecording(f"{where}: {name[:40]!a} cannot be the name of a surface")
    return name


def began_ms(recording: Recording) -> int:
    """When the recording began, in milliseconds since 1970."""
    return int(parse_timestamp(recording.header.began_at).timestamp() * 1000)


def merged(recordings: Sequence[Recording]) -> Recording:
    """One recording of several that were made at the same time, with times from where the first began."""
    if len(recordings) == 1:
        return recordings[0]
    first = min(recordings, key=began_ms)
    start = began_ms(first)
    placed = [
        (began_ms(one) - start + arrival.at_ms, place, arrival)
        for place, one in enumerate(recordings)
        for arrival in one.arrivals
    ]
    placed.sort(key=lambda item: item[:2])
    arrivals, answers = [], {}
    for number, (at_ms, place, arrival) in enumerate(placed, start=1):
        arrivals.append(replace(arrival, n=number, at_ms=at_ms))
        if (answer := recordings[place].answers.get(arrival.n)) is not None:
            answers[number] = replace(answer, of=number)
    surfaces = {name: line for one in recordings for name, line in one.surfaces.items()}
    left_out = sum(one.left_out for one in recordings)
    is_whole = all(one.is_whole for one in recordings)
    return Recording(first.header, tuple(arrivals), surfaces, answers, left_out, is_whole)
