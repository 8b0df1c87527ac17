"""Where `oncegate replay` plays to: a gate on a ledger of its own, or a URL."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from oncegate.cli.app import load_name
from oncegate.cli.replay import VERDICTS, check_plan
from oncegate.clock import SystemClock
from oncegate.errors import ConfigError
from oncegate.recorder.planning import Planned, make_plan
from oncegate.recorder.recording import Recording
from oncegate.recorder.replaying import ReplayReport, replay
from oncegate.sender.exchange import Exchange, Response
from oncegate.sender.request_builder import Request
from oncegate.testing.harness.databases import Setup
from oncegate.testing.replaying import RealPace, play_to_gate
from oncegate.wiring import Gate

PROBLEMS = {"busy": "busy", "conflict": "conflict", "recorded-failure": "failed"}
STATES = {"quarantined": "quarantine", "held": "hold", "accepted": "accepted"}


def replay_to_gate(
    recording: Recording, app: Gate, url: str, arguments: argparse.Namespace
) -> ReplayReport:
    """Plays to the app's handlers, on a ledger of their own and a clock that follows the recording."""
    plan = make_plan(recording, surfaces=arguments.surface, shuffle_seed=_shuffle_seed(arguments))
    check_plan(recording, plan, arguments)
    setup = [_setup(text) for text in arguments.setup]
    return play_to_gate(app, recording, plan, url, arguments.speed, setup=setup)


def _setup(text: str) -> Setup:
    """A file of SQL, or a function by its module and name."""
    path = Path(text)
    if path.suffix == ".sql" or path.is_file():
        try:
            return path.read_text("utf-8")
        except OSError as error:
            raise ConfigError(f"--setup: {text[:80]} cannot be read: {error.strerror}") from None
    found: Callable[..., object] = load_name("--setup", text)
    if not callable(found):
        raise ConfigError(f"--setup: {text[:80]} is a {type(found).__name__}, not a function")
    return found


def _shuffle_seed(arguments: argparse.Namespace) -> int | None:
    return arguments.seed if arguments.shuffle else None


def replay_to_url(recording: Recording, arguments: argparse.Namespace) -> tuple[ReplayReport, list[str]]:
    """Plays as webhooks, each event dated as old as it was."""
    now_ms = SystemClock().wall_ms()
    plan = make_plan(
        recording, surfaces=arguments.surface, shuffle_seed=_shuffle_seed(arguments),
        speed=arguments.speed, starts_at_ms=now_ms,
    )  # fmt: skip
    check_plan(recording, plan, arguments)
    report = asyncio.run(_post_all(plan, arguments))
    known = report.verdicts["run"] + report.verdicts["replay"]
    report.effects = report.verdicts["run"] if known else None
    return report, [
        f"{count} arrivals were not taken: {word}"
        for word, count in sorted(report.verdicts.items())
        if not _is_taken(word)
    ]


def _is_taken(word: str) -> bool:
    """Whether an answer says that the event was received, or in the gate's words why it was not run."""
    return word in VERDICTS or (word.startswith("HTTP 2") and len(word) == len("HTTP 200"))


async def _post_all(plan: list[Planned], arguments: argparse.Namespace) -> ReplayReport:
    from oncegate.sender.addresses import AddressPolicy
    from oncegate.sender.http import HttpClient

    policy = AddressPolicy.of(allow_http=True, allow_loopback=True, allow_networks=arguments.allow_network)
    client = HttpClient(policy)
    try:
        post = _poster(client, policy, plan, arguments)
        return await replay(plan, post, RealPace(arguments.speed), arguments.concurrency)
    finally:
        await client.close()


def _poster(
    client: Any, policy: Any, plan: list[Planned], arguments: argparse.Namespace
) -> Callable[[Planned], Awaitable[tuple[str, str | None]]]:
    from oncegate.cli.send import plain_headers, signature
    from oncegate.sender.urls import parse_endpoint_url

    urls = {
        name: parse_endpoint_url(arguments.to.replace("{surface}", quote(name, safe="")), policy)
        for name in {one.arrival.surface for one in plan}
    }
    headers = plain_headers(arguments.header)

    async def post(one: Planned) -> tuple[str, str | None]:
        body = msgspec.json.encode(one.payload)
        signed = {}
        if arguments.secret_env is not None:
            signed = signature(arguments.secret_env, f"msg_{one.arrival.event[:24]}", body)
        request = Request(tuple({**headers, **signed}.items()), body)
        return _verdict(await client.post(urls[one.arrival.surface], request))

    return post


def _verdict(exchange: Exchange) -> tuple[str, str | None]:
    """What an answer says, in the gate's words where it uses them; and the key, where it tells it."""
    if not isinstance(exchange, Response):
        return exchange.kind.value, None
    try:
        document = msgspec.json.decode(exchange.body)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        return f"HTTP {exchange.status}", None
    key = document.get("key")
    return _word(exchange.status, document), key if isinstance(key, str) else None


def _word(status: int, document: dict[str, Any]) -> str:
    problem = str(document.get("type", "")).rpartition(":")[2]
    if status == 200 and isinstance(document.get("replay"), bool):
        return "replay" if document["replay"] else "run"
    if status == 202 and document.get("state") in STATES:
        return STATES[document["state"]]
    return PROBLEMS.get(problem, f"HTTP {status}")
