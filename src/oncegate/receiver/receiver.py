"""The receiving half of ordered webhooks: check, deduplicate through the gate, keep the order, answer.

How far a lane has come is kept in the ledger and moves in the transaction that records the event's
outcome, also when another process or the reconciler finishes it after a crash. So a crash between
an effect and its record neither skips an event nor lets its successor pass it. Must never run an event
before its signature was checked, nor one whose predecessor is not recorded as applied.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, TypeVar, Unpack

from oncegate.commit.operations import Operation, ReadEntry, ReadPosition
from oncegate.errors import ConfigError, MalformedRequest, RequestRefused
from oncegate.gate.admission import Admission, Verdict
from oncegate.gate.facade import GateOnStore
from oncegate.gate.options import HandlerOptions
from oncegate.model.surface import NAME_LENGTH_MAX, check_name
from oncegate.model.template import KeyTemplate
from oncegate.receiver.answers import Answer, from_admission, from_error, passed_over, too_early
from oncegate.receiver.incoming import Greeting, Incoming, LanePosition, read_request
from oncegate.receiver.lanes import Gap, LanePositions, Turn, gap_of, lane_id, turn_of
from oncegate.receiver.mounting import greeted
from oncegate.receiver.presets import ProvidersReceivers
from oncegate.receiver.providers import Provider
from oncegate.signatures import Headers, Scheme, StandardWebhooks
from oncegate.store import Facet, Statement, move_of, require, require_transactions

F = TypeVar("F", bound=Callable[..., Any])
GivenHeaders = Mapping[str, str] | Iterable[tuple[str | bytes, str | bytes]]
# Asks the ledger and gets the answer; ends with an answer for the sender or, if the event may run, with the
# gap before it, if there is one.
Check = Generator[Operation[Any], Any, Answer | Gap | None]

log = logging.getLogger("oncegate.receiver")


class Receiver(ProvidersReceivers):
    """One sender's events at one surface.

    With `ordered`, events carry a key and a seq, and a seq is refused (425) until the one before it has
    been applied. `accept_late` runs an event that its lane has gone on without, instead of refusing it
    (409). `join_late` lets a lane that was never seen begin with whatever seq comes first. `on_gap` gets
    what the sender has given up, once the event behind it was applied; what it raises is only logged.

    No scheme signs `x-key`, `x-seq` and `x-previous-seq`. Where the body does not have them, a lane goes on
    by one event at a time: headers alone neither declare a gap nor choose where a lane begins.
    `trust_order_headers` lifts this, for a connection on which only the sender can write headers.

    `Receiver.stripe(…)` and its like know a provider. `asgi()`, `wsgi()` and `django()` mount a receiver.
    """

    def __init__(
        self,
        gate: GateOnStore,
        surface: str,
        *,
        secrets: Sequence[str] = (),
        scheme: Scheme | None = None,
        sender: str = "",
        ordered: bool = True,
        accept_late: bool = False,
        join_late: bool = False,
        on_gap: Callable[[Gap], object] | None = None,
        trust_order_headers: bool = False,
        provider: Provider | None = None,
        trust_id_header: bool = False,
    ) -> None:
        if (scheme is None) is not bool(secrets):
            raise ConfigError("a receiver is given either secrets= or scheme=")
        self._provider, self._trusts_id = provider, trust_id_header
        if ordered:
            require(gate.engine.store, Facet.LANES, "receivers with ordered=True")
            require_transactions(gate.engine.store, "receivers with ordered=True")
        if sender:
            check_name("sender", sender)
        self._gate = gate
        self._surface = surface
        self._scheme = scheme or StandardWebhooks(secrets)
        self._sender = sender
        self._ordered = ordered
        self._accept_late = accept_late
        self._join_late = join_late
        self._on_gap = on_gap
        self._trusts_headers = trust_order_headers
        self._needs_signed_place = False
        self._remembered = LanePositions()
        self._of_types: dict[str, str] = {}  # the surface of each type that has a handler of its own

    def handler(
        self, event_type: str | None = None, *, key: str = "{id}", **options: Unpack[HandlerOptions]
    ) -> Callable[[F], F]:
        """Registers the function that applies an event; options as for `gate.handler`.

        With `event_type`, events of that type have a surface of their own, SURFACE.TYPE, with its own
        retention, windows and signals. Events of other types go to the handler without one.

        It gets `{"id", "key", "seq", "payload"}` (without key and seq where there is no order). `key` makes
        the gate's key, within this sender. A scheme that signs no id needs one from the payload: there the
        event has no `id`.
        """
        fields = {
            field.path[0]
            for field in KeyTemplate.parse(key, allow_transport=options.get("allow_transport", ())).fields
        }
        if self._provider is not None:
            options.setdefault("ignore", self._provider.ignore)
            options.setdefault("redelivery_horizon", self._provider.horizon)
        elif "id" in fields and not getattr(self._scheme, "signs_id", False):
            raise ConfigError(
                f"{self._surface}: {type(self._scheme).__name__} signs no id, and a recorded request "
                "could be sent again under another one; make the key from the signed body, such as "
                f'key="{{payload.id}}" (not key="{key}")'
            )
        self._needs_signed_place = not fields.isdisjoint(("key", "seq")) and not self._trusts_headers
        if self._ordered:
            # A failed event is taken up again when the sender brings it, in its turn, not by a worker.
            options.setdefault("caller_retries", True)
            options["writes"] = self._moves
        if self._sender:
            options.setdefault("actor", f"sender/{self._sender}"[:NAME_LENGTH_MAX])
        surface = self._surface if event_type is None else self._add_type(event_type)
        return self._gate.handler(surface, key=key, **options)

    def _add_type(self, event_type: str) -> str:
        if self._ordered:
            raise ConfigError(f"{self._surface} is ordered: its lanes are for events of all types together")
        if self._provider is None:
            raise ConfigError(f"{self._surface}: only receivers such as Receiver.stripe(…) know the type")
        self._provider.check_routing(trusts_header=self._trusts_id)
        self._of_types[event_type] = check_name("surface", f"{self._surface}.{event_type}")
        return self._of_types[event_type]

    def _surface_of(self, incoming: Incoming) -> str:
        found = incoming.event.get("type") if self._of_types else None
        return self._of_types.get(found, self._surface) if isinstance(found, str) else self._surface

    @property
    def is_async(self) -> bool:
        """Whether a handler of its is async."""
        engine, names = self._gate.engine, {self._surface, *self._of_types.values()}
        found = [one for one in engine.surfaces if one.name in names] or [engine.surface(self._surface)]
        return any(one.is_async for one in found)

    async def receive(self, headers: GivenHeaders, body: bytes) -> Answer:
        """Answers a request, from a task; never raises for what a request holds or a handler does."""
        try:
            incoming = self._read(headers, body)
            check = self._check(incoming)
            step = _sent(check, None)
            while isinstance(step, Operation):
                step = _sent(check, await self._gate.engine.submit(step))
            if isinstance(step, Answer):
                return step
            admission = await self._gate.admit(
                self._surface_of(incoming), incoming.event, tenant=self._sender, context=incoming.context
            )
        except Exception as error:  # noqa: BLE001  every error has its status; unexpected ones are logged
            return self._refused(error)
        return self._applied(incoming, admission, step)

    def receive_sync(self, headers: GivenHeaders, body: bytes) -> Answer:
        """Answers a request, from a thread."""
        try:
            incoming = self._read(headers, body)
            check = self._check(incoming)
            step = _sent(check, None)
            while isinstance(step, Operation):
                step = _sent(check, self._gate.engine.ask_sync(step))
            if isinstance(step, Answer):
                return step
            admission = self._gate.admit_sync(
                self._surface_of(incoming), incoming.event, tenant=self._sender, context=incoming.context
            )
        except Exception as error:  # noqa: BLE001  every error has its status; unexpected ones are logged
            return self._refused(error)
        return self._applied(incoming, admission, step)

    def _read(self, headers: GivenHeaders, body: bytes) -> Incoming:
        now_s = self._gate.engine.clock.wall_ms() // 1000
        incoming = read_request(
            self._scheme, Headers(headers), body, now_s,
            ordered=self._ordered, trusts_headers=self._trusts_headers,
            provider=self._provider, trusts_id=self._trusts_id,
        )  # fmt: skip
        if self._needs_signed_place and incoming.place is not None and not incoming.place.is_signed:
            raise MalformedRequest("key and seq make the event's key here, and the signed body has none")
        return incoming

    def _check(self, incoming: Incoming) -> Check:
        """May the event run, as far as its lane is concerned?"""
        place = incoming.place
        if place is None:
            return None
        lane = self._lane(place.key)
        position = self._remembered.at_least(lane)
        if turn_of(place, position) is Turn.TOO_EARLY:
            position = yield ReadPosition(lane)
            self._remembered.note(lane, position)
        turn = turn_of(place, position)
        if turn is Turn.NOW:
            return gap_of(place, position)
        if position == 0 and self._join_late and place.is_signed:
            return None
        if turn is Turn.TOO_EARLY:
            log.warning("%s: seq %d came before %d", self._surface, place.seq, position + 1)
            return too_early(position + 1, place.seq)
        return (yield from self._check_behind(incoming, place, position))

    def _check_behind(self, incoming: Incoming, place: LanePosition, position: int) -> Check:
        """A repeat of what was applied goes to the gate, which replays it; anything else is too late."""
        arrival = self._gate.engine.arrival_of(self._surface, incoming.event, self._sender)
        entry = yield ReadEntry(arrival.key.digest)
        for key in arrival.also:
            entry = entry or (yield ReadEntry(key))
        if self._accept_late or (entry is not None and entry.state.is_final):
            return None
        log.warning("%s: seq %d came after the lane went on to %d", self._surface, place.seq, position)
        return passed_over(position, place.seq)

    def _applied(self, incoming: Incoming, admission: Admission, gap: Gap | None) -> Answer:
        if admission.verdict is Verdict.RUN and incoming.place is not None:
            self._remembered.note(self._lane(incoming.place.key), incoming.place.seq)
            if gap is not None:
                self._report(gap)
        return from_admission(admission, ordered=self._ordered, gap=gap)

    def _report(self, gap: Gap) -> None:
        """Reports a gap; the log does not name the key, which may be personal data."""
        log.warning(
            "%s: seq %d to %d will not come; the sender has given them up",
            self._surface, gap.first, gap.last,
        )  # fmt: skip
        try:
            if self._on_gap is not None:
                self._on_gap(gap)
        except Exception:
            log.exception("%s: on_gap failed", self._surface)

    def _refused(self, error: Exception) -> Answer:
        if isinstance(error, Greeting):
            return greeted(error.document)
        found = from_error(error)
        if not isinstance(error, RequestRefused):
            log.error("%s: an event was not applied", self._surface, exc_info=error)
        return found

    def _moves(self, event: Any) -> tuple[Statement, ...]:
        return (move_of(self._lane(event["key"]), event["seq"], self._gate.engine.clock.wall_ms()),)

    def _lane(self, key: str) -> bytes:
        return lane_id(self._surface, self._sender, key)


def _sent(check: Check, answer: Any) -> Operation[Any] | Answer | Gap | None:
    """Hands an answer to a check and returns its next question or its end."""
    try:
        return check.send(answer)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
