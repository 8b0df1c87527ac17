"""What is printed cannot steer a terminal, lines up, and is plain where it must be plain."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncegate.cli.output import (
    Cell,
    Colour,
    age,
    ascii_json,
    display_width,
    paint,
    print_json,
    print_table,
    shorten,
    stored_json,
    utc,
)
from oncegate.model.escape import visible
from oncegate.testing.waiting import DEADLINE_SECONDS
from tests.cli.conftest import SCRIPT, clean_environment

DANGEROUS = {"Cc", "Cf", "Cs", "Zl", "Zp"}


@given(st.text())
def test_visible_text_has_no_character_that_steers(text):
    """Controls, formats, overrides and line breaks never get through, whatever the text."""
    assert not {unicodedata.category(character) for character in visible(text)} & DANGEROUS


@given(st.text(st.characters(categories=["L", "N", "P", "S"])))
def test_ordinary_text_is_shown_as_it_is(text):
    """What simply shows is left alone, in any script."""
    assert visible(text) == text


@given(st.dictionaries(st.text(), st.text()))
def test_json_is_plain_ascii_and_means_the_same(value):
    """Escaping for terminals does not change what a program reads."""
    text = ascii_json(json.dumps(value, ensure_ascii=False).encode())
    assert text.isascii()
    assert text.isprintable()
    assert json.loads(text) == value


def test_json_keeps_meaning_numbers_and_harmlessness(capsys):
    """A stored document is embedded digit by digit, and only its dangerous characters are rewritten."""
    body = '{"n": 12345678901234567890.10, "t": "\x7f\u202e😀\\u001b"}'.encode()
    print_json({"outcome": stored_json(body)})
    line = capsys.readouterr().out
    assert line == '{"outcome":{"n":12345678901234567890.10,"t":"\\u007f\\u202e\\ud83d\\ude00\\u001b"}}\n'
    assert json.loads(line)["outcome"]["t"] == "\x7f\u202e😀\x1b"


def test_stored_bytes_that_are_not_json_are_shown_as_text():
    """A damaged body is no reason to show nothing."""
    assert stored_json(b"not json \xff") == "not json \ufffd"
    assert stored_json(None) is None


@given(st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"])), st.integers(1, 20))
def test_shortened_text_fits(text, width):
    """A cut text is never wider than its room, wide characters included."""
    assert display_width(shorten(text, width)) <= width


def test_columns_line_up_and_empty_ones_are_left_out():
    """Wide characters take two columns, and a column nobody uses takes none."""
    stream = io.StringIO()
    rows = [
        [Cell.of("日本"), Cell.of(""), Cell.of("x")],
        [Cell.of("a"), Cell.of(""), Cell.of("line\nbreak")],
    ]
    print_table(("NAME", "EMPTY", "LAST"), rows, stream)
    assert stream.getvalue() == "NAME  LAST\n日本  x\na     line\\nbreak\n"


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [
        (-1, "in the future"),
        (0, "0s"),
        (119_999, "119s"),
        (120_000, "2m"),
        (7_200_000, "2h"),
        (172_800_000, "2d"),
    ],
)
def test_ages_are_short(milliseconds, shown):
    """An age is read at a glance."""
    assert age(milliseconds) == shown


def test_times_are_utc_and_impossible_ones_do_not_end_the_list():
    """A damaged time is shown as the number it is."""
    assert utc(1_780_000_000_123) == "2026-05-28T20:26:40.123Z"
    assert utc(10**18) == "(no time: 1000000000000000000)"
    assert not utc(None)


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colour_is_for_terminals_that_want_it(monkeypatch):
    """No colour into files, none with NO_COLOR, none on a dumb terminal."""
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    assert paint("x", Colour.RED, _Terminal()) == "\x1b[31mx\x1b[0m"
    assert paint("x", Colour.RED, io.StringIO()) == "x"
    monkeypatch.setenv("TERM", "dumb")
    assert paint("x", Colour.RED, _Terminal()) == "x"
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert paint("x", Colour.RED, _Terminal()) == "x"


ENTRY_HEADERS = ("ID", "KEY", "SURFACE", "TENANT", "LABEL", "STATE", "ATTEMPT", "RECEIVED (UTC)", "AGE")
WHY = "skew: its own time is 61 minutes before ours; the clock of the sender went back at 03:00"


@pytest.mark.parametrize("edge", [60, 80, 100, 240])
def test_a_narrow_terminal_drops_columns_and_keeps_the_reason_whole(edge, monkeypatch):
    """The reason is what a person needs: it is last, and never cut."""
    monkeypatch.setenv("COLUMNS", str(edge))
    values = ("12345", "3f9ac2d4e5b6", "portbase.cis", "acme", "MSKU-0001", "quarantined", "1")
    row = [Cell.of(value) for value in (*values, "2026-05-28 20:26:40", "2h", WHY)]
    terminal = _Terminal()
    print_table((*ENTRY_HEADERS, "REASON"), [row], terminal)
    plain = re.sub(r"\x1b\[\d*m", "", terminal.getvalue())
    assert max(map(display_width, plain.splitlines())) <= edge
    assert WHY in " ".join(plain.split())
    assert all(name in plain for name in ("12345", "MSKU-0001", "quarantined"))
    assert ("RECEIVED (UTC)" in plain) == (edge == 240)
    assert ("KEY" in plain) == (edge == 240)


def test_a_reason_without_spaces_is_whole_too(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    terminal = _Terminal()
    print_table(("ID", "REASON"), [[Cell.of("1"), Cell.of("x" * 100)]], terminal)
    assert re.sub(r"\x1b\[\d*m|\s", "", terminal.getvalue()) == "IDREASON1" + "x" * 100


@pytest.mark.slow
@pytest.mark.parametrize(("no_colour", "coloured"), [("", True), ("1", False)])
def test_terminal_gets_colour_and_its_own_width(ledger, tmp_path, no_colour, coloured):
    """On a real terminal lines end at the edge and states have colour, unless NO_COLOR says no."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [SCRIPT, "entries", "list"], cwd=tmp_path, stdin=slave, stdout=slave, stderr=slave,
        env=clean_environment(NO_COLOR=no_colour, COLUMNS="100", TERM="xterm"),
    )  # fmt: skip
    os.close(slave)
    shown = _read_all(master)
    assert process.wait(DEADLINE_SECONDS) == 0
    assert ("\x1b[32mcommitted\x1b[0m" in shown) is coloured
    plain = shown.replace("\x1b[32m", "").replace("\x1b[0m", "")
    assert "\x1b]0" not in plain
    lines = re.sub(r"\x1b\[\d*m|\r", "", plain).split("\n")
    assert max(map(display_width, lines)) <= 100
    assert "key_input: missing: id: the event" in " ".join(plain.split())


def _read_all(descriptor: int) -> str:
    chunks: list[bytes] = []
    while True:
        try:
            chunk = os.read(descriptor, 65536)
        except OSError:  # how Linux says that the other end is closed
            chunk = b""
        if not chunk:
            os.close(descriptor)
            return b"".join(chunks).decode()
        chunks.append(chunk)


@pytest.mark.slow
def test_output_without_unicode_shows_escapes_instead_of_failing(ledger, script):
    """An old terminal gets escapes, not an error."""
    ended = script("entries", "show", "8", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert ended.code == 0
    assert "\\u3053" in ended.out
