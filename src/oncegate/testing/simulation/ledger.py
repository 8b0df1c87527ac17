"""The simulated ledger: tables in memory with transactions, shared by every simulated session.

All tables are dictionaries of immutable rows; a journal of what was there before undoes a unit. One unit
at a time may write, as on the embedded ledger. Must stay a plain keeper of rows: what may be written is
decided by the sessions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from oncegate.store import Entry, LogKind, LogRecord, StepRecord

_MISSING: Final = object()


class Row(Entry, frozen=True, gc=False):
    """An entry as the simulated ledger keeps it."""

    first_reserved: int | None

    def entry(self) -> Entry:
        """The row as the contract shows it."""
        return Entry(
            self.entry_id, self.key, self.tenant, self.surface, self.label, self.state, self.attempt,
            self.fence, self.token, self.fingerprint, self.received_at_ms, self.settled_at_ms,
            self.lease_until_ticks, self.reason,
        )  # fmt: skip


class Tables:
    """All tables of a ledger; copied whole for one consistent moment."""

    __slots__ = ("business", "ids", "log", "meta", "outcomes", "payloads", "rows", "steps")

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}
        self.ids: dict[bytes, int] = {}
        self.payloads: dict[int, bytes] = {}
        self.outcomes: dict[int, bytes] = {}
        self.steps: dict[int, tuple[StepRecord, ...]] = {}
        self.log: dict[int, LogRecord] = {}
        self.business: dict[str, tuple[tuple[Any, ...], ...]] = {}
        self.meta: dict[str, Any] = {"floor": 0}

    def copy(self) -> Tables:
        """A copy that later writes do not touch."""
        made = Tables.__new__(Tables)
        made.rows, made.ids = self.rows.copy(), self.ids.copy()
        made.payloads, made.outcomes = self.payloads.copy(), self.outcomes.copy()
        made.steps, made.log = self.steps.copy(), self.log.copy()
        made.business, made.meta = self.business.copy(), self.meta.copy()
        return made


class Ledger:
    """One ledger, or none yet: it exists once somebody has connected.

    `on_row` is told of every version of a row that a commit made stand, and of the one before it.
    """

    def __init__(self) -> None:
        self.tables = Tables()
        self.exists = False
        self.writer: object | None = None
        self.on_row: Callable[[Row | None, Row | None], None] | None = None
        self._journal: list[tuple[dict[Any, Any], Any, Any]] = []

    def begin(self, writer: object) -> bool:
        """Takes the ledger for one unit; False if somebody else has it."""
        if self.writer is not None:
            return False
        self.writer = writer
        return True

    def set(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        """Writes a row within the open unit; None removes it."""
        self._journal.append((table, key, table.get(key, _MISSING)))
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value

    def add_record(self, entry: int, kind: LogKind, at_ms: int, actor: str, note: str | None) -> None:
        """Appends to the log within the open unit."""
        position = len(self.tables.log) + 1
        self.set(self.tables.log, position, LogRecord(position, entry, kind, at_ms, actor, note))

    def commit(self) -> None:
        """Makes the unit's writes stand."""
        journal, self._journal, self.writer = self._journal, [], None
        if self.on_row is not None:
            self._tell(journal)

    def _tell(self, journal: list[tuple[dict[Any, Any], Any, Any]]) -> None:
        """Every version of every row: one unit may end a claim and make the next."""
        rows = self.tables.rows
        changed = [(key, None if old is _MISSING else old) for table, key, old in journal if table is rows]
        if not changed:
            return
        for place, (key, before) in enumerate(changed):
            after = next((old for later, old in changed[place + 1 :] if later == key), rows.get(key))
            if self.on_row is not None and before is not after:
                self.on_row(before, after)

    def rollback(self) -> None:
        """Undoes the unit's writes."""
        for table, key, old in reversed(self._journal):
            _put_back(table, key, old)
        self._journal, self.writer = [], None

    def moment(self) -> Tables:
        """What is committed now, whatever is being written."""
        tables = self.tables.copy()
        if not self._journal:
            return tables
        tables_of = {id(getattr(self.tables, name)): getattr(tables, name) for name in Tables.__slots__}
        for table, key, old in reversed(self._journal):
            _put_back(tables_of[id(table)], key, old)
        return tables


def _put_back(table: dict[Any, Any], key: Any, old: Any) -> None:
    if old is _MISSING:
        table.pop(key, None)
    else:
        table[key] = old
