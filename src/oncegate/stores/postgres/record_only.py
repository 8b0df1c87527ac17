"""Keys that are recorded as settled from the beginning: one statement a batch, which commits by itself.

Mixed into the claims, for events with nothing to call. Between such a key's reservation and its end nothing
happens, so there is no lease that others could wait for. What is left is what a reservation and a
settlement leave. Must never touch a key that is known: those are judged as ever, by a later statement.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from psycopg.types.numeric import Int8

from oncegate.model.content import ContentMark
from oncegate.model.states import State
from oncegate.store import Reservation, Reserved
from oncegate.stores.postgres.arrays import (
    Packed,
    bigint_array,
    bytea_array,
    integer_array,
    text_array,
    text_value,
)
from oncegate.stores.postgres.names import Names
from oncegate.stores.postgres.reserve_statements import RECORD, RECORD_MARKED, RECORD_ONE
from oncegate.stores.postgres.statement_generators import new_entry


class PostgresRecording:
    """New keys, settled with the statement that inserts them."""

    _names: Names

    def _query(self, sql: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    def _ticks(self) -> int | None:
        raise NotImplementedError

    def _insert_recorded(self, batch: list[Reservation], outcome: bytes) -> dict[bytes, Reserved]:
        if len(batch) == 1 and batch[0].runs and batch[0].content is None:
            return self._insert_recorded_one(batch[0], outcome)
        names = self._names.learn({name for i in batch for name in (i.actor, i.surface, i.tenant)})
        marks = [i.content for i in batch]
        is_marked = any(marks)
        parked = [i.parked for i in batch]
        rows = self._query(
            RECORD_MARKED if is_marked else RECORD,
            (
                self._ticks(),
                *arrival_arrays(batch, names),
                bytea_array([i.body for i in batch]),
                integer_array([names[i.actor] for i in batch]),
                integer_array([_begins_as(state).value for state, _ in parked]),
                bigint_array([i.token for i in batch]),
                text_array([reason for _, reason in parked]),
                *(mark_arrays(marks) if is_marked else ()),
                outcome,
            ),
        )
        wanted = {item.key: item for item in batch}
        return {key: new_entry(wanted[key], number, now) for key, number, now in rows}

    def _insert_recorded_one(self, item: Reservation, outcome: bytes) -> dict[bytes, Reserved]:
        names = self._names.learn({item.actor, item.surface, item.tenant})
        rows = self._query(
            RECORD_ONE,
            (
                self._ticks(),
                Int8(names[item.surface]),
                Int8(names[item.tenant]),
                item.key,
                item.fingerprint,
                text_value(item.label),
                Int8(item.token),
                Int8(item.received_at_ms),
                item.body,
                outcome,
                Int8(names[item.actor]),
            ),
        )
        return {item.key: new_entry(item, *rows[0])} if rows else {}


def _begins_as(state: State) -> State:
    return State.COMMITTED if state is State.IN_FLIGHT else state


def arrival_arrays(batch: list[Reservation], names: Mapping[str, int]) -> tuple[Packed, ...]:
    """What every statement takes of a batch: keys, surfaces, tenants, contents, labels, times."""
    return (
        bytea_array([i.key for i in batch]),
        integer_array([names[i.surface] for i in batch]),
        integer_array([names[i.tenant] for i in batch]),
        bytea_array([i.fingerprint for i in batch]),
        text_array([i.label for i in batch]),
        bigint_array([i.received_at_ms for i in batch]),
    )


def mark_arrays(marks: list[ContentMark | None]) -> tuple[Packed, Packed, Packed]:
    """The marks of a batch's contents, as a statement takes them."""
    return (
        bytea_array([None if mark is None else mark.hash for mark in marks]),
        text_array([None if mark is None else mark.target for mark in marks]),
        text_array([None if mark is None else mark.compensation for mark in marks]),
    )
