"""What persons decide, on PostgreSQL. Mixed into the session.

Must name the fence that the person saw in the one statement that changes the entry: under READ COMMITTED a
second operator's statement waits for the first and then finds another fence.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from oncegate.model.decisions import Verb
from oncegate.store import EntryDetail, Ruling, RulingAnswer, StepRecord
from oncegate.store.people import KIND_OF, latest_ruling
from oncegate.stores.postgres.arrays import integer_array
from oncegate.stores.postgres.names import Names
from oncegate.stores.postgres.statements import TICKS

_RULE: Final = f"""
WITH ruled AS (
    UPDATE oncegate_entry
    SET state = %(state)s, fence = nextval('oncegate_number'), settled_at = %(at)s, reason = %(reason)s,
        attempt = CASE WHEN %(runs)s THEN 0 ELSE attempt END, token = NULL
    WHERE id = %(entry)s AND fence = %(fence)s AND key = %(key)s AND state = ANY(%(states)s)
    RETURNING id, received_at
),
opened AS (
    UPDATE oncegate_open SET state = %(state)s, retry_at = NULL, interruptions = NULL,
        tried_from = coalesce(%(ticks)s::bigint, {TICKS})
    FROM ruled WHERE entry = id AND %(runs)s
),
reopened AS (
    INSERT INTO oncegate_open (entry, state, lease_until, first_reserved, declared, tried_from)
    SELECT id, %(state)s, now, now, %(declared)s, now
    FROM ruled, (SELECT coalesce(%(ticks)s::bigint, {TICKS})) AS clock (now) WHERE %(again)s
),
emptied AS (
    DELETE FROM oncegate_outcome USING ruled
    WHERE month = oncegate_month(received_at) AND entry = id AND %(again)s
),
closed AS (DELETE FROM oncegate_open USING ruled WHERE entry = id AND NOT %(runs)s),
kept AS (
    INSERT INTO oncegate_outcome (month, entry, body)
    SELECT oncegate_month(received_at), id, %(outcome)s::bytea FROM ruled
    WHERE %(outcome)s::bytea IS NOT NULL
    ON CONFLICT (month, entry) DO UPDATE SET body = excluded.body
),
logged AS (
    INSERT INTO oncegate_log (entry, kind, at, actor, note)
    SELECT id, %(kind)s, %(at)s, %(actor)s, %(note)s FROM ruled
)
SELECT 1 FROM ruled
"""


class PostgresPeople:
    """Rule."""

    _names: Names

    def _query(self, sql: str, parameters: Any) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    def _begin(self) -> None:
        raise NotImplementedError

    def _ticks(self) -> int | None:
        raise NotImplementedError

    def detail(self, entry_id: int) -> EntryDetail | None:
        """Reads one entry; the census knows how."""
        raise NotImplementedError

    def _write_steps(self, entry: int, steps: Iterable[StepRecord]) -> None:
        raise NotImplementedError

    def rule(self, rulings: Sequence[Ruling]) -> list[RulingAnswer]:
        """Carries out what persons decided; entries are locked in their order, as everywhere."""
        self._begin()
        answers: dict[int, RulingAnswer] = {}
        for place in sorted(range(len(rulings)), key=lambda place: rulings[place].entry_id):
            answers[place] = self._rule_one(rulings[place])
        return [answers[place] for place in range(len(rulings))]

    def _rule_one(self, ruling: Ruling) -> RulingAnswer:
        done = bool(self._query(_RULE, self._parameters(ruling)))
        if done:
            self._write_steps(ruling.entry_id, ruling.steps)
        found = self.detail(ruling.entry_id)
        if found is None:
            return RulingAnswer(done=False, entry=None)
        return RulingAnswer(done, found.entry, latest_ruling(found.records))

    def _parameters(self, ruling: Ruling) -> dict[str, Any]:
        verb = ruling.verb
        return {
            "state": verb.leads_to.value,
            "at": ruling.at_ms,
            "reason": _text(ruling.reason),
            "runs": verb.runs,
            "again": verb is Verb.RETRY,
            "declared": self._names.maybe(ruling.declared),
            "ticks": self._ticks(),
            "entry": ruling.entry_id,
            "fence": ruling.fence,
            "key": ruling.key,
            "states": integer_array([state.value for state in sorted(verb.starts_from)]),
            "outcome": ruling.outcome,
            "kind": KIND_OF[verb].value,
            "actor": self._names.learn({ruling.actor})[ruling.actor],
            "note": _text(ruling.note),
        }


def _text(value: str) -> str:
    """U+0000 is not text in PostgreSQL and is made visible."""
    return value.replace("\0", "\u2400")
