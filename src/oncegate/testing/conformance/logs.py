"""The log: positions in commit order, complete for readers who follow them (I12)."""

from __future__ import annotations

import random

from oncegate.model.states import State
from oncegate.store import LogKind, LogRecord
from oncegate.testing.conformance.bench import StoreBench


class _Follower:
    """Reads on from the last position it saw, in small pages."""

    def __init__(self, bench: StoreBench) -> None:
        self._bench = bench
        self.seen: list[LogRecord] = []

    def catch_up(self) -> None:
        while page := self._bench.read_log(self.seen[-1].position if self.seen else 0, 2):
            assert len(page) <= 2
            self.seen += page


class LogConformance(StoreBench):
    """Reading the log."""

    def test_follower_sees_every_record_once_in_commit_order(self) -> None:
        """Two writers in turn, some units undone: a reader that follows positions misses nothing."""
        store = self.make_store(self.clock)
        writers, follower = [self.open(store), self.open(store)], _Follower(self)
        choose = random.Random(20_260_601)
        committed: list[tuple[int, LogKind]] = []
        for number in range(40):
            writer = choose.choice(writers)
            claims = [self.reserve(writer, f"{number}-{part}") for part in range(choose.randint(1, 3))]
            try:
                with writer.unit():
                    writer.settle([self.settlement(claim) for claim in claims])
                    if choose.random() < 0.3:
                        raise ValueError("undone")
            except ValueError:
                pass
            else:
                committed += [(claim.entry_id, LogKind.COMMITTED) for claim in claims]
            if choose.random() < 0.5:
                follower.catch_up()

        follower.catch_up()

        assert [(record.entry_id, record.kind) for record in follower.seen] == committed
        positions = [record.position for record in follower.seen]
        assert positions == sorted(set(positions))

    def test_positions_are_not_given_out_twice_after_a_reopen(self) -> None:
        """A new session goes on after the last position, and a cursor from before stays good."""
        first = self.open()
        self.settle(first, self.reserve(first, "one"))
        (seen,) = self.log()
        first.close()

        second = self.open()
        self.settle(second, self.reserve(second, "two"))

        (record,) = self.read_log(seen.position, 10)
        assert record.position > seen.position

    def test_every_kind_of_event_is_recorded_once(self) -> None:
        """One key's life, with a conflict, a failure, a recovery and its end, is there line by line."""
        session = self.open()
        claim = self.reserve(session)
        self.reserve(session, fingerprint=b"other")
        self.settle(session, claim, State.RETRYABLE, reason="timeout")
        self.reserve(session)
        self.let_lapse()
        last = self.reserve(session)
        self.settle(session, last)
        self.reserve(session)

        kinds = [record.kind for record in self.log()]

        tries = [LogKind.RETRYABLE, LogKind.TAKEN_UP, LogKind.RECOVERED]
        assert kinds == [LogKind.CONFLICT, *tries, LogKind.COMMITTED]
        assert list(self.detail(claim.entry_id).records) == self.log()

    def test_limit_and_position_are_obeyed(self) -> None:
        """A page is no longer than asked, begins after the position, and is empty at the end."""
        session = self.open()
        for number in range(5):
            self.settle(session, self.reserve(session, f"e{number}"))
        everything = self.log()

        assert self.read_log(0, 3) == everything[:3]
        assert self.read_log(everything[2].position, 3) == everything[3:]
        assert self.read_log(everything[-1].position, 3) == []
