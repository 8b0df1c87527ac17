"""Tries settings out without serving: every surface, downstream and address is made, nothing is opened."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, Final

import msgspec

from oncegate.errors import ConfigError
from oncegate.gate.gate import Gate as PlainGate
from oncegate.model.durations import parse_duration
from oncegate.sender.http import HttpClient
from oncegate.service.configuring import Configuration, Mistake
from oncegate.service.hosts import Hosts
from oncegate.service.page import PATH as PAGE_PATH
from oncegate.service.recording import open_recorder
from oncegate.service.settings import Settings
from oncegate.service.surfaces import (
    Handlers,
    MistakeAt,
    mistakes_at,
    open_contract,
    open_entrances,
    policy_of,
)
from oncegate.wiring import open_store

_RANGES: Final = {
    "port": (0, 65_535),
    "body_bytes_max": (1, 1024**3),
    "concurrency_max": (1, 100_000),
    "tenant_concurrency_max": (1, 100_000),
}
_PREFIX: Final = re.compile(r"(/[A-Za-z0-9._~-]+)+", re.ASCII)
RETENTION_MIN: Final = timedelta(hours=1)  # less would take from readers what they have just been offered


def find_mistakes(configuration: Configuration, environment: Mapping[str, str]) -> list[Mistake]:
    """All settings that can be read but not used; must be called in an event loop."""
    found: list[Mistake] = []
    for attempt in _attempts(configuration.settings, environment):
        try:
            attempt()
        except MistakeAt as mistake:
            found.append(Mistake(configuration.where(mistake.place), str(mistake)))
    return found


def _attempts(settings: Settings, environment: Mapping[str, str]) -> list[Callable[[], None]]:
    """Each downstream and surface by itself, so that one mistake does not hide the next."""
    good = _usable_downstreams(settings)
    attempts = _places(settings)
    for name, downstream in settings.downstreams.items():
        one = msgspec.structs.replace(settings, downstreams={name: downstream}, surfaces={})
        attempts.append(partial(_try, one, environment, contract=False))
    for name, surface in settings.surfaces.items():
        is_told = surface.forward in settings.downstreams and surface.forward not in good
        alone = msgspec.structs.replace(surface, forward=None) if is_told else surface
        one = msgspec.structs.replace(settings, downstreams=good, surfaces={name: alone})
        attempts.append(partial(_try, one, environment, contract=False))
    last = msgspec.structs.replace(settings, downstreams=good, surfaces={})
    attempts.append(partial(_try, last, environment, contract=True))
    attempts.append(partial(_try_recording, settings, environment))
    return attempts


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
    checks.append(("server.hosts", partial(Hosts, server.host, server.hosts)))
    checks += [
        (f"server.{name}", partial(parse_duration, getattr(server, name)))
        for name in ("headers_within", "body_within", "drain_within")
    ]
    checks += [
        (f"server.{name}", partial(_check_range, getattr(server, name), least, most))
        for name, (least, most) in _RANGES.items()
    ]
    checks.append(("feed.retention", partial(_check_retention, settings.feed.retention)))
    checks.append(("contract.prefix", partial(_check_prefix, settings.contract.prefix)))
    return [partial(_check_at, place, check) for place, check in checks]


def _check_at(place: str, check: Callable[[], Any]) -> None:
    with mistakes_at(place):
        check()


def _check_range(value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise ConfigError(f"{value} is not a whole number from {least} to {most}")


def _check_retention(text: str) -> None:
    if parse_duration(text) < RETENTION_MIN:
        raise ConfigError("events must be kept for at least an hour")


def _check_prefix(prefix: str) -> None:
    """A path that a request can have, and that the operations page does not take first."""
    if _PREFIX.fullmatch(prefix) is None:
        raise ConfigError(f"{prefix[:60]!r} is not a path such as /wes/v1, without a slash at its end")
    if prefix == PAGE_PATH or prefix.startswith(f"{PAGE_PATH}/"):
        raise ConfigError(f"{PAGE_PATH} is the place of the operations page")


def _try(settings: Settings, environment: Mapping[str, str], contract: bool) -> None:
    gate = PlainGate(open_store("sqlite:///:never-opened:"))
    try:
        with mistakes_at("network"):
            client = HttpClient(policy_of(settings.network))
        handlers = Handlers(gate, settings, client)
        open_entrances(gate, settings, handlers, environment)
        if contract and settings.contract.enabled:
            with mistakes_at("contract"):
                open_contract(gate, settings.contract, handlers)
    finally:
        gate.close()


def _try_recording(settings: Settings, environment: Mapping[str, str]) -> None:
    """The rules for recording, against the surfaces; where those cannot be made, that is told already."""
    gate = PlainGate(open_store("sqlite:///:never-opened:"))
    try:
        with suppress(ConfigError):
            handlers = Handlers(gate, settings, HttpClient(policy_of(settings.network)))
            open_entrances(gate, settings, handlers, environment)
            if settings.contract.enabled:
                open_contract(gate, settings.contract, handlers)
        if set(settings.surfaces) <= {surface.name for surface in gate.surfaces}:
            open_recorder(gate, settings.record, environment)
    finally:
        gate.close()
