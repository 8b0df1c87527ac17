"""`oncegate events`: send a published event to its followers once more."""

from __future__ import annotations

import argparse
from typing import Any, Final

from msgspec.structs import replace

from oncegate.cli.exitcodes import DONE, NOT_SO
from oncegate.cli.ledger import open_ledger, reading
from oncegate.cli.output import print_json, tell
from oncegate.cli.parser import add_json, print_help_as_error, read_text
from oncegate.cli.sending import add_word, opened_desk, word_of
from oncegate.errors import ConfigError
from oncegate.sender.endpoint_registry import followers
from oncegate.sender.operator_actions import OperatorActions
from oncegate.store import DeliveryView, Session

PAGE: Final = 500
_DESCRIPTION: Final = """\
Send a published event once more to the endpoints that follow its tenant. It carries the same
Idempotency-Key, key and seq, and a nonce of its own; newer events of the key wait until it is
there. An event that is still on its way is left alone."""
_EPILOG: Final = """\
examples:
  oncegate events resend task-17 --tenant acme --reason "they lost it"
  oncegate events resend task-17 --tenant acme --endpoint executor-1 --reason "they lost it\""""


def add_parser(subparsers: Any) -> None:
    """Adds the command group to the command line."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "events", help="send a published event once more", description=_DESCRIPTION
    )
    parser.set_defaults(run=print_help_as_error)
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    resend = commands.add_parser(
        "resend", help="send an event once more", description=_DESCRIPTION, epilog=_EPILOG
    )
    resend.add_argument("event", type=read_text, metavar="ID", help="the event's id")
    resend.add_argument("--tenant", type=read_text, required=True, help="whose event it is")
    resend.add_argument("--endpoint", type=read_text, help="only to this one (default: all that follow)")
    add_word(resend)
    add_json(resend)
    resend.set_defaults(run=_run_resend)


def _run_resend(arguments: argparse.Namespace) -> int:
    with reading(open_ledger(arguments.url), arguments.url) as session:
        places = _places(session, arguments)
    done = []
    with opened_desk(arguments.url) as desk:
        for name, lane_id, delivery in places:
            done.append(_sent(desk, name, lane_id, delivery, arguments))
    return DONE if any(done) else NOT_SO


def _places(session: Session, arguments: argparse.Namespace) -> list[tuple[str, int, DeliveryView]]:
    """Where the event was put: endpoint, lane, delivery."""
    event = session.published_event(arguments.tenant, arguments.event)
    if event is None:
        raise ConfigError(f"no event {arguments.event[:60]!r} of this tenant is kept")
    names = followers(session) if arguments.endpoint is None else [arguments.endpoint]
    found = []
    for name in names:
        lane = session.find_lane(name, arguments.tenant, event.key)
        delivery = None if lane is None else _delivery(session, lane.lane_id, event.event_id)
        if lane is not None and delivery is not None:
            found.append((name, lane.lane_id, delivery))
    if not found:
        raise ConfigError(
            "no endpoint has this event any more: it went out too long ago, or all were added after it"
        )
    return found


def _delivery(session: Session, lane_id: int, event_id: str) -> DeliveryView | None:
    seq = 1
    while page := session.deliveries(lane_id, seq, PAGE):
        for one in page:
            if one.event_id == event_id:
                return one
        seq = page[-1].seq + 1
    return None


def _sent(
    desk: OperatorActions, name: str, lane_id: int, delivery: DeliveryView, arguments: argparse.Namespace
) -> bool:
    wanted = replace(
        desk.replay_wanted(name, word_of(arguments)),
        lane_id=lane_id,
        seq_from=delivery.seq,
        seq_to=delivery.seq,
    )
    is_past = delivery.acknowledged_at_ms is not None or delivery.is_dead
    is_sent = is_past and desk.replay(wanted).deliveries == 1
    if arguments.json:
        print_json({"endpoint": name, "event_id": delivery.event_id, "resent": is_sent})
    elif is_sent:
        print(f"{delivery.event_id} waits to be sent to {name} once more")
    else:
        tell(
            f"{delivery.event_id} is still on its way to {name}, or in another replay; nothing was changed"
        )
    return is_sent
