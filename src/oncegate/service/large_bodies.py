"""Large JSON bodies are read beside the event loop, one at a time for each tenant.

Reading and canonicalising a body takes time by the number of its values: 50,000 floats take 50 to 130 ms.
So a body with many values, or a long one, goes to one worker thread. A tenant has at most one body there;
those of several tenants take turns. The interpreter gives the loop its turn after `SWITCH_SECONDS`. Must
never let a body past the bound of values.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar

from oncegate.model.limits import VALUES_MAX, values_at_most
from oncegate.model.strictjson import read_json

T = TypeVar("T")

SMALL_BYTES: Final = 4 * 1024  # not even counted
LARGE_BYTES: Final = 64 * 1024
LARGE_VALUES: Final = 1_000  # about a millisecond
SWITCH_SECONDS: Final = 0.0005


class LargeBodies:
    """Reads the bodies of one service, in one event loop."""

    def __init__(self, values_max: int = VALUES_MAX) -> None:
        self._values_max = values_max
        self._thread = ThreadPoolExecutor(1, "oncegate-bodies")
        self._tenants: dict[str, asyncio.Lock] = {}

    @staticmethod
    def has(body: bytes) -> bool:
        """Whether a body is to be read beside the loop."""
        size = len(body)
        return size > SMALL_BYTES and (size > LARGE_BYTES or values_at_most(body) > LARGE_VALUES)

    def read(self, body: bytes) -> Any:
        """Reads a body strictly, or raises MalformedRequest; a large one not in the loop."""
        return read_json(body, self._values_max)

    async def in_turn(self, tenant: str, function: Callable[..., T], *arguments: Any) -> T:
        """Runs a function in the worker thread, when those of the same tenant before it are done."""
        lock = self._tenants.get(tenant)
        if lock is None:
            lock = self._tenants[tenant] = asyncio.Lock()
        call = partial(contextvars.copy_context().run, function, *arguments)
        async with lock:
            return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    def close(self) -> None:
        """Ends the thread once it has nothing to do."""
        self._thread.shutdown(wait=False)
