"""Removes events and outcomes that are older than their surface's `payload_retention`; keys stay."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from oncegate.gate.codec.outcome import ERASED_OUTCOME
from oncegate.gate.facade import GateOnStore
from oncegate.maintenance.pruner import Bounds, Wanted, find_due, sight
from oncegate.maintenance.schedule import Stopping, never
from oncegate.model.surface import SurfaceRule
from oncegate.store import Erasure, LogKind, Note, Session, Store

ACTOR: Final = "pruner"
STEP: Final = 200


@dataclass(slots=True)
class PayloadReport:
    """How many entries lost their event and outcome; not complete means that there may be more."""

    entries: int = 0
    is_complete: bool = True


class PayloadPruner:
    """Prunes the content of the surfaces that are registered in this process."""

    def __init__(
        self, gate: GateOnStore, *, bounds: Bounds | None = None, store: Store | None = None
    ) -> None:
        self._gate, self._bounds, self._store = gate, bounds or Bounds(), store or gate.engine.store
        self._places: dict[str, int] = {}

    def run_once(self, stopping: Stopping = never) -> PayloadReport:
        """Removes what is due, within the bounds; from a thread."""
        report, engine = PayloadReport(), self._gate.engine
        session = self._store.connect()
        try:
            now = sight(session, engine.clock)
            for surface in engine.surfaces:
                if surface.rule.payload_retention is not None and not stopping():
                    age = surface.rule.payload_retention // timedelta(milliseconds=1)
                    self._prune(session, surface.rule, now.wall_ms, now.wall_ms - age, report)
        finally:
            session.close()
        return report

    def _prune(
        self, session: Session, rule: SurfaceRule, now_ms: int, before_ms: int, report: PayloadReport
    ) -> None:
        engine, wanted = self._gate.engine, Wanted(rule.name, before_ms, ACTOR)
        with self._store.look() as reader:
            found = find_due(reader, wanted, now_ms, self._places.get(rule.name, 0), self._bounds)
        for start in range(0, len(found.entries), STEP):
            step = tuple(found.entries[start : start + STEP])
            at_ms = engine.clock.wall_ms()
            with session.unit():
                done = session.erase(Erasure(step, at_ms, ACTOR, ERASED_OUTCOME))
                if done:
                    said = f"{rule.name} before {before_ms}"
                    session.add_notes([Note(0, LogKind.CONTENT_PRUNED, at_ms, ACTOR, said)])
            report.entries += len(done)
        self._places[rule.name] = found.next_after
        report.is_complete = report.is_complete and found.is_complete
