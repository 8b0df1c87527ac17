"""`oncegate lanes`: the order of events by key, who waits for whom, and why."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any, Final, TextIO

from msgspec import to_builtins
from msgspec.structs import replace

from oncegate.cli.circuits import circuit_facts, circuit_sentence, tell_circuits
from oncegate.cli.exitcodes import DONE, NOT_SO
from oncegate.cli.ledger import open_ledger, reading
from oncegate.cli.output import Cell, age, grouped, print_fields, print_json, print_table, tell, utc
from oncegate.cli.parser import add_json, add_url, print_help_as_error, read_number, read_text
from oncegate.cli.sending import cells, refuse_unknown_endpoint
from oncegate.clock import SystemClock
from oncegate.lanes.circuit_status import CircuitView, read_circuits
from oncegate.sender.attempts import AttemptView, last_attempts
from oncegate.store import DeliveryView, Facet, LaneFilter, LaneState, LaneView

LIMIT_DEFAULT: Final = 50
EVENTS_SHOWN: Final = 20
IDLE_LOOKED_AT: Final = 100_000  # numbers in one search that takes idle lanes in
_HEADERS: Final = (
    "LANE", "ENDPOINT", "KEY", "STATE", "HEAD SEQ", "TRIES", "NEXT TRY", "BEHIND", "OLDEST", "LAST ERROR"
)  # fmt: skip
_ATTEMPT_HEADERS: Final = ("SEQ", "AT (UTC)", "RESULT", "STATUS", "TOOK", "RESPONSE")
_EVENT_HEADERS: Final = ("SEQ", "EVENT", "TYPE", "EMITTED (UTC)", "STATE", "TRIES", "NOTE")


def add_parser(subparsers: Any) -> None:
    """Adds the command group to the command line."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "lanes",
        help="see which keys flow, wait or are blocked, and why",
        description="Look at lanes: one for each endpoint and key. Nothing is changed.",
    )
    parser.set_defaults(run=print_help_as_error)
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    for name, states, text in (
        ("list", (), "list lanes that have something to send"),
        ("blocked", (LaneState.BLOCKED,), "list lanes that wait for an operator"),
    ):
        listing = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        add_filter(listing)
        listing.add_argument("--limit", type=read_number, default=LIMIT_DEFAULT, metavar="N", help="(50)")
        listing.add_argument(
            "--after", type=read_number, default=0, metavar="LANE", help="go on after this"
        )
        if name == "list":
            listing.add_argument(
                "--idle",
                action="store_true",
                help="also lanes that have nothing to send, of the next 100,000",
            )
        listing.add_argument("--key-contains", type=read_text, metavar="TEXT", help="a part of the key")
        add_url(listing)
        add_json(listing)
        listing.set_defaults(run=_run_list, states=states)
    _add_attempts(commands)
    show = commands.add_parser("show", help="show one lane with its events", description="Show one lane.")
    show.add_argument("endpoint", type=read_text, help="the endpoint")
    show.add_argument("key", type=read_text, help="the key")
    show.add_argument("--tenant", type=read_text, default="", help="the tenant")
    show.add_argument(
        "--from", dest="seq_from", type=read_number, metavar="SEQ", help="events from this on"
    )
    add_url(show)
    add_json(show)
    show.set_defaults(run=_run_show)


def _add_attempts(commands: Any) -> None:
    parser = commands.add_parser(
        "attempts",
        help="show the last attempts of one event: status, duration, response",
        description="Show the last attempts to deliver one event of a lane: when, which status, how long it"
        " took, and the beginning of the response. The last ten that failed are kept.",
    )
    parser.add_argument("endpoint", type=read_text, help="the endpoint")
    parser.add_argument("key", type=read_text, help="the key")
    parser.add_argument("--tenant", type=read_text, default="", help="the tenant")
    parser.add_argument("--seq", type=read_number, metavar="SEQ", help="the event (default: the head)")
    add_url(parser)
    add_json(parser)
    parser.set_defaults(run=_run_attempts)


def _run_attempts(arguments: argparse.Namespace) -> int:
    with reading(open_ledger(arguments.url, needs=Facet.LANES), arguments.url) as session:
        lane = session.find_lane(arguments.endpoint, arguments.tenant, arguments.key)
        if lane is None:
            tell("no event was ever emitted for this endpoint and key")
            return NOT_SO
        seq = arguments.seq or min(lane.due_seq, lane.last_seq)
        found = last_attempts(session, lane.lane_id, seq)
    if arguments.json:
        for one in found:
            print_json({"seq": seq, **to_builtins(one), "at": utc(one.at_ms)})
    elif found:
        print_table(_ATTEMPT_HEADERS, [_attempt_row(seq, one) for one in found])
    else:
        tell(f"no attempt of seq {seq} is on record")
    return DONE


def _attempt_row(seq: int, one: AttemptView) -> tuple[Cell, ...]:
    status = one.status or ("" if one.is_delivered else "none")
    took = "" if one.took_ms is None else f"{one.took_ms:,} ms"
    state = "delivered" if one.is_delivered else "failed"
    return cells(seq, utc(one.at_ms)[:23], state, status, took, one.answer)


def add_filter(parser: argparse.ArgumentParser) -> None:
    """Adds the options that say which lanes are meant."""
    parser.add_argument("--endpoint", type=read_text, help="lanes of this endpoint")
    parser.add_argument("--key", type=read_text, help="the lane of this key")
    parser.add_argument("--tenant", type=read_text, help="lanes of this tenant")


def filter_of(arguments: argparse.Namespace, states: tuple[LaneState, ...] = ()) -> LaneFilter:
    """The filter that the options make."""
    return LaneFilter(arguments.endpoint, arguments.tenant, arguments.key, states)


def _listed(arguments: argparse.Namespace) -> LaneFilter:
    upto = arguments.after + IDLE_LOOKED_AT if getattr(arguments, "idle", False) else None
    wanted = filter_of(arguments, arguments.states)
    return replace(wanted, key_contains=arguments.key_contains, idle_upto=upto)


def _run_list(arguments: argparse.Namespace) -> int:
    with reading(open_ledger(arguments.url, needs=Facet.LANES), arguments.url) as session:
        refuse_unknown_endpoint(session, arguments.endpoint)
        lanes = session.lanes(_listed(arguments), arguments.after, arguments.limit)
        circuits = read_circuits(session)
    if arguments.json:
        now_ms = SystemClock().wall_ms()
        for lane in lanes:
            print_json(lane_facts(lane, now_ms) | _circuit(lane, circuits))
        return DONE
    if not lanes:
        tell(
            "none that fits"
            if arguments.key_contains
            else "none is blocked"
            if arguments.states
            else "none; every event that was emitted has arrived"
        )
        return DONE
    print_lanes(lanes)
    shown = {lane.destination for lane in lanes}
    tell_circuits({name: view for name, view in circuits.items() if name in shown})
    if len(lanes) == arguments.limit:
        tell(f"there may be more; go on with --after {lanes[-1].lane_id}")
    return DONE


def print_lanes(lanes: Sequence[LaneView], stream: TextIO | None = None) -> None:
    """Prints lanes as a table."""
    now_ms = SystemClock().wall_ms()
    rows = [
        cells(
            lane.lane_id,
            lane.destination,
            lane.key,
            lane.state.label,
            lane.head_seq,
            grouped(lane.attempts),
            _next_try(lane),
            grouped(lane.waiting_behind),
            "" if lane.oldest_created_at_ms is None else age(max(0, now_ms - lane.oldest_created_at_ms)),
            lane.error or "",
        )
        for lane in lanes
    ]
    print_table(_HEADERS, rows, stream)


def _next_try(lane: LaneView) -> str:
    if lane.state is LaneState.BLOCKED:
        return "never"
    if lane.next_try_in_ms is None:
        return ""
    return "now" if lane.next_try_in_ms <= 0 else f"in {age(lane.next_try_in_ms)}"


def lane_facts(lane: LaneView, now_ms: int) -> dict[str, Any]:
    """A lane for programs."""
    oldest = lane.oldest_created_at_ms
    return {
        "lane": lane.lane_id,
        "endpoint": lane.destination,
        "tenant": lane.tenant,
        "key": lane.key,
        "state": lane.state.label,
        "head_seq": lane.head_seq,
        "last_seq": lane.last_seq,
        "attempts": lane.attempts,
        "next_try_in_ms": lane.next_try_in_ms,
        "waiting_behind": lane.waiting_behind,
        "oldest_ms": None if oldest is None else max(0, now_ms - oldest),
        "replaying_seq": lane.replaying_seq,
        "error": lane.error,
    }


def _run_show(arguments: argparse.Namespace) -> int:
    with reading(open_ledger(arguments.url, needs=Facet.LANES), arguments.url) as session:
        lane = session.find_lane(arguments.endpoint, arguments.tenant, arguments.key)
        if lane is None:
            tell("no event was ever emitted for this endpoint and key")
            return NOT_SO
        first = arguments.seq_from or max(1, lane.head_seq - EVENTS_SHOWN // 2)
        events = session.deliveries(lane.lane_id, first, EVENTS_SHOWN)
        circuits = read_circuits(session)
    facts = lane_facts(lane, SystemClock().wall_ms())
    if arguments.json:
        print_json({**facts, **_circuit(lane, circuits), "events": [_event_facts(one) for one in events]})
        return DONE
    facts["circuit"] = circuit_sentence(circuits.get(lane.destination))
    print_fields(
        [(name.replace("_", " "), Cell.of(value)) for name, value in facts.items() if value is not None]
    )
    print()
    print_table(_EVENT_HEADERS, [_event_row(one, lane) for one in events])
    return DONE


def _circuit(lane: LaneView, circuits: Mapping[str, CircuitView]) -> dict[str, Any]:
    return {"circuit": circuit_facts(circuits.get(lane.destination))}


def _event_facts(event: DeliveryView) -> dict[str, Any]:
    return {
        "seq": event.seq,
        "event_id": event.event_id,
        "type": event.type,
        "emitted_at": utc(event.created_at_ms),
        "acknowledged_at": None if event.acknowledged_at_ms is None else utc(event.acknowledged_at_ms),
        "attempts": event.attempts,
        "dead_letter": event.is_dead,
        "note": event.note,
    }


def _event_row(event: DeliveryView, lane: LaneView) -> tuple[Cell, ...]:
    if event.is_dead:
        state = "dead letter"
    elif event.acknowledged_at_ms is not None:
        state = "delivered"
    else:
        state = lane.state.label if event.seq == lane.head_seq else "waits"
    emitted = utc(event.created_at_ms)
    return cells(event.seq, event.event_id, event.type, emitted, state, event.attempts, event.note or "")
