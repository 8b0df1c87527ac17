"""A commit that comes late: somebody else has finished meanwhile, and things have moved on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from lab.incidents.incident import Incident, Numbers, Place
from lab.incidents.outside import database
from oncegate import ClaimLost, Gate
from oncegate.crashpoints import CrashPoints
from oncegate.errors import UsageError
from oncegate.gate.runtime import arrival_stats
from oncegate.recorder.planning import Planned, make_plan
from oncegate.recorder.reading import began_ms
from oncegate.testing.clock import SharedClock
from oncegate.testing.crashing import ArmedCrashPoints
from oncegate.testing.forking import Forked, run_forked, stop_this_process

SURFACE: Final = "seats"
WORKER_SECONDS: Final = 120.0
LEASE_MS: Final = 20_000
BOOKINGS: Final = (
    "CREATE TABLE booking (passenger TEXT PRIMARY KEY, seat TEXT NOT NULL, state TEXT NOT NULL)"
)
BOOK: Final = (
    "INSERT INTO booking (passenger, seat, state) VALUES (?, ?, 'booked')"
    " ON CONFLICT (passenger) DO UPDATE SET state = 'booked'"
)
CANCEL: Final = "UPDATE booking SET state = 'cancelled' WHERE passenger = ?"
_JOBS: Final = "CREATE TABLE job (id TEXT PRIMARY KEY, state TEXT NOT NULL, until_ms INTEGER NOT NULL)"
_TAKE: Final = (
    "INSERT INTO job VALUES (?, 'working', ?) ON CONFLICT (id) DO UPDATE SET until_ms = excluded.until_ms"
    " WHERE state = 'working' AND until_ms < ?"
)
Work = Callable[[Path, SharedClock, CrashPoints, dict[str, Any]], str]


class DelayedCommit(Incident):
    """A commit arrives a minute late and undoes what happened since.

    A worker takes a booking and is stopped, by a long pause of its machine, just before it commits. Its
    claim runs out; another worker takes over and finishes. The passenger cancels, and the seat is sold to
    another passenger. Then the first worker wakes up, knows nothing of all this, and commits: the cancelled
    booking is back, and the seat is sold twice. The gate gives every claim a number that only grows, and a
    write that shows an old one changes nothing and is refused. A real process, stopped with SIGSTOP.
    """

    name = "delayed-commit"

    def naive(self) -> dict[str, Callable[[Place], Numbers]]:
        """A claim with a time limit, and a commit that does not ask whether it still holds."""
        return {"claims without a fence": lambda place: self._played(place, _unfenced, _prepare_jobs)}

    def gated(self, place: Place) -> Numbers:
        """The production gate; the business write goes with the outcome."""
        return self._played(place, _fenced, _prepare_ledger)

    def _played(self, place: Place, work: Work, prepare: Callable[[Path], None]) -> Numbers:
        clock = SharedClock(wall_ms=began_ms(self.recording))
        if run_forked(partial(prepare, place.folder), WORKER_SECONDS)[0]:
            raise UsageError("the database could not be prepared; see above")
        first, *others = make_plan(self.recording)
        stopping = ArmedCrashPoints("settle.before", stop_this_process)
        with Forked(partial(work, place.folder, clock, stopping, first.payload)) as stopped:
            stopped.wait_stopped(WORKER_SECONDS)
            was_stopped = stopped.is_stopped
            for one in others:
                self._deliver(place.folder, clock, work, one)
            stopped.resume()
            told = stopped.answer(WORKER_SECONDS)
        return _counted(place.folder, was_stopped, told)

    def _deliver(self, folder: Path, clock: SharedClock, work: Work, one: Planned) -> None:
        clock.advance((began_ms(self.recording) + one.at_ms - clock.wall_ms() + 0.5) / 1000)
        code, _ = run_forked(partial(work, folder, clock, CrashPoints(), one.payload), WORKER_SECONDS)
        if code:
            raise UsageError(f"a worker ended with {code}; see above")

    def wrong(self, numbers: Numbers) -> list[str]:
        """One passenger on the seat, nothing cancelled comes back; and a worker must have been stopped."""
        found = [] if numbers["workers stopped before their commit"] == 1 else ["no worker was stopped"]
        if numbers["passengers on seat 12A"] != 1:
            found.append(f"passengers on seat 12A: {numbers['passengers on seat 12A']}, not 1")
        if numbers["cancelled bookings that came back"]:
            found.append("a cancelled booking came back")
        return found


def _counted(folder: Path, was_stopped: bool, told: str | None) -> Numbers:
    with database(folder / "ledger.db") as connection:
        booked = connection.execute("SELECT passenger FROM booking WHERE state = 'booked'").fetchall()
    return {
        "workers stopped before their commit": int(was_stopped),
        "late commits that were refused": int(told == ClaimLost.__name__),
        "passengers on seat 12A": len(booked),
        "cancelled bookings that came back": int(("S-1",) in booked),
    }


def _write(event: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
    if event["kind"] == "cancel":
        return CANCEL, (event["order"],)
    return BOOK, (event["order"], event["seat"])


def _prepare_jobs(folder: Path) -> None:
    with database(folder / "ledger.db") as connection:
        connection.execute(BOOKINGS)
        connection.execute(_JOBS)


def _unfenced(folder: Path, clock: SharedClock, points: CrashPoints, event: dict[str, Any]) -> str:
    with database(folder / "ledger.db") as connection:
        now_ms = clock.ticks_ms()
        taken = connection.execute(_TAKE, (event["id"], now_ms + LEASE_MS, now_ms))
        if not taken.rowcount:
            return "known"
        points.hit("settle.before")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(*_write(event))
        connection.execute("UPDATE job SET state = 'done' WHERE id = ?", (event["id"],))
        connection.execute("COMMIT")
        return "done"


def _prepare_ledger(folder: Path) -> None:
    with Gate(f"sqlite:///{folder}/ledger.db") as gate:
        session = gate.engine.store.connect()
        with session.unit():
            session.execute(BOOKINGS, ())
        session.close()


def _fenced(folder: Path, clock: SharedClock, points: CrashPoints, event: dict[str, Any]) -> str:
    # The thread that tells the ledger what was seen would keep its only lock if it were stopped while it
    # writes. That is a matter of chance, and not what this is about.
    arrival_stats.FLUSH_SECONDS = WORKER_SECONDS
    with Gate(f"sqlite:///{folder}/ledger.db", clock=clock, crashpoints=points) as gate:

        @gate.handler(SURFACE, key="{id}", lease="20s")
        def seat(event: Any, once: Any) -> None:
            once.commit(writes=[_write(event)])

        try:
            return gate.admit_sync(SURFACE, event).verdict.value
        except ClaimLost as error:
            return type(error).__name__
