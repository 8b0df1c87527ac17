"""What a person decides about an entry that waits: one conditional write that names the fence they saw."""

from __future__ import annotations

from oncegate.store import Ruling
from oncegate.store.people import KIND_OF
from oncegate.stores.dynamodb.changes import Change
from oncegate.stores.dynamodb.claims import open_shard
from oncegate.stores.dynamodb.items import (
    ItemRow,
    Value,
    binary,
    number,
    pack_record,
    pack_step,
    step_slot,
    text,
)
from oncegate.stores.dynamodb.ledger_time import LedgerTime
from oncegate.stores.shared.open_lists import can_be_said


def can_be_ruled(row: ItemRow | None, ruling: Ruling) -> bool:
    """Whether the entry stands as the person saw it, in a state that their verb starts from."""
    if row is None or row.fence != ruling.fence or not can_be_said(ruling):
        return False
    return row.state in ruling.verb.starts_from


def ruling_change(row: ItemRow, ruling: Ruling, time: LedgerTime, now: int) -> Change:
    """The write that carries a decision out."""
    verb, fence, position = ruling.verb, time.numbers(now, row.fence), time.numbers(now)
    change = Change(row.key, equals={"f": number(row.fence), "s": number(row.state)}).numbered()
    change.sets |= {
        ("s",): number(verb.leads_to),
        ("f",): number(fence),
        ("e",): number(ruling.at_ms),
        ("rs",): text(ruling.reason),
        ("i",): number(0),
    }
    note = pack_record(position, KIND_OF[verb], ruling.at_ms, ruling.actor, ruling.note)
    change.log(row, note)
    change.removes += ["t", "ry"]
    if verb.runs:
        change.sets |= {("a",): number(0), ("tf",): number(now)}
        change.sets[("o",)] = open_shard(row.key, verb.leads_to, now)["o"]
        change.sets[("u",)] = number(now if row.lease_until is None else row.lease_until)
    else:
        change.removes += ["u", "fr", "o", "r", "tf", "v", "bv"]
        if (removal := time.removal(row.keep_s)) is not None:
            change.sets[("x",)] = number(removal)
    change.sets |= _steps(ruling)
    if ruling.outcome is not None:
        change.sets[("oc",)] = binary(ruling.outcome)
        change.removes.append("on")
    return change


def _steps(ruling: Ruling) -> dict[tuple[str, ...], Value]:
    return {("st", step_slot(step.name)): pack_step(step, None) for step in ruling.steps}
