"""Broken outcomes: what is remembered of an end, and what goes with it in one transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec.structs import replace

from lab.broken_gates.broken_gate import BrokenGate
from lab.simulator.services import Service
from lab.simulator.surfaces import Handlers
from lab.simulator.worker import TrueFace
from oncegate.errors import NotApplied
from oncegate.gate.admission import Admission, Verdict
from oncegate.model.states import Decision, Known, State, judge
from oncegate.store import LogKind, Reservation, Settlement, Statement, StepRecords, StepState
from oncegate.testing.simulation.store import SimulatedSession


class DeleteOnException(BrokenGate):
    """The reservation that is deleted when the handler raises.

    An exception is taken to mean that nothing happened. A time-out means nothing of the kind: the next
    arrival finds no trace of the first call and makes a second.
    """

    caught_as = ("I1",)

    class session_type(SimulatedSession):  # noqa: N801
        def _end(self, item: Settlement) -> bool:
            row = self.holder(item)
            if row is None or item.state is not State.RETRYABLE:
                return super()._end(item)
            self.remove(row)
            return True


class _FailsHarmlessly(Handlers):
    async def _call(self, service: Service, event: dict[str, Any], key: str) -> Any:
        try:
            return await super()._call(service, event, key)
        except Exception as error:
            raise NotApplied("it failed") from error


class FailureIsHarmless(BrokenGate):
    """The request that runs again because it failed.

    The middleware in front of an API keeps good answers and runs a request again after an error or a 500.
    An error does not say what was done before it: three requests under one key are three effects.
    """

    caught_as = ("I1",)
    surfaces = ("mail", "trip")

    class face_type(TrueFace):  # noqa: N801
        handlers_type = _FailsHarmlessly


class PassingFailureKept(BrokenGate):
    """The passing failure that is remembered as the outcome.

    The first error is cached like any result. A minute later the downstream is well again, and every
    retry of the event still gets the error.
    """

    caught_as = ("I9",)

    class session_type(SimulatedSession):  # noqa: N801
        def _end(self, item: Settlement) -> bool:
            if item.state is State.RETRYABLE:
                item = replace(item, state=State.FAILED, outcome=b'{"error":"failed"}')
            return super()._end(item)


class FinalFailureRetried(BrokenGate):
    """The final failure that is tried again.

    Failed entries are picked up like any other, so that a finally refused event is run at every arrival.
    """

    caught_as = ("I9",)

    class session_type(SimulatedSession):  # noqa: N801
        def decide(self, known: Known, item: Reservation, now: int) -> Decision:
            if known.state is State.FAILED:
                return Decision.RETRY
            return judge(known, item.fingerprint, now, item.attempts_max)


class RunsInsideItsWait(BrokenGate):
    """The retry that does not wait.

    A failed event that comes again runs at once: a sender in a loop calls a downstream that is
    down as often as it likes.
    """

    caught_as = ("I26",)

    class session_type(SimulatedSession):  # noqa: N801
        def decide(self, known: Known, item: Reservation, now: int) -> Decision:
            return judge(replace(known, retry_at_ticks=0), item.fingerprint, now, item.attempts_max)


class CountsInsteadOfTime(BrokenGate):
    """The horizon that is counted, not timed.

    Three attempts and it is over, however short the outage: a person is asked about what would have mended
    itself.
    """

    caught_as = ("I26",)

    class session_type(SimulatedSession):  # noqa: N801
        def decide(self, known: Known, item: Reservation, now: int) -> Decision:
            return judge(known, item.fingerprint, now, min(3, item.attempts_max))


class DoubtIsRetried(BrokenGate):
    """The doubtful end that is simply tried again.

    What may have happened and cannot be asked about should wait for a person; here it is put back into the
    line.
    """

    caught_as = ("I1",)
    surfaces = ("mail", "trip")

    class session_type(SimulatedSession):  # noqa: N801
        def _end(self, item: Settlement) -> bool:
            if item.state is State.UNKNOWN:
                item = replace(item, state=State.RETRYABLE)
            return super()._end(item)

        def progress(self, wanted: Sequence[StepRecords]) -> list[bool]:
            return [True for _ in wanted]


class StartNotRecorded(BrokenGate):
    """The unrepeatable call whose start is not written down.

    Only finished steps are recorded. After a crash in the middle of a call no record says so.
    """

    caught_as = ("I1",)
    surfaces = ("mail", "trip")

    class session_type(SimulatedSession):  # noqa: N801
        def progress(self, wanted: Sequence[StepRecords]) -> list[bool]:
            done = [
                replace(item, steps=tuple(s for s in item.steps if s.state is not StepState.STARTED))
                for item in wanted
            ]
            return super().progress(done)


class RecordInItsOwnTransaction(BrokenGate):
    """The log record that comes afterwards.

    State first, audit record in a second transaction. Whatever goes wrong in between leaves a change
    without an explanation.
    """

    caught_as = ("I16",)

    class session_type(SimulatedSession):  # noqa: N801
        _later: list[tuple[Any, ...]]

        def log(self, entry: int, kind: LogKind, at_ms: int, actor: str, note: str | None) -> None:
            self._later.append((entry, kind, at_ms, actor, note))

        @contextmanager
        def unit(self, *, wait: bool = True, single: bool = False, patient: bool = True) -> Iterator[None]:
            self._later = []
            with super().unit(wait=wait, single=single, patient=patient):
                yield
            if self._later:
                with super().unit():
                    for record in self._later:
                        super().log(*record)


class BookingInItsOwnTransaction(BrokenGate):
    """The business write beside the key's transaction.

    The key is settled, and then the booking is written. What crashes in between has a key that says done
    and no booking.
    """

    caught_as = ("I16",)
    surfaces = ("book", "mail", "trip")

    class session_type(SimulatedSession):  # noqa: N801
        _later: list[tuple[Statement, ...]]

        def _run_writes(self, batches: list[tuple[Statement, ...]]) -> None:
            self._later += batches

        @contextmanager
        def unit(self, *, wait: bool = True, single: bool = False, patient: bool = True) -> Iterator[None]:
            self._later = []
            with super().unit(wait=wait, single=single, patient=patient):
                yield
            if self._later:
                with super().unit():
                    super()._run_writes(self._later)


class AcknowledgeFirst(BrokenGate):
    """The message that is deleted before the work is recorded.

    The consumer answers at once and works in the background, as many do by default. A crash in between
    loses the event.
    """

    caught_as = ("I3", "I2")

    class face_type(TrueFace):  # noqa: N801
        async def admit(self, surface: str, event: dict[str, Any]) -> Admission:
            self.worker.spawn(super().admit(surface, event))
            return Admission(Verdict.RUN, "")


class AcknowledgeAlways(BrokenGate):
    """The message that is deleted in a `finally` block.

    Whatever the handler raised, the message goes, the one whose reservation was never made with it.
    """

    caught_as = ("I3", "I2")

    class face_type(TrueFace):  # noqa: N801
        async def admit(self, surface: str, event: dict[str, Any]) -> Admission:
            try:
                return await super().admit(surface, event)
            except Exception:  # noqa: BLE001  that is the mistake
                return Admission(Verdict.HOLD, "")
