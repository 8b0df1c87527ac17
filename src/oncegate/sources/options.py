"""How one source is consumed: for which surface, how many at once, and what happens to poison."""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias, TypedDict

from msgspec import Struct, structs

from oncegate.errors import BadSource, ConfigError
from oncegate.gate.surface import Surface
from oncegate.model.durations import format_duration
from oncegate.model.surface import OnConflict, check_name
from oncegate.model.template import KeyTemplate
from oncegate.sources.contract import Source, Traits
from oncegate.sources.reading import Decode

Poison: TypeAlias = Literal["quarantine", "dead-letter"]

CONCURRENCY: Final = 16
CONCURRENCY_MAX: Final = 1_000
WAITING_PER_LANE_SLOT: Final = 4  # deliveries held for each that may run, where lanes wait in line
BYTES_MAX: Final = 64 * 1024 * 1024


class ConsumeOptions(TypedDict, total=False):
    """What `gate.consume` takes besides the source and its surface."""

    name: str | None
    concurrency: int
    held_max: int | None
    bytes_max: int
    tenant: str | None
    order_by: str | None
    decode: Decode | None
    poison: Poison


class Consumption(Struct, frozen=True):
    """One source, and how it is consumed."""

    source: Source
    surface: str
    name: str
    concurrency: int = CONCURRENCY
    held_max: int | None = None
    bytes_max: int = BYTES_MAX
    tenant: str | None = None
    order_by: KeyTemplate | None = None
    decode: Decode | None = None
    poison: Poison = "quarantine"

    def held_most(self, traits: Traits) -> int:
        """How many deliveries are held at most: those that run, and those that wait in their lanes."""
        if self.held_max is not None:
            return self.held_max
        has_lanes = self.order_by is not None or not traits.gives_back
        return self.concurrency * (WAITING_PER_LANE_SLOT if has_lanes else 1)


def consumption_of(
    source: Source,
    surface: Surface,
    *,
    name: str | None = None,
    concurrency: int = CONCURRENCY,
    held_max: int | None = None,
    bytes_max: int = BYTES_MAX,
    tenant: str | None = None,
    order_by: str | None = None,
    decode: Decode | None = None,
    poison: Poison = "quarantine",
) -> Consumption:
    """Checks the options; raises ConfigError naming the one that is wrong."""
    called = check_name("source", source.name if name is None else name)
    _check_number(called, "concurrency", concurrency, CONCURRENCY_MAX)
    if held_max is not None:
        _check_number(called, "held_max", held_max, 100 * CONCURRENCY_MAX)
        if held_max < concurrency:
            raise ConfigError(
                f"source {called}: held_max {held_max} is less than concurrency {concurrency}"
            )
    _check_number(called, "bytes_max", bytes_max, 2**40)
    if poison not in ("quarantine", "dead-letter"):
        raise ConfigError(f"source {called}: poison is 'quarantine' or 'dead-letter', not {poison!r:.40}")
    _check_surface(called, surface)
    template = None if order_by is None else KeyTemplate.parse(order_by)
    return Consumption(
        source, surface.name, called, concurrency, held_max, bytes_max, tenant, template, decode, poison
    )


def _check_number(name: str, option: str, value: Any, most: int) -> None:
    if type(value) is not int or not 1 <= value <= most:
        raise ConfigError(f"source {name}: {option} must be a whole number from 1 to {most}")


def _check_surface(name: str, surface: Surface) -> None:
    """Refuses what would lose messages: a queue's sender cannot be asked to decide or to try again."""
    if surface.rule.on_conflict is OnConflict.REFUSE:
        raise ConfigError(
            f"source {name}: surface {surface.name} refuses conflicts, and a queue has no caller to refuse;"
            " register it with on_conflict='quarantine'"
        )


def check_promises(one: Consumption, surface: Surface, traits: Traits) -> Traits:
    """Compares a surface with what the queue says of itself; raises BadSource with the next step.

    Returns the traits, with a warning where the queue sets no end to its redeliveries.
    """
    warning = _check_retention(one, surface, traits)
    if warning is not None:
        traits = structs.replace(traits, warnings=(*traits.warnings, warning))
    limit = surface.rule.time_limit.total_seconds()
    if traits.hold_max_seconds is not None and limit > traits.hold_max_seconds:
        raise BadSource(
            f"source {one.name}: {traits.queue} may be held for {traits.hold_max_seconds:g} s, and a"
            f" handler of {surface.name} may run for {limit:g} s: shorten its time_limit"
        )
    if one.poison == "dead-letter" and not traits.has_dead_letters:
        raise BadSource(
            f"source {one.name}: poison = 'dead-letter', and {traits.queue} has no dead-letter queue;"
            " add one, or use poison = 'quarantine'"
        )
    return traits


def _check_retention(one: Consumption, surface: Surface, traits: Traits) -> str | None:
    """Refuses a surface that forgets keys before the queue's last redelivery; warns where none is last."""
    parts, rule = traits.retention_seconds, surface.rule
    longest = sum(seconds or 0 for seconds in parts.values())
    partners = rule.retention_by_partner
    kept = (
        [partners.get(one.tenant, rule.retention)] if one.tenant else [rule.retention, *partners.values()]
    )
    if longest > min(kept).total_seconds():
        told = " + ".join(f"{name} {_days(seconds)}" for name, seconds in parts.items() if seconds)
        raise BadSource(
            f"source {one.name}: {traits.queue} may deliver a message again for {told} = {_days(longest)},"
            f" and surface {surface.name} remembers keys for {format_duration(min(kept))}:"
            f" set its retention to {_days(longest)} or longer"
        )
    endless = [name for name, seconds in parts.items() if seconds is None]
    if rule.redelivery_horizon is not None or (parts and not endless):
        return None
    told = f"its {' and its '.join(endless)} without end" if endless else "messages for an unknown time"
    return (
        f"{traits.queue} keeps {told}, and surface {surface.name} remembers keys for"
        f" {format_duration(min(kept))}: declare redelivery_horizon, the longest time after which a message"
        " may come again"
    )


def _days(seconds: float) -> str:
    return f"{seconds / 86_400:g}d" if seconds >= 86_400 else f"{seconds:g}s"
