"""`oncegate doctor`: looks at a ledger and its surroundings and says what to do about what it finds.

Must never create a ledger, migrate one, or change an entry: what it rehearses is undone.
"""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from itertools import chain
from pathlib import Path
from typing import Any, Final

from oncegate.cli.exitcodes import DONE, NOT_SO
from oncegate.cli.filesystems import advice_on, filesystem_of
from oncegate.cli.ledger import command_for, file_of, find_ledger, open_ledger, reading
from oncegate.cli.output import Cell, Colour, age, grouped, paint, print_json, print_table, tell, utc
from oncegate.cli.parser import add_json, add_url
from oncegate.clock import Clock, SystemClock, from_wall_ms
from oncegate.config import SETTINGS_FILE
from oncegate.errors import OncegateError, StoreError
from oncegate.model.escape import visible
from oncegate.model.states import State
from oncegate.store import EntryFilter, Facet, Finding, Session, Store
from oncegate.wiring.ledgers import COLUMNS, LEDGERS, ledger_rows

DISK_FREE_MIN: Final = 64 * 2**20  # bytes; a write-ahead log between two checkpoints must fit
DISK_FREE_GOOD: Final = 2**30  # bytes; below this somebody should hear of it before it is too late
WALL_AHEAD_MAX_MS: Final = 5 * 60 * 1000  # what senders' and servers' clocks commonly disagree by
STRANDED_SHOWN_MAX: Final = 200
PLAUSIBLE_YEARS: Final = range(2025, 2100)  # a clock without a battery says 1970 or the build year

_DESCRIPTION = """\
Look at a ledger and its surroundings: where it is, versions, schema, durability, standbys,
integrity, disk space, clocks, and what waits for a person. Writing is rehearsed: a claim is
reserved, settled and undone, but not on a standby. Every line is ok, warn or fail, with what
to do about it. No entry is changed and no ledger created."""

_EPILOG = """\
exits with 0 if nothing failed, with 1 if anything did; a warning is not a failure.

examples:
  oncegate doctor
  oncegate doctor --url sqlite:////var/lib/orders/oncegate.db --json
  oncegate doctor --ledgers
  oncegate doctor --snapshots s3://care-snapshots?retain=90d"""


class Status(Enum):
    """How a line of the examination reads."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


_COLOURS: Final = {Status.OK: Colour.GREEN, Status.WARN: Colour.YELLOW, Status.FAIL: Colour.RED}


@dataclass(frozen=True, slots=True)
class DoctorLine:
    """One line of the examination."""

    status: Status
    what: str
    value: str
    next_step: str = ""


def add_parser(subparsers: Any) -> None:
    """Adds the command to the command line."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "doctor",
        help="check the store, its durability, its clock and what is stranded",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    add_url(parser)
    add_json(parser)
    parser.add_argument(
        "--ledgers", action="store_true", help="print what each kind of ledger has, and look at none"
    )
    parser.add_argument(
        "--snapshots", metavar="URL",
        help="also put a canary where snapshots go, such as s3://bucket/prefix, and try to delete it",
    )  # fmt: skip
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Examines and prints, line by line as the answers come."""
    if arguments.ledgers:
        return _print_ledgers(arguments.json)
    store = open_ledger(arguments.url, needs=None)
    worst = [Status.OK]
    lines = examine(store, arguments.url, SystemClock())
    for line in chain(lines, _vault(arguments.snapshots)):
        worst.append(line.status)
        _print(line, arguments.json)
    failed, warned = worst.count(Status.FAIL), worst.count(Status.WARN)
    if not arguments.json and (failed or warned):
        tell(f"{failed} failed, {warned} to look at")
    return NOT_SO if failed else DONE


def _print_ledgers(as_json: bool) -> int:
    if as_json:
        for row in ledger_rows():
            print_json(dict(zip(COLUMNS, row, strict=True)))
    else:
        print_table(COLUMNS, [[Cell.of(text) for text in row] for row in ledger_rows()])
    return DONE


def examine(store: Store, url: str | None, clock: Clock) -> Iterator[DoctorLine]:
    """Everything there is to say about a ledger, cheap and general first."""
    yield _address(store, url)
    yield _versions()
    yield _wall_clock(clock)
    yield _ticks(clock)
    yield from _disk(file_of(store))
    yield from _recordings(Path(SETTINGS_FILE))
    yield from _ledger(store, url, clock)


def _ledger(store: Store, url: str | None, clock: Clock) -> Iterator[DoctorLine]:
    """The ledger itself; whatever it refuses becomes the line that says so."""
    create = command_for("oncegate migrate", url)
    try:
        if not store.exists():
            yield DoctorLine(
                Status.FAIL, "ledger", f"{store.address} does not exist", f"create it with: {create}"
            )
            return
        pending = store.pending_migrations()
        if pending:
            missing = ", ".join(f"{migration.number:04} {migration.name}" for migration in pending)
            yield DoctorLine(Status.FAIL, "schema", f"{store.address} lacks {missing}", f"run: {create}")
            return
        yield _promises(store)
        yield from _losses(store)
        findings = store.examine()
        yield from map(_from, findings)
        if len(findings) == 1 or any(one.what == "schema" and not one.ok for one in findings):
            return  # it could not be opened, or cannot be used, and has said why
        facets = store.capabilities.facets
        if Facet.OPEN_ENTRIES not in facets:
            return
        with reading(store, url) as session:
            whole = Facet.REVIEW in facets
            lines = list(_contents(session, url, clock) if whole else _open_contents(session, url))
            lines += [_journal(session)] if whole else []
        yield from lines
    except StoreError as error:
        yield DoctorLine(Status.FAIL, "ledger", store.address, str(error))


def _journal(session: Session) -> DoctorLine:
    """Whether the log is as it was sealed; nothing is said of what is not sealed."""
    from oncegate.cli.journal_proofs import examine_journal

    is_good, value, next_step = examine_journal(session)
    told = Status.WARN if next_step else Status.OK
    return DoctorLine(told if is_good else Status.FAIL, "journal", value, next_step)


def _vault(address: str | None) -> Iterator[DoctorLine]:
    """Whether snapshots are kept as promised: only the place itself can tell."""
    if address is not None:
        from oncegate.journal.snapshots.vault import examine_vault, open_vault

        yield from map(_from, examine_vault(open_vault(address, SystemClock())))


def _from(finding: Finding) -> DoctorLine:
    told = Status.WARN if finding.next_step else Status.OK
    status = told if finding.ok else Status.FAIL
    return DoctorLine(status, finding.what, finding.value, finding.next_step)


def _promises(store: Store) -> DoctorLine:
    """What the store has of the contract, and what it does not keep."""
    what = store.capabilities
    value = f"{what.has}; units: {what.units.value}; audit trail: {what.audit_trail.value}"
    if what.forgets_on_failover:
        step = "a failover may lose acknowledged records, so that events run again: for short windows only"
        return DoctorLine(Status.WARN, "facets", value, step)
    keeps = what.keeps_bodies or Facet.OPEN_ENTRIES in what.facets
    return DoctorLine(Status.OK, "facets", value if keeps else f"{value}; keeps no events")


def _losses(store: Store) -> Iterator[DoctorLine]:
    """What a ledger without an audit trail may lose, and which features it lacks."""
    what = store.capabilities
    missing = [facet.value for facet in Facet if facet not in what.facets]
    for kind in LEDGERS:
        if missing and kind.name == what.name:
            step = f"without {', '.join(missing)}: features that need them refuse to start"
            yield DoctorLine(Status.OK, "may lose", f"{kind.loses} ({step})")


def _address(store: Store, url: str | None) -> DoctorLine:
    """Which ledger, and why this one: two that are looked at in turn are easily confused."""
    source = find_ledger(url).source
    why = "nothing names another" if source == "default" else f"named by {source}"
    return DoctorLine(Status.OK, "address", f"{store.address}, {why}")


def _versions() -> DoctorLine:
    from oncegate import __version__

    value = f"oncegate {__version__}, Python {platform.python_version()} on {platform.system()}"
    return DoctorLine(Status.OK, "versions", value)


def _wall_clock(clock: Clock) -> DoctorLine:
    now = from_wall_ms(clock.wall_ms())
    value = f"{utc(clock.wall_ms())}, local time is UTC{_offset(now)}"
    if now.year in PLAUSIBLE_YEARS:
        return DoctorLine(Status.OK, "wall clock", value)
    return DoctorLine(
        Status.FAIL, "wall clock", value, "set the machine's clock; times of events are judged by it"
    )


def _offset(now: datetime) -> str:
    return now.astimezone().strftime("%z")


def _ticks(clock: Clock) -> DoctorLine:
    source = "boot time" if hasattr(time, "CLOCK_BOOTTIME") else "monotonic clock"
    boot = clock.boot_id()
    value = f"{source}, {age(clock.ticks_ms())} since boot"
    if boot:
        return DoctorLine(Status.OK, "lease clock", f"{value} {boot[:8]}")
    step = (
        "this platform does not name its boots: after a restart, leases may count as held up to 1h longer"
    )
    return DoctorLine(Status.WARN, "lease clock", value, step)


def _disk(path: Path | None) -> Iterator[DoctorLine]:
    if path is None:
        return
    try:
        free = shutil.disk_usage(path.absolute().parent).free
        used = path.stat().st_size if path.is_file() else 0
    except OSError:
        return  # the ledger's own line says what is wrong with the place
    yield from _filesystem(path.absolute().parent)
    value = f"{_size(free)} free beside {_size(used)} of ledger"
    if free < DISK_FREE_MIN:
        yield DoctorLine(Status.FAIL, "disk", value, "free some space: a full disk stops every event")
    elif free < DISK_FREE_GOOD:
        yield DoctorLine(Status.WARN, "disk", value, "free some space soon: a full disk stops every event")
    else:
        yield DoctorLine(Status.OK, "disk", value)


def _filesystem(folder: Path) -> Iterator[DoctorLine]:
    """What the disk really is: commits to memory or to a network share do not last as promised."""
    kind = filesystem_of(folder)
    if kind is None:
        return
    advice = advice_on(kind)
    if advice is None:
        yield DoctorLine(Status.OK, "file system", kind)
    else:
        yield DoctorLine(Status.WARN if advice[0] else Status.FAIL, "file system", kind, advice[1])


def _recordings(settings: Path) -> Iterator[DoctorLine]:
    """The folder in which the service of this folder's settings records arrivals, if others can read it."""
    from oncegate.service.config_loader import read_configuration

    try:
        name = (
            read_configuration(settings, os.environ).settings.record.folder if settings.exists() else None
        )
        mode = Path(name).stat().st_mode if name else 0
    except (OncegateError, OSError):
        return  # `oncegate config check` names a mistake in the settings
    if mode & 0o077:
        step = f"run: chmod 700 {shlex.quote(str(name))}"
        yield DoctorLine(Status.WARN, "recordings", f"others than the owner can look into {name}", step)


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def _contents(session: Session, url: str | None, clock: Clock) -> Iterator[DoctorLine]:
    counts = session.counts()
    yield _entries(counts)
    yield from _newest(session, clock)
    yield _stranded(session, url)
    yield from _waiting(counts, url)
    yield from _alarms(session, url, clock)


def _open_contents(session: Session, url: str | None) -> Iterator[DoctorLine]:
    """What is known of a ledger that lists open entries only."""
    counts = session.counts()
    line = _entries(counts)
    yield DoctorLine(line.status, "open entries", line.value if counts else "none")
    yield _stranded(session, url)
    yield from _waiting(counts, url)


def _entries(counts: dict[State, int]) -> DoctorLine:
    parts = [f"{counts[state]:,} {state.label}" for state in State if counts.get(state)]
    return DoctorLine(Status.OK, "entries", ", ".join(parts) or "none yet")


def _newest(session: Session, clock: Clock) -> Iterator[DoctorLine]:
    """A newest entry from the future: the wall clock went back, or was wrong then."""
    for entry in session.entries(EntryFilter(), None, 1):
        ahead_ms = entry.received_at_ms - clock.wall_ms()
        if ahead_ms > WALL_AHEAD_MAX_MS:
            value = (
                f"the newest entry was received {age(ahead_ms)} from now, at {utc(entry.received_at_ms)}"
            )
            yield DoctorLine(
                Status.WARN, "wall clock", value, "check the machine's clock; leases do not depend on it"
            )


def _stranded(session: Session, url: str | None) -> DoctorLine:
    found = session.stranded(STRANDED_SHOWN_MAX)
    if not found:
        return DoctorLine(Status.OK, "stranded", "none")
    lapsed = sum(1 for detail in found if detail.entry.state is State.IN_FLIGHT)
    least = "at least " if len(found) == STRANDED_SHOWN_MAX else ""
    value = f"{least}{lapsed} in flight with a lapsed lease, {len(found) - lapsed} to be tried again"
    see = command_for("oncegate entries list --state in_flight --state retryable", url)
    return DoctorLine(
        Status.WARN, "stranded", value, f"the next arrival or a reconciler takes them up; see: {see}"
    )


def _waiting(counts: dict[State, int], url: str | None) -> Iterator[DoctorLine]:
    waiting = [state for state in (State.UNKNOWN, State.HELD, State.QUARANTINED) if counts.get(state)]
    if not waiting:
        return
    value = ", ".join(f"{counts[state]:,} {state.label}" for state in waiting)
    states = " ".join(f"--state {state.label}" for state in waiting)
    see = command_for(f"oncegate entries list {states}", url)
    yield DoctorLine(Status.WARN, "for a person", value, f"see: {see}")


def _alarms(session: Session, url: str | None, clock: Clock) -> Iterator[DoctorLine]:
    """What the signals say, but for what waits for a person, which has a line of its own."""
    from oncegate.signals import definitions as d
    from oncegate.signals.alerts import evaluate
    from oncegate.signals.definition import Level
    from oncegate.signals.measures import measure

    told = {d.QUARANTINES.name, d.WAITING.name, d.OVERDUE.name}
    for signal in evaluate(measure(session, clock)):
        if signal.level in (Level.TICKET, Level.PAGE) and signal.definition.name not in told:
            where = f" on {signal.surface}" if signal.surface else ""
            detail = f": {grouped(signal.detail)}" if signal.detail else ""
            value = f"{signal.definition.name}{where}, {signal.definition.unit.shown(signal.value)}{detail}"
            yield DoctorLine(Status.WARN, "signal", value, f"{signal.definition.meaning}. {signal.action}")


def _print(line: DoctorLine, as_json: bool) -> None:
    if as_json:
        facts = {"status": line.status.value, "what": line.what, "value": line.value}
        print_json(facts | ({"next_step": line.next_step} if line.next_step else {}))
        return
    status = paint(f"{line.status.value:<4}", _COLOURS[line.status])
    print(f"{status}  {line.what:<12}  {Cell.of(line.value).text}")
    if line.next_step:
        print(f"{'':<20}{visible(line.next_step)}")
