"""Tries settings out without serving: every surface, downstream and address is made, nothing is opened."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from oncegate.errors import ConfigError
from oncegate.gate.facade import GateOnStore as PlainGate
from oncegate.gate.surface import record
from oncegate.model.durations import parse_duration
from oncegate.model.surface import check_name
from oncegate.sender.http import HttpClient
from oncegate.service.alarming import alarm_options, thresholds_of
from oncegate.service.config_loader import Configuration, Mistake, Mistakes, read_configuration
from oncegate.service.host_allow_list import read_listening, read_name
from oncegate.service.listeners import check_admin
from oncegate.service.page import PATH as PAGE_PATH
from oncegate.service.proxies import read_proxy
from oncegate.service.recording import open_recorder
from oncegate.service.settings import (
    ContractSettings,
    DownstreamSettings,
    NetworkSettings,
    Settings,
    SignatureScheme,
    SourceSettings,
    SurfaceSettings,
)
from oncegate.service.sources import consume
from oncegate.service.surfaces import (
    CONTRACT_SURFACES,
    Handlers,
    MistakeAt,
    mistakes_at,
    open_contract,
    open_entrances,
    policy_of,
    register,
    scheme_of,
)
from oncegate.wiring import Gate, open_store

_RANGES: Final = {
    "port": (0, 65_535),
    "body_bytes_max": (1, 1024**3),
    "body_values_max": (100, 10_000_000),
    "concurrency_max": (1, 100_000),
    "tenant_concurrency_max": (1, 100_000),
    "unread_bytes_max": (1024**2, 1024**4),
    "connections_max": (1, 1_000_000),
}
_FIRST: Final = frozenset({"allow_transport", "retention_floor"})  # key and retention may need them
_ANY_URL: Final = "https://downstream.example"
_ANY_SECRET: Final = "a secret that no variable has as its name"
_ANY_NAME: Final = "any"
_ANY_NETWORK: Final = ("0.0.0.0/0", "::/0")
_TAKEN: Final = {
    PAGE_PATH: "the operations page",
    "/in": "webhooks",
    "/v1/events": "published events",
    "/openapi.json": "the description of all this",
    **dict.fromkeys(("/livez", "/readyz", "/metrics"), "monitoring of the service"),
}
_PREFIX: Final = re.compile(r"(/[A-Za-z0-9._~-]+)+", re.ASCII)
RETENTION_MIN: Final = timedelta(hours=1)  # less would take from readers what they have just been offered


def read_and_check(
    path: Path | None, environment: Mapping[str, str]
) -> tuple[Configuration | None, list[Mistake]]:
    """The settings, and all that is wrong with them; without any, if they cannot even be read."""

    async def found(configuration: Configuration) -> list[Mistake]:
        return find_mistakes(configuration, environment)

    try:
        configuration = read_configuration(path, environment)
    except Mistakes as wrong:
        return None, wrong.found + ([] if wrong.readable is None else asyncio.run(found(wrong.readable)))
    return configuration, asyncio.run(found(configuration))


def find_mistakes(configuration: Configuration, environment: Mapping[str, str]) -> list[Mistake]:
    """All settings that can be read but not used; must be called in an event loop."""
    settings = configuration.settings
    told = [mistake for attempt in _places(settings) if (mistake := _mistake(attempt)) is not None]
    settings = _with_any_network(settings)
    told += [mistake for name in settings.downstreams for mistake in _of_downstream(settings, name)]
    good = _usable_downstreams(settings)
    for name in settings.surfaces:
        told += _of_surface(settings, good, name, environment)
    told += _of_contract(settings, good)
    told += _of_sources(settings, environment)
    recording = _mistake(partial(_try_recording, settings, environment))
    alarms = _mistake(partial(_try_alarms, settings, environment))
    told += [one for one in (recording, alarms) if one is not None]
    return [Mistake(configuration.where(one.place), str(one)) for one in told]


def _with_any_network(settings: Settings) -> Settings:
    """Where networks cannot be read, all of them: that mistake is reported, and is not the downstream's."""
    try:
        policy_of(settings.network)
    except ConfigError:
        network = msgspec.structs.replace(settings.network, allow_networks=_ANY_NETWORK)
        return msgspec.structs.replace(settings, network=network)
    return settings


def _mistake(attempt: Callable[[], None]) -> MistakeAt | None:
    try:
        attempt()
    except MistakeAt as mistake:
        return mistake
    return None


def _of_downstream(settings: Settings, name: str) -> Iterator[MistakeAt]:
    def use(one: Any) -> None:
        _try(msgspec.structs.replace(settings, downstreams={name: one}, surfaces={}), {}, contract=False)

    place, given = f"downstreams.{name}", settings.downstreams[name]
    mistake = _mistake(partial(_check_at, place, partial(check_name, "downstream", name)))
    if mistake is not None:
        yield mistake
        name = _ANY_NAME
    yield from _one_by_one(place, given, DownstreamSettings(_ANY_URL), use)


def _of_surface(
    settings: Settings, downstreams: dict[str, Any], name: str, environment: Mapping[str, str]
) -> Iterator[MistakeAt]:
    place, given = f"surfaces.{name}", settings.surfaces[name]
    plain = SurfaceSettings(
        provider=given.provider,
        url=given.url,
        key="{id}",
        signature=given.signature,
        secrets=given.secrets,
        tenant=given.tenant if given.routes else "any",
        route_by=given.route_by,
    )
    mistake = _mistake(partial(_check_at, place, partial(_check_surface_name, name, settings.contract)))
    if mistake is not None:
        yield mistake
        name = name if name in CONTRACT_SURFACES else _ANY_NAME
    check = partial(scheme_of, f"{place}.secrets", given, environment)
    has_scheme = given.signature is not None or given.provider is not None
    mistake = _mistake(partial(_check_at, f"{place}.secrets", check)) if has_scheme else None
    if mistake is not None:
        yield mistake
        plain = SurfaceSettings(
            key="{id}", signature=SignatureScheme.BEARER, secrets=(f"${_ANY_SECRET}",), tenant="any"
        )
        given = msgspec.structs.replace(
            given, provider=None, url=None, trust_id_header=False, key=given.key or "{id}",
            signature=plain.signature, secrets=plain.secrets,
        )  # fmt: skip
    given = _forwarding_to(settings, downstreams, given, "forward")

    def use(one: Any) -> None:
        alone = msgspec.structs.replace(settings, downstreams=downstreams, surfaces={name: one})
        _try(alone, {**environment, _ANY_SECRET: _ANY_SECRET}, False, {**settings.surfaces, name: one})

    yield from _one_by_one(place, given, plain, use)


def _of_sources(settings: Settings, environment: Mapping[str, str]) -> Iterator[MistakeAt]:
    """Sources whose settings cannot be used; nothing is connected."""
    gate = Gate(store=open_store("sqlite:///:never-opened:"))
    try:
        for name, one in settings.surfaces.items():
            with suppress(ConfigError):  # told with the surface
                register(gate, name, one, record)
        for name, source in settings.sources.items():
            mistake = _mistake(partial(_consume, gate, settings, name, source, environment))
            if mistake is not None:
                yield mistake
    finally:
        gate.close()


def _consume(
    gate: Gate, settings: Settings, name: str, one: SourceSettings, environment: Mapping[str, str]
) -> None:
    with mistakes_at(f"sources.{name}"):
        consume(gate, settings, name, one, environment)


def _of_contract(settings: Settings, downstreams: dict[str, Any]) -> Iterator[MistakeAt]:
    if not settings.contract.enabled:
        return
    given = settings.contract
    for name in ("realtime_forward", "confirmations_forward"):
        given = _forwarding_to(settings, downstreams, given, name)

    def use(one: Any) -> None:
        alone = msgspec.structs.replace(settings, downstreams=downstreams, surfaces={}, contract=one)
        _try(alone, {}, contract=True)

    yield from _one_by_one("contract", given, ContractSettings(), use)


def _forwarding_to(settings: Settings, usable: dict[str, Any], given: Any, name: str) -> Any:
    """The table without its downstream where that cannot be used: its mistake is reported with it."""
    target = getattr(given, name)
    is_wrong = target in settings.downstreams and target not in usable
    return msgspec.structs.replace(given, **{name: None}) if is_wrong else given


def _one_by_one(place: str, given: Any, plain: Any, use: Callable[[Any], None]) -> Iterator[MistakeAt]:
    """Takes the settings of a table one after the other; one that cannot be used is reported, and left.

    So each mistake has its own line, and none hides the next. What another setting needs comes before it.
    """
    taken = plain
    for name in sorted(given.__struct_fields__, key=lambda name: name not in _FIRST):
        if getattr(given, name) == getattr(taken, name):
            continue
        more = msgspec.structs.replace(taken, **{name: getattr(given, name)})
        mistake = _mistake(partial(use, more))
        if mistake is None:
            taken = more
        else:
            here = f"{place}.{name}"
            yield MistakeAt(here, mistake.what.removeprefix(f"{here}: "))


def _usable_downstreams(settings: Settings) -> dict[str, Any]:
    good = {}
    for name, downstream in settings.downstreams.items():
        with suppress(ConfigError):
            _try(msgspec.structs.replace(settings, downstreams={name: downstream}, surfaces={}), {}, False)
            good[name] = downstream
    return good


def _places(settings: Settings) -> list[Callable[[], None]]:
    """Single values, each by itself."""
    server = settings.server
    checks: list[tuple[str, Callable[[], Any]]] = [("url", partial(open_store, settings.url))]
    checks.append(("server.host", partial(read_listening, server.host)))
    checks.append(("server.hosts", partial(_each, read_name, server.hosts)))
    checks.append(("server.trusted_proxies", partial(_each, read_proxy, server.trusted_proxies)))
    checks += [
        (f"server.{name}", partial(parse_duration, getattr(server, name)))
        for name in ("headers_within", "body_within", "unread_within", "idle_within", "drain_within")
    ]
    checks += [
        (f"server.{name}", partial(_check_range, getattr(server, name), least, most))
        for name, (least, most) in _RANGES.items()
    ]
    checks.append(("listeners.admin", partial(check_admin, settings.listeners, server)))
    checks.append(("network.allow_networks", partial(_check_networks, settings.network)))
    checks.append(("feed.retention", partial(_check_retention, settings.feed.retention)))
    checks.append(("contract.prefix", partial(_check_prefix, settings.contract.prefix)))
    return [partial(_check_at, place, check) for place, check in checks]


def _check_at(place: str, check: Callable[[], Any]) -> None:
    with mistakes_at(place):
        check()


def _each(read: Callable[[str], Any], given: tuple[str, ...]) -> None:
    for text in given:
        read(text)


def _check_range(value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise ConfigError(f"{value} is not a whole number from {least} to {most}")


def _check_networks(network: NetworkSettings) -> None:
    try:
        policy_of(network)
    except ConfigError as error:
        raise ConfigError(str(error).removeprefix("allow_networks: ")) from None


def _check_surface_name(name: str, contract: ContractSettings) -> None:
    check_name("surface", name)
    if contract.enabled and name in CONTRACT_SURFACES:
        raise ConfigError("the contract has a surface of this name; choose another")


def _check_retention(text: str) -> None:
    if parse_duration(text) < RETENTION_MIN:
        raise ConfigError("events must be kept for at least an hour")


def _check_prefix(prefix: str) -> None:
    """A path that a request can have, and that nothing else of the service takes."""
    if _PREFIX.fullmatch(prefix) is None or not {".", ".."}.isdisjoint(prefix.split("/")):
        raise ConfigError(f"{prefix[:60]!r} is not a path such as /wes/v1, without a slash at its end")
    for path, what in _TAKEN.items():
        if prefix == path or prefix.startswith(f"{path}/"):
            raise ConfigError(f"{path} is the place of {what}")


def _try(
    settings: Settings, environment: Mapping[str, str], contract: bool, among: dict[str, Any] | None = None
) -> None:
    gate = PlainGate(open_store("sqlite:///:never-opened:"))
    try:
        with mistakes_at("network"):
            client = HttpClient(policy_of(settings.network))
        handlers = Handlers(gate, settings, client)
        open_entrances(gate, settings, handlers, environment, among)
        if contract and settings.contract.enabled:
            with mistakes_at("contract"):
                open_contract(gate, settings.contract, handlers)
    finally:
        gate.close()


def _try_alarms(settings: Settings, environment: Mapping[str, str]) -> None:
    """Whom alarms go to, and by which limits."""
    with mistakes_at("alarms"):
        thresholds_of(settings)
        alarm_options(settings, environment)


def _try_recording(settings: Settings, environment: Mapping[str, str]) -> None:
    """The rules for recording, with the surfaces; where those cannot be made, that is already reported."""
    gate = PlainGate(open_store("sqlite:///:never-opened:"))
    try:
        with suppress(ConfigError):
            handlers = Handlers(gate, settings, HttpClient(policy_of(settings.network)))
            open_entrances(gate, settings, handlers, environment)
            if settings.contract.enabled:
                open_contract(gate, settings.contract, handlers)
        if set(settings.surfaces) <= {surface.name for surface in gate.engine.surfaces}:
            open_recorder(gate, settings.record, environment)
    finally:
        gate.close()
