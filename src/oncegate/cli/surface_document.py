"""`oncegate surfaces document` and `window`: how events come again, and what to do (D10, D3)."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from oncegate.cli.exitcodes import DONE
from oncegate.cli.ledger import open_ledger, reading
from oncegate.cli.output import grouped, print_json, print_table, tell, utc
from oncegate.cli.parser import add_json, add_url, read_text
from oncegate.cli.sending import cells
from oncegate.cli.surface_decisions import make_decision
from oncegate.clock import SystemClock
from oncegate.errors import ConfigError
from oncegate.model.durations import format_duration, parse_duration
from oncegate.model.escape import visible
from oncegate.model.identity import KIND, read_identity
from oncegate.model.repeats import RepeatClass
from oncegate.model.retention import RETENTION_FLOOR
from oncegate.model.surface_decisions import SurfaceDecisions
from oncegate.review.surface_decisions import check_known, decided_about
from oncegate.review.windows import REPEATS_MIN, Delays, delays_of
from oncegate.signals.snapshot import Counts
from oncegate.sources.status import read_sources
from oncegate.store import Session
from oncegate.store.notices import RETENTION

PERIOD: Final = timedelta(days=90)
EVIDENCE_SHOWN: Final = 10
_MINUTE_MS: Final = 60_000
_DOCUMENT = """\
Write a page for operators about each surface, as Markdown: how its events are recognised, how often
they come again, after how long and from where, which repeats are normal, and what to do about each.
From what is configured and what was observed in the last 90 days."""
_WINDOW = f"""\
Show after how long events came again, and how long their keys should be kept: twice the longest
delay, {RETENTION_FLOOR.days} days at least. --apply keeps them for that long, or for the time given;
running processes obey. It only makes a window longer: write a shorter one in the program."""


def add_commands(commands: Any, command: Callable[..., argparse.ArgumentParser]) -> None:
    """Adds the commands to `oncegate surfaces`."""
    document = commands.add_parser(
        "document", help="write a page for operators about each surface", description=_DOCUMENT
    )
    document.add_argument("surface", nargs="?", type=read_text, metavar="SURFACE", help="only this one")
    document.add_argument("--out", type=Path, metavar="FOLDER", help="one file a surface (default: stdout)")
    add_url(document)
    document.set_defaults(run=run_document)
    shown = commands.add_parser(
        "windows", help="show how long keys should be kept, from what was observed", description=_WINDOW
    )
    add_url(shown)
    add_json(shown)
    shown.set_defaults(run=run_windows)
    window = command(commands, "window", "keep the keys of a surface for longer", _WINDOW, run_window)
    window.add_argument(
        "--apply", nargs="?", const="", default=None, metavar="TIME", required=True,
        help="the proposed window, or this one",
    )  # fmt: skip


def run_windows(arguments: argparse.Namespace) -> int:
    """Lists delays and proposals."""
    with reading(open_ledger(arguments.url), arguments.url) as session:
        found = {one.name: delays_of(_counts(session, one.name)) for one in session.documents(KIND)}
        kept = {one.name: one.body.decode() for one in session.notices(RETENTION)}
    if arguments.json:
        for name, delays in found.items():
            print_json({"surface": name, "retention": kept.get(name), **_facts(delays)})
        return DONE
    rows = [
        cells(name, kept.get(name, ""), *("-" if one is None else one for one in _facts(delays).values()))
        for name, delays in found.items()
    ]
    print_table(("SURFACE", "RETENTION", "REPEATS", "HALF WITHIN", "ALL WITHIN", "PROPOSED"), rows)
    tell(f"a proposal needs {REPEATS_MIN} repeats; apply one with: oncegate surfaces window NAME --apply")
    return DONE


def run_window(arguments: argparse.Namespace) -> int:
    """Keeps keys for longer."""
    window = _wanted(arguments)

    def change(seen: SurfaceDecisions, actor: str, reason: str, at_ms: int) -> SurfaceDecisions:
        return replace(seen, retention=window)

    means = "keys are kept for that long at least; a longer retention in the program stays"
    return make_decision(arguments, change, f"window {window}", means)


def _wanted(arguments: argparse.Namespace) -> str:
    if arguments.apply:
        window = parse_duration(arguments.apply)
    else:
        with reading(open_ledger(arguments.url), arguments.url) as session:
            check_known(session, arguments.surface)
            proposed = delays_of(_counts(session, arguments.surface)).proposed
        if proposed is None:
            raise ConfigError(
                f"too few repeats of {arguments.surface} came to propose a window; give one: --apply 30d"
            )
        window = proposed
    if window < RETENTION_FLOOR:
        floor = format_duration(RETENTION_FLOOR)
        raise ConfigError(f"a window is not applied below {floor}; write a shorter one in the program")
    return format_duration(window)


def run_document(arguments: argparse.Namespace) -> int:
    """Writes the pages."""
    with reading(open_ledger(arguments.url), arguments.url) as session:
        if arguments.surface is not None:
            check_known(session, arguments.surface)
        names = [one.name for one in session.documents(KIND) if arguments.surface in (None, one.name)]
        pages = {name: surface_page_text(session, name) for name in names}
    for name, text in pages.items():
        if arguments.out is None:
            print(text)
            continue
        arguments.out.mkdir(parents=True, exist_ok=True)
        path = arguments.out / f"{re.sub(r'[^A-Za-z0-9._-]+', '-', name)}.md"
        path.write_text(text, "utf-8")
        tell(f"{path}: written")
    return DONE


def surface_page_text(session: Session, name: str) -> str:
    """The page of one surface."""
    counts, now_ms = _counts(session, name), SystemClock().wall_ms()
    parts = [
        f"# {_cell(name)}",
        f"Written {utc(now_ms)} by `oncegate surfaces document`, from the last {PERIOD.days} days.",
        _recognised(session, name),
        _how_often(Counts({what: (count, 0) for what, count in counts.items()})),
        _after_how_long(delays_of(counts)),
        _from_where(session, name),
        _what_to_do(Counts({what: (count, 0) for what, count in counts.items()})),
        _evidence(session, name),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _recognised(session: Session, name: str) -> str:
    document = session.document(KIND, name)
    assert document is not None  # the caller knows it
    identity, decided = read_identity(document.body), decided_about(session, name).decided
    kept = [one.body.decode() for one in session.notices(RETENTION, name)]
    rows = [
        ("key", f"`{identity.key}`"),
        ("tenant", f"`{identity.tenant}`" if identity.tenant else "given by the sender"),
        ("behind it", ", ".join(identity.origins)),
        ("keys are kept for", kept[0] if kept else "not known: no pruner has run"),
        ("decided by people", decided.text),
    ]
    return "## How events are recognised\n\n" + _table(("what", "value"), rows)


def _how_often(counts: Counts) -> str:
    rows = [
        ("arrivals", grouped(counts.arrivals)),
        ("repeats", f"{grouped(counts.repeats)} ({counts.repeat_share:.1%})"),
        ("asked to come again", grouped(counts.retries)),
        *((f"quarantined: {reason}", grouped(count)) for reason, count in sorted(counts.reasons().items())),
    ]
    return "## How often they come again\n\n" + _table(("what", "count"), rows)


def _after_how_long(delays: Delays) -> str:
    if not delays.count:
        return "## After how long\n\nNo event came again."
    rows = [
        (f"within {format_duration(timedelta(seconds=bound))}", grouped(n)) for bound, n in delays.buckets
    ]
    proposed = delays.proposed
    said = (
        f"Too few repeats were seen to propose a window ({REPEATS_MIN} are needed)."
        if proposed is None
        else f"Proposed window: {format_duration(proposed)}. Apply it with `oncegate surfaces window`."
    )
    return "## After how long\n\n" + _table(("delay", "repeats"), rows) + f"\n\n{said}"


def _from_where(session: Session, name: str) -> str:
    sources = [one for one in read_sources(session) if one.status.surface == name]
    if not sources:
        return ""
    return "## From where\n\n" + _table(
        ("source", "state"), [(one.name, one.status.state) for one in sources]
    )


def _what_to_do(counts: Counts) -> str:
    seen = counts.classes()
    rows = [
        (
            kind.label.replace("_", " "),
            grouped(seen.get(kind, 0)),
            "normal"
            if kind.is_normal
            else "a fault of the sender"
            if kind.is_sender_bug
            else "worth a question",
            kind.advice,
        )
        for kind in RepeatClass
    ]
    return "## What to do about each kind\n\n" + _table(("repeats", "seen", "is", "do"), rows)


def _evidence(session: Session, name: str) -> str:
    found = session.sender_bugs(name, EVIDENCE_SHOWN)
    if not found:
        return ""
    rows = [(one.entry_id, one.kind.label, grouped(one.times), one.evidence) for one in found]
    return "## Latest that point at the sender\n\n" + _table(("entry", "class", "times", "evidence"), rows)


def _table(headers: tuple[str, ...], rows: list[Any]) -> str:
    lines = [headers, tuple("---" for _ in headers), *rows]
    return "\n".join("| " + " | ".join(_cell(value) for value in line) + " |" for line in lines)


def _cell(value: object) -> str:
    """Text of senders, which may steer a terminal or a table."""
    return visible(str(value)).replace("|", "\\|")


def _counts(session: Session, surface: str) -> dict[int, int]:
    now_ms = SystemClock().wall_ms()
    first = (now_ms - PERIOD // timedelta(milliseconds=1)) // _MINUTE_MS
    sums = session.tally_sums(first, now_ms // _MINUTE_MS + 1)
    return {one.what: one.count for one in sums if one.surface == surface}


def _facts(delays: Delays) -> dict[str, Any]:
    def text(found: timedelta | None) -> str | None:
        return None if found is None else format_duration(found)

    return {
        "repeats": delays.count,
        "half_within": text(delays.within(0.5)),
        "all_within": text(delays.longest),
        "proposed": text(delays.proposed),
    }
