"""Old keys, brought into a ledger without their content: their next arrival is a replay, whatever it holds.

A key that is known is left as it is, so that an import can be run again after anything. Must never change
an entry, never run anything, and never bring a key under another template than its surface's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from itertools import chain, islice
from secrets import randbits
from typing import Any, Final

import msgspec
from msgspec import Struct

from oncegate.clock import Clock
from oncegate.commit.group_commit import GroupCommit
from oncegate.commit.registry_operations import KeepFirst
from oncegate.errors import BadTimestamp, ConfigError, EventNotStorable, InputRefused
from oncegate.model.canonical import canonical_json
from oncegate.model.identity import KIND, Identity, read_identity
from oncegate.model.keys import derive_key
from oncegate.model.paths import parse_path
from oncegate.model.states import UNKNOWN_CONTENT, Decision, State
from oncegate.model.surface import owner_of
from oncegate.model.template import FieldKind, KeyTemplate
from oncegate.store import DocumentChange, Reservation, Session, Settlement

BATCH_ROWS: Final = 500
REFUSED_SHOWN: Final = 20
IMPORTED: Final = "imported"
_SECONDS_MAX: Final = 100_000_000_000  # a Unix time beyond it is in milliseconds
_AHEAD_MS: Final = 300_000
_BOOLEANS: Final = {"true": True, "false": False}

Row = Mapping[str, Any]


class Columns(Struct, frozen=True):
    """Which column has what. `fields` are those of the key by their path; others are taken by name."""

    fields: Mapping[str, str] = {}
    time: str | None = None
    outcome: str | None = None
    tenant: str | None = None


class ImportTarget(Struct, frozen=True):
    """The surface that keys are brought to, and whose they are where no column says so."""

    surface: str
    identity: Identity
    template: KeyTemplate
    tenant: str = ""


class RefusedRow(Struct, frozen=True):
    """A row that gives no key."""

    number: int
    why: str


class ImportReport(Struct):
    """What became of the rows so far; a key that comes twice in the rows is known the second time."""

    read: int = 0
    imported: int = 0
    refused: int = 0
    samples: list[RefusedRow] = []

    @property
    def known(self) -> int:
        """Rows whose key the ledger had."""
        return self.read - self.imported - self.refused


class OldKey(Struct, frozen=True):
    """One row, read."""

    key: bytes
    tenant: str
    label: str
    body: bytes
    at_ms: int
    outcome: bytes


def import_target(
    commits: GroupCommit,
    clock: Clock,
    surface: str,
    declared: Identity | None,
    tenant: str,
    *,
    dry_run: bool = False,
) -> ImportTarget:
    """Finds the surface's template in the ledger, or registers the one given; raises ConfigError."""
    with commits.store.look() as session:
        found, now = session.document(KIND, surface), session.now_ticks()
    if found is None:
        if declared is None:
            raise ConfigError(
                f"no surface {surface[:120]!r} is registered in this ledger; give its --key, as the program"
                " declares it"
            )
        if dry_run:
            return ImportTarget(surface, declared, KeyTemplate.parse_kept(declared.key), tenant)
        first = DocumentChange(KIND, surface, 0, declared.encoded(), clock.wall_ms(), IMPORTED, "", None)
        found = commits.submit(KeepFirst(first)).document
    kept = read_identity(found.body)
    if declared is not None and (declared.key, declared.tenant) != (kept.key, kept.tenant):
        raise ConfigError(f"the ledger knows {surface} by the template {kept.key!r}; leave --key out")
    if any(former.until_ticks > now for former in kept.former):
        raise ConfigError(f"the template of {surface} is being changed; import after the overlap has ended")
    return ImportTarget(surface, kept, KeyTemplate.parse_kept(kept.key), tenant)


class KeyImport:
    """Brings rows to one surface, in transactions of a few hundred."""

    def __init__(self, commits: GroupCommit, clock: Clock, target: ImportTarget, columns: Columns) -> None:
        self._commits, self._clock, self._target, self._columns = commits, clock, target, columns
        self._tenant_path = parse_path(target.identity.tenant) if target.identity.tenant else None
        self._seen: set[bytes] = set()  # of a dry run, which writes nothing down
        self._paths = {field.name: (field.path, field.kind) for field in target.template.fields}
        if self._tenant_path is not None and target.identity.tenant:
            self._paths[target.identity.tenant] = (self._tenant_path, FieldKind.TEXT)
        self.report = ImportReport()
        for name in columns.fields:
            if name not in self._paths:
                raise ConfigError(
                    f"the key {target.template.text!r} of {target.surface} has no field {name[:60]!r};"
                    f" its fields are {', '.join(self._paths)}"
                )

    def checked(self, rows: Iterator[Row]) -> Iterator[Row]:
        """The rows; raises ConfigError where the first one lacks a column that is needed."""
        first = next(rows, None)
        if first is None:
            return iter(())
        columns = self._columns
        named = (columns.time, columns.outcome, columns.tenant)
        wanted = {columns.fields.get(name, name): f"; write --map {name}=COLUMN" for name in self._paths}
        for column, hint in {**{one: "" for one in named if one is not None}, **wanted}.items():
            if column not in first:
                known = ", ".join(str(one)[:60] for one in first) or "none"
                raise ConfigError(
                    f"there is no column {column[:60]!r}; there are {known}{hint}. Nothing was changed"
                )
        return chain([first], rows)

    def run(self, rows: Iterable[Row], *, dry_run: bool = False) -> Iterator[ImportReport]:
        """Imports all rows; gives the report after each batch."""
        waiting = enumerate(rows, start=1)
        while batch := list(islice(waiting, BATCH_ROWS)):
            found = [self._read(number, row) for number, row in batch]
            keys: dict[bytes, OldKey] = {}
            for one in found:
                if one is not None:
                    keys.setdefault(one.key, one)
            self.report.imported += self._count(keys) if dry_run else self._write(keys)
            self.report.read += len(batch)
            yield self.report

    def _read(self, number: int, row: Row) -> OldKey | None:
        try:
            return self._key_of(row)
        except (InputRefused, BadTimestamp, EventNotStorable) as refused:
            self.report.refused += 1
            if len(self.report.samples) < REFUSED_SHOWN:
                self.report.samples.append(RefusedRow(number, str(refused)))
            return None

    def _key_of(self, row: Row) -> OldKey:
        columns, target = self._columns, self._target
        event = self._event(row)
        given = _text(row.get(columns.tenant)) if columns.tenant is not None else target.tenant
        tenant = owner_of(self._tenant_path, event, given or None)
        parts = target.template.derive(event)
        key = derive_key(tenant, target.surface, target.template.text, parts.parts)
        now_ms = self._clock.wall_ms()
        at_ms = now_ms if columns.time is None else _moment_ms(row.get(columns.time), now_ms)
        outcome = None if columns.outcome is None else row.get(columns.outcome)
        return OldKey(key.digest, tenant, parts.label, canonical_json(event), at_ms, _outcome(outcome))

    def _event(self, row: Row) -> dict[str, Any]:
        """An event with the fields of the key, and no others."""
        event: dict[str, Any] = {}
        for name, (path, kind) in self._paths.items():
            value = row.get(self._columns.fields.get(name, name))
            if value is None or value == "":
                raise InputRefused("missing", name, "the row has no such value")
            place = event
            for part in path[:-1]:
                place = place.setdefault(part, {})
            is_boolean = kind is FieldKind.BOOLEAN and isinstance(value, str)
            place[path[-1]] = _BOOLEANS.get(value.lower(), value) if is_boolean else _plain(value)
        return event

    def _count(self, keys: Mapping[bytes, OldKey]) -> int:
        with self._commits.store.look() as session:
            known = {one.key for one in session.read(list(keys)) if one is not None}
        new = keys.keys() - known - self._seen
        self._seen |= new
        return len(new)

    def _write(self, keys: Mapping[bytes, OldKey]) -> int:
        if not keys:
            return 0
        with self._commits.transaction() as session:
            return self._add(session, keys)

    def _add(self, session: Session, keys: Mapping[bytes, OldKey]) -> int:
        known = {one.key for one in session.read(list(keys)) if one is not None}
        new = [one for one in keys.values() if one.key not in known]
        reserved = session.reserve([self._reservation(one) for one in new])
        ends = [
            Settlement(*claim.claim, State.COMMITTED, one.at_ms, IMPORTED, one.outcome, IMPORTED)
            for one, claim in zip(new, reserved, strict=True)
            if claim.decision is Decision.RUN
        ]
        return sum(session.settle(ends)) if ends else 0

    def _reservation(self, one: OldKey) -> Reservation:
        return Reservation(
            one.key, one.tenant, self._target.surface, one.label, UNKNOWN_CONTENT, one.body, one.at_ms,
            lease_ms=60_000, attempts_max=1, token=randbits(62), actor=IMPORTED,
        )  # fmt: skip


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _plain(value: Any) -> Any:
    """A value of a database as an event has it: a UUID or a date as its text."""
    return value if isinstance(value, (str, int)) else str(value)


def _outcome(value: Any) -> bytes:
    """The recorded value: JSON as it is, any other text as a text."""
    if isinstance(value, str):
        with suppress(msgspec.DecodeError):
            value = msgspec.json.decode(value)
    if value is None or value == "":
        return b"{}"
    return msgspec.json.encode({"value": value})


def _moment_ms(value: Any, now_ms: int) -> int:
    """When the event came: a database's time, ISO 8601 (UTC where it names no offset) or a Unix time."""
    if isinstance(value, str) and value.strip().isdigit():
        value = int(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        found_ms = int(value if value > _SECONDS_MAX else value * 1000)
    else:
        found_ms = int(_time_of(value).timestamp() * 1000)
    if not 0 < found_ms <= now_ms + _AHEAD_MS:
        raise BadTimestamp("the time of the row is in the future, or before 1970")
    return min(found_ms, now_ms)


def _time_of(value: Any) -> datetime:
    try:
        found = value if isinstance(value, datetime) else datetime.fromisoformat(_text(value).strip())
    except ValueError:
        raise BadTimestamp("the time of the row is neither ISO 8601 nor a Unix time") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
