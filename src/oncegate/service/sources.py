"""Sources of the settings: `[sources.NAME]` becomes a queue that the gate consumes."""

from __future__ import annotations

from collections.abc import Mapping

from oncegate.errors import ConfigError
from oncegate.service.settings import Settings, SourceSettings
from oncegate.service.surfaces import mistakes_at
from oncegate.sources.kinds import OPTIONS, make_source
from oncegate.wiring import Gate


def consume_all(gate: Gate, settings: Settings, environment: Mapping[str, str]) -> None:
    """Names every source to the gate; raises ConfigError naming the setting that cannot be used."""
    for name, one in settings.sources.items():
        with mistakes_at(f"sources.{name}"):
            consume(gate, settings, name, one, environment)


def consume(
    gate: Gate, settings: Settings, name: str, one: SourceSettings, environment: Mapping[str, str]
) -> None:
    """Names one source to the gate."""
    surface = settings.surfaces.get(one.surface)
    if surface is None:
        known = ", ".join(settings.surfaces) or "none"
        raise ConfigError(f"there is no surface {one.surface[:80]}; known: {known}")
    given = {option: getattr(one, option) for option in OPTIONS}
    for option in ("url", "management"):
        given[option] = given[option] and _address(given[option], environment)
    gate.consume(
        make_source(one.kind, given),
        surface=one.surface,
        name=name,
        tenant=surface.tenant,
        concurrency=one.concurrency,
        order_by=one.order_by,
        poison=one.poison.value,
    )


def _address(url: str, environment: Mapping[str, str]) -> str:
    """An address, or the environment variable that has it: it may hold a password."""
    if not url.startswith("$"):
        return url
    found = environment.get(url[1:])
    if not found:
        raise ConfigError(f"the environment has no {url[1:]}")
    return found
