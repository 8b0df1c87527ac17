"""Plays a recording to a gate's handlers, on an empty ledger and with a clock that follows the recording.

Used by `oncegate replay --app` and by the fixture `oncegate_replay`. What handlers call outside is called
for real: give it a gate whose downstreams are fakes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from oncegate.clock import SystemClock
from oncegate.errors import ConfigError
from oncegate.gate.facade import GateOnStore as AnyGate
from oncegate.recorder.planning import Planned, make_plan
from oncegate.recorder.reading import began_ms, read_recordings
from oncegate.recorder.recording import Recording
from oncegate.recorder.replaying import Counted, ReplayReport, check_surfaces, deliver_to, replay
from oncegate.testing.clock import ManualClock
from oncegate.testing.harness.databases import KINDS, Database, Server, Setups, apply_setup
from oncegate.wiring import Gate


class RealPace:
    """Waits between arrivals, as long as they were apart, divided by the speed; without one not at all."""

    def __init__(self, speed: float | None) -> None:
        self._clock = SystemClock()
        self._begin_ms = self._clock.ticks_ms()
        self._speed = speed

    async def until(self, at_ms: int) -> None:
        """Returns when the moment has come."""
        if self._speed is not None:
            left_ms = self._begin_ms + at_ms / self._speed - self._clock.ticks_ms()
            await self._clock.pause_async(max(0.0, left_ms / 1000))


class VirtualPace:
    """Sets a clock to each moment of the recording; with a speed, real time passes as well."""

    def __init__(self, clock: ManualClock, speed: float | None = None) -> None:
        self._clock = clock
        self._begin_ms = clock.wall_ms()
        self._real = RealPace(speed)

    async def until(self, at_ms: int) -> None:
        """Returns when the moment has come."""
        await self._real.until(at_ms)
        late_ms = self._begin_ms + at_ms - self._clock.wall_ms()
        if late_ms > 0:
            self._clock.advance((late_ms + 0.5) / 1000)


def play_to_gate(
    app: AnyGate,
    recording: Recording,
    plan: Sequence[Planned],
    url: str,
    speed: float | None = None,
    *,
    setup: Setups = (),
) -> ReplayReport:
    """Plays a plan to the handlers of a gate, on the ledger at `url`, which must be empty.

    `setup` makes the tables that handlers write to, in the ledger's database.
    """
    check_surfaces(app, plan)
    counted, clock = Counted(), ManualClock(wall_ms=began_ms(recording))
    with Gate(url, clock=clock) as gate:
        _refuse_used(gate)
        apply_setup(Database(url), setup)
        gate.engine.adopt(app.engine, counted.surface)
        report = asyncio.run(replay(plan, deliver_to(gate), VirtualPace(clock, speed)))
    report.effects, report.calls = counted.effects, counted.calls
    return report


def _refuse_used(gate: Gate) -> None:
    session = gate.engine.store.connect()
    try:
        if any(session.counts().values()):
            raise ConfigError(f"{gate.engine.store.address} holds entries; a replay needs a fresh ledger")
    finally:
        session.close()


class Replay:
    """The fixture: plays recordings to gates, each time on a database of its own.

    `database` is that of the last replay, with the ledger and the tables that `setup` made.
    """

    def __init__(self, folder: Path, server: Callable[[], Server]) -> None:
        self._folder, self._server = folder, server
        self._ledgers = 0
        self.database = Database("")

    def __call__(
        self,
        gate: AnyGate,
        *recordings: str | Path,
        shuffle_seed: int | None = None,
        surfaces: Sequence[str] = (),
        setup: Setups = (),
        database: str = "sqlite",
    ) -> ReplayReport:
        """Plays files, or folders of them, as one; see docs/recording.md."""
        if database not in KINDS:
            raise ConfigError(f"database={database!r} cannot be used; choose sqlite or postgres")
        self._ledgers += 1
        found = read_recordings([Path(one) for one in recordings])
        plan = make_plan(found, surfaces=surfaces, shuffle_seed=shuffle_seed)
        is_file = database == "sqlite"
        url = f"sqlite:///{self._folder}/replay-{self._ledgers}.db" if is_file else ""
        self.database = Database(url or self._server().new_database())
        return play_to_gate(gate, found, plan, self.database.url, setup=setup)
