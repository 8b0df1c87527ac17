"""`oncegate dev`: the service, its page and sample events on this machine, in one command."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shlex
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from oncegate.cli.exitcodes import DONE
from oncegate.cli.output import tell
from oncegate.cli.page import read_port
from oncegate.cli.parser import add_url, read_text
from oncegate.errors import ConfigError

if TYPE_CHECKING:
    from oncegate.service.settings import Settings

HOST: Final = "127.0.0.1"
PORT_DEFAULT: Final = 8700
ANSWER_SECONDS: Final = 10
SECRET_NAME: Final = "DEV_SECRET"
ORDERS, APPROVALS = "orders", "approvals"
SAMPLES: Final = (
    (ORDERS, {"order_id": "A-1", "amount": 995}, "a new event runs"),
    (ORDERS, {"order_id": "A-1", "amount": 995}, "the same event again is replayed"),
    (ORDERS, {"order_id": "A-1", "amount": 9950}, "another content under its key is a conflict"),
    (ORDERS, {"order_id": "A-2", "amount": -1}, "the handler refuses this one: it has failed"),
    (APPROVALS, {"refund_id": "R-1", "amount": 120000}, "this one waits for you on the page"),
)

_DESCRIPTION = """\
Run everything on this machine, to look at it or to develop against it: the service with two
surfaces, a handler that answers, the operations page with a sign-in token, and a few sample
events. Listens on 127.0.0.1 only. The ledger is a temporary file unless --url names one."""

_EPILOG = """\
examples:
  oncegate dev
  oncegate dev --port 0 --no-samples
  oncegate dev --url sqlite:///dev.db --forward http://127.0.0.1:9000/events"""


def add_parser(subparsers: Any) -> None:
    """Adds the command to the command line."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "dev",
        help="run the service, its page and sample events on this machine",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    add_url(parser)
    parser.add_argument(
        "--port",
        type=read_port,
        default=PORT_DEFAULT,
        help="where to listen; 0 takes a free port (default: 8700)",
    )
    parser.add_argument("--forward", type=read_text, metavar="URL", help="your own handler on this machine")
    parser.add_argument("--no-samples", action="store_true", help="send no sample events")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Serves until Ctrl-C."""
    try:
        from oncegate.service.serving import serve
    except ModuleNotFoundError as error:
        raise ConfigError("the service needs its server: pip install 'oncegate[server]'") from error
    with _ledger(arguments.url) as url, _handler(arguments.forward) as forward:
        secret, token = secrets.token_urlsafe(24), _operator_token(url)
        environment = {**os.environ, SECRET_NAME: secret}

        def started(address: str, admin: str | None) -> None:
            shown = (address, secret, token, url, not arguments.no_samples)
            threading.Thread(target=_introduce, args=shown, daemon=True).start()

        began = serve(settings_of(url, arguments.port, forward), environment, started)
    return DONE if began else 1


def settings_of(url: str, port: int, forward: str) -> Settings:
    """The service's settings: two surfaces in front of one handler, for this machine only."""
    from oncegate.service.settings import (
        DownstreamSettings,
        NetworkSettings,
        ServerSettings,
        Settings,
        SignatureScheme,
        SurfaceSettings,
    )

    def surface(key: str, *, approve_first: bool = False) -> SurfaceSettings:
        return SurfaceSettings(
            key=key, signature=SignatureScheme.BEARER, secrets=(f"${SECRET_NAME}",), tenant="dev",
            forward="handler", show=("amount",), approve_first=approve_first,
        )  # fmt: skip

    return Settings(
        url=url,
        server=ServerSettings(host=HOST, port=port, drain_within="2s"),
        network=NetworkSettings(allow_http=True, allow_loopback=True),
        downstreams={"handler": DownstreamSettings(url=forward, honours_key="1h", timeout="5s")},
        surfaces={
            ORDERS: surface("{order_id}"),
            APPROVALS: surface("{refund_id}", approve_first=True),
        },
    )


@contextmanager
def _ledger(url: str | None) -> Iterator[str]:
    if url is not None:
        yield url
        return
    with tempfile.TemporaryDirectory(prefix="oncegate-dev-") as folder:
        yield f"sqlite:///{Path(folder) / 'oncegate.db'}"


class _Answering(BaseHTTPRequestHandler):
    """A handler as a team would write it: it does what it is asked, unless the amount is negative."""

    def do_POST(self) -> None:
        event = json.loads(self.rfile.read(int(self.headers["content-length"])))
        is_wrong = isinstance(event, dict) and event.get("amount", 0) < 0
        answer = {"error": "an amount cannot be negative"} if is_wrong else {"done": True}
        body = json.dumps(answer).encode()
        self.send_response(422 if is_wrong else 200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Says nothing: the page shows what happened."""


@contextmanager
def _handler(forward: str | None) -> Iterator[str]:
    if forward is not None:
        yield forward
        return
    with ThreadingHTTPServer((HOST, 0), _Answering) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://{HOST}:{server.server_port}/"
        finally:
            server.shutdown()


def _operator_token(url: str) -> str:
    """A token for the page: of a new operator `dev`, or a new one of the operator of that name."""
    from oncegate.dashboard.operators import OperatorBook, Role, find_operator
    from oncegate.wiring import Gate

    with Gate(url) as gate:
        gate.engine.store.connect().close()
        book = OperatorBook(gate.engine.commits, gate.engine.clock)
        with gate.engine.store.look() as session:
            is_known = find_operator(session, "dev") is not None
        return (
            book.rotate("dev", "oncegate dev") if is_known else book.add("dev", Role.APPROVER, None, "dev")
        )


def _introduce(address: str, secret: str, token: str, url: str, has_samples: bool) -> None:
    """Says where everything is, once it answers, and sends the samples."""
    _wait(address)
    tell(f"service   {address}")
    tell(f"page      {address}/ui  sign in with {token}")
    tell(f"ledger    oncegate entries list --url {shlex.quote(url)}")
    tell("")
    for surface, event, what in SAMPLES if has_samples else ():
        tell(f"{_post(address, secret, surface, event)}  {what}")
    example = json.dumps({"order_id": "A-3", "amount": 5})
    tell("")
    tell("send one yourself, twice:")
    tell(
        f"  curl -s {address}/in/{ORDERS} -H 'Authorization: Bearer {secret}'"
        f" -H 'Content-Type: application/json' -d '{example}'"
    )
    tell("Ctrl-C ends it")


def _wait(address: str) -> None:
    from oncegate.clock import SystemClock

    clock = SystemClock()
    for _ in range(ANSWER_SECONDS * 20):
        try:
            with urlopen(f"{address}/readyz", timeout=ANSWER_SECONDS):
                return
        except OSError:
            clock.pause(0.05)


def _post(address: str, secret: str, surface: str, event: dict[str, Any]) -> int:
    headers = {"authorization": f"Bearer {secret}", "content-type": "application/json"}
    request = Request(f"{address}/in/{surface}", json.dumps(event).encode(), headers)
    try:
        with urlopen(request, timeout=ANSWER_SECONDS) as answer:
            return int(answer.status)
    except HTTPError as refused:
        return refused.code
