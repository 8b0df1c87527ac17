"""Positions of lanes: they move with the outcome or not at all, and never back."""

from __future__ import annotations

from oncegate.store import Session, move_of
from oncegate.testing.conformance.bench import StoreBench, unchanged

LANE = b"lane".ljust(24, b"-")
OTHER = b"other".ljust(24, b"-")


class PositionConformance(StoreBench):
    """How far lanes have come."""

    def apply(self, session: Session, seq: int, lane: bytes = LANE) -> bool:
        """Lets an event of a lane arrive and settle."""
        claim = self.reserve(session, f"{lane!r}:{seq}")
        return self.settle(session, claim, writes=(move_of(lane, seq, self.clock.wall_ms()),))

    def position(self, session: Session, lane: bytes = LANE) -> int:
        """Reads one position, in a unit of its own."""
        with session.unit():
            return session.positions([lane])[0]

    def test_lane_that_was_never_seen_stands_at_nothing(self) -> None:
        """Zero, in the order asked for, also for a lane asked for twice."""
        session = self.open()
        self.apply(session, 1)
        with session.unit():
            assert session.positions([OTHER, LANE, OTHER, LANE]) == [0, 1, 0, 1]
            assert session.positions([]) == []

    def test_position_moves_with_the_outcome(self) -> None:
        """Another session sees it at once; other lanes do not move."""
        session = self.open()
        for seq in (1, 2, 3):
            assert self.apply(session, seq)
        assert self.position(self.open()) == 3
        assert self.position(self.open(), OTHER) == 0

    def test_position_never_goes_back(self) -> None:
        """A late or repeated move changes nothing, and its event settles all the same."""
        session = self.open()
        self.apply(session, 5)
        assert self.apply(session, 3)
        assert self.position(session) == 5

    def test_claim_that_was_lost_moves_nothing(self) -> None:
        """The move is fenced like every write of a settlement."""
        session = self.open()
        lost = self.reserve(session)
        self.let_lapse()
        self.reserve(session)
        with unchanged(self, session):
            assert not self.settle(session, lost, writes=(move_of(LANE, 1, self.clock.wall_ms()),))
        assert self.position(session) == 0

    def test_unit_that_is_undone_moves_nothing(self) -> None:
        """Outcome and position are one transaction."""
        session = self.open()
        claim = self.reserve(session)
        settlement = self.settlement(claim, writes=(move_of(LANE, 1, self.clock.wall_ms()),))
        try:
            with session.unit():
                assert session.settle([settlement]) == [True]
                raise ValueError("undone")
        except ValueError:
            pass
        assert self.position(session) == 0

    def test_what_was_passed_over_is_counted(self) -> None:
        """Before the first, and between two."""
        session = self.open()
        for seq in (3, 4, 8):
            self.apply(session, seq)
        with session.unit():
            rows = session.execute("SELECT seq, missed FROM oncegate_position", ())
        assert [tuple(row) for row in rows] == [(8, 2 + 3)]
