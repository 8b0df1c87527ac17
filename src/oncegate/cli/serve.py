"""`oncegate serve`: runs the service until told to stop."""

from __future__ import annotations

import argparse
import asyncio
import os
from pathlib import Path
from typing import Any

from oncegate.cli.exitcodes import DONE
from oncegate.cli.output import tell
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
    from oncegate.service.configuring import Mistakes, read_configuration

    configuration = read_configuration(arguments.config, os.environ)
    mistakes = asyncio.run(_mistakes(configuration))
    if mistakes:
        raise Mistakes(mistakes)
    log_as_json()
    began = serve(configuration.settings, os.environ, lambda address: tell(f"listening on {address}"))
    return DONE if began else 1


async def _mistakes(configuration: Any) -> Any:
    from oncegate.service.checking import find_mistakes

    return find_mistakes(configuration, os.environ)
