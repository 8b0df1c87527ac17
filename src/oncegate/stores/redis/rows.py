"""Requests as arguments of the server's functions, and its answers as values of the contract."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import astuple

from oncegate.model.states import Decision, State
from oncegate.store import (
    Entry,
    EntryDetail,
    LogKind,
    LogRecord,
    Reservation,
    Reserved,
    Ruling,
    Settlement,
    StepRecord,
    StepState,
)
from oncegate.store.people import KIND_OF
from oncegate.stores.shared.open_lists import number_of

_FACTS: Final = msgspec.msgpack.Decoder(tuple[str, str, str, int])
_RECORD: Final = msgspec.msgpack.Decoder(tuple[int, int, int, str, str])
_ENCODE: Final = msgspec.msgpack.Encoder().encode
_DECODE: Final = msgspec.msgpack.Decoder().decode
_DECISIONS: Final = {decision.value.encode(): decision for decision in Decision}


def given(value: bytes | str | None) -> bytes:
    """A value that may be absent."""
    if value is None:
        return b""
    return b"=" + (value if isinstance(value, bytes) else value.encode())


def reservation_arguments(item: Reservation, outcome: bytes | None) -> tuple[Any, ...]:
    """What `reserve` takes after the time."""
    state, reason = item.parked
    return (
        item.token,
        item.fingerprint,
        item.lease_ms,
        item.attempts_max,
        item.deaths_max,
        1 if item.at_once else 0,
        state.value,
        reason or "",
        _ENCODE((item.tenant, item.surface, item.label, item.received_at_ms)),
        given(item.declared),
        item.received_at_ms,
        item.keep_ms,
        given(outcome),
        item.actor,
        item.body if outcome is None else b"",
    )


def settlement_arguments(item: Settlement) -> tuple[Any, ...]:
    """What `settle` takes after fence and token."""
    return (
        item.state.value,
        item.at_ms,
        given(item.outcome),
        given(item.reason),
        "" if item.last_call_ticks is None else item.last_call_ticks,
        item.attempts_given_back,
        "" if item.busy_ms is None else item.busy_ms,
        1 if item.clear_steps else 0,
        item.actor,
        *step_arguments(item.steps),
    )


def ruling_arguments(item: Ruling) -> tuple[Any, ...]:
    """What `rule` takes after the time."""
    verb = item.verb
    return (
        item.fence,
        "".join(str(state.value) for state in sorted(verb.starts_from)),
        verb.leads_to.value,
        item.at_ms,
        item.reason,
        KIND_OF[verb].value,
        item.actor,
        item.note,
        given(item.outcome),
        *step_arguments(item.steps),
    )


def step_arguments(steps: Iterable[StepRecord]) -> Iterable[bytes | str]:
    """Names and records in turn."""
    for step in steps:
        yield step.name
        yield _ENCODE(astuple(step))


def _step(packed: bytes) -> StepRecord:
    name, state, *rest = _DECODE(packed)
    return StepRecord(name, StepState(state), *rest)


def reserved_of(item: Reservation, answer: Sequence[Any]) -> Reserved:
    """The answer to a reservation."""
    word, fence, now = answer[:3]
    if word == b"run":
        return Reserved(
            Decision.RUN, number_of(item.key), fence, first_reserved_ticks=now,
            received_at_ms=item.received_at_ms, now_ticks=now, token=item.token, key=item.key,
        )  # fmt: skip
    if word == b"parked":
        state, reason = item.parked
        decision = Decision.QUARANTINE if state is State.QUARANTINED else Decision.HOLD
        return Reserved(decision, number_of(item.key), state=state, reason=reason, now_ticks=now)
    decision = _DECISIONS[word]
    if decision is Decision.CONFLICT:
        return Reserved(decision, number_of(item.key), now_ticks=now)
    return _taken(item, decision, answer) if decision.claims else _known(item, decision, answer)


def _taken(item: Reservation, decision: Decision, answer: Sequence[Any]) -> Reserved:
    _, fence, now, attempt, state, first, lapsed, facts, declared, tried_from, steps = answer
    return Reserved(
        decision, number_of(item.key), fence, attempt, State(int(state)), tuple(map(_step, steps)),
        first_reserved_ticks=int(first or 0), received_at_ms=_FACTS.decode(facts)[3],
        lapsed_at_ticks=int(lapsed), now_ticks=now, never_run=not first, declared=_text(declared),
        token=item.token, key=item.key, tried_from_ticks=int(tried_from),
    )  # fmt: skip


def _known(item: Reservation, decision: Decision, answer: Sequence[Any]) -> Reserved:
    _, _, now, state, reason, outcome, busy_ms, facts, again = answer
    return Reserved(
        decision, number_of(item.key), state=State(int(state)), outcome=outcome, reason=_text(reason),
        retry_after_ms=busy_ms, received_at_ms=_FACTS.decode(facts)[3], now_ticks=now,
        claimed_again=again is not None,
    )  # fmt: skip


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def detail_of(key: bytes, answer: Any) -> EntryDetail | None:
    """An entry, from all its fields; None where there are none."""
    if not isinstance(answer, list):
        return None
    fields = dict(zip(answer[::2], answer[1::2], strict=True))
    if b"s" not in fields:
        return None
    steps = tuple(_step(value) for name, value in fields.items() if name.startswith(b"+"))
    return EntryDetail(
        _entry(key, fields), fields.get(b"v"), fields.get(b"o"), steps, _records(key, fields),
        has_past=b"c" in fields or b"y" in fields,
    )  # fmt: skip


def _records(key: bytes, fields: dict[bytes, bytes]) -> tuple[LogRecord, ...]:
    """What is kept of an entry's history, in its order."""
    packed = sorted(_RECORD.decode(value) for name, value in fields.items() if name.startswith(b"-"))
    return tuple(
        LogRecord(position, number_of(key), LogKind(kind), at_ms, actor, note or None)
        for position, kind, at_ms, actor, note in packed
    )


def _entry(key: bytes, fields: dict[bytes, bytes]) -> Entry:
    tenant, surface, label, received_at_ms = _FACTS.decode(fields[b"m"])
    return Entry(
        number_of(key), key, tenant, surface, label, State(int(fields[b"s"])), int(fields[b"a"]),
        int(fields[b"f"]), _number(fields, b"t"), fields[b"p"], received_at_ms, _number(fields, b"e"),
        _number(fields, b"l"), _text(fields.get(b"r")), _number(fields, b"q"),
    )  # fmt: skip


def _number(fields: dict[bytes, bytes], name: bytes) -> int | None:
    found = fields.get(name)
    return None if found is None else int(found)
