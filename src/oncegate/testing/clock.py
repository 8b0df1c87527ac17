"""A clock that moves only when told; pausing moves it instead of waiting."""

from __future__ import annotations

import asyncio
import mmap


class ManualClock:
    """Wall time and ticks set by hand. `advance` moves both, `step_wall` only what people read."""

    def __init__(self, wall_ms: int = 1_780_000_000_000, ticks_ms: int = 1_000_000) -> None:
        self._wall_ms = wall_ms
        self._ticks_ms = ticks_ms
        self._boot = "manual"

    def wall_ms(self) -> int:
        """Reads the wall clock."""
        return self._wall_ms

    def ticks_ms(self) -> int:
        """Reads the ticks."""
        return self._ticks_ms

    def elapsed_us(self) -> int:
        """Reads the ticks in microseconds."""
        return self.ticks_ms() * 1000

    def boot_id(self) -> str:
        """Names the boot."""
        return self._boot

    def advance(self, seconds: float) -> None:
        """Lets time pass."""
        self._wall_ms += int(seconds * 1000)
        self._ticks_ms += int(seconds * 1000)

    def step_wall(self, seconds: float) -> None:
        """Sets the wall clock forward or back, as a bad time server would."""
        self._wall_ms += int(seconds * 1000)

    def reboot(self, boot: str, ticks_ms: int = 1_000) -> None:
        """Restarts the machine: ticks begin again under another name."""
        self._boot, self._ticks_ms = boot, ticks_ms

    def pause(self, seconds: float) -> None:
        """Lets time pass instead of waiting."""
        self.advance(seconds)

    async def pause_async(self, seconds: float) -> None:
        """Lets time pass instead of waiting, and other tasks run."""
        self.advance(seconds)
        await asyncio.sleep(0)


class SharedClock(ManualClock):
    """A manual clock that forked processes share: what one advances, all see."""

    def __init__(self, wall_ms: int = 1_780_000_000_000, ticks_ms: int = 1_000_000) -> None:
        self._memory = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("q")
        super().__init__(wall_ms, ticks_ms)

    @property
    def _wall_ms(self) -> int:
        return self._memory[0]

    @_wall_ms.setter
    def _wall_ms(self, value: int) -> None:
        self._memory[0] = value

    @property
    def _ticks_ms(self) -> int:
        return self._memory[1]

    @_ticks_ms.setter
    def _ticks_ms(self, value: int) -> None:
        self._memory[1] = value
