"""`python -m lab wheel`: how many lines the wheel holds."""

from __future__ import annotations

import argparse
from typing import Any

from oncegate.cli.exitcodes import DONE
from oncegate.cli.output import print_json


def add_parser(commands: Any) -> None:
    """Registers the command."""
    parser = commands.add_parser(
        "wheel",
        help="count the lines of the wheel",
        description="Count the lines of Python in the wheel, by package; the largest comes first.",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Counts and prints."""
    from lab.wheel import lines_by_package

    lines = lines_by_package()
    if arguments.json:
        print_json({"lines": lines.total(), "packages": dict(lines.most_common())})
        return DONE
    for name, count in lines.most_common():
        print(f"{count:>7,}  {name}")
    print(f"{lines.total():>7,}  in all")
    return DONE
