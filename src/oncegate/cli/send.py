"""`oncegate send`: sends an event to a webhook handler several times at once, to see that it acts once."""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oncegate.cli.exitcodes import DONE
from oncegate.cli.output import print_json, tell
from oncegate.cli.parser import add_json
from oncegate.errors import ConfigError

if TYPE_CHECKING:
    from oncegate.sender.exchange import Exchange

TIMES_MAX = 10_000
FAILED = 1

_DESCRIPTION = """\
Send the bytes of a file to a URL, several times and at once, as an upstream that retries would.
Every sending is one request; nothing is retried and no redirect is followed. With a secret the
requests are signed (Standard Webhooks), each with the same id. The exit code is 0 if every answer
was 2xx, 409 or 429."""

_EPILOG = """\
examples:
  oncegate send http://127.0.0.1:8700/in/notifications --fixture examples/event.json \\
    --header 'Authorization: Bearer sample-secret-for-this-machine'    # while `make run` runs
  oncegate send https://example.com/hooks --fixture event.json --secret-env WEBHOOK_SECRET
  oncegate send http://127.0.0.1:9000/ --fixture event.json --times 50 --concurrency 10"""


def add_parser(subparsers: Any) -> None:
    """Adds the command to the command line."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "send",
        help="send an event to a handler several times at once",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    parser.add_argument("target", metavar="URL", help="where to send; this machine over http is allowed")
    parser.add_argument("--fixture", type=Path, required=True, metavar="FILE", help="the body")
    parser.add_argument(
        "--times", type=_count, default=3, metavar="N", help="how often (default: %(default)s)"
    )
    parser.add_argument(
        "--concurrency", type=_count, default=3, metavar="N", help="how many at once (default: %(default)s)"
    )
    parser.add_argument(
        "--header", action="append", default=[], metavar="'NAME: VALUE'", help="a header; may be repeated"
    )
    parser.add_argument(
        "--secret-env",
        metavar="NAME",
        help="the environment variable with the secret (whsec_…) to sign with",
    )
    parser.add_argument(
        "--allow-network", action="append", default=[], metavar="NET", help="a private network to call"
    )
    add_json(parser)
    parser.set_defaults(run=run)


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= TIMES_MAX:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number from 1 to {TIMES_MAX}")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Sends and tells what came back."""
    import asyncio

    try:
        body = arguments.fixture.read_bytes()
    except OSError as error:
        raise ConfigError(f"{arguments.fixture} cannot be read: {error.strerror}") from None
    exchanges = asyncio.run(_send_all(arguments, body))
    for number, exchange in enumerate(exchanges, start=1):
        _show(number, exchange, arguments.json)
    if not arguments.json:
        counts = Counter(_outcome(exchange) for exchange in exchanges)
        tell("; ".join(f"{count} x {outcome}" for outcome, count in sorted(counts.items())))
    return DONE if all(_is_fine(exchange) for exchange in exchanges) else FAILED


async def _send_all(arguments: argparse.Namespace, body: bytes) -> list[Exchange]:
    import asyncio

    from oncegate.sender.addresses import AddressPolicy
    from oncegate.sender.http import HttpClient
    from oncegate.sender.request_builder import Request
    from oncegate.sender.urls import parse_endpoint_url

    policy = AddressPolicy.of(allow_http=True, allow_loopback=True, allow_networks=arguments.allow_network)
    url = parse_endpoint_url(arguments.target, policy)
    request = Request(_headers(arguments, body), body)
    client, room = HttpClient(policy), asyncio.Semaphore(arguments.concurrency)

    async def send() -> Exchange:
        async with room:
            return await client.post(url, request)

    try:
        return list(await asyncio.gather(*(send() for _ in range(arguments.times))))
    finally:
        await client.close()


def _headers(arguments: argparse.Namespace, body: bytes) -> tuple[tuple[str, str], ...]:
    from hashlib import sha256

    headers = plain_headers(arguments.header)
    if arguments.secret_env is not None:
        headers.update(signature(arguments.secret_env, f"msg_{sha256(body).hexdigest()[:24]}", body))
    return tuple(headers.items())


def plain_headers(lines: list[str]) -> dict[str, str]:
    """The headers that were given as 'NAME: VALUE', besides the content's type."""
    headers = {"content-type": "application/json"}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name.strip() or not line.isprintable():
            raise ConfigError(f"--header {line[:40]!r} is not of the form 'NAME: VALUE'")
        headers[name.strip().lower()] = value.strip()
    return headers


def signature(variable: str, message_id: str, body: bytes) -> dict[str, str]:
    """The signature of a body as of now, with the secret in an environment variable."""
    from oncegate.clock import SystemClock
    from oncegate.signatures import read_signing_key, sign

    secret = os.environ.get(variable)
    if not secret:
        raise ConfigError(f"the environment has no {variable}")
    now_s = SystemClock().wall_ms() // 1000
    return dict(sign([read_signing_key(secret)], message_id, now_s, body))


def _show(number: int, exchange: Exchange, as_json: bool) -> None:
    from oncegate.sender.exchange import Response

    elapsed_ms = round(exchange.elapsed.total_seconds() * 1000, 1)
    if as_json:
        status = exchange.status if isinstance(exchange, Response) else None
        print_json({"n": number, "status": status, "outcome": _outcome(exchange), "ms": elapsed_ms})
        return
    shown = exchange.shown if isinstance(exchange, Response) else exchange.detail
    sys.stdout.write(f"{number:>4}  {_outcome(exchange):<22} {elapsed_ms:>8} ms  {shown}\n")


def _outcome(exchange: Exchange) -> str:
    from oncegate.sender.exchange import Response

    if not isinstance(exchange, Response):
        return exchange.kind.value
    replay = _replay(exchange.body)
    return str(exchange.status) if replay is None else f"{exchange.status} replay: {str(replay).lower()}"


def _replay(body: bytes) -> bool | None:
    import msgspec

    try:
        document = msgspec.json.decode(body)
    except ValueError:
        return None
    found = document.get("replay") if isinstance(document, dict) else None
    return found if isinstance(found, bool) else None


def _is_fine(exchange: Exchange) -> bool:
    from oncegate.sender.exchange import Response

    if not isinstance(exchange, Response):
        return False
    return 200 <= exchange.status < 300 or exchange.status in (409, 429)
