"""The start of the command line: finds the command, runs it, turns every end into an exit code.

Commands are imported only when they are called, so that the help is there at once. Must never show a
traceback unless `--debug` asks for it.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from oncegate.cli.exitcodes import EXIT_CODES, INTERRUPTED, OUTPUT_CLOSED, SYSTEM_REFUSED, UNEXPECTED
from oncegate.cli.moved import refuse_moved
from oncegate.cli.output import complain
from oncegate.cli.parser import CommandParser, print_help_as_error
from oncegate.errors import ConfigError, OncegateError
from oncegate.model.escape import visible
from oncegate.model.ledger_addresses import masked_text


@dataclass(frozen=True, slots=True)
class Command:
    """A command as the help lists it; its module is imported when it is called."""

    name: str
    summary: str

    @property
    def module(self) -> Any:
        """The module that has the command's `add_parser`."""
        name = self.name.replace("-", "_")
        return importlib.import_module(f"oncegate.cli.{name}{'_' if name == 'import' else ''}")


GROUPS: Final[dict[str, tuple[Command, ...]]] = {
    "See it work": (
        Command("demo", "run the Monday storm without the gate and with it, and compare"),
        Command("audit", "find handlers that do their work twice, by reading code"),
        Command("bench", "measure the gate beside a plain baseline on this machine"),
        Command("record", "write down arrivals without personal data, to be replayed"),
        Command("replay", "play recorded arrivals to a handler or a URL"),
        Command("completion", "print a script that completes commands in a shell"),
    ),
    "Run the service and the worker": (
        Command("dev", "run the service, its page and sample events on this machine"),
        Command("serve", "run the service: webhooks in, the contract, the feed"),
        Command("worker", "do all background work in one process, until stopped"),
        Command("config", "check the service's settings, or show where each came from"),
        Command("partners", "say who may call the service"),
        Command("send", "send an event to a webhook handler several times at once"),
    ),
    "Receive from queues": (
        Command("sources", "list, check, pause and resume the queues that events come from"),
    ),
    "Look after a ledger": (
        Command("migrate", "create a ledger, or bring an older one up to date"),
        Command("migrate-ledger", "move a whole ledger from SQLite to PostgreSQL"),
        Command("reshard", "give a sharded ledger more shards or fewer"),
        Command("import", "bring old keys, so that their next arrival is a replay"),
        Command("doctor", "check the store, its durability, its clock and what is stranded"),
        Command("entries", "list what the gate has seen, or show one entry with its history"),
        Command("trace", "show an event's whole journey across surfaces and endpoints"),
        Command("circuits", "see which downstreams and endpoints are down and rest"),
        Command("signals", "show what is measured and what calls a person"),
        Command("observe", "see what the gate would have done before it is switched on"),
        Command("surfaces", "see what events are recognised by; accept a change of it"),
        Command("prune", "forget old entries that are settled"),
        Command("reconcile", "finish what crashes stranded, or list it"),
        Command("duplicates", "find the same change wanted twice under different keys"),
        Command("resources", "list second resources of one key or one target"),
    ),
    "Decide what waits for you": (
        Command("held", "list, show, approve or reject what waits for a person"),
        Command("restored", "decide what a ledger that went back in time has lost"),
        Command("quarantine", "list, show, release or discard what was not run as it stands"),
        Command("page", "serve the operations page: see and decide in a browser"),
        Command("operators", "say who may use the operations page"),
        Command("journal", "show who did what, when and why; seal, verify and prove it"),
        Command("timeline", "lay sources that disagree on time side by side"),
        Command("erase", "remove what entries say of a person; keys stay"),
    ),
    "Prove and go back": (
        Command("snapshots", "take, list, compare and verify snapshots of what is believed"),
        Command("rollback", "plan, approve and apply the way back to a snapshot"),
    ),
    "Send events in order": (
        Command("endpoints", "add, list, test, pause and resume the places events are sent to"),
        Command("events", "send a published event once more"),
        Command("lanes", "see which keys flow, wait or are blocked, and why"),
        Command("dead-letters", "list what was given up; retry, skip or replay it, in order"),
    ),
}
COMMANDS: Final = {command.name: command for group in GROUPS.values() for command in group}

_DESCRIPTION: Final = """\
oncegate makes effects happen exactly once, on top of events that arrive at least once.
Its ledger remembers every event by its key: what was done about it, and what still waits."""

_OPTIONS: Final = (
    ("--url URL", "the ledger, after a command (else ONCEGATE_URL, oncegate.toml, oncegate.db)"),
    ("--json", "output for programs, after a command that has any"),
    ("--debug", "show the traceback of an error"),
    ("--version", "show the version"),
    ("-h, --help", "show this; after a command, show that command's help"),
)

_NAME_WIDTH: Final = max(map(len, [*COMMANDS, *(name for name, _ in _OPTIONS)]))

_EXAMPLES: Final = """\
  oncegate demo
  oncegate migrate --url sqlite:////var/lib/orders/oncegate.db
  oncegate held list
  oncegate entries show 3f9ac2"""


class _RootParser(CommandParser):
    """The parser above the commands, with a help of its own."""

    def format_help(self) -> str:
        """The whole picture: what it is, the commands by purpose, examples, exit codes."""
        blocks = ["usage: oncegate COMMAND [options]", _DESCRIPTION]
        for title, commands in GROUPS.items():
            blocks.append(_block(title, [(command.name, command.summary) for command in commands]))
        blocks.append(_block("Options", _OPTIONS))
        blocks.append(f"Examples:\n{_EXAMPLES}")
        blocks.append(_block("Exit codes", [(str(code), text) for code, text in EXIT_CODES.items()]))
        return "\n\n".join(blocks) + "\n"


def _block(title: str, rows: Sequence[tuple[str, str]]) -> str:
    return "\n".join([f"{title}:", *(f"  {name:<{_NAME_WIDTH}}  {text}" for name, text in rows)])


def main(argv: list[str] | None = None) -> int:
    """Runs one command and returns its exit code; never raises."""
    words = list(sys.argv[1:] if argv is None else argv)
    _prepare_streams()
    try:
        code = _run(words)
        sys.stdout.flush()
    except BrokenPipeError as error:
        return _stop_printing() if _is_output_closed() else _refused_by_system(words, error)
    except KeyboardInterrupt:
        complain("interrupted")
        return INTERRUPTED
    except OncegateError as error:
        _show_trace(words, error)
        complain(str(error) or type(error).__name__)
        return error.exit_code
    except OSError as error:
        return _refused_by_system(words, error)
    except Exception as error:  # noqa: BLE001  whatever it is, the user gets a line and not a traceback
        return _unexpected(words, error)
    return code


def _run(words: list[str]) -> int:
    refuse_moved(words)
    command = _chosen(words)
    parser = build_parser([command] if command else [])
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    try:
        arguments, unknown = parser.parse_known_args(words)
        if unknown:
            arguments.parser.error(f"{masked_text(unknown[0])[:60]!r} is not known here")
    except SystemExit as ended:
        return int(ended.code or 0)
    return int(arguments.run(arguments)) if command else print_help_as_error(arguments)


def build_parser(loaded: Sequence[Command]) -> CommandParser:
    """Makes the parser; only the commands in `loaded` are imported and have their options."""
    parser = _RootParser(prog="oncegate")
    parser.add_argument("--version", action="version", version=f"oncegate {_version()}")
    subparsers = parser.add_subparsers(metavar="COMMAND", parser_class=CommandParser)
    for command in COMMANDS.values():
        if command in loaded:
            command.module.add_parser(subparsers)
        else:
            subparsers.add_parser(command.name, help=command.summary, add_help=False)
    return parser


def _version() -> str:
    from oncegate import __version__

    return __version__


def _chosen(words: list[str]) -> Command | None:
    """Finds the command that is called; raises ConfigError for what cannot be one."""
    for word in words[1:] if words[:1] == ["help"] else words:
        if word in ("-h", "--help", "--version"):
            return None
        if not word.startswith("-"):
            return _command(word)
        if word != "--debug":
            shown = masked_text(word)
            raise ConfigError(f"option {shown!r} comes after a command, as in: oncegate doctor {shown}")
    return None


def _command(name: str) -> Command:
    if name in COMMANDS:
        return COMMANDS[name]
    import difflib

    near = difflib.get_close_matches(name, COMMANDS, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"commands are {', '.join(COMMANDS)}"
    raise ConfigError(f"there is no command {masked_text(name)[:60]!r}; {hint}")


def _prepare_streams() -> None:
    """Makes a stream without Unicode show escapes, and one that was closed swallow what it gets."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115  open as long as the process
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _is_output_closed() -> bool:
    """Tells a reader that has gone away from a command's own connection that broke."""
    import select

    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), select.POLLOUT)
        return any(flags & (select.POLLERR | select.POLLHUP) for _, flags in poll.poll(0))
    except (OSError, ValueError):
        return False


def _stop_printing() -> int:
    _drop_output()
    return OUTPUT_CLOSED


def _drop_output() -> None:
    """Points stdout at nothing, so that Python's own last flush has nothing to complain about."""
    with suppress(OSError, ValueError), open(os.devnull, "w") as nowhere:  # noqa: PTH123  a device
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _refused_by_system(words: list[str], error: OSError) -> int:
    _show_trace(words, error)
    where = f"{error.filename}: " if error.filename else ""
    complain(f"the system refused: {where}{error.strerror or error}")
    _drop_output()  # it may have been stdout itself that failed
    return SYSTEM_REFUSED


def _unexpected(words: list[str], error: Exception) -> int:
    _show_trace(words, error)
    hint = "" if "--debug" in words else "; run again with --debug for the traceback"
    complain(f"unexpected {type(error).__name__}: {error}{hint}")
    return UNEXPECTED


def _show_trace(words: list[str], error: Exception) -> None:
    if "--debug" not in words:
        return
    import traceback

    for line in "".join(traceback.format_exception(error)).splitlines():
        print(visible(line), file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
