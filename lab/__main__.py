"""`python -m lab`: the command line of the lab, in a clone.

Data goes to stdout, talk to stderr; exit codes are those of `oncegate`. Must never be in the wheel.
"""

from __future__ import annotations

import sys

from lab.cli import bench, broken_gates, chaos, incidents, path, replay, wheel
from oncegate.cli.exitcodes import INTERRUPTED
from oncegate.cli.output import complain
from oncegate.cli.parser import CommandParser, print_help_as_error
from oncegate.errors import OncegateError

_EPILOG = """\
beside these:
  python -m lab.mutation       take protecting lines out one by one (make mutate)
  python -m lab.audit          precision and recall of `oncegate audit` on its corpus
  python -m lab.fuzzing        fuzz every parser (make fuzz)
  python -m lab.crash_matrix   play the crash matrix (make matrix)
  python -m lab.site           write the generated pages of docs/ (--check compares)
  python -m lab.bench.profiling FOLDER   flame graphs of the hot path (make profile)"""


def main(argv: list[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    parser = CommandParser(
        prog="python -m lab", description="Check and measure oncegate, in a clone of it.", epilog=_EPILOG
    )
    parser.set_defaults(run=print_help_as_error)
    commands = parser.add_subparsers(metavar="COMMAND", parser_class=CommandParser)
    for group in (bench, chaos, broken_gates, incidents, replay, path, wheel):
        group.add_parser(commands)
    try:
        arguments = parser.parse_args(argv)
        return int(arguments.run(arguments))
    except SystemExit as ended:
        return int(ended.code or 0)
    except OncegateError as error:
        complain(str(error) or type(error).__name__)
        return error.exit_code
    except KeyboardInterrupt:
        complain("interrupted")
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
