"""Runs tests that are coroutines, each in an event loop of its own, whose clock a test may put forward."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any

import pytest


class LeapingLoop(asyncio.SelectorEventLoop):
    """Deadlines in it pass when a test says so: on a slow machine no sooner, on a quick one no later."""

    _ahead_seconds = 0.0

    def time(self) -> float:
        """The machine's clock and all leaps."""
        return super().time() + self._ahead_seconds

    def leap(self, by: timedelta) -> None:
        """Puts the clock forward; what has become due is done in the loop's next turn."""
        self._ahead_seconds += by.total_seconds()


def leap(by: timedelta) -> None:
    """Puts the clock of the running loop forward."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, LeapingLoop), "this test runs in a loop of another kind"
    loop.leap(by)


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """Runs a coroutine to its end in a loop with a clock that can leap."""
    with asyncio.Runner(loop_factory=LeapingLoop) as runner:
        return runner.run(work)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Takes over tests that are coroutine functions."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = inspect.signature(pyfuncitem.obj).parameters
    run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in wanted}))
    return True
