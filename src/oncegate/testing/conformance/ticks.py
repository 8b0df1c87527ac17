"""The ledger's own time: leases follow it, wall clocks do not touch it, a restart does not turn it back."""

from __future__ import annotations

from oncegate.model.states import Decision, State
from oncegate.store import Session
from oncegate.testing.conformance.bench import LEASE_MS, StoreBench

HOUR = 3600.0
YEAR = 365 * 24 * HOUR


class TickConformance(StoreBench):
    """`now_ticks`, leases, wall steps and restarts of the machine (I15)."""

    def test_wall_clock_steps_end_no_lease(self) -> None:
        """A wall clock set a year ahead or two hours back leaves every claim where it is."""
        session = self.open()
        self.reserve(session)
        for step in (YEAR, -2 * YEAR, -2 * HOUR, HOUR):
            before = self.now()
            self.clock.step_wall(step)

            assert self.now() == before
            assert self.reserve(session).decision is Decision.BUSY, step
            assert self.stranded(10) == [], step

    def test_wall_clock_steps_keep_no_lease_alive(self) -> None:
        """A wall clock set back does not keep a dead worker's claim from lapsing."""
        session = self.open()
        self.reserve(session)
        self.clock.step_wall(-YEAR)
        self.let_lapse()
        self.clock.step_wall(-2 * HOUR)

        assert [found.entry.label for found in self.stranded(10)] == ["event"]
        assert self.reserve(session).decision is Decision.RECOVER

    def test_ticks_follow_the_clock_in_every_session(self) -> None:
        """Two sessions, opened at different times, read the same time."""
        first = self.open()
        start = self._ticks_of(first)
        self.clock.advance(12.345)
        second = self.open()

        assert self._ticks_of(first) == self._ticks_of(second) == self.now() == start + 12_345

    def test_leases_of_the_dead_lapse_after_a_restart(self) -> None:
        """When the machine comes up again, claims from before can be taken over at once."""
        self.reserve(self.open())
        self._reboot("second")

        session = self.open()

        assert [found.entry.label for found in self.stranded(10)] == ["event"]
        again = self.reserve(session)
        assert again.decision is Decision.RECOVER
        assert again.now_ticks >= again.lapsed_at_ticks >= again.first_reserved_ticks

    def test_new_leases_last_after_a_restart(self) -> None:
        """Claims made after a restart last as long as any, whatever the machine's ticks begin at."""
        for boot, ticks_ms in (("second", 0), ("third", 10**12), ("fourth", 5)):
            self.reserve(self.open(), boot)
            self._reboot(boot, ticks_ms)
            session = self.open()
            name = f"after-{boot}"
            self.reserve(session, name)
            self.clock.advance((LEASE_MS - 1) / 1000)
            assert self.reserve(session, name).decision is Decision.BUSY
            self.clock.advance(0.001)
            assert self.reserve(session, name).decision is Decision.RECOVER

    def test_time_does_not_go_back_behind_a_recorded_lease(self) -> None:
        """After a restart the ledger's time is not before the end of any lease that it still holds."""
        claim = self.reserve(self.open())
        self.reserve(self.open(), "shorter", lease_ms=5)
        self._reboot("second")

        for session in (self.open(), self.open()):
            assert self._ticks_of(session) >= claim.now_ticks + LEASE_MS
        assert self.now() >= claim.now_ticks + LEASE_MS

    def test_age_of_a_failure_survives_a_restart(self) -> None:
        """A downstream's last call is not believed longer ago than it was because the machine restarted."""
        session = self.open()
        self.settle(session, self.reserve(session), State.RETRYABLE)
        self.clock.advance(5)
        self._reboot("second")

        again = self.reserve(self.open())

        assert again.decision is Decision.RETRY
        assert 0 <= again.now_ticks - again.lapsed_at_ticks <= 5_000

    def _reboot(self, boot: str, ticks_ms: int = 1_000) -> None:
        for session in self._sessions:
            session.close()
        self.clock.reboot(boot, ticks_ms)

    def _ticks_of(self, session: Session) -> int:
        with session.unit():
            return session.now_ticks()
