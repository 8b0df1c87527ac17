"""`oncegate config`: checks the service's settings, and shows where each came from."""

from __future__ import annotations

import argparse
import os
from typing import Any

from oncegate.cli.exitcodes import DONE, USAGE
from oncegate.cli.output import complain, print_json, tell
from oncegate.cli.parser import add_json, print_help_as_error
from oncegate.cli.serve import add_config

_DESCRIPTION = """\
The settings of the service come from a file (oncegate.toml) and from the environment:
ONCEGATE_URL, ONCEGATE_SERVER_PORT and so on for every setting outside named tables."""


def add_parser(subparsers: Any) -> None:
    """Adds the commands to the command line."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "config", help="check the service's settings, or show them", description=_DESCRIPTION
    )
    parser.set_defaults(run=print_help_as_error)
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    check = commands.add_parser("check", help="explain every mistake, with file and line")
    add_config(check)
    add_json(check)
    check.set_defaults(run=run_check)
    show = commands.add_parser("show", help="print every setting and where it came from")
    add_config(show)
    add_json(show)
    show.set_defaults(run=run_show)


def run_check(arguments: argparse.Namespace) -> int:
    """Tells every mistake; the exit code says whether there are any."""
    from oncegate.service.validation import read_and_check

    _, found = read_and_check(arguments.config, os.environ)
    for mistake in found:
        if arguments.json:
            print_json({"where": mistake.where, "what": mistake.what})
        else:
            complain(str(mistake))
    if not found:
        tell("the settings can be used")
    return USAGE if found else DONE


def run_show(arguments: argparse.Namespace) -> int:
    """Prints settings; secrets are masked."""
    from oncegate.service.config_loader import Mistakes, read_configuration

    try:
        origins = read_configuration(arguments.config, os.environ).origins
    except Mistakes as mistakes:
        for mistake in mistakes.found:
            complain(str(mistake))
        return USAGE
    for origin in origins:
        if arguments.json:
            print_json({"name": origin.name, "value": origin.value, "source": origin.source})
        else:
            print(f"{origin.name} = {origin.value}  ({origin.source})")
    return DONE
