"""The loop that delivery runs in as a process: uvloop where it is installed, about twice as fast.

Only the owner of the process may call `run`: it changes how often garbage is collected, for as long as it
lasts.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

# Hundreds of deliveries under way are thousands of young objects that are no garbage. At the usual 700 they
# were looked through again and again, which took a tenth of the processor time; this is a few megabytes.
YOUNG_OBJECTS_MAX: Final = 10_000

T = TypeVar("T")


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """What makes the loop; None is asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def run(scene: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine to its end in a loop of its own."""
    with _collecting_seldom(), asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(scene)


@contextmanager
def _collecting_seldom() -> Iterator[None]:
    usual = gc.get_threshold()
    if usual[0]:  # 0 is off, and left so
        gc.set_threshold(max(usual[0], YOUNG_OBJECTS_MAX), *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)
