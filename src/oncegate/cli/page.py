"""`oncegate page`: serves the operations page of a ledger on this machine, until stopped."""

from __future__ import annotations

import argparse
import socket
from collections.abc import Sequence
from typing import Any, Final

from oncegate.cli.exitcodes import DONE
from oncegate.cli.ledger import command_for, open_ledger, reading
from oncegate.cli.output import tell
from oncegate.cli.parser import add_url
from oncegate.errors import ConfigError
from oncegate.store import Store

PORT_DEFAULT: Final = 8470
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
_DESCRIPTION: Final = """\
Serve the operations page: what the gate, the lanes and the feed are doing, and what waits for
you. It reads the ledger and nothing else, so it may be started and stopped at any time."""
_EPILOG: Final = """\
examples:
  oncegate operators add ada --role approver
  oncegate page --url sqlite:///orders.db
  oncegate page --read-only                     looking needs no token, acting is off"""


def add_parser(subparsers: Any) -> None:
    """Adds the command to the command line."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "page", help="serve the operations page of a ledger", description=_DESCRIPTION, epilog=_EPILOG
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="the address to listen on (default: %(default)s)"
    )
    parser.add_argument(
        "--port", type=_read_port, default=PORT_DEFAULT, help="the port, 0 for any (default: %(default)s)"
    )
    parser.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME",
        help="a name that the page may be called by, beside this machine's own; may be given several times",
    )  # fmt: skip
    parser.add_argument(
        "--read-only",
        action="store_true",
        help="whoever reaches it may look, nobody may act; no signing in",
    )
    add_url(parser)
    parser.set_defaults(run=run)


def _read_port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) < 65_536):
        raise argparse.ArgumentTypeError(f"{text[:20]!r} is not a port")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Checks that there is a ledger, then serves its page."""
    store = open_ledger(arguments.url)
    with reading(store, arguments.url) as session:
        from oncegate.dashboard.operators import operators

        known = operators(session)
    if arguments.read_only and arguments.host not in _LOOPBACK:
        raise ConfigError("--read-only shows the ledger to whoever reaches it; it is for this machine only")
    if not known and not arguments.read_only:
        add = command_for("oncegate operators add NAME --role approver", arguments.url)
        raise ConfigError(f"nobody could sign in: there are no operators. Add one with: {add}")
    login = not arguments.read_only
    serve_page(store, arguments.host, arguments.port, login=login, names=arguments.allow_host)
    return DONE


def serve_page(store: Store, host: str, port: int, *, login: bool, names: Sequence[str] = ()) -> None:
    """Serves a ledger's page until Ctrl-C or SIGTERM."""
    from oncegate.service.hosts import HostGuard, Hosts
    from oncegate.wiring import Gate

    hosts, gate = Hosts(host, names), Gate(store=store)
    application = HostGuard(gate.dashboard(login=login), hosts, "--allow-host")
    try:
        import uvicorn

        from oncegate.service.protocol import BoundedHttp
    except ModuleNotFoundError as error:
        raise ConfigError("the page needs its server: pip install 'oncegate[server]'") from error
    config = uvicorn.Config(
        application, http=BoundedHttp, log_level="warning", access_log=False, server_header=False,
        timeout_graceful_shutdown=5,
    )  # fmt: skip
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family) as listener:
        shown, taken = f"[{host}]" if ":" in host else host, listener.getsockname()[1]
        tell(f"the page is at http://{shown}:{taken}/ (Ctrl-C ends it)")
        uvicorn.Server(config).run(sockets=[listener])
