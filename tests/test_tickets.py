"""Who waits for the store without an answer is told in the order in which they began to wait."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, cast

from oncegate.errors import StoreUnknown
from oncegate.testing.simulation import VirtualLoop
from oncegate.tickets import Gathering, Watch

WAITING = 40


async def _wait(number: int, asked: asyncio.Future[Any], told: list[int]) -> None:
    with suppress(StoreUnknown):
        await asked
    told.append(number)


def test_whoever_waits_longest_for_an_answer_is_told_first() -> None:
    # Given many who ask one after another, and a store that answers nobody
    loop, told = VirtualLoop(), []  # type: tuple[VirtualLoop, list[int]]
    watch = Watch(cast("asyncio.AbstractEventLoop", loop), 5.0, 30.0, 1)
    for number in range(WAITING):
        gathering = Gathering(watch)
        watch.add(gathering)
        loop.create_task(_wait(number, gathering.add(cast("Any", None)), told))
    # When they have waited too long
    loop.run_until(lambda: len(told) == WAITING, 60.0)
    # Then they are told in their order: the same run is the same every time
    assert told == list(range(WAITING))
