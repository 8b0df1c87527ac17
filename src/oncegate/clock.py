"""The only file that reads time or sleeps; everything else is handed a `Clock`.

Two kinds of time are kept apart on purpose. *Wall* time is what people read: it may step, and nothing
that keeps an effect from happening twice may depend on it. *Ticks* only ever grow while the machine is
up, are shared by all its processes, and measure leases and ages.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Protocol

_BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")
_ticks_ns: Callable[[], int] = (
    partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME)
    if hasattr(time, "CLOCK_BOOTTIME")
    else time.monotonic_ns
)


class Clock(Protocol):
    """Where oncegate gets its time from."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970 in UTC; may step in either direction."""

    def ticks_ms(self) -> int:
        """Milliseconds that never go back while the machine is up, the same for all its processes."""

    def elapsed_us(self) -> int:
        """Microseconds since some moment, for measuring how long something took in this process."""

    def boot_id(self) -> str:
        """A name for the current run of the machine; ticks of two boots cannot be compared."""

    def pause(self, seconds: float) -> None:
        """Blocks the calling thread."""

    async def pause_async(self, seconds: float) -> None:
        """Suspends the calling task."""


class SystemClock:
    """The machine's own clocks."""

    def wall_ms(self) -> int:
        """Reads the wall clock."""
        return time.time_ns() // 1_000_000

    def ticks_ms(self) -> int:
        """Reads the time since boot, sleep of the machine included where the platform tells."""
        return _ticks_ns() // 1_000_000

    def elapsed_us(self) -> int:
        """Reads the finest clock there is."""
        return time.perf_counter_ns() // 1000

    def boot_id(self) -> str:
        """Names the boot; empty where the platform has no name for it."""
        try:
            return _BOOT_ID_FILE.read_text("ascii").strip()
        except OSError:
            return ""

    def pause(self, seconds: float) -> None:
        """Blocks the calling thread."""
        time.sleep(seconds)

    async def pause_async(self, seconds: float) -> None:
        """Suspends the calling task."""
        await asyncio.sleep(seconds)


def utc_text(ms: int) -> str:
    """A wall time as text in UTC, to the millisecond."""
    return from_wall_ms(ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def from_wall_ms(wall_ms: int) -> datetime:
    """Turns stored milliseconds into an aware UTC time."""
    return datetime.fromtimestamp(wall_ms / 1000, UTC)
