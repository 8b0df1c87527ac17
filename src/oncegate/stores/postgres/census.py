"""Lists, counts and the log of the PostgreSQL ledger. Mixed into the session; must only read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from msgspec.json import encode

from oncegate.errors import ConfigError
from oncegate.model.parking import Parked
from oncegate.model.states import State
from oncegate.store import Entry, EntryDetail, EntryFilter, LogRecord, StepRecord
from oncegate.store.log import kind_of
from oncegate.stores.postgres import statements
from oncegate.stores.postgres.eras import READ, Eras, eras_of, joined, parted
from oncegate.stores.postgres.names import Names
from oncegate.stores.postgres.sealing import PostgresSealing
from oncegate.stores.shared.observations import POSTGRES_KIND as KIND

Rows: TypeAlias = list[tuple[Any, ...]]
KEY_DIGITS_RARE: Final = 4  # so many digits fit one key in 65,536
_STRANDED: Final = """
SELECT open.entry FROM oncegate_open AS open JOIN oncegate_entry AS entry ON entry.id = open.entry
WHERE open.state = %s AND open.lease_until <= %s AND (%s::int[] IS NULL OR entry.surface = ANY(%s::int[]))
ORDER BY greatest(open.lease_until, open.retry_at), open.entry LIMIT %s
"""
# What waits is read by its state; the entry and its event follow by number, and no event is unpacked.
_PARKED: Final = """
SELECT count(*), coalesce(sum(octet_length(payload.body)), 0)::bigint
FROM oncegate_open AS open
JOIN oncegate_entry AS entry ON entry.id = open.entry
LEFT JOIN oncegate_payload AS payload
       ON payload.month = oncegate_month(entry.received_at) AND payload.entry = entry.id
WHERE open.state IN (5, 6, 7) AND entry.surface = %s AND (%s::boolean OR entry.tenant = %s)
"""
_BODY: Final = """
SELECT payload.body, outcome.body FROM oncegate_entry AS entry
LEFT JOIN oncegate_payload AS payload
       ON payload.month = oncegate_month(entry.received_at) AND payload.entry = entry.id
LEFT JOIN oncegate_outcome AS outcome
       ON outcome.month = oncegate_month(entry.received_at) AND outcome.entry = entry.id
WHERE entry.id = %s
"""
_SURFACES: Final = """
SELECT text FROM oncegate_name AS name
WHERE EXISTS (SELECT 1 FROM oncegate_entry WHERE surface = name.id) ORDER BY text
"""

# Asked for as values, entry by entry: for EXISTS the server would read all outcomes there are.
_RESOURCE: Final = """
((SELECT position(%s IN outcome.body) FROM oncegate_outcome AS outcome
  WHERE outcome.month = oncegate_month(entry.received_at) AND outcome.entry = entry.id LIMIT 1) > 0
 OR (SELECT count(*) FROM oncegate_step AS step WHERE step.entry = entry.id AND step.resource = %s) > 0)
"""


class PostgresCensus(PostgresSealing):
    """Entries, details, counts, stranded claims, log."""

    _names: Names

    def _query(self, sql: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    def now_ticks(self) -> int:
        """The ledger's own time; the session knows it."""
        raise NotImplementedError

    def read(self, keys: Sequence[bytes]) -> list[Entry | None]:
        """Reads entries by key; claims know how."""
        raise NotImplementedError

    def _entries(self, rows: list[tuple[Any, ...]]) -> list[Entry]:
        raise NotImplementedError

    def _steps(self, entry: int) -> tuple[StepRecord, ...]:
        raise NotImplementedError

    def entries(self, wanted: EntryFilter, before_id: int | None, limit: int) -> list[Entry]:
        """Lists entries, newest first."""
        is_rare = len(wanted.key_prefix or "") >= KEY_DIGITS_RARE
        is_open = wanted.states and not any(state.is_final for state in wanted.states)
        number = "open.entry" if is_open and not is_rare else "entry.id"
        conditions, parameters = self._conditions(wanted, number)
        if before_id is not None:
            conditions.append(f"{number} < %s")
            parameters.append(before_id)
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        if is_open and not is_rare:
            sql = f"{statements.OPEN_ENTRY}{where} ORDER BY open.entry"
        else:
            # A key that is as good as known is found by its own index, not by walking through the numbers.
            sql = f"{statements.ENTRY}{where} ORDER BY {'entry.id + 0' if is_rare else 'entry.id'}"
        return self._entries(self._query(f"{sql} DESC LIMIT %s", (*parameters, limit)))

    def _conditions(self, wanted: EntryFilter, number: str = "entry.id") -> tuple[list[str], list[Any]]:
        conditions: list[str] = []
        parameters: list[Any] = []
        if wanted.states:
            conditions.append("entry.state = ANY(%s)")
            parameters.append([state.value for state in wanted.states])
            if not any(state.is_final for state in wanted.states):  # the small table has an index for these
                conditions.append("open.state = ANY(%s)")
                parameters.append([state.value for state in wanted.states])
        for column, name in (("surface", wanted.surface), ("tenant", wanted.tenant)):
            if name is not None:
                conditions.append(f"entry.{column} = %s")
                parameters.append(self._names.find(name) or -1)
        if wanted.key_prefix:
            conditions.append("entry.key BETWEEN %s AND %s")
            parameters += _digest_range(wanted.key_prefix)
        if wanted.label_contains:
            conditions.append("strpos(entry.label, %s) > 0")
            parameters.append(wanted.label_contains)
        if wanted.reason_contains:
            conditions.append("strpos(entry.reason, %s) > 0")
            parameters.append(wanted.reason_contains)
        if wanted.cause is not None:
            conditions.append(f"{KIND} = %s")
            parameters.append(wanted.cause)
        if wanted.resource is not None:
            conditions.append(_RESOURCE)
            parameters += [encode(wanted.resource), wanted.resource]
        for condition, limit in (
            ("entry.settled_at < %s", wanted.settled_before_ms),
            ("entry.received_at < %s", wanted.received_before_ms),
            ("entry.received_at > %s", wanted.received_after_ms),
            (f"{number} > %s", wanted.above_id),
        ):
            if limit is not None:
                conditions.append(condition)
                parameters.append(limit)
        return conditions, parameters

    def detail(self, entry_id: int) -> EntryDetail | None:
        """Reads one entry with all that belongs to it."""
        found = self._entries(self._query(f"{statements.ENTRY} WHERE entry.id = %s", (entry_id,)))
        if not found:
            return None
        ((body, outcome),) = self._query(_BODY, (entry_id,))
        records = self._records(self._query(statements.LOG_OF, (entry_id,)))
        return EntryDetail(
            found[0],
            None if body is None else bytes(body),
            None if outcome is None else bytes(outcome),
            self._steps(entry_id),
            tuple(records),
        )

    def details(self, keys: Sequence[bytes]) -> list[EntryDetail | None]:
        """Reads entries by key with all that belongs to them."""
        return [None if entry is None else self.detail(entry.entry_id) for entry in self.read(keys)]

    def parked(self, surface: str, tenant: str | None) -> Parked:
        """Counts along what is open."""
        number = None if tenant is None else self._names.find(tenant)
        return Parked(*self._query(_PARKED, (self._names.find(surface), tenant is None, number))[0])

    def counts(self) -> dict[State, int]:
        """Counts entries by state."""
        rows = self._query("SELECT state, count(*) FROM oncegate_entry GROUP BY state", ())
        return {State(state): count for state, count in rows}

    def surfaces(self) -> list[str]:
        """Names the surfaces that have entries."""
        return [str(text) for (text,) in self._query(_SURFACES, ())]

    def stranded(self, limit: int, surfaces: Sequence[str] | None = None) -> list[EntryDetail]:
        """Finds claims whose lease has expired and failures that may be tried again, first due first."""
        if surfaces is not None and not surfaces:
            return []
        now = self.now_ticks()
        numbers = None if surfaces is None else [self._names.find(name) or -1 for name in surfaces]
        found: list[EntryDetail] = []
        for state in (State.IN_FLIGHT, State.RETRYABLE):
            rows = self._query(_STRANDED, (state.value, now, numbers, numbers, limit))
            found += [detail for (number,) in rows if (detail := self.detail(number)) is not None]
        return found[:limit]

    def read_log(self, after: int, limit: int) -> list[LogRecord]:
        """Reads records after a position, never beyond what may still commit."""
        eras = self._eras()
        era, xact, position = parted(after)
        rows = self._log_after(eras, era, xact, position, limit)
        while len(rows) < limit and era < eras.last:
            era += 1
            rows += self._log_after(eras, era, "0", 0, limit - len(rows))
        return self._records(rows)

    def _log_after(self, eras: Eras, era: int, xact: str, position: int, limit: int) -> Rows:
        within = statements.MAY_NOT_COMMIT
        if eras.last:
            begin, end = eras.records(era)
            numbers = f"position > {begin} AND position <= {end}"
            within = f"{numbers} AND {within}" if era == eras.last else numbers
        return self._query(statements.LOG_AFTER.format(within=within), (xact, position, limit))

    def _eras(self) -> Eras:
        return eras_of(self._query(READ, ()))

    def _records(self, rows: Rows) -> list[LogRecord]:
        texts = self._names.texts(row[5] for row in rows)
        eras = self._eras() if rows else Eras()
        return [
            LogRecord(
                joined(eras.era_of(position), xact, position), entry, kind_of(kind), at, texts[actor], note
            )
            for xact, position, entry, kind, at, actor, note in rows
        ]


def _digest_range(prefix: str) -> tuple[bytes, bytes]:
    try:
        return bytes.fromhex(prefix.ljust(48, "0")), bytes.fromhex(prefix.ljust(48, "f"))
    except ValueError:
        raise ConfigError(f"{prefix[:60]!r} is not the beginning of a key") from None
