"""What the holder of a claim writes: renewals, steps, the end, the value that follows, a withdrawal.

Each is one conditional change on key, fence, token and state. A change that was refused is answered False,
unless the item carries this very request's number: then it was carried out before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from oncegate.errors import StoreError
from oncegate.model.states import State
from oncegate.store import (
    Attachment,
    ClaimId,
    LogKind,
    Renewal,
    Settlement,
    StepRecord,
    StepRecords,
)
from oncegate.stores.dynamodb.changes import Change, Path
from oncegate.stores.dynamodb.claims import OwnClaims, open_shard
from oncegate.stores.dynamodb.items import (
    WITHDRAWN,
    Item,
    Value,
    binary,
    number,
    pack_record,
    pack_step,
    read_row,
    step_slot,
    text,
)
from oncegate.stores.dynamodb.ledger_time import LedgerTime
from oncegate.stores.dynamodb.parts import OUTCOME_INLINE_MAX, STEP_INLINE_MAX, Parts
from oncegate.stores.dynamodb.writing import ItemWriter
from oncegate.stores.shared.open_lists import number_of

TOMBSTONE_S: Final = 7 * 24 * 3600  # a withdrawn key's fence is kept; clocks differ by far less

Acting = Renewal | StepRecords | Settlement | Attachment | ClaimId


class DynamoSettling:
    """`renew`, `progress`, `settle`, `attach`, `withdraw`. Mixed into the session."""

    _writer: ItemWriter
    _parts: Parts
    _time: LedgerTime
    _own: OwnClaims

    def now_ticks(self) -> int:
        """The ledger's own time; the session knows it."""
        raise NotImplementedError

    def _renewed(self, claims: Sequence[Renewal]) -> list[bool]:
        now = self.now_ticks()
        return self._acted(
            claims,
            [Change(one.key, {("u",): number(now + one.lease_ms)}, equals=_held(one)) for one in claims],
        )

    def _advanced(self, wanted: Sequence[StepRecords]) -> list[bool]:
        now = self.now_ticks()
        return self._acted(wanted, [self._progress_change(one, now) for one in wanted])

    def _progress_change(self, item: StepRecords, now: int) -> Change:
        change = Change(item.key, equals=_held(item)).numbered()
        change.sets |= self._step_sets(item, item.steps)
        if item.steps:
            change.sets[("g",)] = number(1)
        if item.probed is not None:
            position = self._time.numbers(now)
            change.records.append(
                pack_record(position, LogKind.PROBED, item.at_ms, item.actor, item.probed)
            )
        return change

    def _step_sets(self, item: StepRecords | Settlement, steps: Sequence[StepRecord]) -> dict[Path, Value]:
        sets: dict[Path, Value] = {}
        for step in steps:
            name = None
            if step.result is not None and len(step.result) > STEP_INLINE_MAX:
                name = self._parts.write(item.key, step.result, None)
                if (notes := self._own.of(item.token)) is not None:
                    notes.parts.append(name)
            sets["st", step_slot(step.name)] = pack_step(step, name)
        return sets

    def _settled(self, settlements: Sequence[Settlement]) -> list[bool]:
        now = self.now_ticks()
        answers = self._acted(settlements, [self.settle_change(one, now) for one in settlements])
        for item, done in zip(settlements, answers, strict=True):
            if done:
                self.ended(item)
        return answers

    def settle_change(self, item: Settlement, now: int) -> Change:
        """The write that ends a claim."""
        final, notes = item.state.is_final, self._own.of(item.token)
        change = Change(item.key, equals=_held(item)).numbered()
        change.sets |= {("s",): number(item.state), ("e",): number(item.at_ms)}
        record = pack_record(
            self._time.numbers(now), LogKind(item.state.value), item.at_ms, item.actor, item.reason
        )
        change.records.append(record)
        if item.reason is not None:
            change.sets[("rs",)] = text(item.reason)
        if item.attempts_given_back:
            change.additions["a"] = number(-item.attempts_given_back)
        if item.outcome is not None:
            removal = self._time.removal(notes.keep_s) if final and notes is not None else None
            change.sets |= self._outcome_sets(item.key, item.outcome, removal)
        if item.clear_steps:
            change.sets[("st",)] = {"M": {}}
        else:
            change.sets |= self._step_sets(item, item.steps)
        if not final:
            return _left_open(change, item, now)
        change.removes += ["u", "fr", "o", "r", "v", "bv"]
        if notes is None and (now_s := self._time.server_seconds()) is not None:
            change.sums["x"] = ("ke", number(now_s))
        elif notes is not None and (removal := self._time.removal(notes.keep_s)) is not None:
            change.sets[("x",)] = number(removal)
        return change

    def _outcome_sets(self, key: bytes, outcome: bytes, kept_until_s: int | None) -> dict[Path, Value]:
        if len(outcome) <= OUTCOME_INLINE_MAX:
            return {("oc",): binary(outcome)}
        return {("on",): text(self._parts.write(key, outcome, kept_until_s))}

    def ended(self, item: Settlement) -> None:
        """Removes what a claim that has ended needs no more; what cannot be removed is only room lost."""
        notes = self._own.of(item.token)
        self._own.drop(item.token)
        gone = [] if notes is None or not item.clear_steps else list(notes.parts)
        if notes is not None and notes.body is not None and item.state.is_final:
            gone.append(notes.body)
        if not gone:
            return
        try:
            self._parts.remove(item.key, gone)
        except StoreError:
            return

    def _attached(self, attachments: Sequence[Attachment]) -> list[bool]:
        changes = []
        for item in attachments:
            equals = _held(item) | {"s": number(State.COMMITTED)}
            change = Change(item.key, equals=equals, missing=["oc", "on"]).numbered()
            change.sets |= self._outcome_sets(item.key, item.outcome, None)
            changes.append(change)
        return self._acted(attachments, changes)

    def _withdrawn(self, claims: Sequence[ClaimId]) -> list[bool]:
        changes = []
        for claim in claims:
            change = Change(claim.key, equals=_held(claim) | {"c": number(1)}, missing=["g"]).numbered()
            change.sets[("s",)] = number(WITHDRAWN)
            if (now := self._time.server_seconds()) is not None:
                change.sets[("x",)] = number(now + TOMBSTONE_S)
            change.removes += [
                "t", "u", "o", "r", "fr", "p", "lb", "sf", "tn", "d", "st", "hs", "at", "a", "c", "i", "ke",
                "v", "bv",
            ]  # fmt: skip
            changes.append(change)
        answers = self._acted(claims, changes)
        for claim, done in zip(claims, answers, strict=True):
            if done:
                self._own.drop(claim.token)
        return answers

    def _acted(self, wanted: Sequence[Acting], changes: Sequence[Change]) -> list[bool]:
        """Carries out changes; a claim that names another entry than its key's changes nothing."""
        right = [place for place, one in enumerate(wanted) if one.entry_id == number_of(one.key)]
        refused = self._writer.change([changes[place] for place in right])
        answers = [False] * len(wanted)
        for place, there in zip(right, refused, strict=True):
            answers[place] = there is None or changes[place].was_ours(there.item)
        return answers


def is_committed_by(item: Item | None, claim: ClaimId) -> bool:
    """Whether a claim has ended as committed."""
    if item is None or claim.entry_id != number_of(claim.key):
        return False
    row = read_row(item)
    return (row.state, row.fence, row.token) == (State.COMMITTED, claim.fence, claim.token)


def _held(item: Acting) -> Item:
    return {"f": number(item.fence), "t": number(item.token), "s": number(State.IN_FLIGHT)}


def _left_open(change: Change, item: Settlement, now: int) -> Change:
    """An entry that may be taken up again keeps when its downstream was last called."""
    called = now if item.last_call_ticks is None else item.last_call_ticks
    change.sets[("u",)] = number(called)
    if item.busy_ms is not None:
        change.sets[("ry",)] = number(now + item.busy_ms)
    if item.state is not State.RETRYABLE:
        change.sets[("o",)] = open_shard(item.key, item.state, now)["o"]
    change.removes.append("t")
    return change
