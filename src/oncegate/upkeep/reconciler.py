"""The reconciler: finds keys that a crash stranded and lets the gate finish them.

It decides nothing about effects itself: a stranded event goes through the gate once more, and there the
downstream's abilities decide between calling again, asking, waiting and a person. Any number of
reconcilers may run at once; taking over a key is one conditional statement, and only one wins.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from oncegate.errors import ConfigError, Failed, OutcomeUnknown, StoreError, StoreRejected
from oncegate.gate.admission import Admission, Verdict
from oncegate.gate.gate import Gate
from oncegate.model.backoff import Backoff
from oncegate.model.states import State
from oncegate.store import EntryDetail

ENTRIES_PER_RUN_MAX: Final = 200  # a bounded step; what is left over comes next time


@dataclass(frozen=True, slots=True)
class Looked:
    """What became of one stranded key."""

    key: str
    surface: str
    label: str
    became: str


@dataclass(slots=True)
class Report:
    """What one run found and did."""

    looked: list[Looked] = field(default_factory=list)

    def count(self, became: str) -> int:
        """Counts keys that ended one way."""
        return sum(1 for item in self.looked if item.became == became)

    @property
    def finished(self) -> int:
        """Counts keys that have their outcome now."""
        return self.count("finished")


class Reconciler:
    """Looks after one gate's stranded keys, for the surfaces registered in this process."""

    def __init__(
        self,
        gate: Gate,
        *,
        backoff: Backoff | None = None,
        jitter: Callable[[], float] | None = None,
        entries_max: int = ENTRIES_PER_RUN_MAX,
    ) -> None:
        self._gate = gate
        self._backoff = backoff or Backoff()
        self._jitter = jitter or random.SystemRandom().random
        self._entries_max = entries_max

    def run_once(self) -> Report:
        """Looks at every stranded key of plain handlers once, from a thread; async ones need a loop."""
        report = Report()
        plain = [surface.name for surface in self._gate.surfaces if not surface.is_async]
        for stranded in self._due(plain):
            report.looked.append(self._named(stranded, self._recover(stranded)))
        return report

    async def run_once_async(self) -> Report:
        """Looks at every stranded key once, from a task."""
        report = Report()
        for stranded in self._due([surface.name for surface in self._gate.surfaces]):
            report.looked.append(self._named(stranded, await self._recover_async(stranded)))
        return report

    def _due(self, surfaces: list[str]) -> list[EntryDetail]:
        with self._gate.store.look() as session:
            now = session.now_ticks()
            return [
                item for item in session.stranded(self._entries_max, surfaces) if self._is_due(item, now)
            ]

    def _is_due(self, stranded: EntryDetail, now_ticks: int) -> bool:
        entry = stranded.entry
        if entry.state is State.IN_FLIGHT:
            return True
        if self._gate.surface(entry.surface).caller_retries:
            return False
        waited = timedelta(milliseconds=now_ticks - (entry.lease_until_ticks or 0))
        return waited >= self._backoff.delay(entry.attempt, self._jitter())

    def _recover(self, stranded: EntryDetail) -> str:
        try:
            return _became(self._gate.recover_sync(stranded))
        except Exception as error:  # noqa: BLE001  a handler may raise anything; the gate has recorded it
            return _failed(error)

    async def _recover_async(self, stranded: EntryDetail) -> str:
        try:
            return _became(await self._gate.recover(stranded))
        except Exception as error:  # noqa: BLE001  a handler may raise anything; the gate has recorded it
            return _failed(error)

    @staticmethod
    def _named(stranded: EntryDetail, became: str) -> Looked:
        entry = stranded.entry
        return Looked(entry.key.hex(), entry.surface, entry.label, became)


def _became(admission: Admission) -> str:
    if admission.verdict in (Verdict.RUN, Verdict.REPLAY):
        return "finished"
    return str(admission.verdict.value)


def _failed(error: Exception) -> str:
    if isinstance(error, StoreError) and not isinstance(error, StoreRejected):
        raise error
    if isinstance(error, ConfigError):
        return "not handled here"
    if isinstance(error, Failed):
        return "failed for good"
    return "left to a person" if isinstance(error, OutcomeUnknown) else "failed again"
