"""The layout of the table: one item a key, and how its attributes become a row.

    k   key (the only key attribute)      s   state, 0 after a withdrawal     f   fence
    t   token of the claim                c   claims given                    a   attempts
    p   fingerprint                       sf tn lb  surface, tenant, label    at  received, wall ms
    u   lease until, in ledger time       fr  first reserved, ledger time     i   interruptions in a row
    d   declaration of the first claim    st  steps, by a hash of their name  g   1 once a step was recorded
    hs  log records                       oc  outcome                         on  parts of the outcome
    e   settled, wall ms                  rs  reason                          ry  retry at, ledger time
    o r open shard, minute (index `open`) ke  seconds to keep it once final   x   time to live, if final
    z   the request that wrote last       tf  a person let it be tried again, ledger time
    v   event, until it is final          bv  parts of the event

Attributes that have no value are left out. `o` and `r` stand on entries that are not final; they are the
keys of the index: shards below `SHARDS` hold what is run or tried again, those above it what waits for a
person. `x` is the table's time to live.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec
from msgspec import Struct

from oncegate.model.states import Known, State
from oncegate.store import Entry, LogKind, LogRecord, StepRecord, StepState
from oncegate.stores.shared.open_lists import number_of

Value = dict[str, Any]  # a value as the service writes it: its type, and itself
Item = dict[str, Value]

INDEX: Final = "open"
SHARDS: Final = 16
MINUTE_MS: Final = 60_000
RECORDS_MAX: Final = 128  # of an entry, then the oldest go
RECORDS_KEPT: Final = 32
WITHDRAWN: Final = 0  # the state of a key whose only claim was withdrawn: its fence is kept
FAR_FUTURE_S: Final = 253_402_300_799


def number(value: int) -> Value:
    """A number as the service writes it."""
    return {"N": str(value)}


def text(value: str) -> Value:
    """A text as the service writes it."""
    return {"S": value}


def binary(value: bytes) -> Value:
    """Bytes as the service writes them."""
    return {"B": value}


class PackedStep(Struct, array_like=True):
    """A step as it is stored; a long result stands in parts."""

    name: str
    state: int
    downstream: str
    result: bytes | None
    resource: str | None
    started_at_ms: int | None
    declared: str | None
    last_call_ticks: int | None
    parts: str | None = None
    first_call_ticks: int | None = None


class _PackedRecord(Struct, array_like=True):
    position: int
    kind: int
    at_ms: int
    actor: str
    note: str | None


_STEPS: Final = msgspec.msgpack.Decoder(PackedStep)
_RECORDS: Final = msgspec.msgpack.Decoder(_PackedRecord)


class ItemRow(Struct, frozen=True):
    """One item, read."""

    key: bytes
    state: int
    fence: int
    token: int | None
    claims: int
    attempt: int
    fingerprint: bytes
    surface: str
    tenant: str
    label: str
    received_at_ms: int
    lease_until: int | None
    first_reserved: int | None
    interruptions: int
    declared: str | None
    steps: tuple[PackedStep, ...]
    records: tuple[bytes, ...]
    outcome: bytes | None
    outcome_parts: str | None
    settled_at_ms: int | None
    reason: str | None
    retry_at: int | None
    keep_s: int
    tried_from: int
    body: bytes | None
    body_parts: str | None

    def known(self, *, at_once: bool, deaths_max: int) -> Known:
        """What an arrival's fate depends on."""
        return Known(
            State(self.state),
            self.fingerprint,
            self.attempt,
            self.lease_until or 0,
            0 if at_once else self.retry_at or 0,
            self.interruptions,
            deaths_max,
        )

    @property
    def entry(self) -> Entry:
        """The entry as the contract shows it."""
        state = State(self.state)
        return Entry(
            number_of(self.key), self.key, self.tenant, self.surface, self.label, state,
            self.attempt, self.fence, self.token, self.fingerprint, self.received_at_ms,
            self.settled_at_ms, self.lease_until, self.reason, self.retry_at,
        )  # fmt: skip

    def log_records(self) -> tuple[LogRecord, ...]:
        """The records of this entry, in the order in which they were written."""
        found = [_RECORDS.decode(packed) for packed in self.records]
        number_of_entry = number_of(self.key)
        return tuple(
            LogRecord(one.position, number_of_entry, LogKind(one.kind), one.at_ms, one.actor, one.note)
            for one in found
        )

    def history(self, more: list[Value]) -> list[Value] | None:
        """The log with these records, where it has become long: other content that came goes first."""
        if len(self.records) < RECORDS_MAX:
            return None
        kept = [one for one in self.records if _RECORDS.decode(one).kind != LogKind.CONFLICT]
        return [binary(one) for one in kept[-RECORDS_KEPT:]] + more

    def count(self, kind: LogKind) -> int:
        """How many records of a kind it has."""
        return sum(_RECORDS.decode(packed).kind == kind for packed in self.records)


def read_row(item: Item) -> ItemRow:
    """An item as a row."""
    return ItemRow(
        _bytes(item, "k") or b"", _whole(item, "s") or 0, _whole(item, "f") or 0, _whole(item, "t"),
        _whole(item, "c") or 0, _whole(item, "a") or 0, _bytes(item, "p") or b"", _text(item, "sf") or "",
        _text(item, "tn") or "", _text(item, "lb") or "", _whole(item, "at") or 0, _whole(item, "u"),
        _whole(item, "fr"), _whole(item, "i") or 0, _text(item, "d"), _steps(item), _records(item),
        _bytes(item, "oc"), _text(item, "on"), _whole(item, "e"), _text(item, "rs"), _whole(item, "ry"),
        _whole(item, "ke") or FAR_FUTURE_S, _whole(item, "tf") or 0,
        _bytes(item, "v"), _text(item, "bv"),
    )  # fmt: skip


def _whole(item: Item, name: str) -> int | None:
    return int(item[name]["N"]) if name in item else None


def _text(item: Item, name: str) -> str | None:
    return str(item[name]["S"]) if name in item else None


def _bytes(item: Item, name: str) -> bytes | None:
    return bytes(item[name]["B"]) if name in item else None


def _steps(item: Item) -> tuple[PackedStep, ...]:
    packed = item.get("st", {}).get("M", {})
    found = [_STEPS.decode(bytes(value["B"])) for value in packed.values()]
    return tuple(sorted(found, key=lambda step: step.name)) if found else ()


def _records(item: Item) -> tuple[bytes, ...]:
    return tuple(bytes(value["B"]) for value in item.get("hs", {}).get("L", ()))


def step_slot(name: str) -> str:
    """The name of a step's attribute: letters and digits, whatever the step is called."""
    return "h" + hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def pack_step(step: StepRecord, parts: str | None) -> Value:
    """A step as it is stored."""
    packed = PackedStep(
        step.name, step.state.value, step.downstream, None if parts else step.result, step.resource,
        step.started_at_ms, step.declared, step.last_call_ticks, parts, step.first_call_ticks,
    )  # fmt: skip
    return binary(msgspec.msgpack.encode(packed))


def unpack_step(packed: PackedStep, result: bytes | None) -> StepRecord:
    """A step as the contract shows it."""
    return StepRecord(
        packed.name, StepState(packed.state), packed.downstream, result, packed.resource,
        packed.started_at_ms, packed.declared, packed.last_call_ticks, packed.first_call_ticks,
    )  # fmt: skip


def pack_record(position: int, kind: LogKind, at_ms: int, actor: str, note: str | None) -> Value:
    """A log record as it is stored."""
    return binary(msgspec.msgpack.encode(_PackedRecord(position, kind.value, at_ms, actor, note)))
