"""What persons decide, on the embedded ledger. Mixed into the session.

Must name the fence that the person saw in the one statement that changes the entry: its row count is the
only thing that says whether the word counted.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Final

from oncegate.model.decisions import Verb
from oncegate.store import EntryDetail, LogKind, Ruling, RulingAnswer, StepRecord
from oncegate.store.people import KIND_OF, latest_ruling

_RULE: Final = (
    "UPDATE oncegate_entry SET state = :state, fence = fence + 1, settled_at = :at, reason = :reason,"
    " token = NULL, attempt = CASE WHEN :runs THEN 0 ELSE attempt END,"
    " lease_until = CASE WHEN :runs THEN coalesce(lease_until, :now) END,"
    " first_reserved = CASE WHEN :again THEN :now WHEN :runs THEN first_reserved END,"
    " declared = CASE WHEN :again THEN :declared ELSE declared END, retry_at = NULL, interruptions = NULL,"
    " tried_from = CASE WHEN :runs THEN :now END"
    " WHERE id = :entry AND fence = :fence AND key = :key AND state IN ({states})"
)
_NO_OUTCOME: Final = "DELETE FROM oncegate_outcome WHERE entry = ?"
_OUTCOME: Final = "INSERT OR REPLACE INTO oncegate_outcome (entry, body) VALUES (?, ?)"


class SqlitePeople:
    """Rule."""

    _connection: sqlite3.Connection

    def now_ticks(self) -> int:
        """The ledger's own time; the session knows it."""
        raise NotImplementedError

    def detail(self, entry_id: int) -> EntryDetail | None:
        """Reads one entry; the census knows how."""
        raise NotImplementedError

    def _log(self, entry: int, kind: LogKind, at_ms: int, actor: str, note: str | None) -> None:
        raise NotImplementedError

    def _number(self, text: str | None) -> int | None:
        raise NotImplementedError

    def _write_steps(self, entry: int, steps: Iterable[StepRecord]) -> None:
        raise NotImplementedError

    def rule(self, rulings: Sequence[Ruling]) -> list[RulingAnswer]:
        """Carries out what persons decided."""
        return [self._rule_one(ruling) for ruling in rulings]

    def _rule_one(self, ruling: Ruling) -> RulingAnswer:
        done = self._change(ruling)
        if done:
            self._write_steps(ruling.entry_id, ruling.steps)
            if ruling.verb is Verb.RETRY:
                self._connection.execute(_NO_OUTCOME, (ruling.entry_id,))
            if ruling.outcome is not None:
                self._connection.execute(_OUTCOME, (ruling.entry_id, ruling.outcome))
            self._log(ruling.entry_id, KIND_OF[ruling.verb], ruling.at_ms, ruling.actor, ruling.note)
        found = self.detail(ruling.entry_id)
        if found is None:
            return RulingAnswer(done=False, entry=None)
        return RulingAnswer(done, found.entry, latest_ruling(found.records))

    def _change(self, ruling: Ruling) -> bool:
        verb = ruling.verb
        states = ", ".join(str(state.value) for state in sorted(verb.starts_from))
        parameters = {
            "state": verb.leads_to.value,
            "at": ruling.at_ms,
            "reason": ruling.reason,
            "runs": verb.runs,
            "again": verb is Verb.RETRY,
            "declared": self._number(ruling.declared),
            "now": self.now_ticks(),
            "entry": ruling.entry_id,
            "fence": ruling.fence,
            "key": ruling.key,
        }
        return self._connection.execute(_RULE.format(states=states), parameters).rowcount == 1
