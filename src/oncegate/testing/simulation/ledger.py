"""The simulated ledger: tables in memory with transactions, shared by every simulated session.

All tables are dictionaries of immutable rows; a journal of what was there before undoes a unit. One unit
at a time may write, as on the embedded ledger. Must stay a plain keeper of rows: what may be written is
decided by the sessions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Set
from typing import Any, Final

from oncegate.errors import StoreUnavailable
from oncegate.store import Entry, LogKind, LogRecord, StepRecord

_MISSING: Final = object()
PAST_MAX: Final = 16  # commits that a failover may lose

Journal = list[tuple[dict[Any, Any], Any, Any]]


class Row(Entry, frozen=True, gc=False):
    """An entry as the simulated ledger keeps it."""

    first_reserved: int | None = None
    interruptions: int = 0
    declared: str | None = None

    def entry(self) -> Entry:
        """The row as the contract shows it."""
        return Entry(
            self.entry_id, self.key, self.tenant, self.surface, self.label, self.state, self.attempt,
            self.fence, self.token, self.fingerprint, self.received_at_ms, self.settled_at_ms,
            self.lease_until_ticks, self.reason, self.retry_at_ticks,
        )  # fmt: skip


class Tables:
    """All tables of a ledger; copied whole for one consistent moment."""

    __slots__ = ("business", "documents", "ids", "log", "meta", "outcomes", "payloads", "rows", "steps")

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}
        self.ids: dict[bytes, int] = {}
        self.payloads: dict[int, bytes] = {}
        self.outcomes: dict[int, bytes] = {}
        self.steps: dict[int, tuple[StepRecord, ...]] = {}
        self.log: dict[int, LogRecord] = {}
        self.business: dict[str, tuple[tuple[Any, ...], ...]] = {}
        self.documents: dict[tuple[str, str], tuple[int, bytes | None, int]] = {}
        self.meta: dict[str, Any] = {"floor": 0}

    def copy(self) -> Tables:
        """A copy that later writes do not touch."""
        made = Tables.__new__(Tables)
        made.rows, made.ids = self.rows.copy(), self.ids.copy()
        made.payloads, made.outcomes = self.payloads.copy(), self.outcomes.copy()
        made.steps, made.log = self.steps.copy(), self.log.copy()
        made.documents = self.documents.copy()
        made.business, made.meta = self.business.copy(), self.meta.copy()
        return made


class Ledger:
    """One ledger, or none yet: it exists after the first connection.

    `on_row` gets every version of a row that a commit made stand, and the one before it.
    """

    def __init__(self) -> None:
        self.tables = Tables()
        self.exists = False
        self.identity = "first"  # another one after a failover
        self.writer: object | None = None
        self.on_row: Callable[[Row | None, Row | None], None] | None = None
        self._journal: Journal = []
        self._past: deque[tuple[Journal, int]] = deque(maxlen=PAST_MAX)

    def begin(self, writer: object) -> bool:
        """Takes the ledger for one unit; False if another writer has it."""
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
        told = 0 if self.on_row is None else self._tell(journal)
        if journal:
            self._past.append((journal, told))

    def _tell(self, journal: Journal) -> int:
        """Every version of every row: one unit may end a claim and make the next. Tells how many."""
        rows = self.tables.rows
        changed = [(key, None if old is _MISSING else old) for table, key, old in journal if table is rows]
        told = 0
        for place, (key, before) in enumerate(changed):
            after = next((old for later, old in changed[place + 1 :] if later == key), rows.get(key))
            if self.on_row is not None and before is not after:
                told += 1
                self.on_row(before, after)
        return told

    def rollback(self) -> None:
        """Undoes the unit's writes."""
        for table, key, old in reversed(self._journal):
            _put_back(table, key, old)
        self._journal, self.writer = [], None

    def go_back(self, commits: int) -> tuple[Set[int], int]:
        """Fails over to a server that lacks the last commits: another incarnation, in an older state.

        Returns the entries that were touched, and how many versions of rows are lost.
        """
        self.rollback()
        touched = set()
        lost = 0
        for _ in range(min(commits, len(self._past))):
            journal, told = self._past.pop()
            lost += told
            for table, key, old in reversed(journal):
                if table is self.tables.rows or table is self.tables.steps:
                    touched.add(key)
                _put_back(table, key, old)
        self.identity += "'"
        return touched, lost

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


class GoneLedger(Ledger):
    """What a session sees whose server is gone."""

    def begin(self, writer: object) -> bool:
        """Refused."""
        raise StoreUnavailable("the connection was lost; nothing was changed")

    def set(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        """Refused."""
        raise StoreUnavailable("the connection was lost; nothing was changed")
