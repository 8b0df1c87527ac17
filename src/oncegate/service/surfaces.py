"""Turns settings into surfaces of a gate: the rule, the scheme, and the handler events are brought to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from oncegate.errors import ConfigError, Failed, NotApplied, OncegateError, OutcomeUnknown
from oncegate.gate.admission import Verdict
from oncegate.gate.facade import GateOnStore
from oncegate.gate.flows.key_injection import KEY_HEADER
from oncegate.gate.once import AsyncOnce
from oncegate.gate.runtime.tracing import carried_context
from oncegate.gate.surface import Downstream, record
from oncegate.maintenance.drift_scan import DriftScan
from oncegate.model.content import Content
from oncegate.model.drift import DriftFields
from oncegate.model.durations import parse_duration
from oncegate.model.paths import lookup, parse_path
from oncegate.model.surface import OnBusy, OnConflict, check_name
from oncegate.receiver.providers import Provider, provider_of
from oncegate.sender.addresses import AddressPolicy
from oncegate.sender.http import HttpClient
from oncegate.sender.urls import parse_endpoint_url
from oncegate.service.alarming import limits_of
from oncegate.service.config_loader import find_secrets
from oncegate.service.settings import (
    ContractSettings,
    DownstreamSettings,
    NetworkSettings,
    Settings,
    SignatureScheme,
    SurfaceSettings,
)
from oncegate.service.upstream_call import FailureLog, Forwarder, HttpForwarder, HttpProbe
from oncegate.signatures import BearerToken, GithubSignature, Scheme, StandardWebhooks, StripeSignature

REALTIME = "wes.realtime"
CONFIRMATIONS = "wes.confirmations"
WINDOWS = "wes.confirmations.windows"
CONTRACT_SURFACES = frozenset({REALTIME, CONFIRMATIONS, WINDOWS})

_SCHEMES: dict[SignatureScheme, Any] = {
    SignatureScheme.STANDARD_WEBHOOKS: StandardWebhooks,
    SignatureScheme.GITHUB: GithubSignature,
    SignatureScheme.STRIPE: StripeSignature,
    SignatureScheme.BEARER: BearerToken,
}

_EITHER = "give either provider, such as 'stripe', or signature, such as 'standard-webhooks'"
_CHALLENGES: dict[SignatureScheme, str] = {
    **{scheme: scheme.value for scheme in SignatureScheme},
    SignatureScheme.BEARER: "Bearer",
}


class Entrance(Struct, frozen=True):
    """A surface as the service serves it."""

    surface: str
    scheme: Scheme
    tenant: str
    challenge: str = "Bearer"  # what a caller who is not known is asked for
    provider: Provider | None = None
    trusts_id: bool = False
    routes: Mapping[str, str] = {}  # the surface of each type of event
    type_path: tuple[str, ...] = ()

    def surface_of(self, event: Any) -> str:
        """The surface that an event goes to, by its type; an unknown type stays here."""
        found = lookup(event, self.type_path) if self.routes else None
        return self.routes.get(found, self.surface) if isinstance(found, str) else self.surface


class Handlers:
    """The downstreams of the settings, by name."""

    def __init__(self, gate: GateOnStore, settings: Settings, client: HttpClient) -> None:
        self._gate, self._client, self._policy = gate, client, policy_of(settings.network)
        self._known: dict[str, tuple[Downstream, Forwarder]] = {}
        for name, one in settings.downstreams.items():
            with mistakes_at(f"downstreams.{name}"):
                self._add(name, one)

    def _add(self, name: str, one: DownstreamSettings) -> None:
        url, timeout = parse_endpoint_url(one.url, self._policy), parse_duration(one.timeout)
        probe = None
        if one.probe_url is not None:
            probe = HttpProbe(self._client, one.probe_url, self._policy, timeout).ask
        downstream = self._gate.downstream(
            name, honours_key=one.honours_key, probe=probe, request_life_max=one.request_life_max
        )
        failures = FailureLog(name, self._gate.engine.clock)
        self._known[name] = (downstream, HttpForwarder(self._client, url, timeout, failures))

    def handler(self, place: str, name: str | None) -> Any:
        """The handler that brings events to a downstream; without one, what comes is only recorded."""
        if name is None:
            return record
        if name not in self._known:
            known = ", ".join(self._known) or "none"
            raise ConfigError(f"{place}: there is no downstream {name}; known: {known}")
        downstream, forwarder = self._known[name]

        async def bring(event: Any, once: AsyncOnce) -> Any:
            journey = {name: text for name, text in once.headers.items() if name != KEY_HEADER}
            return await once.effect(downstream, _forward, forwarder, event, journey, name="forward")

        return bring

    def check_acknowledges(self, one: SurfaceSettings) -> None:
        """Refuses to acknowledge what a crash would leave to a person, with every event of the surface."""
        known = self._known.get(one.forward or "")
        if one.on_busy is OnBusy.ACKNOWLEDGE and known is not None and known[0].is_unrepeatable:
            raise ConfigError(
                f"on_busy = 'acknowledge' needs a downstream that recovery may call again; give"
                f" {one.forward} honours_key or probe_url"
            )


async def _forward(
    forwarder: Forwarder, event: Any, journey: Mapping[str, str], idempotency_key: str
) -> Any:
    """Made once, not for each event: the gate looks every new function over before it calls it."""
    return await forwarder.forward(event, idempotency_key, journey)


@contextmanager
def mistakes_at(place: str) -> Iterator[None]:
    """Says in which setting a mistake is."""
    try:
        yield
    except OncegateError as error:
        raise MistakeAt(place, str(error).removeprefix(f"{place}: ")) from None


class MistakeAt(ConfigError):
    """A setting that can be read but not used."""

    def __init__(self, place: str, what: str) -> None:
        super().__init__(f"{place}: {what}")
        self.place, self.what = place, what


def policy_of(network: NetworkSettings) -> AddressPolicy:
    """Which addresses may be called."""
    return AddressPolicy.of(
        allow_http=network.allow_http,
        allow_loopback=network.allow_loopback,
        allow_networks=network.allow_networks,
    )


def open_entrances(
    gate: GateOnStore,
    settings: Settings,
    handlers: Handlers,
    environment: Mapping[str, str],
    among: Mapping[str, SurfaceSettings] | None = None,
) -> dict[str, Entrance]:
    """Registers every surface; raises ConfigError naming the one that cannot be used.

    `among` are all surfaces, where `settings` has only some of them.
    """
    entrances, among = {}, settings.surfaces if among is None else among
    fed = {source.surface for source in settings.sources.values()}.union(
        *(one.routes.values() for one in among.values())
    )
    for name, one in settings.surfaces.items():
        place = f"surfaces.{name}"
        with mistakes_at(place):
            tenant = check_name("tenant", one.tenant)
            if one.signature is not None or one.provider is not None:
                entrances[name] = _entrance(name, scheme_of(place, one, environment), tenant, one)
            elif name not in fed:
                raise ConfigError(
                    f"signature is missing, and no source or route brings its events; {_EITHER}"
                )
            _check_routes(one, among)
            handlers.check_acknowledges(one)
            _check_partners(one)
            register(gate, name, one, handlers.handler(place, one.forward))
    return entrances


def _entrance(name: str, scheme: Scheme, tenant: str, one: SurfaceSettings) -> Entrance:
    routing = (one.routes, parse_path(one.route_by or "type"))
    if one.signature is not None:
        return Entrance(name, scheme, tenant, _CHALLENGES[one.signature], None, False, *routing)
    assert one.provider is not None  # checked with the scheme
    provider = provider_of(one.provider)
    return Entrance(name, scheme, tenant, one.provider.value, provider, one.trust_id_header, *routing)


def _check_routes(one: SurfaceSettings, among: Mapping[str, SurfaceSettings]) -> None:
    """A type's surface has the same tenant, and routes no further."""
    if one.routes and one.route_by is None and one.provider is None:
        raise ConfigError(
            "routes needs route_by, the field with the event's type, such as route_by = 'type'"
        )
    if one.routes and one.signature is None and one.provider is None:
        raise ConfigError(
            "routes is for surfaces with a signature or a provider: sources name their surface"
        )
    if one.routes and one.provider is not None and one.route_by in {None, "type"}:
        provider_of(one.provider).check_routing(trusts_header=one.trust_id_header)
    for kind, name in one.routes.items():
        target = among.get(name)
        if target is None:
            raise ConfigError(
                f"routes: {kind[:80]} goes to {name[:80]}, and there is no [surfaces.{name[:80]}]"
            )
        if target.tenant != one.tenant:
            raise ConfigError(
                f"routes: {name} has the tenant {target.tenant}, and this surface {one.tenant}"
            )
        if target.routes:
            raise ConfigError(f"routes: {name} has routes of its own; a route leads to one surface")


def _check_partners(one: SurfaceSettings) -> None:
    """A name that is not the surface's tenant is a slip, which would shorten the retention unnoticed."""
    others = sorted(set(one.retention_by_partner) - {one.tenant})
    if others:
        raise ConfigError(
            f"retention_by_partner names {', '.join(others)[:200]}, and all events of this surface are of"
            f" the tenant {one.tenant}; give that name, or set retention"
        )


def scheme_of(place: str, one: SurfaceSettings, environment: Mapping[str, str]) -> Scheme:
    """How requests of a surface are checked; raises ConfigError where its secrets cannot be used."""
    secrets = find_secrets(place, one.secrets, environment)
    if (one.provider is None) is (one.signature is None):
        raise ConfigError(_EITHER)
    if one.provider is not None:
        provider = provider_of(one.provider)
        provider.check_trust(trusts_header=one.trust_id_header)
        return provider.make_scheme(secrets, one.url)
    if one.key is None or one.url is not None or one.trust_id_header:
        raise ConfigError("without a provider give a key, and neither url nor trust_id_header")
    scheme: Scheme = _SCHEMES[one.signature](secrets)  # type: ignore[index]
    return scheme


def register(gate: GateOnStore, name: str, one: SurfaceSettings, handler: Any) -> None:
    """Registers one surface with its rule."""
    provider = None if one.provider is None else provider_of(one.provider)
    gate.handler(
        name,
        key=one.key or "{id}",
        retention=one.retention,
        retention_by_partner=one.retention_by_partner,
        retention_floor=one.retention_floor,
        time_limit=one.time_limit,
        approve_first=one.approve_first,
        decide_within=one.decide_within,
        correlation=one.correlation,
        late_replay_after=one.late_replay_after,
        content=None if one.content is None else Content(**msgspec.structs.asdict(one.content)),
        redelivery_horizon=one.redelivery_horizon or (None if provider is None else provider.horizon),
        ignore=one.ignore or (() if provider is None else provider.ignore),
        show=one.show,
        occurred_at=one.occurred_at,
        target=one.target,
        limits=limits_of(one.limits),
        target_within=one.target_within,
        skew_max=one.skew_max,
        retry_for=one.retry_for,
        retry_base=one.retry_base,
        retry_cap=one.retry_cap,
        retry_jitter=one.retry_jitter,
        attempts_max=one.attempts_max,
        on_conflict=one.on_conflict.value,
        on_busy=one.on_busy.value,
        allow_transport=one.allow_transport,
        mode=one.mode.value,
        lane=one.lane,
        actor=one.actor or "partner/{tenant}",
        subject=one.subject,
        payload_retention=one.payload_retention,
    )(handler)


def drift_scan(gate: GateOnStore, settings: ContractSettings) -> DriftScan:
    """Compares realtime with confirmations; raises ConfigError where a field cannot be a path."""
    return DriftScan(
        gate.engine.store,
        gate.engine.clock,
        realtime=REALTIME,
        confirmed=WINDOWS,
        fields=drift_fields(settings),
    )


def drift_fields(settings: ContractSettings) -> DriftFields:
    """Where the contract's calls have what is compared."""
    return DriftFields(
        settings.window_field, settings.item_field, settings.quantity_field, settings.lines_field
    )


class FindsHandlers(Protocol):
    """Finds the handler that brings events to a downstream."""

    def handler(self, place: str, name: str | None) -> Any:
        """The handler for a downstream's name; without one, for events that go nowhere."""


def open_contract(gate: GateOnStore, settings: ContractSettings, handlers: FindsHandlers) -> None:
    """Registers the contract's surfaces; keys are (partner, correlation id), and the window once more.

    A partner that gets a conflict corrects its call and sends it under a new id. What was refused is not
    kept, because a release would do the same work a second time.
    """
    drift_fields(settings)  # a mistake in them is told with the others
    realtime = handlers.handler("contract.realtime_forward", settings.realtime_forward)
    confirmed = handlers.handler("contract.confirmations_forward", settings.confirmations_forward)
    key = "{partner_id}:{correlation_id}"
    options: dict[str, Any] = {
        "retention": settings.retention,
        "retention_by_partner": settings.retention_by_partner,
        "retention_floor": settings.retention_floor,
        "on_conflict": OnConflict.REFUSE.value,
        "actor": "partner/{tenant}",
    }
    gate.handler(REALTIME, key=key, **options)(realtime)
    windows = gate.handler(
        WINDOWS,
        key="{partner_id}:{window}",
        **options,
        ignore=("correlation_id", "payload.correlation_id"),
    )
    windows(confirmed)

    async def confirm(event: Any, once: AsyncOnce) -> Any:
        """Two confirmations of one window under two ids are one: only the first is brought on."""
        context = carried_context()
        admission = await gate.admit(WINDOWS, event, tenant=event["tenant"], context=context)
        if admission.verdict is Verdict.CONFLICT:
            raise Failed("the window was confirmed before with another content")
        if admission.verdict is Verdict.BUSY:
            raise NotApplied("the window is being confirmed under another id")
        if admission.verdict not in (Verdict.RUN, Verdict.REPLAY):
            raise OutcomeUnknown("the window's confirmation waits for a person")
        return {"window_seen": admission.replay, "outcome": admission.result()}

    gate.handler(CONFIRMATIONS, key=key, **options)(confirm)
