"""The command line as a whole: help, versions, mistakes, interruptions, closed pipes."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncegate import __version__, open_store
from oncegate.cli import doctor
from oncegate.cli.exitcodes import EXIT_CODES
from oncegate.cli.main import COMMANDS
from oncegate.errors import OncegateError
from oncegate.testing.waiting import DEADLINE_SECONDS
from tests.cli.conftest import SCRIPT, clean_environment, reservation


def test_help_names_every_command_and_every_exit_code(script):
    """The help is the whole picture: purpose, commands, examples, exit codes."""
    ended = script("--help")
    assert ended.code == 0
    assert not ended.err
    assert "exactly once" in ended.out
    for name in COMMANDS:
        assert re.search(rf"^  {name} +\w", ended.out, re.MULTILINE)
    for code in EXIT_CODES:
        assert re.search(rf"^  {code} +\w", ended.out, re.MULTILINE)
    assert max(map(len, ended.out.splitlines())) <= 95


def test_help_loads_no_command_and_no_database():
    """Asking for help must be quick, so it imports neither commands nor stores."""
    code = "import sys, oncegate.cli.main as it; it.main(['--help']); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split())
    commands = {f"oncegate.cli.{name}" for name in COMMANDS}
    assert not loaded & (commands | {"sqlite3", "oncegate.stores.sqlite", "oncegate.demo", "unittest"})


def test_module_and_script_are_the_same(tmp_path):
    """`python -m oncegate` is `oncegate`."""
    command = [sys.executable, "-m", "oncegate", "--version"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == f"oncegate {__version__}\n"


def test_no_command_shows_the_help_as_a_mistake(call):
    """A script that forgot the command must not look successful."""
    ended = call()
    assert ended.code == 2
    assert not ended.out
    assert "usage: oncegate COMMAND" in ended.err


@pytest.mark.parametrize("words", [("help", "entries", "list"), ("entries", "list", "--help")])
def test_help_of_a_command_can_be_asked_for_both_ways(call, words):
    """`oncegate help X` is what many try first."""
    ended = call(*words)
    assert ended.code == 0
    assert ended.out.startswith("usage: oncegate entries list")


def test_group_without_command_shows_its_commands(call):
    """`oncegate entries` alone says what can follow."""
    ended = call("entries")
    assert ended.code == 2
    assert "list entries, newest first" in ended.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("entires",), "there is no command 'entires'; did you mean 'entries'?"),
        (("frobnicate",), "commands are demo, audit, bench"),
        (("--url", "sqlite:///x.db", "doctor"), "'--url' comes after a command"),
        (("doctor", "extra"), "'extra' is not known here; see: oncegate doctor --help"),
        (("entries", "list", "--stat", "held"), "'--stat' is not known here; see: oncegate entries list"),
        (("entries", "list", "--state", "hold"), "'hold' is not a state; states are in_flight, committed"),
        (("entries", "list", "--limit", "0"), "'0' is not a positive whole number"),
        (("entries", "list", "--limit", "10001"), "10001 is more than 10000"),
        (("held", "list", "--limit", "10001"), "10001 is more than 10000"),
        (("journal", "--limit", "10001"), "10001 is more than 10000"),
        (("entries", "list", "--before", "9" * 30), "is not a positive whole number"),
        (("entries", "list", "--key", "xyz"), "'xyz' is not the beginning of a key"),
        (("entries", "list", "--label", "\udcff"), "is not UTF-8"),
        (("entries", "show"), "required: KEY_OR_ID"),
        (("migrate", "--print", "--check"), "not allowed with argument"),
    ],
)
def test_mistakes_on_the_line_get_one_line_and_code_two(call, words, said):
    """A mistake is answered with what is wrong and where to look."""
    ended = call(*words)
    assert ended.code == 2
    assert said in ended.complaint


def test_hostile_words_are_not_echoed_raw(call):
    """What the user pasted cannot steer the terminal either."""
    complaint = call("\x1b[2J\u202e").complaint
    assert complaint.isprintable()


def test_debug_shows_the_traceback_before_the_line(call):
    """`--debug` works wherever it stands."""
    for words in (("--debug", "doctor", "--url", "x"), ("doctor", "--url", "x", "--debug")):
        ended = call(*words)
        assert ended.code == 2
        assert "Traceback" in ended.err
        assert ended.err.splitlines()[-1].startswith("oncegate: 'x' is not a ledger's address")


def test_unexpected_errors_are_one_line_and_code_seventy(call, monkeypatch):
    """A fault of ours is admitted in a line that says how to see more."""
    monkeypatch.setattr(doctor, "open_ledger", lambda *_, **__: 1 // 0)
    ended = call("doctor")
    assert ended.code == 70
    assert "unexpected ZeroDivisionError" in ended.complaint
    assert "--debug" in ended.complaint


@pytest.mark.slow
def test_interruption_is_one_line_and_code_130(ledger, tmp_path):
    """Control-C during a long listing ends it without a traceback."""
    process = _listing_many(ledger, tmp_path)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=DEADLINE_SECONDS)
    assert (process.returncode, said) == (130, "oncegate: interrupted\n")


@pytest.mark.slow
def test_closed_pipe_is_quiet(ledger, tmp_path):
    """`oncegate entries list | head` leaves nothing on the screen but the head."""
    process = _listing_many(ledger, tmp_path)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    said = process.stderr.read()
    process.stderr.close()
    assert (process.wait(DEADLINE_SECONDS), said) == (141, "")


def test_broken_connection_of_a_command_is_not_taken_for_a_closed_pipe(call, monkeypatch):
    """A command whose own peer went away must say so."""

    def lose_peer(*_, **__):
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(doctor, "open_ledger", lose_peer)
    ended = call("doctor")
    assert ended.code == 74
    assert "the system refused: Broken pipe" in ended.complaint


def _listing_many(ledger: Path, folder: Path) -> subprocess.Popen[str]:
    """A command in the middle of its output, which is more than a pipe holds."""
    _add_many(ledger)
    with _heeding_interrupts():
        process = subprocess.Popen(
            [SCRIPT, "entries", "list", "--json", "--limit", "10000"],
            cwd=folder, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.read(1) == "{"
    return process


@contextlib.contextmanager
def _heeding_interrupts() -> Iterator[None]:
    """As at a terminal: tests that a shell runs in the background would pass on that they are ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _add_many(ledger: Path) -> None:
    session = open_store(f"sqlite:///{ledger}").connect()
    with session.unit():
        session.reserve(
            [reservation(b"\xbb" + number.to_bytes(4, "big"), "many", 0) for number in range(1000)]
        )
    session.close()


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this platform has no /dev/full")  # noqa: PTH110
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_cannot_be_written_is_an_error(ledger, tmp_path, unbuffered):
    """A list that did not arrive must not look like one that did."""
    for words in (["entries", "list"], ["--help"]):
        with open("/dev/full", "w") as full:  # noqa: PTH123  a device, not a path of ours
            done = subprocess.run(
                [SCRIPT, *words], cwd=tmp_path, env=clean_environment(PYTHONUNBUFFERED=unbuffered),
                stdout=full, stderr=subprocess.PIPE, text=True, check=False,
            )  # fmt: skip
        assert (done.returncode, done.stderr) == (
            74,
            "oncegate: the system refused: No space left on device\n",
        )


def test_every_exit_code_is_documented():
    """docs/exit-codes.md lists every code of the error tree and of the command line."""
    document = (Path(__file__).parents[2] / "docs" / "exit-codes.md").read_text("utf-8")
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", document, re.MULTILINE)}
    assert documented == set(EXIT_CODES)
    assert {error.exit_code for error in _tree(OncegateError)} <= documented


def _tree(error: type[OncegateError]) -> list[type[OncegateError]]:
    return [error, *(below for child in error.__subclasses__() for below in _tree(child))]
