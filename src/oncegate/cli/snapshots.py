"""`oncegate snapshots`: takes, lists, shows, compares and verifies signed snapshots of what is believed."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from oncegate.cli.app import add_app, load_gate
from oncegate.cli.exitcodes import DONE, NOT_SO
from oncegate.cli.output import Cell, print_fields, print_json, print_table, tell
from oncegate.cli.parser import add_json, print_help_as_error, read_page_size
from oncegate.clock import SystemClock
from oncegate.errors import ConfigError, SnapshotError
from oncegate.journal.keys import load_verifiers
from oncegate.journal.rollback.live import live_spool
from oncegate.journal.snapshots.archive import Archive, ObjectDifference, StoredManifest, shown
from oncegate.journal.snapshots.beliefs import LEDGER, id_of
from oncegate.journal.snapshots.suspicion import SnapshotFacts, Suspicion, suspicions
from oncegate.journal.snapshots.taking import SnapshotTaken
from oncegate.journal.snapshots.vault import open_vault
from oncegate.sender.loops import run as run_in_loop
from oncegate.wiring.history import history_of

LIMIT_DEFAULT: Final = 50
_EPILOG: Final = """\
SNAPSHOT is a number, the beginning of a hash, or `latest`.

examples:
  oncegate snapshots take --app care:gate
  oncegate snapshots list --app care:gate
  oncegate snapshots diff 41 latest --app care:gate
  oncegate snapshots verify --in file:///var/lib/snapshots --keys verifiers.txt"""
# Each is a command, its help, whether it needs the program, and the snapshots it takes.
_COMMANDS: Final[tuple[tuple[str, str, bool, tuple[str, ...]], ...]] = (
    ("take", "take a snapshot now", True, ()),
    ("list", "list snapshots with the counts of each belief, and what looks wrong", False, ()),
    ("show", "show one snapshot", False, ("snapshot",)),
    ("diff", "list what differs between two snapshots", False, ("before", "after")),
    ("verify", "check signatures, chain and every part of all snapshots", False, ()),
    ("check", "read one snapshot back whole and compare it with the live state", True, ("snapshot",)),
)


def add_parser(subparsers: Any) -> None:
    """Adds the command group to the command line."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "snapshots",
        help="take, list, compare and verify snapshots of what is believed",
        description="Signed snapshots of what the system believes, in write-once storage. The program says"
        " with gate.snapshots(…) where they are. An auditor gives --in and --keys instead.",
        epilog=_EPILOG,
    )
    parser.set_defaults(run=print_help_as_error)
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    for name, text, needs_app, places in _COMMANDS:
        _add(commands, name, text, needs_app, places)


def _add(commands: Any, name: str, text: str, needs_app: bool, places: tuple[str, ...]) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=f"{text}.".capitalize()
    )
    for place in places:
        parser.add_argument(place, metavar="SNAPSHOT", help="a number, a hash, or latest")
    add_app(parser, required=needs_app)
    if not needs_app:
        parser.add_argument("--in", dest="vault", metavar="URL", help="file:///path or s3://bucket/prefix")
        parser.add_argument("--keys", metavar="FILE", help="verifier keys, one a line; with --in")
    if name in {"list", "diff"}:
        parser.add_argument(
            "--limit", type=read_page_size, default=LIMIT_DEFAULT, metavar="N",
            help="at most so many lines (default: %(default)s)",
        )  # fmt: skip
    add_json(parser)
    parser.set_defaults(run=globals()[f"run_{name}"])


def archive_of(arguments: argparse.Namespace) -> Archive:
    """The snapshots that are meant."""
    if arguments.app is not None:
        return history_of(load_gate(arguments.app)).taker().archive
    if not arguments.vault or not arguments.keys:
        raise ConfigError("say where the snapshots are: --app module:gate, or --in URL with --keys FILE")
    try:
        verifiers = load_verifiers(Path(arguments.keys).read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"--keys: {arguments.keys}: {error.strerror}") from None
    return Archive(open_vault(arguments.vault, SystemClock()), verifiers)


def run_take(arguments: argparse.Namespace) -> int:
    """Takes a snapshot and says what looks wrong in it."""
    gate = load_gate(arguments.app)
    try:
        taken = run_in_loop(history_of(gate).taker().take())
    except SnapshotError:
        tell("no snapshot was taken; the last good one stands")
        raise
    finally:
        gate.close()
    _print_taken(taken, arguments.json)
    return DONE


def _print_taken(taken: SnapshotTaken, as_json: bool) -> None:
    if as_json:
        wrong = [one.why for one in taken.suspicions]
        print_json({"number": taken.number, "hash": taken.hash, "beliefs": taken.counts, "wrong": wrong})
        return
    counts = ", ".join(f"{count:,} {name}" for name, count in taken.counts.items())
    print(f"snapshot {taken.number}, {taken.hash[:16]}: {counts}; {taken.parts_written:,} new parts")
    _tell_suspicions(list(taken.suspicions))


def _tell_suspicions(found: list[Suspicion]) -> None:
    for one in found[:5]:
        good = f"{one.last_good} is the last good one"
        tell(f"snapshot {one.number} looks wrong ({one.belief}: {one.why}); {good}")


def run_list(arguments: argparse.Namespace) -> int:
    """Lists the newest snapshots, newest last, and the first that looks wrong."""
    archive = archive_of(arguments)
    found = [archive.manifest(number) for number in archive.numbers()[-arguments.limit :]]
    facts = [SnapshotFacts.of(*one) for one in found]
    wrong = suspicions(facts)
    if arguments.json:
        for one, stored in zip(facts, found, strict=True):
            print_json(_facts(stored) | {"wrong": [w.why for w in wrong if w.number == one.number]})
        return DONE
    if not facts:
        tell("there are no snapshots yet; take one: oncegate snapshots take --app module:gate")
        return DONE
    names = list(dict.fromkeys(name for one in facts for name in one.beliefs if name != LEDGER))
    print_table(
        ("NUMBER", "TAKEN (UTC)", "HASH", *(name.upper() for name in names), "WRONG"),
        [_row(stored, one, names, wrong) for stored, one in zip(found, facts, strict=True)],
    )
    _tell_suspicions(wrong)
    return DONE


def _row(
    stored: StoredManifest, one: SnapshotFacts, names: list[str], wrong: list[Suspicion]
) -> list[Cell]:
    why = "; ".join(f"{w.belief}: {w.why}" for w in wrong if w.number == one.number)
    back = f"clock went back {one.clock_back_ms:,} ms" if one.clock_back_ms else ""
    counts = [f"{one.beliefs[name][0]:,}" if name in one.beliefs else "" for name in names]
    taken = stored.manifest.taken_at[:19].replace("T", " ")
    told = "; ".join(text for text in (why, back) if text)
    return [Cell.of(value) for value in (one.number, taken, one.hash[:16], *counts, told)]


def _facts(stored: StoredManifest) -> dict[str, Any]:
    manifest = stored.manifest
    return {
        "number": manifest.number,
        "hash": stored.hash,
        "previous": manifest.previous or None,
        "taken_at": manifest.taken_at,
        "clock_back_ms": manifest.clock_back_ms,
        "software": manifest.software,
        "ledger": manifest.ledger,
        "config": manifest.config,
        "journal_head": manifest.head,
        "beliefs": {
            name: {"count": one.count, "content_duplicates": one.content_duplicates, "digest": one.digest}
            for name, one in manifest.beliefs.items()
        },
    }


def run_show(arguments: argparse.Namespace) -> int:
    """Shows one snapshot."""
    facts = _facts(archive_of(arguments).find(arguments.snapshot))
    if arguments.json:
        print_json(facts)
        return DONE
    beliefs = facts.pop("beliefs")
    print_fields([(name.replace("_", " "), Cell.of(value)) for name, value in facts.items() if value])
    for name, one in beliefs.items():
        same = f", {one['content_duplicates']:,} with the content of another one"
        told = f"{one['count']:,} objects{same if one['content_duplicates'] else ''}, {one['digest'][:16]}"
        print_fields([(name, Cell.of(told))])
    return DONE


def run_diff(arguments: argparse.Namespace) -> int:
    """Lists what differs; the exit code is 1 if anything does."""
    archive = archive_of(arguments)
    before, after = archive.find(arguments.before).manifest, archive.find(arguments.after).manifest
    counts: Counter[tuple[str, str]] = Counter()
    for one in _counted(archive.differences(before, after), counts, arguments.limit):
        if arguments.json:
            print_json(_difference(one))
        else:
            old, new = (value.decode() if value else "-" for value in (one.before, one.after))
            print(Cell.of(f"{one.change.value} {one.belief} {id_of(one.id)}: {old} -> {new}").text)
    for (belief, change), count in sorted(counts.items()):
        tell(f"{belief}: {count:,} {change}")
    if not counts:
        tell("nothing differs")
    return NOT_SO if counts else DONE


def _counted(
    found: Iterator[ObjectDifference], counts: Counter[tuple[str, str]], limit: int
) -> Iterator[ObjectDifference]:
    """The first so many; all are counted."""
    for place, one in enumerate(found):
        counts[one.belief, one.change.value] += 1
        if place < limit:
            yield one


def _difference(one: ObjectDifference) -> dict[str, Any]:
    return {
        "belief": one.belief,
        "id": id_of(one.id),
        "change": one.change.value,
        "before": shown(one.before),
        "after": shown(one.after),
    }


def run_verify(arguments: argparse.Namespace) -> int:
    """Goes through the whole chain; an error names the first thing that is wrong."""
    archive, count = archive_of(arguments), 0
    for stored in archive.verify():
        count, last = count + 1, stored
    if not count:
        tell(f"there are no snapshots in {archive.vault.address}")
        return NOT_SO
    fact = {"snapshots": count, "last": last.manifest.number, "hash": last.hash, "right": True}
    if arguments.json:
        print_json(fact)
    else:
        print(f"{count:,} snapshots are right, {last.hash} is the last; {archive.vault.promise}")
    return DONE


def run_check(arguments: argparse.Namespace) -> int:
    """Reads a snapshot back whole, object by object, and counts what the live state has otherwise."""
    gate = load_gate(arguments.app)
    archive = history_of(gate).taker().archive
    found = archive.find(arguments.snapshot)
    for name, entry in found.manifest.beliefs.items():
        kept = sum(1 for _ in archive.objects(entry))
        if kept != entry.count:
            raise ConfigError(f"{name}: {kept:,} of {entry.count:,} objects can be read back")
        if name not in history_of(gate).beliefs:
            continue
        with run_in_loop(live_spool(history_of(gate).beliefs[name])) as spool:
            now = {part.digest for part in spool.parts(entry.bits)}
            same = sum(part.count for part in archive.parts(entry) if part.digest in now)
            fact = {"belief": name, "kept": kept, "live": spool.count, "in_equal_parts": same}
        if arguments.json:
            print_json(fact)
        else:
            print(f"{name}: {kept:,} objects read back; {spool.count:,} live; {same:,} in equal parts")
    gate.close()
    return DONE
