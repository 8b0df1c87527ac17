"""The sources of a gate as a job of its worker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Self

from oncegate.errors import ConfigError
from oncegate.gate.facade import GateOnStore
from oncegate.maintenance.background import ContinuousJob
from oncegate.sources.consumer import STOP_SECONDS, Consumer
from oncegate.sources.options import Consumption
from oncegate.sources.status import SourceStatus

NONE: str = "no source is consumed; name one with gate.consume(…)"


class Consumers:
    """All consumers of a gate, while an `async with` block lasts; they stop at the same time."""

    def __init__(
        self, gate: GateOnStore, several: Sequence[Consumption], *, stop_seconds: float = STOP_SECONDS
    ) -> None:
        self.all = [Consumer(gate, one, stop_seconds=stop_seconds) for one in several]

    async def __aenter__(self) -> Self:
        for consumer in self.all:
            await consumer.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(consumer.__aexit__() for consumer in self.all))

    async def run_once(self) -> list[SourceStatus]:
        """Consumes what is in the queues now."""
        return [await consumer.run_once() for consumer in self.all]


def sources_job(gate: GateOnStore, several: Sequence[Consumption]) -> ContinuousJob:
    """The worker's job `sources`; raises ConfigError where there is no source."""
    if not several:
        raise ConfigError(NONE)
    own_loop = [one.surface for one in several if gate.engine.surface(one.surface).is_async]
    return ContinuousJob(
        "sources",
        lambda seconds: Consumers(gate, several, stop_seconds=seconds),
        lambda: Consumers(gate, several).run_once(),
        f"the handler of {own_loop[0]} is async; use `async with`, or leave out 'sources'"
        if own_loop
        else None,
    )
