"""`oncegate dynamodb`: what is open in a DynamoDB ledger, and decisions about what waits for a person.

Such a ledger keeps claims only: it cannot list what is settled, and it keeps no events. An entry that was
approved runs when its sender delivers the event again.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec.structs import replace

from oncegate.cli.exitcodes import DONE
from oncegate.cli.ledger import open_ledger
from oncegate.cli.output import Cell, print_json, print_table, tell, utc
from oncegate.cli.parser import add_json, add_url, print_help_as_error, read_page_size, read_text
from oncegate.cli.people import actor_of, add_steps, steps_of
from oncegate.clock import SystemClock
from oncegate.errors import ConfigError, RulingRefused
from oncegate.model.decisions import Verb
from oncegate.model.escape import visible
from oncegate.review.decisions import EntryDecision, refusal, ruling_of
from oncegate.store import EntryDetail

if TYPE_CHECKING:
    from oncegate.stores.dynamodb import DynamoStore

LISTED_MAX: Final = 50
SEARCHED_MAX: Final = 1_000
KEY_SHOWN: Final = 16
_HEADERS: Final = ("KEY", "STATE", "SURFACE", "TENANT", "LABEL", "ATTEMPT", "RECEIVED (UTC)", "REASON")
_DESCRIPTION: Final = """\
List what is open in a DynamoDB ledger: in flight, to be tried again, held, in doubt. Approve or reject
what waits for a person. An approved event runs when it is delivered again."""
_EPILOG: Final = """\
examples:
  oncegate dynamodb open --url dynamodb://ledger?region=eu-central-1
  oncegate dynamodb approve 3f9ac2 --reason "the bank has no such payment" --step pay=did-not-happen
  oncegate dynamodb reject 3f9ac2 --reason "the order was cancelled" """


def add_parser(subparsers: Any) -> None:
    """Adds the command group to the command line."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "dynamodb",
        help="list, approve or reject what is open in a DynamoDB ledger",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    parser.set_defaults(run=print_help_as_error)
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    listing = commands.add_parser("open", help="list entries that are not final, the oldest first")
    listing.add_argument(
        "--limit", type=read_page_size, default=LISTED_MAX, help="how many (default: %(default)s)"
    )
    listing.set_defaults(run=run_open)
    approve = commands.add_parser("approve", help="let an entry run when its event is delivered again")
    reject = commands.add_parser("reject", help="end an entry: repeats get the name and the reason")
    for verb, command in ((Verb.APPROVE, approve), (Verb.REJECT, reject)):
        command.add_argument("key", metavar="KEY", type=read_text, help="how its key begins")
        command.add_argument("--reason", required=True, type=read_text, help="why; kept with the entry")
        command.add_argument("--as", dest="actor", metavar="NAME", type=read_text, help="who decides")
        add_steps(command)
        command.set_defaults(run=partial(run_verb, verb))
    for command in (listing, approve, reject):
        add_url(command)
        add_json(command)


def run_open(arguments: argparse.Namespace) -> int:
    """Lists what is open."""
    with _dynamo(arguments.url).look() as session:
        found = session.open_entries(arguments.limit)
    if arguments.json:
        for one in found:
            print_json(_facts(one))
    elif found:
        print_table(_HEADERS, [[Cell.of(text) for text in _facts(one).values()] for one in found])
    else:
        tell("nothing is open")
    return DONE


def run_verb(verb: Verb, arguments: argparse.Namespace) -> int:
    """Carries out a decision."""
    session = _dynamo(arguments.url).connect()
    seen = _find(session.open_entries(SEARCHED_MAX), arguments.key)
    word = EntryDecision(verb, actor_of(arguments), arguments.reason, steps_of(arguments))
    # The ledger keeps no events: the sender's next delivery brings this one.
    ruling = ruling_of(replace(seen, body=b""), word, SystemClock().wall_ms())
    answer = session.rule(ruling)
    if not answer.done or answer.entry is None:
        raise RulingRefused(refusal(answer, seen.entry.entry_id))
    if arguments.json:
        print_json(_facts(replace(seen, entry=answer.entry)))
    else:
        then = "; it runs when it is delivered again" if verb.runs else ""
        tell(f"{visible(seen.entry.label)} is {verb.past}{then}")
    return DONE


def _dynamo(url: str | None) -> DynamoStore:
    store = open_ledger(url, needs=None)
    if store.capabilities.name != "dynamodb":
        name = store.capabilities.name
        raise ConfigError(f"this is a {name} ledger; for it use: oncegate entries, oncegate held")
    return cast("DynamoStore", store)


def _find(found: list[EntryDetail], begin: str) -> EntryDetail:
    same = [one for one in found if one.entry.key.hex().startswith(begin.lower())]
    if len(same) == 1:
        return same[0]
    if same:
        raise ConfigError(
            f"{len(same)} open entries have keys that begin with {begin[:64]!r}; write more of it"
        )
    raise ConfigError(
        f"no open entry has a key that begins with {begin[:64]!r}; see: oncegate dynamodb open"
    )


def _facts(one: EntryDetail) -> dict[str, Any]:
    entry = one.entry
    return {
        "key": entry.key.hex()[:KEY_SHOWN],
        "state": entry.state.label,
        "surface": entry.surface,
        "tenant": entry.tenant,
        "label": entry.label,
        "attempt": entry.attempt,
        "received": utc(entry.received_at_ms),
        "reason": entry.reason or "",
    }
