"""`oncegate endpoints`: where events are sent, and whether they are sent there now."""

from __future__ import annotations

import argparse
import asyncio
from math import floor
from typing import Any, Final

from oncegate.cli.circuits import circuit_facts, circuit_sentence, circuit_words
from oncegate.cli.exitcodes import DONE, NOT_SO
from oncegate.cli.ledger import open_ledger, reading
from oncegate.cli.output import Cell, age, grouped, print_fields, print_json, print_table, tell
from oncegate.cli.parser import add_json, add_url, print_help_as_error, read_number, read_text
from oncegate.cli.sending import (
    add_word,
    cells,
    change_of,
    opened_desk,
    opened_sender,
    refuse_unknown_endpoint,
    word_of,
)
from oncegate.clock import SystemClock
from oncegate.errors import ConfigError
from oncegate.lanes.circuit_status import CircuitView, read_circuits
from oncegate.lanes.delivery_stats import NO_DELIVERIES, DeliveryStats, delivery_stats
from oncegate.model.durations import format_duration, parse_duration
from oncegate.sender.endpoints import Endpoint, OnDeadLetter, new_endpoint
from oncegate.sender.request_builder import BodyFormat
from oncegate.sender.testing import send_test
from oncegate.signatures.keys import Ed25519SigningKey, HmacSecret
from oncegate.store import DestinationState, DestinationView, Facet

_HEADERS: Final = (
    "NAME", "STATE", "CIRCUIT", "URL", "WAITING", "BLOCKED", "DEAD", "OLDEST", "SUCCESS 1H",
    "P95 1H", "ON DEAD LETTER",
)  # fmt: skip
_ADD_EPILOG: Final = """\
Without --secret a new one is made and printed once, for the receiver. --secret env:NAME keeps it out of
the ledger: every process that delivers reads it from that environment variable.

A Kafka topic is kafka://host:9092,host:9092/topic?option=value&… and has no secret. Options: key=FIELD (the
payload's field for the record key; default: the event's key), tls=1, ca=FILE, user=NAME,
password=env:VARIABLE, mechanism=SCRAM-SHA-512, compression=zstd.

examples:
  oncegate endpoints add orders https://shop.example/hooks --reason "new customer"
  oncegate endpoints add orders https://shop.example/hooks --secret env:ORDERS_SECRET --policy advance \\
      --header "X-Team: planning" --rate 50 --reason "new customer"
  oncegate endpoints add plans "kafka://kafka.example:9093/plans?key=warehouse&tls=1" --follows acme \\
      --type "task.*" --reason "the planner's topic"
  ONCEGATE_ALLOW_LOOPBACK=1 oncegate endpoints add here http://127.0.0.1:8000/ --reason "trying it out\""""


def add_parser(subparsers: Any) -> None:
    """Adds the command group to the command line."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "endpoints",
        help="add, list, test, pause and resume the places events are sent to",
        description="Manage the endpoints that events are sent to. Secrets are never shown again.",
    )
    parser.set_defaults(run=print_help_as_error)
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    _add_add(commands)
    _add_list(commands)
    _add_show(commands)
    for verb, state, text in (
        ("pause", DestinationState.PAUSED, "send nothing there for now; events are kept and wait"),
        ("resume", DestinationState.ACTIVE, "send again, also after it was gone (410) or throttled"),
    ):
        steer = commands.add_parser(verb, help=text, description=text[0].upper() + text[1:] + ".")
        steer.add_argument("name", type=read_text, help="the endpoint")
        add_word(steer)
        steer.set_defaults(run=_run_steer, state=state)
    _add_test(commands)
    _add_rotate(commands)
    remove = commands.add_parser(
        "remove", help="forget an endpoint", description="Forget an endpoint; its events stay and wait."
    )
    remove.add_argument("name", type=read_text, help="the endpoint")
    add_word(remove)
    remove.set_defaults(run=_run_remove)


def _add_add(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "add", help="add an endpoint", description="Add an endpoint.", epilog=_ADD_EPILOG
    )
    parser.add_argument("name", type=read_text, help="what programs call it")
    parser.add_argument(
        "address", metavar="URL_TO_CALL", type=read_text, help="https://… or kafka://host:9092/topic"
    )
    parser.add_argument("--secret", type=read_text, help="whsec_…, whsk_… or env:NAME (default: a new one)")
    parser.add_argument(
        "--policy", choices=[one.value for one in OnDeadLetter], default=OnDeadLetter.BLOCK.value,
        help="what a key does after a dead letter: block (default), or advance to the next event",
    )  # fmt: skip
    parser.add_argument(
        "--format", choices=[one.value for one in BodyFormat], default=BodyFormat.STANDARD.value,
        help="the body: standard (default), cloudevents, or raw",
    )  # fmt: skip
    parser.add_argument(
        "--retry-for", default="3d", metavar="TIME",
        help="how long failed deliveries are retried before the event is a dead letter (default: 3d)",
    )  # fmt: skip
    parser.add_argument("--retry-base", default="1s", metavar="TIME", help="first wait; it doubles (1s)")
    parser.add_argument("--retry-cap", default="5m", metavar="TIME", help="longest wait (5m)")
    parser.add_argument(
        "--retry-jitter", type=float, default=0.1, metavar="SHARE",
        help="each wait is longer by a random part of this share of it (default: 0.1)",
    )  # fmt: skip
    parser.add_argument(
        "--attempts", type=read_number, metavar="N",
        help="give up after so many attempts, even before --retry-for has passed (default: no limit)",
    )  # fmt: skip
    parser.add_argument("--timeout", default="15s", metavar="TIME", help="for one try (default: 15s)")
    parser.add_argument("--rate", type=float, metavar="N", help="at most so many requests a second")
    parser.add_argument("--in-flight", type=read_number, default=64, metavar="N", help="at once (64)")
    parser.add_argument(
        "--header", action="append", default=[], metavar="'Name: value'", help="sent with every request"
    )
    _add_choice_of_events(parser)
    add_word(parser)
    add_json(parser)
    parser.set_defaults(run=_run_add)


def _add_choice_of_events(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--follows", type=read_text, metavar="TENANT", help="send what is published for this tenant"
    )
    parser.add_argument(
        "--type", action="append", default=[], type=read_text, metavar="TYPE", dest="types",
        help="send only events of this type, such as order.paid or order.*; may be repeated",
    )  # fmt: skip


def _run_add(arguments: argparse.Namespace) -> int:
    endpoint = new_endpoint(
        arguments.name,
        arguments.address,
        secret=arguments.secret,
        headers=_headers(arguments.header),
        body_format=BodyFormat(arguments.format),
        on_dead_letter=OnDeadLetter(arguments.policy),
        attempts_max=arguments.attempts,
        retry_for=parse_duration(arguments.retry_for),
        retry_base=parse_duration(arguments.retry_base),
        retry_cap=max(parse_duration(arguments.retry_cap), parse_duration(arguments.retry_base)),
        retry_jitter=arguments.retry_jitter,
        timeout=parse_duration(arguments.timeout),
        rate_per_second=arguments.rate,
        in_flight_max=arguments.in_flight,
        follows=arguments.follows,
        types=tuple(arguments.types),
    )
    with opened_sender(arguments.url) as sender:
        warning = sender.endpoints.add(endpoint, change_of(arguments))
    made = endpoint.secrets[0].text if arguments.secret is None and endpoint.secrets else None
    if warning is not None:
        tell(f"warning: {warning}")
    _tell_secret(endpoint.name, made, arguments, "added")
    return DONE


def _tell_secret(name: str, made: str | None, arguments: argparse.Namespace, what: str) -> None:
    if arguments.json:
        print_json({"name": name, "secret": made})
        return
    print(f"endpoint {name} {what}")
    if made is not None:
        tell("the receiver verifies with this secret; it is not shown again:")
        print(made)


def _headers(given: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in given:
        name, colon, value = line.partition(":")
        if not colon:
            raise ConfigError("--header is written 'Name: value'")
        headers[name.strip()] = value.strip()
    return headers


def _add_list(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "list",
        help="list endpoints with what waits for them and how deliveries go",
        description="List endpoints: what waits for each, which share of the attempts of the last hour"
        " succeeded, and within which time 95 of 100 deliveries ended.",
    )
    _add_full_url(parser)
    add_url(parser)
    add_json(parser)
    parser.set_defaults(run=_run_list)


def _run_list(arguments: argparse.Namespace) -> int:
    with reading(open_ledger(arguments.url, needs=Facet.LANES), arguments.url) as session:
        lag = {one.name: one for one in session.destinations()}
        circuits = read_circuits(session)
        stats = delivery_stats(session, SystemClock().wall_ms())
    with opened_sender(arguments.url) as sender:
        endpoints = sender.endpoints.all()
    now_ms = SystemClock().wall_ms()
    if arguments.json:
        for endpoint in endpoints:
            circuit = circuit_facts(circuits.get(endpoint.name))
            shown = endpoint.shown(full_url=arguments.full_url)
            done = stats.get(endpoint.name, NO_DELIVERIES)
            lagging = {**_lag(lag.get(endpoint.name), now_ms), **_stats(done)}
            print_json({**shown, **lagging, "circuit": circuit})
        return DONE
    if not endpoints:
        tell("no endpoints yet; add one with: oncegate endpoints add NAME URL --reason …")
        return DONE
    rows = [
        _row(
            one,
            one.shown(full_url=arguments.full_url)["url"],
            {**_lag(lag.get(one.name), now_ms), **_stats(stats.get(one.name, NO_DELIVERIES))},
            circuits,
        )
        for one in endpoints
    ]
    print_table(_HEADERS, rows)
    return DONE


def _lag(view: DestinationView | None, now_ms: int) -> dict[str, Any]:
    if view is None:
        return {"state": "active", "events": 0, "blocked": 0, "dead_letters": 0, "oldest_ms": None}
    oldest = None if view.oldest_created_at_ms is None else max(0, now_ms - view.oldest_created_at_ms)
    return {
        "state": view.state.label,
        "state_reason": view.reason,
        "throttled_for_ms": view.throttled_for_ms,
        "events": view.events,
        "blocked": view.blocked,
        "dead_letters": view.dead_letters,
        "oldest_ms": oldest,
    }


def _stats(done: DeliveryStats) -> dict[str, Any]:
    """Attempts of the last hour."""
    rate = None if done.rate is None else floor(done.rate * 10_000) / 10_000
    return {"attempts_1h": done.succeeded + done.failed, "success_1h": rate, "p95_ms_1h": done.p95_ms}


def _row(
    endpoint: Endpoint, url: str, lag: dict[str, Any], circuits: dict[str, CircuitView]
) -> tuple[Cell, ...]:
    oldest = "" if lag["oldest_ms"] is None else age(lag["oldest_ms"])
    state = "throttled" if lag.get("throttled_for_ms") and lag["state"] == "active" else lag["state"]
    counts = (grouped(lag[name]) for name in ("events", "blocked", "dead_letters"))
    stands = (endpoint.name, state, circuit_words(circuits.get(endpoint.name)), url)
    rate, p95 = lag["success_1h"], lag["p95_ms_1h"]
    success = "" if rate is None else "100%" if rate == 1 else f"{floor(rate * 1_000) / 10:.1f}%"
    done = (success, "" if p95 is None else f"{p95:,} ms")
    return cells(*stands, *counts, oldest, *done, endpoint.on_dead_letter.value)


def _add_show(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "show", help="show one endpoint's settings", description="Show an endpoint, without its secrets."
    )
    parser.add_argument("name", type=read_text, help="the endpoint")
    _add_full_url(parser)
    add_url(parser)
    add_json(parser)
    parser.set_defaults(run=_run_show)


def _add_full_url(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--full-url", action="store_true",
        help="show addresses as they are; otherwise what may be a secret in them is hidden",
    )  # fmt: skip


def _run_show(arguments: argparse.Namespace) -> int:
    with opened_sender(arguments.url) as sender:
        endpoint = sender.endpoints.get(arguments.name)
    shown = endpoint.shown(full_url=arguments.full_url)
    with reading(open_ledger(arguments.url, needs=Facet.LANES), arguments.url) as session:
        circuit = read_circuits(session).get(endpoint.name)
    if arguments.json:
        print_json({**shown, "circuit": circuit_facts(circuit)})
        return DONE
    rate = endpoint.rate_per_second
    fields = {
        "name": endpoint.name,
        "url": shown["url"],
        "follows": endpoint.follows or "nothing; programs emit to it",
        "types": ", ".join(endpoint.types) or "all",
        "format": endpoint.body_format.value,
        "on dead letter": endpoint.on_dead_letter.value,
        "retries": _retries(endpoint),
        "timeout": format_duration(endpoint.timeout),
        "rate": "unlimited" if rate is None else f"{rate:g}/s",
        "secrets": ", ".join(one["kind"] for one in shown["secrets"]) or "none; records are not signed",
        "headers": ", ".join(shown["headers"]) or "none",
        "circuit": circuit_sentence(circuit),
    }
    print_fields([(name, Cell.of(value)) for name, value in fields.items()])
    return DONE


def _retries(endpoint: Endpoint) -> str:
    base, cap = format_duration(endpoint.retry_base), format_duration(endpoint.retry_cap)
    limit = "" if endpoint.attempts_max is None else f", at most {endpoint.attempts_max} attempts"
    return f"for {format_duration(endpoint.retry_for)}{limit}; waits double from {base} to {cap}"


def _run_steer(arguments: argparse.Namespace) -> int:
    with reading(open_ledger(arguments.url, needs=Facet.LANES), arguments.url) as session:
        refuse_unknown_endpoint(session, arguments.name)  # also knows surface:NAME, which accepts events
    with opened_desk(arguments.url) as desk:
        changed = desk.steer(arguments.name, arguments.state, word_of(arguments))
    print(f"endpoint {arguments.name} {'is now' if changed else 'was already'} {arguments.state.label}")
    return DONE


def _add_test(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "test",
        help="send one signed test event now and show the answer",
        description="Send one signed event of type oncegate.test, outside every lane, and show the answer.",
    )
    parser.add_argument("name", type=read_text, help="the endpoint")
    add_url(parser)
    add_json(parser)
    parser.set_defaults(run=_run_test)


def _run_test(arguments: argparse.Namespace) -> int:
    with opened_sender(arguments.url) as sender:
        endpoint = sender.endpoints.get(arguments.name)
        judged = asyncio.run(send_test(endpoint, sender.endpoints.policy, sender.clock))
    if arguments.json:
        print_json({"result": judged.result.value, "reason": judged.reason})
    else:
        print(f"{judged.result.value}: {judged.reason}")
    return DONE if judged.result.value == "delivered" else NOT_SO


def _add_rotate(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "rotate-secret",
        help="sign with a new secret, and with the old one for a while",
        description="Sign with a new secret; earlier ones go on signing beside it for the overlap.",
    )
    parser.add_argument("name", type=read_text, help="the endpoint")
    parser.add_argument("--secret", type=read_text, help="whsec_…, whsk_… or env:NAME (default: a new one)")
    parser.add_argument("--ed25519", action="store_true", help="make a new ed25519 key (v1a) instead")
    parser.add_argument("--overlap", default="1d", metavar="TIME", help="how long both sign (default: 1d)")
    add_word(parser)
    add_json(parser)
    parser.set_defaults(run=_run_rotate)


def _run_rotate(arguments: argparse.Namespace) -> int:
    overlap = parse_duration(arguments.overlap)
    key = Ed25519SigningKey.generate() if arguments.ed25519 else None
    made = HmacSecret.generate().reveal() if key is None else key.reveal()
    text = arguments.secret or made
    with opened_sender(arguments.url) as sender:
        now_ms = sender.clock.wall_ms()
        sender.endpoints.change(
            arguments.name, lambda one: one.rotated(text, now_ms, overlap), change_of(arguments), "rotated"
        )
    shown = None if arguments.secret else (made if key is None else key.public_key().text)
    _tell_secret(arguments.name, shown, arguments, "signs with a new secret")
    return DONE


def _run_remove(arguments: argparse.Namespace) -> int:
    with opened_sender(arguments.url) as sender:
        sender.endpoints.remove(arguments.name, change_of(arguments))
    print(f"endpoint {arguments.name} removed; events that wait for it are kept")
    return DONE
