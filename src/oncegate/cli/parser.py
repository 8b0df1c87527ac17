"""The argument parser that all commands share: errors on one line, `--debug` everywhere.

Subparsers are made of the same class, so a command module need not know about it.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any, Final, NoReturn

from oncegate.cli.exitcodes import USAGE
from oncegate.cli.output import complain
from oncegate.errors import ConfigError
from oncegate.model.ledger_addresses import masked_text

PAGE_MAX: Final = 10_000  # of a list: one page is held in memory
ROW_NUMBER_MAX: Final = 2**63 - 1  # what a ledger can number


class CommandParser(argparse.ArgumentParser):
    """An ArgumentParser that answers mistakes with one line and the way to the help."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        keywords.setdefault("allow_abbrev", False)
        if "\n" in f"{keywords.get('description')}{keywords.get('epilog')}":
            keywords.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(*arguments, **keywords)
        self.set_defaults(parser=self)  # the innermost one stays: it knows best what was meant
        self.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)

    def error(self, message: str) -> NoReturn:
        """Says what is wrong on one line and ends with the code for wrong usage."""
        complain(f"{masked_text(message)}; see: {self.prog} --help")
        self.exit(USAGE)

    def print_help(self, file: Any = None) -> None:
        """Prints the help and, unlike argparse, does not hide that it could not be written."""
        (file or sys.stdout).write(self.format_help())

    @property
    def actions(self) -> list[argparse.Action]:
        """The options and arguments in the order they were added, for the reference."""
        return self._actions


def print_help_as_error(arguments: argparse.Namespace) -> int:
    """Answers a command group that was called without a command: its help, and the code for wrong usage."""
    arguments.parser.print_help(sys.stderr)
    return USAGE


def add_url(parser: argparse.ArgumentParser) -> None:
    """Adds the option that says which ledger is meant."""
    parser.add_argument(
        "--url",
        metavar="URL",
        help="the ledger, such as sqlite:////var/lib/orders.db"
        " (default: $ONCEGATE_URL, else ./oncegate.toml, else sqlite:///oncegate.db)",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Adds the option for output that programs read."""
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")


def read_number(text: str) -> int:
    """Reads a positive whole number that a ledger can hold."""
    if not is_row_number(text):
        raise argparse.ArgumentTypeError(f"{masked_text(text)[:40]!r} is not a positive whole number")
    return int(text)


def read_page_size(text: str) -> int:
    """Reads how much of a long list is wanted at once."""
    number = read_number(text)
    if number > PAGE_MAX:
        raise argparse.ArgumentTypeError(
            f"{number} is more than {PAGE_MAX}; use --before for the next page"
        )
    return number


def is_row_number(text: str) -> bool:
    """Tells whether a text is the number of something that a ledger could hold."""
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(ROW_NUMBER_MAX))
    return is_number and 0 < int(text) <= ROW_NUMBER_MAX


def read_text(text: str) -> str:
    """Takes a text as it is, unless it is not UTF-8 and so cannot be in a ledger."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(f"{text[:40]!a} is not UTF-8") from None
    return text


def read_key_prefix(text: str) -> str:
    """Reads the beginning of a key; `KEY:step`, as downstreams see it, is read as KEY."""
    digits = text.strip().partition(":")[0].lower()
    if not 0 < len(digits) <= 48 or not set(digits) <= set("0123456789abcdef"):
        raise ConfigError(
            f"{masked_text(text)[:60]!r} is not the beginning of a key; give 1 to 48 digits of 0-9 and a-f"
        )
    return digits
