"""`oncegate serve`: runs the service until told to stop."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from oncegate.cli.exitcodes import DONE, USAGE
from oncegate.cli.output import complain, tell
from oncegate.errors import ConfigError

_DESCRIPTION = """\
Run the service: webhooks in at /in/SURFACE, the planner/executor contract, published events at
/v1/events, and /livez, /readyz and /metrics. Settings come from a file and from ONCEGATE_*;
`oncegate config check` explains mistakes in them. SIGTERM finishes what is under way, then
ends. Logs go to standard error, one JSON object a line."""

_EPILOG = """\
examples:
  oncegate serve
  oncegate serve --config /etc/oncegate.toml
  ONCEGATE_SERVER_PORT=9000 oncegate serve"""


def add_parser(subparsers: Any) -> None:
    """Adds the command to the command line."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "serve", help="run the service", description=_DESCRIPTION, epilog=_EPILOG
    )
    add_config(parser)
    parser.set_defaults(run=run)


def add_config(parser: argparse.ArgumentParser) -> None:
    """Adds the option that names the file of settings."""
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="the settings (default: ./oncegate.toml, if there is one)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Checks the settings, then serves."""
    try:
        from oncegate.service.logs import log_as_json
        from oncegate.service.serving import serve
    except ModuleNotFoundError as error:
        raise ConfigError("the service needs its server: pip install 'oncegate[server]'") from error
    from oncegate.service.validation import read_and_check

    configuration, mistakes = read_and_check(arguments.config, os.environ)
    for mistake in mistakes:
        complain(str(mistake))
    if configuration is None or mistakes:
        return USAGE
    log_as_json()
    began = serve(configuration.settings, os.environ, _tell_addresses)
    return DONE if began else 1


def _tell_addresses(address: str, admin: str | None) -> None:
    tell(f"listening on {address}")
    if admin is not None:
        tell(f"listening for operators on {admin}")
