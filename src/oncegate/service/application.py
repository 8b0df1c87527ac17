"""The service as a plain ASGI application: routes, who may do what, and every error as a problem document.

No framework stands between a request and the gate. Must never answer 2xx before the record is durable,
never call a handler while the store is down, and never tell one tenant from another's absence.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import AsyncExitStack, suppress
from typing import Any, Final

import msgspec

from oncegate.errors import ConfigError, OncegateError, StoreError
from oncegate.feed import Feed
from oncegate.gate.facade import GateOnStore
from oncegate.integrations.problems import Problem, ProblemKind
from oncegate.maintenance.accepted_events import AcceptedWork
from oncegate.model.durations import parse_duration
from oncegate.sender.delivery import DeliveryService
from oncegate.sender.http import HttpClient
from oncegate.sender.sender import SenderOnCommits
from oncegate.service import contract
from oncegate.service.accesslog import AccessLog, PlainLog
from oncegate.service.connections import Connections
from oncegate.service.counting import Counting
from oncegate.service.denial_log import NOTED, DenialLog
from oncegate.service.dispatch import check_room
from oncegate.service.failures import answer_to_error, leaves_the_body
from oncegate.service.fastpath.handler import Webhooks
from oncegate.service.inbound import admit_webhook, check_webhook
from oncegate.service.large_bodies import LargeBodies
from oncegate.service.listeners import Listeners
from oncegate.service.messages import (
    PIECE_BYTES,
    Gone,
    Receive,
    RequestDenied,
    Scope,
    Send,
    ServiceRequest,
    ServiceResponse,
    json_answer,
    method_not_allowed,
    problem_answer,
    send_answer,
    send_in_pieces,
)
from oncegate.service.openapi import document
from oncegate.service.page import PageMount
from oncegate.service.partners import Partner, PartnerBook, PartnerRole
from oncegate.service.readiness import Readiness
from oncegate.service.recording import open_recorder
from oncegate.service.settings import Settings
from oncegate.service.slow_body_limiter import ArrivingBodies
from oncegate.service.sources import consume_all
from oncegate.service.stopping import StopTimes
from oncegate.service.surfaces import Entrance, Handlers, open_contract, open_entrances, policy_of
from oncegate.service.throttle import ConcurrencyLimiter
from oncegate.service.write_timeout import UnreadBytes
from oncegate.signals.prometheus import exposition
from oncegate.wiring import Gate
from oncegate.wiring.sources import Consumers

VISITS_AT_ONCE: Final = 32  # requests to the operations page
POLLS_FACTOR: Final = (
    4  # readers mostly wait, which is no work: they have room of their own, and more of it
)

PEERS_SHARE: Final = 4  # one peer has at most so small a part of arriving bodies and idle connections
PAGES_AT_ONCE: Final = 8  # pages of the feed that are read from the ledger; each may have 4 MiB
BODIES_FACTOR: Final = 4  # bodies that still arrive are no work either; slow ones are cut off elsewhere

log: Final = logging.getLogger("oncegate.service")

_QUIET: Final = frozenset({"livez", "readyz", "metrics"})
_Handle = Callable[[ServiceRequest], Awaitable[ServiceResponse]]
_Routes = dict[tuple[str, str], tuple[str, _Handle]]


class Service:
    """One process of the service, on one gate."""

    def __init__(
        self, gate: GateOnStore, settings: Settings, partners: PartnerBook, environment: Mapping[str, str]
    ) -> None:
        self.gate, self.settings, self.partners = gate, settings, partners
        self.feed = Feed(gate, decode=msgspec.Raw, pages_at_once=PAGES_AT_ONCE)
        self.sender = SenderOnCommits(
            gate.engine.commits, clock=gate.engine.clock, policy=policy_of(settings.network)
        )
        self.is_draining = False
        self.refusal: OncegateError | None = None  # why it cannot begin
        self._environment = environment
        total_max, tenant_max = settings.server.concurrency_max, settings.server.tenant_concurrency_max
        self._throttle = ConcurrencyLimiter(total_max, tenant_max)
        self.polls = ConcurrencyLimiter(total_max * POLLS_FACTOR, tenant_max * POLLS_FACTOR)
        self.access: AccessLog = PlainLog()
        self._bodies = ConcurrencyLimiter(total_max * BODIES_FACTOR, 0)
        self._counting = Counting()
        self.arriving = ArrivingBodies(total_max, max(1, total_max // PEERS_SHARE))
        connections_max = settings.server.connections_max
        self.connections = Connections(connections_max, max(1, connections_max // PEERS_SHARE))
        self.unread = UnreadBytes(settings.server.unread_bytes_max)
        self.large = LargeBodies(settings.server.body_values_max)
        self.webhooks = Webhooks(gate, self._throttle, self._tell, self.large)
        self._refusals = DenialLog(gate.engine.commits, gate.engine.clock)
        self._work, self._ending = AsyncExitStack(), asyncio.Lock()
        self._client: HttpClient | None = None
        self._page = PageMount(gate)
        self.visits = ConcurrencyLimiter(VISITS_AT_ONCE, 0)
        self.listeners = Listeners(settings.listeners)
        self._readiness = Readiness(gate.engine.commits, gate.engine.clock)
        self._entrances: dict[str, Entrance] = {}
        self._routes: _Routes = {}
        self._operators: _Routes = {}  # at their own listener, if they have one
        self._event: _Handle = self._nothing

    def open(self) -> None:
        """Registers what the settings name; must be called in the event loop that serves."""
        self._client = HttpClient(policy_of(self.settings.network), clock=self.gate.engine.clock)
        handlers = Handlers(self.gate, self.settings, self._client)
        self._entrances = open_entrances(self.gate, self.settings, handlers, self._environment)
        self.webhooks.open(self._entrances)
        self._route("GET", "/livez", "livez", self._livez)
        self._route("GET", "/readyz", "readyz", self._readyz)
        self._open_operators_routes()
        self._route("POST", "/v1/events", "events", self._by(PartnerRole.PUBLISH, self._publish))
        self._event = self._by(PartnerRole.PUBLISH, self._find_event)
        if self.settings.contract.enabled:
            open_contract(self.gate, self.settings.contract, handlers)
            self._open_contract_routes(self.settings.contract.prefix)
        open_recorder(self.gate, self.settings.record, self._environment)

    def _open_operators_routes(self) -> None:
        if self.listeners.has_admin:
            self._operators = dict(self._routes)  # the health checks
        routes = self._operators if self.listeners.has_admin else self._routes
        if self.listeners.settings.metrics:
            routes["GET", "/metrics"] = ("metrics", self._metrics)
        if self.listeners.settings.openapi:
            routes["GET", "/openapi.json"] = ("openapi", self._openapi)

    def _open_contract_routes(self, prefix: str) -> None:
        self._route("POST", f"{prefix}/realtime", "realtime", self._by(PartnerRole.SEND, self._realtime))
        self._route(
            "POST", f"{prefix}/confirmations", "confirmations", self._by(PartnerRole.SEND, self._confirm)
        )
        pending = self._by(PartnerRole.READ, self._pending, self.polls)
        self._route("GET", f"{prefix}/dispatch/pending", "pending", pending)
        self._route("POST", f"{prefix}/dispatch/ack", "ack", self._by(PartnerRole.READ, self._ack))

    async def start(self) -> None:
        """Begins the work beside requests: accepted events, deliveries, sources."""
        times = StopTimes(parse_duration(self.settings.server.drain_within).total_seconds())
        if any(surface.lane is not None for surface in self.gate.engine.surfaces):
            await self._work.enter_async_context(AcceptedWork(self.gate, stop_seconds=times.work))
        if self.settings.delivery.enabled:
            sending = DeliveryService(
                self.sender, crashpoints=self.gate.engine.crashpoints, stop_seconds=times.work
            )
            await self._work.enter_async_context(sending)
        if self.settings.sources:
            assert isinstance(self.gate, Gate)
            consume_all(self.gate, self.settings, self._environment)
            consumers = Consumers(self.gate, self.gate.sources, stop_seconds=times.work / 2)
            await self._work.enter_async_context(consumers)

    async def end_work(self) -> None:
        """Lets the work beside requests end; what takes too long is given back."""
        async with self._ending:
            await self._work.aclose()

    async def close(self) -> None:
        """Writes down what is left to be written, and ends connections to handlers."""
        await self.end_work()
        self.large.close()
        await self._refusals.close()
        self.access.flush()
        if self._client is not None:
            await self._client.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request, or the server's own beginning and end."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http" and self._page.has(scope["path"]) and self._has_page(scope):
            await self._serve_page(scope, receive, send)
        elif scope["type"] == "http":
            await self._serve(ServiceRequest(scope, receive, self.settings.server.body_bytes_max), send)

    def _has_page(self, scope: Scope) -> bool:
        listeners = self.listeners
        return listeners.settings.page and listeners.has_admin == listeners.is_admin(scope.get("server"))

    async def _serve_page(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The page has a few places of its own: it takes none of the callers', and they none of it."""

        async def counted(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                self._counting.answers["ui", message["status"]] += 1
            await send_in_pieces(send, message)

        try:
            with self.visits.entered():
                await self._page(scope, receive, counted)
        except RequestDenied as refused:
            await send_answer(counted, problem_answer(refused.problem), close=True)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    self.open()
                    with suppress(StoreError):  # then before a surface's first event
                        await asyncio.to_thread(self.gate.check_surfaces)
                    await self.start()
                except OncegateError as error:
                    self.refusal = error
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    return
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _serve(self, incoming: ServiceRequest, send: Send) -> None:
        route, handle = self._find(incoming)
        try:
            answer, is_read = await self._answer(handle, incoming)
            self._tell(route, answer, incoming.caller)
            await send_answer(send, answer, close=not is_read)
        except Gone:
            return
        finally:
            incoming.give_places_back()

    def _tell(self, route: str, answer: ServiceResponse, caller: str | None) -> None:
        """Counts an answer and writes it down, wherever it is sent from."""
        status = answer.status
        self._counting.answers[route, status] += 1
        if status in NOTED:
            self._refusals.note(caller, route, status)
        if route not in _QUIET:
            self.access.answered(route, status, answer.key)

    async def _answer(self, handle: _Handle, incoming: ServiceRequest) -> tuple[ServiceResponse, bool]:
        """The answer, and whether the connection can go on: not after a body that was not read."""
        try:
            answer = await handle(incoming)
            if len(answer.body) > PIECE_BYTES:
                incoming.take_place(self.unread.entered(incoming.tenant, len(answer.body)))
            return answer, True
        except Gone:
            raise
        except Exception as error:  # noqa: BLE001  whatever it is, the caller gets a document
            return answer_to_error(error), not leaves_the_body(error)

    def _find(self, incoming: ServiceRequest) -> tuple[str, _Handle]:
        is_admin = self.listeners.is_admin(incoming.server)
        found = (self._operators if is_admin else self._routes).get((incoming.method, incoming.path))
        if found is not None:
            return found
        if is_admin:
            return "none", self._nothing
        if incoming.path.startswith("/in/"):
            return "in", self._in
        if incoming.path.startswith("/v1/events/"):
            return "event", self._event
        return "none", self._nothing

    async def _in(self, incoming: ServiceRequest) -> ServiceResponse:
        entrance = self._entrances.get(incoming.path.removeprefix("/in/"))
        if entrance is None:
            raise RequestDenied(Problem(ProblemKind.NOT_FOUND, "no surface has this name"))
        if incoming.method != "POST":
            raise method_not_allowed("POST")
        with self._bodies.entered():  # not a tenant's room: nothing shows yet that it is the tenant's
            body = await incoming.body()
        headers = incoming.headers
        authentic = check_webhook(self.gate.engine.clock, entrance, headers, body)
        with self._throttle.entered(), self._throttle.tenant(entrance.tenant):
            return await admit_webhook(self.gate, self.large, entrance, headers, body, authentic=authentic)

    async def _nothing(self, incoming: ServiceRequest) -> ServiceResponse:
        routes = self._operators if self.listeners.is_admin(incoming.server) else self._routes
        allowed = [method for method, path in routes if path == incoming.path]
        if allowed:
            raise method_not_allowed(*allowed)
        raise RequestDenied(Problem(ProblemKind.NOT_FOUND, "there is nothing at this address"))

    def _route(self, method: str, path: str, name: str, handle: _Handle) -> None:
        self._routes[method, path] = (name, handle)

    def _by(
        self,
        role: PartnerRole,
        serve: Callable[[Partner, ServiceRequest], Awaitable[ServiceResponse]],
        room: ConcurrencyLimiter | None = None,
    ) -> _Handle:
        """Lets partners with a role in; the tenant is the token's, whatever the body says."""
        throttle = room or self._throttle

        async def handle(incoming: ServiceRequest) -> ServiceResponse:
            with throttle.entered():
                partner = await self.partners.authenticate(incoming.headers)
            incoming.caller, incoming.tenant = partner.name, partner.tenant
            if role not in partner.roles:
                raise RequestDenied(Problem(ProblemKind.FORBIDDEN, f"this needs the role {role.value}"))
            if incoming.method == "POST":
                with self._bodies.entered():  # what is still arriving is no work yet
                    await incoming.body()
            incoming.take_place(throttle.entered())
            incoming.take_place(throttle.tenant(partner.tenant))
            return await serve(partner, incoming)

        return handle

    async def _realtime(self, partner: Partner, incoming: ServiceRequest) -> ServiceResponse:
        return await contract.realtime(self.gate, self.large, partner, incoming)

    async def _confirm(self, partner: Partner, incoming: ServiceRequest) -> ServiceResponse:
        return await contract.confirmations(self.gate, self.large, partner, incoming)

    async def _pending(self, partner: Partner, incoming: ServiceRequest) -> ServiceResponse:
        self.unread.check(partner.tenant)
        return await contract.pending(self.feed, partner, incoming)

    async def _ack(self, partner: Partner, incoming: ServiceRequest) -> ServiceResponse:
        return await contract.acknowledge(self.feed, self.large, partner, incoming)

    async def _publish(self, partner: Partner, incoming: ServiceRequest) -> ServiceResponse:
        await check_room(self.sender, partner.tenant)
        answer = await contract.publish(self.feed, self.large, partner, incoming)
        self.sender.wake()
        return answer

    async def _find_event(self, partner: Partner, incoming: ServiceRequest) -> ServiceResponse:
        return await contract.find_event(self.feed, partner, incoming)

    async def _livez(self, incoming: ServiceRequest) -> ServiceResponse:
        return json_answer(200, {"alive": True})

    async def _readyz(self, incoming: ServiceRequest) -> ServiceResponse:
        """Ready while the ledger can be written and the service is not asked to end."""
        is_ready = not self.is_draining and await self._readiness.can_write()
        return json_answer(200 if is_ready else 503, {"ready": is_ready})

    async def _openapi(self, incoming: ServiceRequest) -> ServiceResponse:
        return json_answer(
            200, document(self.settings.contract.prefix, metrics=self.listeners.settings.metrics)
        )

    async def _metrics(self, incoming: ServiceRequest) -> ServiceResponse:
        text = self._counting.text(
            {
                "requests_in_flight": self._throttle.total + self.polls.total + self.visits.total,
                "requests_shed_total": self._throttle.shed + self.polls.shed + self.visits.shed,
                "bodies_arriving": self.arriving.total,
                "bodies_cut_total": self.arriving.cut,
                "unread_bytes": self.unread.total,
                "unread_refused_total": self.unread.refused,
                "connections": self.connections.total,
                "connections_closed_total": self.connections.closed,
                "connections_refused_total": self.connections.refused,
            }
        )
        try:
            seen = await asyncio.to_thread(exposition, self.gate)
        except (ConfigError, StoreError):  # the library is not installed, or the ledger does not answer
            seen = b""
        return ServiceResponse(200, text.encode() + seen, (("content-type", "text/plain; version=0.0.4"),))
