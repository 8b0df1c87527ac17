"""The command line's reference, made from its parsers so that it cannot say anything else.

`python -m oncegate.cli.reference > docs/cli.md` writes it; a test compares. It is laid out here and not by
argparse, whose wording differs between Python versions.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Final

from oncegate.cli.main import COMMANDS, build_parser
from oncegate.cli.parser import CommandParser

_HEAD: Final = """\
# Command line

<!-- Made from the parsers by `python -m oncegate.cli.reference > docs/cli.md`; edit those instead. -->

Data goes to standard output, everything said to a person goes to standard error. Colour is used on
terminals only, and not where `NO_COLOR` is set. Stored text is shown with its control characters written
as escapes. An error is one line, and its exit code is listed in [exit-codes.md](exit-codes.md);
`--debug`, anywhere on the line, adds the traceback. `oncegate --help` shows the whole picture.
"""


def reference() -> str:
    """Returns the reference as Markdown."""
    root = build_parser(list(COMMANDS.values()))
    sections = [section for parser in _below(root) for section in _sections(parser)]
    return "\n".join([_HEAD, *sections])


def _below(parser: CommandParser) -> Iterator[CommandParser]:
    """The commands under a parser in the order they were added, each followed by its own."""
    for action in parser.actions:
        if isinstance(action.choices, dict):
            for child in action.choices.values():
                yield child
                yield from _below(child)


def _sections(parser: CommandParser) -> Iterator[str]:
    yield f"## {parser.prog}\n"
    if parser.description:
        yield f"{parser.description}\n"
    yield f"```text\n{_usage(parser)}\n```\n"
    rows = [_row(parser, action) for action in parser.actions if _is_shown(action)]
    if rows:
        yield "\n".join(["| argument | meaning |", "|---|---|", *rows, ""])
    if parser.epilog:
        yield f"```text\n{parser.epilog}\n```\n"


def _usage(parser: CommandParser) -> str:
    shown = [action for action in parser.actions if _is_shown(action)]
    words = [parser.prog]
    words += [_value_name(action) for action in shown if not action.option_strings]
    words += ["[options]"] if any(action.option_strings for action in shown) else []
    words += ["COMMAND"] if any(True for _ in _below(parser)) else []
    return " ".join(words)


def _is_shown(action: argparse.Action) -> bool:
    is_usual = "--help" in action.option_strings or isinstance(action.choices, dict)
    return action.help != argparse.SUPPRESS and not is_usual


def _row(parser: CommandParser, action: argparse.Action) -> str:
    meaning = (action.help or "") % {**vars(action), "prog": parser.prog}
    return f"| `{_name(action)}` | {' '.join(meaning.split()).replace('|', chr(92) + '|')} |"


def _name(action: argparse.Action) -> str:
    if not action.option_strings:
        return _value_name(action)
    value = "" if action.nargs == 0 else f" {_value_name(action)}"
    return ", ".join(action.option_strings) + value


def _value_name(action: argparse.Action) -> str:
    return str(action.metavar or action.dest.upper())


if __name__ == "__main__":
    sys.stdout.write(reference())
