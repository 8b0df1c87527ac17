"""What a worker brings back after it has lost its claim: the resource is put on record all the same (A9).

Another worker holds the key, or has finished it. Where the downstream gave that one the same resource,
nothing is written. Another resource is one too many, and without this record no person would hear of it:
the settlement of a lost claim is refused. Must never change the entry, only tell of it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from oncegate.commit.operations import Operation
from oncegate.errors import StoreError
from oncegate.gate.codec.outcome import decode_outcome
from oncegate.gate.driver.requests import Flow
from oncegate.gate.runtime.claim import Claim
from oncegate.gate.runtime.context import GateContext, author_of
from oncegate.gate.runtime.resources import brought_by, resource_of
from oncegate.model.targets import about_key
from oncegate.store import LateResource, Session

_log: Final = logging.getLogger("oncegate.gate")


class NoteLate(Operation[bool]):
    """Records a late resource; False where it is the one on record."""

    request: LateResource

    @classmethod
    def run(cls, session: Session, operations: Sequence[NoteLate]) -> Sequence[bool]:
        """Looks at what is on record, and notes what is not."""
        return [_note(session, operation.request) for operation in operations]

    def recall(self, session: Session) -> bool | None:
        """Asked again: noting twice is noting once."""
        return None


def _note(session: Session, late: LateResource) -> bool:
    detail = session.detail(late.entry_id)
    if detail is None:
        return False
    on_record = {step.name: step.resource for step in detail.steps}
    if late.resource in (on_record.get(late.step), owned_by(detail.outcome, late.step)):
        return False
    return session.note_late([late])[0]


def owned_by(body: bytes | None, step: str) -> str | None:
    """The resource that an outcome has for a step."""
    outcome = decode_outcome(body)
    if outcome.steps:
        return {one.name: one.resource for one in outcome.steps}.get(step)
    return outcome.resource or resource_of(msgspec.json.decode(outcome.value or b"null"))


def late_flow(gate: GateContext, claim: Claim, value: Any = None) -> Flow[None]:
    """Puts on record what this attempt got from downstreams, after its claim was lost."""
    before = {step.name: step.resource for step in claim.reserved.steps}
    for step, place, resource in brought_by(claim, value):
        if before.get(step) == resource:
            continue
        late = LateResource(
            claim.entry_id, about_key(claim.key.digest, step), step, place, resource,
            gate.clock.wall_ms(), author_of(gate, claim.surface.rule, claim.arrival),
        )  # fmt: skip
        if not gate.has_review:
            _log.error("entry %d has a second resource at %s: %s", claim.entry_id, place, resource)
            continue
        try:
            yield NoteLate(late)
        except StoreError as error:
            _log.error("a late resource of entry %d is noted later: %s", claim.entry_id, error)
            gate.sightings.keep(NoteLate(late))
