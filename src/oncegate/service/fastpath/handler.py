"""The short way of a webhook: from its bytes to its answer, without a task where memory can answer.

The server's own protocol calls this for requests that came whole and plain; the application calls it for
the others. Must never do less than the long way: signature on the raw bytes, strict JSON, room, the gate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from oncegate.errors import OncegateError
from oncegate.gate.admission import Admission
from oncegate.gate.driver.drivers import WaitingFlow
from oncegate.gate.facade import GateOnStore
from oncegate.model.trace import CARRIERS, Context, context_of
from oncegate.service.failures import answer_to_error
from oncegate.service.fastpath.body_cache import FamiliarBodies, Mark
from oncegate.service.inbound import PLAIN, after_failure, answer_to, check_sender
from oncegate.service.large_bodies import LargeBodies
from oncegate.service.messages import ServiceResponse, check_media_type
from oncegate.service.surfaces import Entrance
from oncegate.service.throttle import ConcurrencyLimiter
from oncegate.signatures import LoweredHeaders

ROUTE = "in"
Tell = Callable[[str, ServiceResponse, str | None], None]


class LargeBody(Struct, frozen=True):
    """A webhook that is its sender's, and is to be read beside the loop."""

    entrance: Entrance
    body: bytes
    mark: Mark
    context: Context | None


class Webhooks:
    """What comes in at `/in/…` of one service."""

    def __init__(self, gate: GateOnStore, room: ConcurrencyLimiter, tell: Tell, large: LargeBodies) -> None:
        self._large = large
        self._gate, self._clock, self._room, self._tell = gate, gate.engine.clock, room, tell
        self._familiar = FamiliarBodies()
        self.entrances: dict[bytes, Entrance] = {}  # by target, as it stands in a request

    def open(self, entrances: dict[str, Entrance]) -> None:
        """Takes the surfaces whose targets need no decoding and whose event is the body."""
        self.entrances = {
            f"/in/{name}".encode(): entrance
            for name, entrance in entrances.items()
            if _is_plain(name) and entrance.provider is None and not entrance.routes
        }

    def take(
        self, entrance: Entrance, headers: LoweredHeaders, body: bytes
    ) -> ServiceResponse | WaitingFlow[Admission] | LargeBody:
        """The answer, if memory has it or the request is refused; else what is to be awaited."""
        try:
            check_sender(self._clock, entrance, headers, body)
            if headers.has_repeats or headers.raw.get(b"content-type") != b"application/json":
                check_media_type(headers)
            begun = self._recall(entrance, headers, body)
            if type(begun) is WaitingFlow or type(begun) is LargeBody:
                return begun
            assert type(begun) is Admission
            answer = answer_to(begun)
        except Exception as error:  # noqa: BLE001  whatever it is, the caller gets a document
            answer = _failed(error)
        self._tell(ROUTE, answer, None)
        return answer

    def _recall(
        self, entrance: Entrance, headers: LoweredHeaders, body: bytes
    ) -> Admission | WaitingFlow[Admission] | LargeBody:
        """Replays bytes that were replayed before; whatever else there is, is read, here unless large."""
        mark, known = self._familiar.find(entrance.surface, body)
        if known is not None:
            replayed = self._gate.engine.recall(entrance.surface, known)
            if replayed is not None:
                return replayed
        context = None if CARRIERS.isdisjoint(headers.raw) else context_of(headers.only)
        if self._large.has(body):
            return LargeBody(entrance, body, mark, context)
        begun = self._begin(entrance, self._large.read(body), context)
        if type(begun) is Admission:
            self._learn(mark, begun)
        return begun

    def _learn(self, mark: Mark, admission: Admission) -> None:
        known = self._gate.engine.familiar(admission)
        if known is not None:
            self._familiar.learn(mark, known)

    def _begin(
        self, entrance: Entrance, event: Any, context: Context | None
    ) -> Admission | WaitingFlow[Admission]:
        """Takes room for the event, then begins it."""
        self._room.take(entrance.tenant)
        begun: Any = None
        try:
            begun = self._gate.engine.begin(
                entrance.surface, event, tenant=entrance.tenant, context=context
            )
            return begun  # type: ignore[no-any-return]
        finally:
            if type(begun) is not WaitingFlow:
                self._room.give_back(entrance.tenant)

    async def admit_large(self, found: LargeBody) -> ServiceResponse:
        """The answer to a large body, which is read beside the loop when its tenant's turn has come."""
        tenant = found.entrance.tenant
        try:
            self._room.take(tenant)
            try:
                begun = await self._large.in_turn(tenant, self._begin_large, found)
                admission = begun if isinstance(begun, Admission) else await begun.finish()
                self._learn(found.mark, admission)
                answer = answer_to(admission)
            finally:
                self._room.give_back(tenant)
        except Exception as error:  # noqa: BLE001  whatever it is, the caller gets a document
            answer = _failed(error)
        self._tell(ROUTE, answer, None)
        return answer

    def _begin_large(self, found: LargeBody) -> Admission | WaitingFlow[Admission]:
        """In the worker thread: reads the body and makes what the ledger is asked."""
        event, entrance = self._large.read(found.body), found.entrance
        return self._gate.engine.begin(
            entrance.surface, event, tenant=entrance.tenant, context=found.context
        )

    async def finish(self, entrance: Entrance, begun: WaitingFlow[Admission]) -> ServiceResponse:
        """The answer to something that was begun, and its room given back."""
        try:
            try:
                answer = answer_to(await begun.finish())
            finally:
                self._room.give_back(entrance.tenant)
        except Exception as error:  # noqa: BLE001  whatever it is, the caller gets a document
            answer = _failed(error)
        self._tell(ROUTE, answer, None)
        return answer


def _failed(error: Exception) -> ServiceResponse:
    if isinstance(error, OncegateError) and not isinstance(error, PLAIN):
        return after_failure(error)
    return answer_to_error(error)


def _is_plain(name: str) -> bool:
    return name.isascii() and all(character.isalnum() or character in "-._~" for character in name)
