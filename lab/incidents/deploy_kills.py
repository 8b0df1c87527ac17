"""A deploy that kills workers in the middle of their work, with SIGKILL and at every point there is."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from lab.incidents.incident import Incident, Numbers, Place, once_each, tally_done
from lab.incidents.outside import Outside, database
from oncegate import Gate
from oncegate.crashpoints import CrashPoints
from oncegate.errors import UsageError
from oncegate.recorder.planning import make_plan
from oncegate.recorder.reading import began_ms
from oncegate.testing.clock import SharedClock
from oncegate.testing.crashing import ArmedCrashPoints
from oncegate.testing.forking import run_forked

SURFACE: Final = "parcels"
WORKER_SECONDS: Final = 120.0
KILLED: Final = -9
# Whose worker is killed at its first arrival, and where.
KILLS: Final = {
    "D-01": "reserve.before",
    "D-03": "reserve.after",
    "D-05": "effect.before",
    "D-07": "effect.after",
    "D-09": "settle.before",
    "D-11": "settle.after",
}
Work = Callable[[Path, CrashPoints, dict[str, Any]], None]


class DeployKills(Incident):
    """A rolling deploy does not wait, and kills six workers in the middle of their work.

    Each was killed somewhere else: before the order was looked at, after its key was reserved, just before
    the parcel was ordered, just after, before that was written down, and before it was acknowledged. The
    queue delivers all six again two minutes later. A worker that writes down at the end what it did orders
    parcels twice; one that writes it down first forgets some. These are real processes and real SIGKILLs.
    """

    name = "deploy-kills"

    def naive(self) -> dict[str, Callable[[Place], Numbers]]:
        """The two orders in which one can write down and act."""
        return {
            "act, then write down": lambda place: self._played(place, _act_first),
            "write down, then act": lambda place: self._played(place, _write_first),
        }

    def gated(self, place: Place) -> Numbers:
        """Reserved, called with the key, committed; stranded keys are taken up by the next arrival."""
        clock = SharedClock(wall_ms=began_ms(self.recording))
        return self._played(place, partial(_behind_the_gate, clock), clock)

    def _played(self, place: Place, work: Work, clock: SharedClock | None = None) -> Numbers:
        """One process for each arrival, one after the other."""
        outside, met, ended = Outside(place.folder), set[str](), list[int]()
        for one in make_plan(self.recording):
            if clock is not None:
                behind_ms = began_ms(self.recording) + one.at_ms - clock.wall_ms()
                clock.advance((behind_ms + 0.5) / 1000)
            order = one.payload["order"]
            dies_at = None if order in met else KILLS.get(order)
            met.add(order)
            points = CrashPoints() if dies_at is None else ArmedCrashPoints(dies_at)
            code, _ = run_forked(partial(work, place.folder, points, one.payload), WORKER_SECONDS)
            ended.append(code)
        if set(ended) - {0, KILLED}:
            raise UsageError(f"workers ended with {sorted(set(ended) - {0, KILLED})}; see above")
        return self._counted(outside.done(), ended.count(KILLED))

    def _counted(self, done: list[str], killed: int) -> Numbers:
        wanted = {one.payload["order"] for one in make_plan(self.recording)}
        return {
            "arrivals": len(self.recording.arrivals),
            "workers killed": killed,
            "orders": len(wanted),
            "parcels ordered": len(done),
            **tally_done(done, wanted),
        }

    def wrong(self, numbers: Numbers) -> list[str]:
        """One parcel an order; and every kill must have happened."""
        kills = [] if numbers["workers killed"] == len(KILLS) else ["not every worker was killed"]
        return kills + once_each(numbers, "parcels ordered", numbers["orders"])


_NOTES: Final = "CREATE TABLE IF NOT EXISTS written (id TEXT PRIMARY KEY)"


def _act_first(folder: Path, points: CrashPoints, event: dict[str, Any]) -> None:
    with database(folder / "notes.db") as notes:
        notes.execute(_NOTES)
        points.hit("reserve.before")
        if notes.execute("SELECT 1 FROM written WHERE id = ?", (event["order"],)).fetchone():
            return
        points.hit("reserve.after")
        points.hit("effect.before")
        Outside(folder).act(event["order"])
        points.hit("effect.after")
        points.hit("settle.before")
        notes.execute("INSERT INTO written VALUES (?)", (event["order"],))
        points.hit("settle.after")


def _write_first(folder: Path, points: CrashPoints, event: dict[str, Any]) -> None:
    with database(folder / "notes.db") as notes:
        notes.execute(_NOTES)
        points.hit("reserve.before")
        new = notes.execute("INSERT INTO written VALUES (?) ON CONFLICT DO NOTHING", (event["order"],))
        if not new.rowcount:
            return
        points.hit("reserve.after")
        points.hit("effect.before")
        Outside(folder).act(event["order"])
        points.hit("effect.after")
        points.hit("settle.before")
        points.hit("settle.after")


def _behind_the_gate(clock: SharedClock, folder: Path, points: CrashPoints, event: dict[str, Any]) -> None:
    with Gate(f"sqlite:///{folder}/ledger.db", clock=clock, crashpoints=points) as gate:
        depot = gate.downstream("depot", honours_key="7d")

        @gate.handler(SURFACE, key="{order}")
        def send(event: Any, once: Any) -> Any:
            return once.effect(depot, Outside(folder).act, event["order"])

        gate.admit_sync(SURFACE, event)
