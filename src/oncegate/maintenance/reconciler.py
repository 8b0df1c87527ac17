"""The reconciler: finds keys that a crash stranded and lets the gate finish them.

It decides nothing about effects itself: a stranded event goes through the gate once more, and there the
downstream's abilities decide between calling again, asking, waiting and a person. Any number of
reconcilers may run at once; taking over a key is one conditional statement, and only one wins.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import chain, zip_longest
from typing import Final

from oncegate.errors import ConfigError, Failed, OutcomeUnknown, StoreError, StoreRejected
from oncegate.gate.admission import Admission, Verdict
from oncegate.gate.facade import GateOnStore
from oncegate.gate.flows.downstream_turns import StillUnderWay
from oncegate.gate.runtime.recovery_rate_limiter import RATE_PER_SECOND, RecoveryPace, current_pace
from oncegate.lanes.circuit_status import CircuitBoard, downstream_circuit
from oncegate.maintenance.missed_targets import MissedTargets
from oncegate.maintenance.presence import Presence
from oncegate.maintenance.schedule import Stopping, UnderWay, never
from oncegate.maintenance.worker_pool import WorkerPool
from oncegate.model.states import State
from oncegate.store import EntryDetail, Facet, Session, StepState, require

ENTRIES_PER_RUN_MAX: Final = 200  # a bounded step; what is left over comes next time
LOOKED_PER_ENTRY: Final = 2  # entries that are not due yet must not hide those that are
AT_ONCE_PER_SURFACE: Final = 4  # so that a downstream that hangs holds up its own surface only
RUN_WITHIN: Final = timedelta(seconds=10)  # what takes longer goes on beside the next run

log = logging.getLogger("oncegate.maintenance")


@dataclass(frozen=True, slots=True)
class Looked:
    """What became of one stranded key."""

    key: str
    surface: str
    label: str
    became: str
    entry_id: int = 0
    reason: str | None = None


@dataclass(slots=True)
class Report:
    """What one run found and did. `is_complete`: nothing that was due is left for the next run."""

    looked: list[Looked] = field(default_factory=list)
    is_complete: bool = True

    def count(self, became: str) -> int:
        """Counts keys that ended one way."""
        return sum(1 for item in self.looked if item.became == became)

    @property
    def finished(self) -> int:
        """Counts keys that have their outcome now."""
        return self.count("finished")


class Reconciler:
    """Looks after one gate's stranded keys, for the surfaces registered in this process.

    `rate_per_second` bounds second calls and questions at each downstream. A run of tasks returns after
    `run_within`; recoveries that take longer go on, up to their surface's time limit, and the next run of
    the same event loop tells what became of them. None waits for all. With `at_once` failed attempts are
    made again without their backoff. `every` is how often runs are meant to come, for those who watch.
    """

    def __init__(
        self,
        gate: GateOnStore,
        *,
        at_once: bool = False,
        entries_max: int = ENTRIES_PER_RUN_MAX,
        at_once_per_surface: int = AT_ONCE_PER_SURFACE,
        rate_per_second: float = RATE_PER_SECOND,
        run_within: timedelta | None = RUN_WITHIN,
        every: timedelta = timedelta(seconds=5),
    ) -> None:
        require(gate.engine.store, Facet.OPEN_ENTRIES, "reconcilers")
        self._gate = gate
        self._presence = Presence(gate.engine.store, gate.engine.clock, every)
        self._missed = MissedTargets(gate)
        self._at_once = at_once
        self._entries_max = entries_max
        self._has_ledger = False
        self._left_out: set[str] = set()
        self._pace = RecoveryPace(gate.engine.clock.ticks_ms, rate_per_second)
        self._board = CircuitBoard(gate.engine.commits, gate.engine.clock, secrets.randbits(16))
        self._crew: WorkerPool[EntryDetail, Looked] = WorkerPool(at_once_per_surface, run_within)

    def run_once(self, stopping: Stopping = never) -> Report:
        """Looks at every stranded key of plain handlers once, one by one in the calling thread."""
        work, report = self._allowed(self._find(self._plain()))
        for stranded in work:
            if stopping():
                report.is_complete = False
                break
            reason = self._refusal(stranded)  # the ones before it may have met a downstream that is down
            report.looked.append(_waits(stranded, reason) if reason else self._recover(stranded))
        self._say(self._plain(), has_died=_has_died(work))
        return report

    async def run_once_async(self, stopping: Stopping = never) -> Report:
        """Looks at every stranded key once, several at a time, from a task."""
        return await self._run([surface.name for surface in self._gate.engine.surfaces], stopping)

    async def run_once_apart(self, stopping: Stopping = never) -> Report:
        """The same for plain handlers only: async ones belong to the event loop of the user's program."""
        return await self._run(self._plain(), stopping)

    @property
    def under_way(self) -> UnderWay:
        """Recoveries that outlast a run."""
        return self._crew

    def _plain(self) -> list[str]:
        """The surfaces whose handlers need no event loop; the others are logged once."""
        for surface in self._gate.engine.surfaces:
            if surface.is_async and surface.name not in self._left_out:
                self._left_out.add(surface.name)
                log.warning(
                    "the handler of %s is async: its stranded events are not looked after here. Use"
                    " `async with gate.worker()`, or run `oncegate worker` beside the program",
                    surface.name,
                )
        return [surface.name for surface in self._gate.engine.surfaces if not surface.is_async]

    async def _run(self, surfaces: list[str], stopping: Stopping) -> Report:
        due = await asyncio.to_thread(self._find, surfaces)
        work, report = self._allowed(due)
        report.looked += self._crew.ended()
        done, is_all = await self._crew.work(work, self._recover_async, _surface_of, stopping)
        report.looked += done
        report.is_complete = report.is_complete and is_all
        await asyncio.to_thread(self._say, surfaces, has_died=_has_died(work))
        return report

    def _say(self, surfaces: list[str], *, has_died: bool) -> None:
        """Tells others that this process is at work, which downstreams rest, and what the dead did not."""
        if Facet.STATS not in self._gate.engine.store.capabilities.facets:
            return
        self._presence.say(surfaces)
        self._missed.run_once(has_died=has_died)
        circuits = self._gate.engine.circuits.all()
        self._board.tell_now({downstream_circuit(name): one for name, one in circuits.items()})

    def _find(self, surfaces: list[str]) -> list[EntryDetail]:
        if not self._has_ledger:  # the worker may start before the first arrival makes it
            self._gate.engine.store.connect().close()
            self._has_ledger = True
        self._gate.engine.obey()
        with self._gate.engine.store.look() as session:
            now = session.now_ticks()
            stranded = self._stranded(session, surfaces)
        return [item for item in stranded if self._is_due(item, now) and not self._is_under_way(item)]

    def _allowed(self, due: list[EntryDetail]) -> tuple[list[EntryDetail], Report]:
        """Sorts out whose downstream had better be left alone, and takes the others in turn."""
        report, work = Report(), list[EntryDetail]()
        for item in due:
            reason = self._refusal(item)
            if reason is None:
                work.append(item)
            elif len(report.looked) < self._entries_max:
                report.looked.append(_waits(item, reason))
        report.is_complete = len(work) <= self._entries_max
        return _in_turn(work)[: self._entries_max], report

    def _stranded(self, session: Session, surfaces: list[str]) -> list[EntryDetail]:
        """Reads what is stranded, page by page; the surface that fills one most is left out of the next.

        Otherwise the keys of one downstream that is down, being the oldest, would hide all others.
        """
        limit, left = self._entries_max * LOOKED_PER_ENTRY, list(surfaces)
        found: dict[int, EntryDetail] = {}
        while left:
            page = session.stranded(limit, left)
            found.update((item.entry.entry_id, item) for item in page)
            if len(page) < limit:
                break
            ((crowding, _),) = Counter(map(_surface_of, page)).most_common(1)
            left.remove(crowding)
        return list(found.values())

    def _is_under_way(self, stranded: EntryDetail) -> bool:
        return any(item.entry.entry_id == stranded.entry.entry_id for item in self._crew.under_way())

    def _is_due(self, stranded: EntryDetail, now_ticks: int) -> bool:
        entry = stranded.entry
        if entry.state is State.IN_FLIGHT:
            return True
        if self._gate.engine.surface(entry.surface).caller_retries:
            return False
        return self._at_once or now_ticks >= (entry.retry_at_ticks or 0)

    def _refusal(self, stranded: EntryDetail) -> str | None:
        surface, downstreams = stranded.entry.surface, list(_downstreams_of(stranded))
        if (resting := self._gate.engine.circuits.rests(surface, downstreams)) is not None:
            return self._gate.engine.circuits.why(resting[0])
        return next(filter(None, map(self._pace.refusal, downstreams)), None)

    def _recover(self, stranded: EntryDetail) -> Looked:
        token = current_pace.set(self._pace)
        try:
            return _became(stranded, self._gate.engine.recover_sync(stranded, at_once=self._at_once))
        except Exception as error:  # noqa: BLE001  a handler may raise anything; the gate has recorded it
            return _failed(stranded, error)
        finally:
            current_pace.reset(token)

    async def _recover_async(self, stranded: EntryDetail) -> Looked:
        current_pace.set(self._pace)  # for this task alone
        limit = self._gate.engine.surface(stranded.entry.surface).rule.time_limit
        recovery = asyncio.ensure_future(self._gate.engine.recover(stranded, at_once=self._at_once))
        try:
            _, late = await asyncio.wait({recovery}, timeout=limit.total_seconds())
            if late:
                recovery.cancel(f"no end within the surface's time limit of {limit}")
            return _became(stranded, await recovery)
        except asyncio.CancelledError:
            if not recovery.done():  # it is this task that is being cancelled
                recovery.cancel("the reconciler is stopping")
                await asyncio.wait({recovery})
                raise
            return _looked(stranded, "given up for now", f"no end within {limit}")
        except Exception as error:  # noqa: BLE001  a handler may raise anything; the gate has recorded it
            return _failed(stranded, error)


def _surface_of(stranded: EntryDetail) -> str:
    return stranded.entry.surface


def _in_turn(due: list[EntryDetail]) -> list[EntryDetail]:
    """One of each surface after the other, the oldest of each first."""
    lines: dict[str, list[EntryDetail]] = {}
    for item in due:
        lines.setdefault(_surface_of(item), []).append(item)
    return [item for item in chain.from_iterable(zip_longest(*lines.values())) if item is not None]


def _downstreams_of(stranded: EntryDetail) -> Iterable[str]:
    return (step.downstream for step in stranded.steps if step.state is not StepState.DONE)


def _looked(stranded: EntryDetail, became: str, reason: str | None = None) -> Looked:
    entry = stranded.entry
    return Looked(entry.key.hex(), entry.surface, entry.label, became, entry.entry_id, reason)


def _waits(stranded: EntryDetail, reason: str) -> Looked:
    return _looked(stranded, "waits", reason)


def _became(stranded: EntryDetail, admission: Admission) -> Looked:
    if admission.verdict in (Verdict.RUN, Verdict.REPLAY):
        return _looked(stranded, "finished")
    return _looked(stranded, str(admission.verdict.value), admission.reason)


def _failed(stranded: EntryDetail, error: Exception) -> Looked:
    if isinstance(error, StoreError) and not isinstance(error, StoreRejected):
        raise error
    return _looked(stranded, _word_for(error), f"{type(error).__name__}: {error}")


def _word_for(error: Exception) -> str:
    if isinstance(error, ConfigError):
        return "not handled here"
    if isinstance(error, Failed):
        return "failed for good"
    if isinstance(error, StillUnderWay):
        return "waits"
    return "left to a person" if isinstance(error, OutcomeUnknown) else "failed again"


def _has_died(work: Iterable[EntryDetail]) -> bool:
    """Whether a worker left something in flight."""
    return any(stranded.entry.state is State.IN_FLIGHT for stranded in work)
