"""Reading recordings that somebody else made, cut or broke: one clear line, never anything played."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from oncegate.errors import BadRecording, ConfigError
from oncegate.recorder.reading import read_recording, read_recordings
from oncegate.recorder.recording import LINE_BYTES_MAX
from tests.support.properties import tried

bounded = tried(80, suppress_health_check=list(HealthCheck))
HEADER = '{"line":"recording","version":1,"began_at":"2026-03-02T06:00:00Z"}\n'
ARRIVAL = (
    '{"line":"arrival","n":%d,"at_ms":%d,"surface":"s","event":"e%d","content":"c","payload":{"id":1}}\n'
)
END = '{"line":"end","arrivals":%d}\n'
WHOLE = HEADER + ARRIVAL % (1, 0, 1) + ARRIVAL % (2, 5, 1) + END % 2

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def made(text: str) -> Path:
        path = tmp_path / "r.jsonl"
        path.write_text(text)
        return path

    return made


def test_a_whole_recording_is_read(write: Write) -> None:
    found = read_recording(write(WHOLE))
    assert [one.at_ms for one in found.arrivals] == [0, 5]
    assert found.is_whole


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is empty"),
        ("\n", "line 1: this is not the first line of a recording"),
        ("PK\x03\x04", "line 1: this is not the first line"),
        ('{"line":"arrival"}\n', "line 1: this is not the first line"),
        (HEADER.replace('"version":1', '"version":2'), "version '2' is not known here, only 1"),
        (HEADER.replace('"version":1', '"version":"1"'), "version '1' is not known"),
        (HEADER.replace("06:00:00Z", "06:00:00"), "began_at"),
        (HEADER, "ends without its last line"),
        (HEADER + ARRIVAL % (1, 0, 1), "ends without its last line"),
        (WHOLE[:-60], "line 3 is cut off in the middle"),
        (HEADER + "nonsense\n", "line 2 cannot be read: not a line of JSON"),
        (HEADER + '{"line":"arival"}\n', "line 2 cannot be read: Invalid value 'arival'"),
        (HEADER + '{"line":"arrival","n":"1"}\n', "line 2 cannot be read: Expected `int`"),
        (HEADER + ARRIVAL.replace('"at_ms"', '"hmac":"","at_ms"') % (1, 0, 1), "unknown field `hmac`"),
        (HEADER + ARRIVAL % (2, 0, 1), "arrival 2 stands where 1 should"),
        (HEADER + ARRIVAL % (1, 10**15, 1), "more than ten years"),
        (HEADER + ARRIVAL.replace('"s"', '"\\u001b[2J"') % (1, 0, 1), "cannot be the name of a surface"),
        (WHOLE.replace('"arrivals":2', '"arrivals":3'), "has 2 arrivals and says that it has 3"),
        (WHOLE + ARRIVAL % (3, 9, 3), "line 5 stands after the end"),
        (WHOLE + WHOLE, "line 5 stands after the end"),
        (HEADER + '{"line":"end","arrivals":' + "[" * 100_000 + "\n", "line 2 cannot be read"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_in_one_line_with_its_place(write: Write, text: str, told: str) -> None:
    with pytest.raises(BadRecording) as raised:
        read_recording(write(text))
    assert told in str(raised.value)
    assert "\n" not in str(raised.value)
    assert raised.value.exit_code == 4


def test_a_huge_line_is_refused_without_reading_it_all(tmp_path: Path) -> None:
    """Given a file of one endless line, when it is read, then no more than the limit is taken in."""
    path = tmp_path / "huge"
    with path.open("wb") as file:
        file.write(HEADER.encode())
        file.seek(LINE_BYTES_MAX * 40, 1)
        file.write(b"x")
    with pytest.raises(BadRecording, match="line 2 is longer than 8 MiB"):
        read_recording(path)


def test_a_file_that_is_not_there_or_is_a_folder_without_recordings(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_recording(tmp_path / "none")
    with pytest.raises(ConfigError, match="without any"):
        read_recordings([tmp_path])


@pytest.mark.parametrize("cut", range(1, len(WHOLE) - len(HEADER), 17))
def test_a_cut_recording_is_taken_up_to_its_last_whole_line_if_asked_for(write: Write, cut: int) -> None:
    """Wherever it was cut, nothing half is played, and it does not pass for whole."""
    path = write(WHOLE[:-cut])
    with pytest.raises(BadRecording, match="--partial"):
        read_recording(path)
    found = read_recording(path, partial=True)
    assert not found.is_whole
    assert all(one.decoded() == {"id": 1} for one in found.arrivals)


@bounded
@given(st.binary(max_size=300), st.integers(0, len(WHOLE)))
def test_no_bytes_whatever_raise_anything_else(tmp_path: Path, noise: bytes, at: int) -> None:
    path = tmp_path / "noise"
    path.write_bytes(WHOLE.encode()[:at] + noise + WHOLE.encode()[at:])
    with suppress(BadRecording):
        read_recording(path)


def test_recordings_of_several_processes_are_one_in_order_of_time(tmp_path: Path) -> None:
    later = HEADER.replace("06:00:00Z", "06:00:00.003Z")
    (tmp_path / "a.jsonl").write_text(WHOLE)
    answer = '{"line":"answer","of":1,"verdict":"run"}\n'
    (tmp_path / "b.jsonl").write_text(later + ARRIVAL % (1, 0, 9) + answer + END % 1)
    found = read_recordings([tmp_path])
    assert [(one.n, one.at_ms, one.event) for one in found.arrivals] == [
        (1, 0, "e1"),
        (2, 3, "e9"),
        (3, 5, "e1"),
    ]
    assert {of: one.verdict for of, one in found.answers.items()} == {2: "run"}
