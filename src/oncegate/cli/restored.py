"""`oncegate restored`: what is in doubt after the ledger went back in time, and decisions about it.

A process that noticed has written down what it remembered. Without such a process nothing can be listed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from oncegate.cli.bulk import run_bulk
from oncegate.cli.entries import find_entry
from oncegate.cli.exitcodes import DONE, NOT_SO
from oncegate.cli.ledger import open_ledger, reading
from oncegate.cli.output import Cell, print_json, print_table, tell, utc
from oncegate.cli.parser import add_json, add_url, print_help_as_error, read_text
from oncegate.cli.people import actor_of, speaking
from oncegate.cli.waiting_filters import add_filters, filter_of, has_filter
from oncegate.clock import SystemClock
from oncegate.commit.group_commit import GroupCommit
from oncegate.errors import ConfigError, RulingRefused
from oncegate.gate.flows.restore import REASON
from oncegate.model.decisions import Verb, check_actor, check_reason
from oncegate.model.escape import visible
from oncegate.model.identity import KIND as IDENTITY
from oncegate.model.moments import read_moment
from oncegate.model.states import State
from oncegate.model.surface_decisions import SurfaceMode
from oncegate.review.decisions import EntryDecision
from oncegate.review.surface_decisions import decide, decided_about
from oncegate.store import Document, DocumentChange, LogKind, Session, Store
from oncegate.store.incarnations import WENT_BACK

_HEADERS: Final = ("KEY", "SURFACE", "TENANT", "LABEL", "WAS", "AT (UTC)", "RESOURCE", "NOW")
_DESCRIPTION: Final = """\
After a failover that lost commits, or a restore under running processes: the events that a process had
settled and that the ledger has no more. They wait, so that a redelivery does not run them again. Where
every downstream recognises the key or can be asked, recovery settles them by itself."""
_EPILOG: Final = """\
examples:
  oncegate restored begin --since 2026-11-18T02:00Z --reason "backup of 02:00 restored"
  oncegate restored list
  oncegate restored fence --surface mail --all --reason "the mails went out"
  oncegate restored release 3f9ac2 --reason "the bank has no such payment"
  oncegate restored close --reason "compared with the bank's statement" """


def add_parser(subparsers: Any) -> None:
    """Adds the command group to the command line."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "restored",
        help="decide what a ledger that went back has lost",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    parser.set_defaults(run=print_help_as_error)
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    _add_begin(commands)
    _add_list(commands)
    _add_verb(commands, "fence", Verb.REJECT, "keep events from running: their effects stand")
    _add_verb(commands, "release", Verb.APPROVE, "let events run again: their effects do not stand")
    _add_close(commands)


def _add_begin(commands: Any) -> None:
    parser = commands.add_parser(
        "begin",
        help="keep a restored ledger from running anything",
        description="Pause every surface of a ledger that was restored from a backup, before its processes"
        " start: senders are asked to come again. Bring the keys of what happened since the backup with"
        " `oncegate import`, then switch each surface on: `oncegate surfaces switch NAME on`.",
    )
    parser.add_argument(
        "--since", required=True, type=read_text, metavar="WHEN",
        help="since when effects are in doubt: the time of the backup, such as 2026-11-18T02:00Z",
    )  # fmt: skip
    _add_who(parser)
    add_url(parser)
    add_json(parser)
    parser.set_defaults(run=run_begin)


def _add_list(commands: Any) -> None:
    parser = commands.add_parser(
        "list",
        help="list what is in doubt, by incident",
        description="List each time the ledger went back, with the events written down then. Only reads.",
    )
    add_url(parser)
    add_json(parser)
    parser.set_defaults(run=run_list)


def _add_verb(commands: Any, name: str, verb: Verb, said: str) -> None:
    parser = commands.add_parser(
        name, help=said, description=f"{said.capitalize()}. One by its id or key, or all that fit."
    )
    parser.add_argument(
        "entry", metavar="KEY_OR_ID", nargs="?", type=read_text,
        help="its id, or how its key begins; without it, the filters say which",
    )  # fmt: skip
    _add_who(parser)
    add_filters(parser)
    parser.add_argument("--all", action="store_true", help="all that wait, where no filter is given")
    parser.add_argument("--dry-run", action="store_true", help="show the plan for many; change nothing")
    parser.add_argument("--yes", action="store_true", help="carry out the plan for many without asking")
    add_url(parser)
    add_json(parser)
    parser.set_defaults(run=partial(run_verb, verb), doubles=None)


def _add_close(commands: Any) -> None:
    parser = commands.add_parser(
        "close",
        help="end the alarm of incidents of which nothing waits any more",
        description="Close incidents of which no event waits any more; the signal is calm then.",
    )
    _add_who(parser)
    add_url(parser)
    parser.set_defaults(run=run_close)


def _add_who(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--reason", required=True, type=read_text, help="why; kept in the log")
    parser.add_argument(
        "--as", dest="actor", metavar="NAME", type=read_text, help="who you are (default: your login)"
    )


def run_begin(arguments: argparse.Namespace) -> int:
    """Pauses every surface, and writes down since when; one that is paused gets the new reason."""
    store, clock, actor = open_ledger(arguments.url), SystemClock(), check_actor(actor_of(arguments))
    now_ms = clock.wall_ms()
    since_ms = read_moment(arguments.since, now_ms)
    since = utc(since_ms)
    if since_ms > now_ms:
        raise ConfigError(f"--since {since} is in the future; it is {utc(now_ms)} now. Nothing was paused")
    reason = check_reason(f"restored, effects since {since} are in doubt: {arguments.reason}")
    with reading(store, arguments.url) as session:
        found = [decided_about(session, one.name) for one in session.documents(IDENTITY)]
    with closing(GroupCommit(store)) as commits:
        for one in found:
            made = replace(one.decided, mode=SurfaceMode.PAUSED, why=reason, by=actor, at_ms=now_ms)
            decide(commits, clock, one, made, what=SurfaceMode.PAUSED.value, actor=actor, reason=reason)
    if arguments.json:
        print_json({"since": since, "paused": [one.surface for one in found]})
        return DONE if found else NOT_SO
    if not found:
        tell("nothing was paused: no surface is registered in this ledger. Is it the restored one?")
        return NOT_SO
    print(f"paused: {', '.join(visible(one.surface) for one in found)}")
    tell(f"bring the keys of what happened since {since} (oncegate import), then switch each surface on:")
    tell("oncegate surfaces switch NAME on --reason WHY")
    return DONE


def run_list(arguments: argparse.Namespace) -> int:
    """Prints the incidents, the oldest first."""
    with reading(open_ledger(arguments.url), arguments.url) as session:
        found = [(one, list(_events(session, one))) for one in session.documents(WENT_BACK)]
    for document, events in found:
        facts = msgspec.json.decode(document.body)
        if arguments.json:
            print_json({**facts, "incident": document.name, "events": events})
            continue
        tell(
            f"{utc(facts['at_ms'])}: the ledger went back;"
            f" effects since {utc(facts['since_ms'])} are in doubt"
            f" ({facts['before'][0]} at {facts['before'][1]}, then {facts['after'][0]} at"
            f" {facts['after'][1]}; {facts['undone']} undone with their writes)"
        )
        print_table(_HEADERS, [_row(event) for event in events])
    if not found:
        tell("the ledger is not known to have gone back")
    return DONE


def _events(session: Session, document: Document) -> Iterator[dict[str, Any]]:
    facts = msgspec.json.decode(document.body)
    events = [*facts["held"], *facts["recovering"], *facts["ran_again"]]
    entries = session.read([bytes.fromhex(event["key"]) for event in events]) if events else []
    for event, entry in zip(events, entries, strict=True):
        yield {**event, "now": "gone" if entry is None else entry.state.label, "waits": _waits(entry)}


def _waits(entry: Any) -> bool:
    return entry is not None and entry.state is State.HELD and (entry.reason or "").startswith(REASON)


def _row(event: dict[str, Any]) -> tuple[Cell, ...]:
    named = (event["key"][:12], event["surface"], event["tenant"], event["label"], event["state"])
    rest = (utc(event["at_ms"]), event["resource"] or "", event["now"])
    return tuple(Cell.of(value) for value in (*named, *rest))


def run_verb(verb: Verb, arguments: argparse.Namespace) -> int:
    """Decides about one event, or about all that fit."""
    word = EntryDecision(verb, actor_of(arguments), arguments.reason)
    store = open_ledger(arguments.url)
    if arguments.entry is not None:
        if has_filter(arguments) or arguments.all or arguments.dry_run:
            raise ConfigError("give an entry or filters, not both; --dry-run is for filters")
        return _say(store, word, arguments)
    if not (has_filter(arguments) or arguments.all):
        raise ConfigError("say which: an id or a key, filters such as --surface, or --all")
    wanted = filter_of((State.HELD,), arguments)
    if wanted.reason_contains is not None:
        raise ConfigError("--reason-contains cannot be used here: the reason says what these events are")
    return run_bulk(store, word, replace(wanted, reason_contains=REASON), arguments)


def _say(store: Store, word: EntryDecision, arguments: argparse.Namespace) -> int:
    with reading(store, arguments.url) as session:
        seen = find_entry(session, arguments.entry)
    if not _waits(seen.entry):
        raise RulingRefused(f"entry {seen.entry.entry_id} does not wait here; see: oncegate restored list")
    with speaking(store) as rulings:
        entry = rulings.say(seen.entry.entry_id, word, seen.entry.fence, seen.entry.key)
    print(visible(f"entry {entry.entry_id} {entry.reason}"))
    return DONE


def run_close(arguments: argparse.Namespace) -> int:
    """Closes incidents of which nothing waits."""
    actor, reason = check_actor(actor_of(arguments)), check_reason(arguments.reason)
    store = open_ledger(arguments.url)
    with reading(store, arguments.url) as session:
        found = [
            (one, sum(event["waits"] for event in _events(session, one)))
            for one in session.documents(WENT_BACK)
        ]
    session = store.connect()
    try:
        for document, waiting in found:
            if waiting:
                tell(f"{document.name}: {waiting} events wait still; fence or release them first")
                continue
            at_ms = SystemClock().wall_ms()
            change = DocumentChange(
                WENT_BACK, document.name, document.version, None, at_ms, actor, reason, LogKind.WENT_BACK
            )
            with session.unit():
                closed = session.change_document(change)
            tell(f"{document.name}: {'closed' if closed else 'was changed meanwhile'}")
    finally:
        session.close()
    return DONE
