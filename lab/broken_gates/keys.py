"""Broken keys: what counts as the same event, for how long, and for whom."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Final

from msgspec.structs import replace

from lab.broken_gates.broken_gate import BrokenGate
from lab.simulator.surfaces import Handlers
from lab.simulator.worker import TrueFace, Worker
from oncegate.commit.operations import ReadEntry
from oncegate.gate.admission import Admission, Verdict
from oncegate.model.states import Decision, Known, judge
from oncegate.store import Reservation, Reserved
from oncegate.testing.simulation.ledger import Row
from oncegate.testing.simulation.store import SimulatedSession

FIVE_MINUTES_MS: Final = 300_000
MONTH_MS: Final = 30 * 86_400_000
STATEMENT_MS: Final = 15
DEPLOYED_AFTER: Final = 2  # events, of the simulator's few


class FiveMinuteStore(BrokenGate):
    """The five-minute window.

    Ids are kept for as long as retries usually take. A manual replay in the afternoon is a new event.
    """

    caught_as = ("I1", "I9")

    class session_type(SimulatedSession):  # noqa: N801
        def find(self, item: Reservation) -> Row | None:
            row = super().find(item)
            if row is None or item.received_at_ms - row.received_at_ms <= FIVE_MINUTES_MS:
                return row
            self.remove(row)
            return None


class MonthUniqueKey(BrokenGate):
    """The key that is unique within its partition.

    The table is split by month and the unique index with it: on the first of the month yesterday's event is
    new.
    """

    caught_as = ("I1", "I9")

    class session_type(SimulatedSession):  # noqa: N801
        def find(self, item: Reservation) -> Row | None:
            row = super().find(item)
            same = row is not None and row.received_at_ms // MONTH_MS == item.received_at_ms // MONTH_MS
            return row if same else None


class ContentIsTheKey(BrokenGate):
    """The key made of the whole message.

    A hash of the body: an event that is sent again with one field corrected is another event, and is booked
    twice.
    """

    caught_as = ("I1", "I7")

    class session_type(SimulatedSession):  # noqa: N801
        def reserve_one(self, item: Reservation) -> Reserved:
            return super().reserve_one(replace(item, key=sha256(item.body).digest()[:24]))


class NoFingerprint(BrokenGate):
    """The key without a look at the content.

    Another content under a known key is answered with the outcome of the first, and the sender believes
    that its order was taken.
    """

    caught_as = ("I7",)

    class session_type(SimulatedSession):  # noqa: N801
        def decide(self, known: Known, item: Reservation, now: int) -> Decision:
            return judge(known, known.fingerprint, now, item.attempts_max)

    class face_type(TrueFace):  # noqa: N801
        replay_cache_max = 0


class UndelimitedKey(BrokenGate):
    """The fields that run together.

    `id + part`: ("ab", "c") and ("a", "bc") are one key, and the second order is never carried out.
    """

    caught_as = ("I3", "I2")

    class session_type(SimulatedSession):  # noqa: N801
        def reserve_one(self, item: Reservation) -> Reserved:
            run_together = f"{item.tenant}{item.surface}{item.label.replace(':', '')}"
            return super().reserve_one(replace(item, key=sha256(run_together.encode()).digest()[:24]))


class GlobalKey(BrokenGate):
    """The key that all customers share.

    Two tenants number their orders from one. The second one's order is taken for a repeat of the first
    one's.
    """

    caught_as = ("I3", "I2")

    class session_type(SimulatedSession):  # noqa: N801
        def reserve_one(self, item: Reservation) -> Reserved:
            shared = f"{item.surface}/{item.label}"
            return super().reserve_one(replace(item, key=sha256(shared.encode()).digest()[:24]))


class RewordedTemplate(BrokenGate):
    """The key template that was reworded.

    A new version says `{order_id:str}` where the old one said `{order_id}`. The text is part of the key:
    every event that is known is new, and no person is asked.
    """

    caught_as = ("I1", "I9")

    class session_type(SimulatedSession):  # noqa: N801
        def reserve_one(self, item: Reservation) -> Reserved:
            is_deployed = len(self._tables.rows) >= DEPLOYED_AFTER
            key = sha256(b"{order_id:str}" + item.key).digest()[:24] if is_deployed else item.key
            return super().reserve_one(replace(item, key=key))


class TransportKey(BrokenGate):
    """The message id as the key.

    The queue gives every sending an id of its own. A redrive, a replay or a second producer call is a new
    event.
    """

    caught_as = ("I1",)

    class session_type(SimulatedSession):  # noqa: N801
        def reserve_one(self, item: Reservation) -> Reserved:
            message = item.token.to_bytes(8, "big") + bytes(16)
            return super().reserve_one(replace(item, key=message))


class SameKeyTwiceInABatch(BrokenGate):
    """The batch with the same key twice.

    One statement for many keys returns one row for two equal ones, and both callers read it as theirs.
    """

    caught_as = ("I1", "I4", "I9")

    class session_type(SimulatedSession):  # noqa: N801
        def reserve(self, wanted: Sequence[Reservation]) -> list[Reserved]:
            by_key: dict[bytes, Reserved] = {}
            for item in wanted:
                if item.key not in by_key:
                    by_key[item.key] = self.reserve_one(item)
            return [by_key[item.key] for item in wanted]


class DoNothingAndSelect(BrokenGate):
    """`ON CONFLICT DO NOTHING` and a `SELECT` in one statement.

    Under READ COMMITTED a key that another transaction has just committed is neither inserted nor seen.
    No row came back, so it must be ours.
    """

    caught_as = ("I1", "I4", "I9")

    class session_type(SimulatedSession):  # noqa: N801
        def reserve_one(self, item: Reservation) -> Reserved:
            row, now = self.find(item), self.now_ticks()
            if row is not None and row.first_reserved and now - row.first_reserved < STATEMENT_MS:
                return Reserved(Decision.RUN, row.entry_id, row.fence, now_ticks=now)
            return super().reserve_one(item)


class CheckThenInsert(BrokenGate):
    """Look first, then insert.

    Two arrivals look at the same moment, both see nothing, and both insert and run.
    """

    caught_as = ("I1", "I4", "I9")

    class session_type(SimulatedSession):  # noqa: N801
        def find(self, item: Reservation) -> Row | None:
            return None

    class face_type(TrueFace):  # noqa: N801
        replay_cache_max = 0

        async def admit(self, surface: str, event: dict[str, Any]) -> Admission:
            if await self.commits.submit_async(ReadEntry(self.key_of(surface, event))) is not None:
                return Admission(Verdict.REPLAY, "")
            return await super().admit(surface, event)


class InsertAfterEffect(BrokenGate):
    """The key that is written after the work.

    Look, call, then record. A crash after the call leaves no trace of it, and two arrivals at once call
    twice.
    """

    caught_as = ("I5", "I1")

    class face_type(TrueFace):  # noqa: N801
        async def admit(self, surface: str, event: dict[str, Any]) -> Admission:
            if await self.commits.submit_async(ReadEntry(self.key_of(surface, event))) is not None:
                return Admission(Verdict.REPLAY, "")
            await self.run_without_gate(surface, event)
            return await super().admit(surface, event)


class KeysInMemory(BrokenGate):
    """The set of ids in the process.

    It works until there is a second process, or until the first one is restarted.
    """

    caught_as = ("I5", "I1", "I3")

    class face_type(TrueFace):  # noqa: N801
        def __init__(self, worker: Worker) -> None:
            super().__init__(worker)
            self._seen: set[bytes] = set()

        async def admit(self, surface: str, event: dict[str, Any]) -> Admission:
            key = self.key_of(surface, event)
            if key in self._seen:
                return Admission(Verdict.REPLAY, "")
            self._seen.add(key)
            return await self.run_without_gate(surface, event)


class KeyNotPassedOn(BrokenGate):
    """The key that stops at our door.

    The downstream would recognise a repeat, but every call carries a key of its own.
    """

    caught_as = ("I1",)
    surfaces = ("book", "trip", "pay")

    class face_type(TrueFace):  # noqa: N801
        class handlers_type(Handlers):  # noqa: N801
            async def _take_seat(self, event: dict[str, Any], idempotency_key: str = "") -> dict[str, Any]:
                return await super()._take_seat(event, self._fresh_key())

            async def pay(self, event: dict[str, Any], idempotency_key: str = "") -> dict[str, Any]:
                return await super().pay(event, self._fresh_key())

            def _fresh_key(self) -> str:
                return str(self._room.rng.getrandbits(62))


class ImpatientProbe(BrokenGate):
    """The question that is asked too early.

    "Nothing under this key" is believed at once, while the first request is still on its way.
    """

    caught_as = ("I1",)
    surfaces = ("print", "trip")

    class face_type(TrueFace):  # noqa: N801
        class handlers_type(Handlers):  # noqa: N801
            request_life_max = "1s"


class ProbeIgnored(BrokenGate):
    """The question whose answer is thrown away.

    The downstream is asked, but by another id than the one the call carried: it never knows anything.
    """

    caught_as = ("I1",)
    surfaces = ("print", "trip")

    class face_type(TrueFace):  # noqa: N801
        class handlers_type(Handlers):  # noqa: N801
            async def _find_label(self, key: str) -> dict[str, Any] | None:
                return await super()._find_label(key.partition(":")[0])
