"""`oncegate surfaces`: what each surface's events are recognised by, and a person's yes to a change."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from typing import Any, Final

from oncegate.cli import surface_document
from oncegate.cli.confirming import is_confirmed
from oncegate.cli.exitcodes import DONE, NOT_SO
from oncegate.cli.ledger import open_ledger, reading
from oncegate.cli.output import print_json, print_table, tell, utc
from oncegate.cli.parser import add_json, add_url, print_help_as_error, read_text
from oncegate.cli.sending import add_confirming, cells, word_of
from oncegate.cli.surface_decisions import add_commands
from oncegate.clock import SystemClock
from oncegate.commit.group_commit import GroupCommit
from oncegate.commit.registry_operations import ChangeDocument
from oncegate.errors import ConfigError, UnknownSurface
from oncegate.model.durations import format_duration, parse_duration
from oncegate.model.identity import KIND, Identity, KeyRule, LedgerNow, accepted, read_identity, rekeyed
from oncegate.model.paths import parse_path
from oncegate.model.surface_decisions import SurfaceDecisions
from oncegate.model.template import KeyTemplate
from oncegate.review.surface_decisions import all_decided
from oncegate.store import Document, DocumentChange, EntryFilter, Session
from oncegate.store.notices import RETENTION

OVERLAP_DEFAULT: Final = "1d"
COUNTED_MAX: Final = 10_000
_MILLISECOND: Final = timedelta(milliseconds=1)
_HEADERS: Final = (
    "SURFACE",
    "DECIDED",
    "KEY TEMPLATE",
    "TENANT",
    "RETENTION",
    "FUNCTIONS",
    "EARLIER TEMPLATES",
)
_DESCRIPTION = """\
A ledger keeps the key template of every surface, where its tenant comes from, and which function
stands behind a name under @gate.once. A program that declares another one is refused before
anything runs: every known event would be new to it, and run again. The list also shows the
retention that the last pruner obeyed: of the surface, then of tenants that have their own."""
_REKEY = """\
Accept another key template. For the time of --overlap, programs with the old and with the new
template run side by side, and both make keys by the old one. Then the new one makes the keys, and
programs that still declare the old one are refused. Old keys are looked up first for as long as
entries under them are kept: an event known under its old key is a replay, never new."""
_ACCEPT = """\
Accept another function under a name: one that was moved or renamed. Both are accepted from then on,
so that the old and the new program can run side by side. Two functions that do different things
must not share a name: each would answer the other's calls."""
_EPILOG = """\
examples:
  oncegate surfaces list
  oncegate surfaces switch orders paused --reason 'wrong prices'
  oncegate surfaces rekey orders --from '{order_id}' --to '{order_id:str}' --reason 'typed key'
  oncegate surfaces accept orders.charge --origin billing.orders:charge --reason 'moved'"""


def add_parser(subparsers: Any) -> None:
    """Adds the commands to the command line."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "surfaces", help="see what events are recognised by; accept a change of it",
        description=_DESCRIPTION, epilog=_EPILOG,
    )  # fmt: skip
    parser.set_defaults(run=print_help_as_error)
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    listing = commands.add_parser("list", help="list surfaces with their key templates")
    add_url(listing)
    add_json(listing)
    listing.set_defaults(run=run_list)
    rekey = _command(commands, "rekey", "accept another key template", _REKEY, run_rekey)
    rekey.add_argument("--from", dest="old", type=read_text, required=True, help="the template so far")
    rekey.add_argument("--to", dest="new", type=read_text, required=True, help="the template from now on")
    rekey.add_argument(
        "--tenant", metavar="PATH",
        help="where the tenant comes from now on; '' for the sender (default: as it is)",
    )  # fmt: skip
    rekey.add_argument(
        "--overlap", default=OVERLAP_DEFAULT, metavar="TIME",
        help="how long programs with the old template go on (default: %(default)s)",
    )  # fmt: skip
    rekey.add_argument(
        "--allow-transport", action="append", default=[], metavar="FIELD", help="as in the declaration"
    )
    add_commands(commands, _command)
    surface_document.add_commands(commands, _command)
    accept = _command(commands, "accept", "accept another function under a name", _ACCEPT, run_accept)
    accept.add_argument(
        "--origin", type=read_text, required=True, help="the function, as module:name (see the refusal)"
    )


def _command(
    commands: Any, name: str, text: str, description: str, run: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=description)
    parser.add_argument("surface", type=read_text, metavar="SURFACE", help="the surface's name")
    add_confirming(parser)
    parser.set_defaults(run=run)
    return parser


def run_list(arguments: argparse.Namespace) -> int:
    """Lists what the ledger keeps."""
    with reading(open_ledger(arguments.url), arguments.url) as session:
        found = [(one.name, read_identity(one.body)) for one in session.documents(KIND)]
        kept = {one.name: one.body.decode() for one in session.notices(RETENTION)}
        decided = {name: one.decided for name, one in all_decided(session).items()}
    if arguments.json:
        facts = [{**_facts(name, identity), "retention": kept.get(name)} for name, identity in found]
        print_json({"surfaces": [{**one, **_decided(decided.get(one["surface"]))} for one in facts]})
    else:
        rows = [
            cells(*_row(name, identity, kept.get(name, ""), decided.get(name))) for name, identity in found
        ]
        print_table(_HEADERS, rows)
    return DONE


def run_rekey(arguments: argparse.Namespace) -> int:
    """Shows what a change of the key template means, and makes it."""
    overlap = parse_duration(arguments.overlap)
    template = KeyTemplate.parse(arguments.new, allow_transport=arguments.allow_transport)

    def change(kept: Identity, now: LedgerNow) -> Identity:
        if kept.key != arguments.old:
            raise ConfigError(
                f"the key template of {arguments.surface} is {kept.key!r}, not what --from says;"
                " nothing was changed"
            )
        tenant = kept.tenant if arguments.tenant is None else arguments.tenant.strip("{}")
        rule = KeyRule(template, parse_path(tenant) if tenant else None)
        return rekeyed(kept, rule, now, overlap // _MILLISECOND)

    what = f"key template {arguments.old!r} to {arguments.new!r}"
    if arguments.tenant is not None:
        what += f", tenant from {arguments.tenant or 'the sender'}"
    plan = (
        f"for {format_duration(overlap)} keys are made by the old template, by old and new programs; then"
        " by the new one, old programs are refused, and old keys are looked up while entries are kept"
    )
    return _change(arguments, change, what, plan)


def run_accept(arguments: argparse.Namespace) -> int:
    """Shows what another function under a name means, and accepts it."""

    def change(kept: Identity, now: LedgerNow) -> Identity:
        return accepted(kept, arguments.origin)

    return _change(
        arguments, change, f"function {arguments.origin} accepted", "it answers by this name too"
    )


def _change(
    arguments: argparse.Namespace,
    change: Callable[[Identity, LedgerNow], Identity],
    what: str,
    plan: str,
) -> int:
    store, clock, word = open_ledger(arguments.url), SystemClock(), word_of(arguments)

    def look() -> tuple[Document, Identity, int]:
        with reading(store, arguments.url) as session:
            kept = _kept(session, arguments.surface)
            made = change(read_identity(kept.body), LedgerNow(session.now_ticks(), clock.wall_ms()))
            known = session.entries(EntryFilter(surface=arguments.surface), None, COUNTED_MAX + 1)
            return kept, made, len(known)

    kept, made, entries = look()
    shown = f"more than {COUNTED_MAX}" if entries > COUNTED_MAX else f"{entries}"
    if not arguments.json:
        tell(f"{arguments.surface}: {what}; {shown} entries are known; {plan}")
    if arguments.dry_run or not (arguments.yes or is_confirmed(entries)):
        return _tell(arguments, made, entries, is_done=False)
    _, made, _ = look()  # an overlap counts from the yes, which may have taken its time
    note = f"{arguments.surface}: {what}: {word.reason}"
    wanted = DocumentChange(
        KIND, kept.name, kept.version, made.encoded(), clock.wall_ms(), word.actor, note
    )
    with closing(GroupCommit(store)) as commits:
        if not commits.submit(ChangeDocument(wanted)):
            raise ConfigError(f"{arguments.surface} was changed meanwhile; nothing was done, look again")
    return _tell(arguments, made, entries, is_done=True)


def _kept(session: Session, surface: str) -> Document:
    found = session.document(KIND, surface)
    if found is None:
        known = ", ".join(one.name for one in session.documents(KIND)) or "none"
        raise UnknownSurface(f"no surface {surface[:120]!r} is registered in this ledger; known: {known}")
    return found


def _tell(arguments: argparse.Namespace, made: Identity, entries: int, *, is_done: bool) -> int:
    if arguments.json:
        print_json({**_facts(arguments.surface, made), "entries": entries, "done": is_done})
    elif is_done:
        print(f"{arguments.surface}: changed")
    else:
        tell("nothing was changed")
    return DONE if is_done or arguments.dry_run else NOT_SO


def _facts(name: str, identity: Identity) -> dict[str, Any]:
    return {
        "surface": name,
        "key": identity.key,
        "tenant": identity.tenant,
        "origins": list(identity.origins),
        "former": [{"key": f.key, "tenant": f.tenant, "until": utc(f.until_ms)} for f in identity.former],
    }


def _decided(decided: SurfaceDecisions | None) -> dict[str, Any]:
    if decided is None:
        return {"mode": None, "ignore": [], "window": None}
    mode = None if decided.mode is None else decided.mode.value
    return {"mode": mode, "ignore": list(decided.ignore), "window": decided.retention}


def _row(
    name: str, identity: Identity, retention: str, decided: SurfaceDecisions | None
) -> tuple[str, ...]:
    former = "; ".join(f"{f.key} until {utc(f.until_ms)}" for f in identity.former)
    said = "" if decided is None else decided.text
    return name, said, identity.key, identity.tenant or "", retention, ", ".join(identity.origins), former
