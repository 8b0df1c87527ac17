"""Resources of targets that a killed process did not tell, read from the ledger by the next worker (F6).

A process notes them about once a second, beside the events. A worker that starts, or that recovers what a
dead one left, looks through the events of the last minutes once. Noting a resource again changes nothing.
Bounded: so many events of a surface, at most once a minute.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

import msgspec

from oncegate.commit.operations import Observe
from oncegate.errors import StoreError
from oncegate.gate.codec.outcome import decode_outcome
from oncegate.gate.facade import GateOnStore
from oncegate.gate.runtime.resources import resource_of
from oncegate.gate.runtime.targets import Bringing, Brought, resources_seen
from oncegate.gate.surface import Surface
from oncegate.model.declarations import OPAQUE_STEP
from oncegate.model.states import State
from oncegate.store import EntryDetail, EntryFilter, Observations, ResourceSeen, Session

LOOK_BACK: Final = timedelta(minutes=10)
EVENTS_MAX: Final = 1_000  # of a surface, the newest ones
EVERY_MS: Final = 60_000


class MissedTargets:
    """Looks once at the start, and again when a worker has died."""

    def __init__(self, gate: GateOnStore) -> None:
        self._gate = gate
        self._is_due = True
        self._looked_at: int | None = None

    def run_once(self, *, has_died: bool) -> int:
        """Notes what the last minutes brought, where that is due; returns how many resources."""
        now, self._is_due = self._gate.engine.clock.ticks_ms(), self._is_due or has_died
        is_soon = self._looked_at is not None and now - self._looked_at < EVERY_MS
        surfaces = [one for one in self._gate.engine.surfaces if one.rule.target is not None]
        if is_soon or not self._is_due or not surfaces:
            return 0
        try:
            with self._gate.engine.store.look() as session:
                found = [seen for surface in surfaces for seen in self._seen(session, surface)]
            if found:
                self._gate.engine.commits.submit(Observe(Observations(resources=tuple(found))))
        except StoreError:
            return 0  # a ledger that is away is no reason to fail a run; it stays due
        self._is_due, self._looked_at = False, now
        return len(found)

    def _seen(self, session: Session, surface: Surface) -> Iterator[ResourceSeen]:
        rule = surface.rule
        assert rule.target is not None
        # Not further back than a target's time: an older resource does not exclude the one after it.
        back_ms = min(LOOK_BACK, rule.target.within) // timedelta(milliseconds=1)
        wanted = EntryFilter(
            (State.COMMITTED,), rule.name, received_after_ms=self._gate.engine.clock.wall_ms() - back_ms
        )
        for entry in reversed(session.entries(wanted, None, EVENTS_MAX)):
            detail = session.detail(entry.entry_id)
            if detail is None or detail.body is None:
                continue
            at_ms = entry.settled_at_ms or entry.received_at_ms
            bringing = Bringing(entry.entry_id, entry.tenant, detail.body, _brought(surface, detail), at_ms)
            yield from resources_seen(rule, bringing)


def _brought(surface: Surface, detail: EntryDetail) -> Brought:
    outcome = decode_outcome(detail.outcome)
    if surface.takes_once:
        return [
            (one.name, one.downstream, one.resource) for one in outcome.steps if one.resource is not None
        ]
    resource = resource_of(msgspec.json.decode(outcome.value)) if outcome.value else None
    return [] if resource is None else [(OPAQUE_STEP, surface.opaque_at.name, resource)]
