"""Surfaces and downstreams of the settings, for display only: their rules and what they promise.

Used by `oncegate page`. Needs no secret and opens no connection. Must never run an event: handlers and
probes declared here refuse.
"""

from __future__ import annotations

from typing import Any

from oncegate.errors import NotApplied
from oncegate.gate.facade import GateOnStore
from oncegate.gate.once import AsyncOnce
from oncegate.service.settings import Settings
from oncegate.service.surfaces import mistakes_at, open_contract, register


class Descriptions:
    """The downstreams of the settings, declared at a gate that calls none of them."""

    def __init__(self, gate: GateOnStore, settings: Settings) -> None:
        for name, one in settings.downstreams.items():
            with mistakes_at(f"downstreams.{name}"):
                gate.downstream(
                    name,
                    honours_key=one.honours_key,
                    probe=None if one.probe_url is None else _ask_nobody,
                    request_life_max=one.request_life_max,
                )

    def handler(self, place: str, name: str | None) -> Any:
        """What stands for every handler."""
        return _run_nothing


def describe(gate: GateOnStore, settings: Settings) -> None:
    """Declares everything that the settings name; raises ConfigError naming what cannot be used."""
    handlers = Descriptions(gate, settings)
    for name, one in settings.surfaces.items():
        with mistakes_at(f"surfaces.{name}"):
            register(gate, name, one, handlers.handler(name, one.forward))
    if settings.contract.enabled:
        with mistakes_at("contract"):
            open_contract(gate, settings.contract, handlers)


async def _run_nothing(event: Any, once: AsyncOnce) -> None:
    raise NotApplied("a page runs no events")


async def _ask_nobody(key: str) -> None:
    raise NotApplied("a page asks no downstream")
