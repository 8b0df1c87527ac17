"""`oncegate page`: serves the operations page of a ledger on this machine, until stopped."""

from __future__ import annotations

import argparse
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from oncegate.cli.exitcodes import DONE
from oncegate.cli.ledger import command_for, find_ledger, open_ledger, reading
from oncegate.cli.output import tell
from oncegate.cli.parser import add_url
from oncegate.config import SETTINGS_FILE
from oncegate.errors import ConfigError
from oncegate.store import Facet, Store, require

if TYPE_CHECKING:
    from oncegate.wiring import Gate

PORT_DEFAULT: Final = 8470
_HINT: Final = "the page needs its server: pip install 'oncegate[server]'"
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
_DESCRIPTION: Final = """\
Serve the operations page: what the gate, the lanes and the feed are doing, and what waits for
you. It reads the ledger and nothing else, so it may be started and stopped at any time."""
_EPILOG: Final = """\
examples:
  oncegate operators add ada --role approver
  oncegate page --url sqlite:///orders.db
  oncegate page --read-only                     looking needs no token, acting is off
  oncegate page --config /etc/oncegate.toml     with the rules and promises of its surfaces"""


def add_parser(subparsers: Any) -> None:
    """Adds the command to the command line."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "page", help="serve the operations page of a ledger", description=_DESCRIPTION, epilog=_EPILOG
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="the address to listen on (default: %(default)s)"
    )
    parser.add_argument(
        "--port", type=read_port, default=PORT_DEFAULT, help="the port, 0 for any (default: %(default)s)"
    )
    parser.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME",
        help="a name that the page may be called by, beside this machine's own; may be given several times",
    )  # fmt: skip
    parser.add_argument(
        "--trust-proxy", action="append", default=[], metavar="ADDRESS",
        help="a proxy, or a network of proxies, whose X-Forwarded-For counts; may be given several times",
    )  # fmt: skip
    parser.add_argument(
        "--read-only",
        action="store_true",
        help="every visitor may look, no visitor may act; no signing in",
    )
    add_url(parser)
    parser.add_argument(
        "--config", type=Path, metavar="FILE",
        help="settings of the service: its ledger, and the rules and promises of its surfaces"
        " (default: ./oncegate.toml; rules and promises only if it is about the same ledger)",
    )  # fmt: skip
    parser.set_defaults(run=run)


def read_port(text: str) -> int:
    """Reads the number of a port."""
    if not (text.isascii() and text.isdigit() and int(text) < 65_536):
        raise argparse.ArgumentTypeError(f"{text[:20]!r} is not a port")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Checks that there is a ledger, then serves its page."""
    store = open_ledger(arguments.url, arguments.config, needs=Facet.OPEN_ENTRIES)
    if not arguments.read_only:
        require(store, Facet.REVIEW, "pages with sign-in (add --read-only to look)")
    named = arguments.config is not None
    url = find_ledger(arguments.url, arguments.config).url if named else arguments.url
    with reading(store, url) as session:
        from oncegate.dashboard.operators import operators

        known = [] if arguments.read_only else operators(session)
    if arguments.read_only and arguments.host not in _LOOPBACK:
        raise ConfigError("--read-only shows the ledger to every visitor; it is for this machine only")
    if not known and not arguments.read_only:
        add = command_for("oncegate operators add NAME --role approver", url)
        raise ConfigError(f"there are no operators, so no person can sign in. Add one with: {add}")
    login = not arguments.read_only
    gate = _gate_of(store, arguments.config)
    names, proxies = arguments.allow_host, arguments.trust_proxy
    serve_page(gate, arguments.host, arguments.port, login=login, names=names, proxies=proxies)
    return DONE


def _gate_of(store: Store, config: Path | None) -> Gate:
    """A gate that runs nothing, with the surfaces that the settings tell of.

    A file that the command does not name must not prevent serving, whatever is wrong with it.
    """
    from oncegate.wiring import Gate

    try:
        return _described(Gate(store=store), config)
    except ConfigError as error:
        if config is not None:
            raise
        tell(f"rules and promises are not shown: {str(error).splitlines()[0]}")
        return Gate(store=store)


def _described(gate: Gate, config: Path | None) -> Gate:
    from oncegate.service.config_loader import read_configuration
    from oncegate.wiring import open_store

    if config is None and not Path(SETTINGS_FILE).exists():
        return gate
    settings = read_configuration(config, os.environ).settings
    if config is not None or open_store(settings.url).address == gate.engine.store.address:
        try:
            from oncegate.service.summary import describe
        except ModuleNotFoundError as error:
            raise ConfigError(_HINT) from error
        describe(gate, settings)
    return gate


def serve_page(
    gate: Gate, host: str, port: int, *, login: bool, names: Sequence[str] = (), proxies: Sequence[str] = ()
) -> None:
    """Serves the page of a gate's ledger until Ctrl-C or SIGTERM."""
    from oncegate.service.host_allow_list import HostGuard, Hosts
    from oncegate.service.proxies import TrustedProxies

    hosts = Hosts(host, names)
    application = TrustedProxies(HostGuard(gate.dashboard(login=login), hosts, "--allow-host"), proxies)
    try:
        import uvicorn

        from oncegate.service.protocol import BoundedHttp
    except ModuleNotFoundError as error:
        raise ConfigError(_HINT) from error
    config = uvicorn.Config(
        application, http=BoundedHttp, log_level="warning", access_log=False, server_header=False,
        proxy_headers=False, timeout_graceful_shutdown=5,
    )  # fmt: skip
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family) as listener:
        shown, taken = f"[{host}]" if ":" in host else host, listener.getsockname()[1]
        tell(f"the page is at http://{shown}:{taken}/ (Ctrl-C ends it)")
        uvicorn.Server(config).run(sockets=[listener])
