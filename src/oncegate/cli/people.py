"""What `oncegate held` and `oncegate quarantine` share: list, show, and say a word about one entry.

A word about many entries is in `cli/bulk.py`. Must never decide anything: what may be said, and what it
does, is the use case's (`review/decisions.py`).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from oncegate.cli import timeline
from oncegate.cli.entries import find_entry, print_entries, refuse_unknown_surface
from oncegate.cli.exitcodes import DONE
from oncegate.cli.ledger import open_ledger, reading
from oncegate.cli.output import print_json, tell, utc
from oncegate.cli.parser import (
    PAGE_MAX,
    add_json,
    add_url,
    print_help_as_error,
    read_number,
    read_page_size,
    read_text,
)
from oncegate.cli.waiting_filters import add_filters, filter_of, has_filter
from oncegate.clock import SystemClock
from oncegate.commit.group_commit import GroupCommit
from oncegate.errors import ConfigError, RulingRefused
from oncegate.model.decisions import Verb
from oncegate.model.escape import visible
from oncegate.model.states import State
from oncegate.review.conflicts import Contest, contest_of, difference_remarks
from oncegate.review.decisions import Decisions, EntryDecision, StepDecision
from oncegate.review.doubles import Choice, SameChanges, twin_remarks
from oncegate.review.review_view import consequence, parked_by, remarks, waits_for
from oncegate.store import Entry, EntryDetail, Facet, Session, Store

LIMIT_DEFAULT: Final = 50


@dataclass(frozen=True, slots=True)
class ReviewCommands:
    """One command group: whose entries it shows and which two words it takes."""

    name: str
    states: tuple[State, ...]
    lets_run: Verb
    ends: Verb
    description: str
    epilog: str

    @property
    def verbs(self) -> tuple[Verb, Verb]:
        """Both words."""
        return self.lets_run, self.ends


def add_desk(subparsers: Any, desk: ReviewCommands) -> None:
    """Adds a command group to the command line."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        desk.name,
        help=f"decide about {desk.name} entries",
        description=desk.description,
        epilog=desk.epilog,
    )
    parser.set_defaults(run=print_help_as_error)
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    _add_list(commands, desk)
    _add_show(commands, desk)
    for verb in desk.verbs:
        add_verb(commands, desk, verb)


def _add_list(commands: Any, desk: ReviewCommands) -> None:
    parser = commands.add_parser("list", help="list what waits, newest first")
    add_filters(parser)
    parser.add_argument(
        "--limit", type=read_page_size, default=LIMIT_DEFAULT, metavar="N",
        help=f"at most so many entries, up to {PAGE_MAX} (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--before", type=read_number, metavar="ID", help="only entries older than this one")
    add_url(parser)
    add_json(parser)
    parser.set_defaults(run=partial(run_list, desk))


def _add_show(commands: Any, desk: ReviewCommands) -> None:
    parser = commands.add_parser("show", help="show one entry: why it waits, and what each word would do")
    parser.add_argument("entry", metavar="KEY_OR_ID", type=read_text, help="its id, or how its key begins")
    parser.add_argument("--payload", action="store_true", help="also show the event and the steps' results")
    add_url(parser)
    add_json(parser)
    parser.set_defaults(run=partial(run_show, desk))


def add_verb(commands: Any, desk: ReviewCommands, verb: Verb) -> None:
    """Adds a word to a command group."""
    parser = commands.add_parser(
        verb.value,
        help=f"{verb.value} one entry, or all that fit a filter",
        epilog=desk.epilog,
        description=f"{verb.value.capitalize()} one entry by its id or key, or all that fit the filters.",
    )
    parser.add_argument(
        "entry", metavar="KEY_OR_ID", nargs="?", type=read_text,
        help="its id, or how its key begins; without it, the filters say which",
    )  # fmt: skip
    parser.add_argument("--reason", required=True, type=read_text, help="why; kept in the log")
    parser.add_argument(
        "--as", dest="actor", metavar="NAME", type=read_text, help="who you are (default: your login)"
    )
    parser.add_argument(
        "--fence", type=read_number, metavar="N", help="only if the fence that `show` prints is still this"
    )  # fmt: skip
    if verb.runs:
        add_steps(parser)
        parser.add_argument(
            "--doubles", choices=[choice.value for choice in Choice],
            help="of entries that are the same change as another one, let run: one of each, all (the change"
            " runs twice), or none",
        )  # fmt: skip
    add_filters(parser)
    parser.add_argument("--all", action="store_true", help="all that wait, where no filter is given")
    parser.add_argument("--dry-run", action="store_true", help="show the plan for many; change nothing")
    parser.add_argument("--yes", action="store_true", help="carry out the plan for many without asking")
    add_url(parser)
    add_json(parser)
    parser.set_defaults(run=partial(run_verb, desk, verb))


def add_steps(parser: argparse.ArgumentParser) -> None:
    """Adds what a person may say about steps in doubt."""
    parser.add_argument(
        "--step", action="append", default=[], type=read_text, metavar="NAME=WHAT",
        help="what you found out about a step in doubt: happened, happened:RESOURCE or did-not-happen",
    )  # fmt: skip
    parser.add_argument(
        "--result", action="append", default=[], type=read_text, metavar="NAME=JSON",
        help='what a step that happened returned, if that is not {"id": RESOURCE}',
    )  # fmt: skip


def run_list(desk: ReviewCommands, arguments: argparse.Namespace) -> int:
    """Prints one page of what waits."""
    with reading(open_ledger(arguments.url, needs=Facet.OPEN_ENTRIES), arguments.url) as session:
        found = session.entries(filter_of(desk.states, arguments), arguments.before, arguments.limit + 1)
        if not found and arguments.surface is not None:
            refuse_unknown_surface(session, arguments.surface)
    _print_page(found[: arguments.limit], arguments)
    if len(found) > arguments.limit:
        tell(f"there are more; the next page: add --before {found[arguments.limit - 1].entry_id}")
    return DONE


def _print_page(page: Sequence[Entry], arguments: argparse.Namespace) -> None:
    if arguments.json:
        for entry in page:
            print_json(timeline.facts(entry))
    elif page:
        print_entries(page)
    else:
        tell("nothing waits" + (" that fits" if has_filter(arguments) else ""))


def run_show(desk: ReviewCommands, arguments: argparse.Namespace) -> int:
    """Prints one entry, why it waits, and what each word would do."""
    with reading(open_ledger(arguments.url, needs=Facet.OPEN_ENTRIES), arguments.url) as session:
        seen = _find_waiting(session, desk, arguments.entry)
        contest = contest_of(session, seen)
        twins = twin_remarks(session, seen.entry.entry_id, SameChanges.read(session))
        twins += difference_remarks(session, seen, contest)
    if arguments.json:
        facts = timeline.all_facts(seen, is_stranded=False, with_payload=arguments.payload)
        choices = {verb.value: consequence(verb, seen, contest) for verb in desk.verbs}
        said = {"remarks": [*twins, *remarks(seen, contest)], "choices": choices}
        print_json({**facts, **said, "same_key": [timeline.facts(one) for one in contest.entries]})
        return DONE
    timeline.print_detail(seen, is_stranded=False, with_payload=arguments.payload)
    print()
    for line in (*(f"note: {remark}" for remark in twins), *_explanation(desk, seen, contest)):
        print(visible(line))
    return DONE


def _explanation(desk: ReviewCommands, seen: EntryDetail, contest: Contest) -> Iterator[str]:
    parked = parked_by(seen)
    if parked is not None:
        why = parked.note or "no reason given"
        yield f"waits since {utc(parked.at_ms)}, put here by {parked.actor}: {why}"
    for remark in remarks(seen, contest):
        yield f"note: {remark}"
    for verb in desk.verbs:
        yield f"{verb.value}: {consequence(verb, seen, contest)}"


def _find_waiting(session: Session, desk: ReviewCommands, text: str) -> EntryDetail:
    seen = find_entry(session, text)
    entry = seen.entry
    if entry.state in desk.states:
        return seen
    number, state = entry.entry_id, entry.state
    here = f"oncegate {waits_for(state)} show {number}"
    where = here if state in _WAITING else f"oncegate entries show {number}"
    raise RulingRefused(f"entry {number} is {state.label}, it does not wait here; see: {where}")


_WAITING: Final = frozenset(state for verb in Verb for state in verb.starts_from)


def run_verb(desk: ReviewCommands, verb: Verb, arguments: argparse.Namespace) -> int:
    """Says a word about one entry, or about all that fit."""
    steps = steps_of(arguments) if verb.runs else {}
    doubles = verb.runs and arguments.doubles == Choice.ALL.value
    word = EntryDecision(verb, actor_of(arguments), arguments.reason, steps, doubles)
    is_bulk = arguments.entry is None
    _check_which(arguments, is_bulk=is_bulk)
    store = open_ledger(arguments.url, needs=Facet.OPEN_ENTRIES)
    if is_bulk:
        from oncegate.cli.bulk import run_bulk

        return run_bulk(store, word, filter_of(desk.states, arguments), arguments)
    return _say(store, word, arguments)


def _check_which(arguments: argparse.Namespace, *, is_bulk: bool) -> None:
    filtered = has_filter(arguments) or arguments.all
    if is_bulk and not filtered:
        raise ConfigError("say which: an id or a key, filters such as --surface, or --all")
    if is_bulk and arguments.fence is not None:
        raise ConfigError("--fence is for one entry")
    if not is_bulk and (filtered or arguments.dry_run):
        raise ConfigError("give an entry or filters, not both; --dry-run is for filters")


def _say(store: Store, word: EntryDecision, arguments: argparse.Namespace) -> int:
    with reading(store, arguments.url) as session:
        seen = find_entry(session, arguments.entry)
    fence = seen.entry.fence if arguments.fence is None else arguments.fence
    with speaking(store) as rulings:
        entry = rulings.say(seen.entry.entry_id, word, fence, seen.entry.key)
    if arguments.json:
        print_json(timeline.facts(entry))
    else:
        runs = "; it runs with the next reconciler or arrival" if word.verb.runs else ""
        print(visible(f"entry {entry.entry_id} {entry.reason}{runs}"))
    return DONE


@contextmanager
def speaking(store: Store) -> Iterator[Decisions]:
    """Opens a ledger for decisions."""
    with closing(GroupCommit(store)) as commits:
        yield Decisions(commits, SystemClock())


def actor_of(arguments: argparse.Namespace) -> str:
    """Who speaks: as given, else the login name."""
    if arguments.actor is not None:
        return str(arguments.actor)
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        raise ConfigError("your login name is not known here; say who you are with --as NAME") from None


def steps_of(arguments: argparse.Namespace) -> dict[str, StepDecision]:
    """Reads --step and --result."""
    results = dict(_pair(text, "--result") for text in arguments.result)
    said: dict[str, StepDecision] = {}
    for text in arguments.step:
        name, what = _pair(text, "--step")
        if name in said:
            raise ConfigError(f"--step {name} is given twice")
        said[name] = _step_word(name, what, results.pop(name, None))
    if results:
        raise ConfigError(f"--result {next(iter(results))}=… needs --step {next(iter(results))}=happened")
    return said


def _pair(text: str, option: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals or not value:
        raise ConfigError(f"{option} {text[:60]!r} cannot be read; write NAME=…")
    return name, value


def _step_word(name: str, what: str, result: str | None) -> StepDecision:
    word, _, resource = what.partition(":")
    if word == "did-not-happen" and not resource:
        return StepDecision(happened=False, result=None if result is None else result.encode())
    if word != "happened":
        raise ConfigError(
            f"--step {name}={what[:40]} cannot be read; write {name}=happened:RESOURCE, {name}=happened or"
            f" {name}=did-not-happen"
        )
    return StepDecision(
        happened=True, resource=resource or None, result=None if result is None else result.encode()
    )
