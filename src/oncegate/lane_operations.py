"""What can be asked of a ledger about lanes, as values that a batch can hold (see `operations.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oncegate.operations import Operation
from oncegate.store import (
    Acknowledgement,
    Advanced,
    Failure,
    GivenUp,
    HeadAnswer,
    HeadHeld,
    HeadOrder,
    Heads,
    HeadsWanted,
    Outgoing,
    Placed,
    Placing,
    Session,
    Steering,
    Throttling,
)


class Enqueue(Operation[Placed]):
    """Puts an event at the end of its lane. Read back by its own id."""

    request: Outgoing

    @classmethod
    def run(cls, session: Session, operations: Sequence[Enqueue]) -> Sequence[Placed]:
        """Enqueues many, in their order."""
        return session.enqueue([operation.request for operation in operations])

    def recall(self, session: Session) -> Placed | None:
        """Enqueues again: if it had happened the id is known, and the place is the same."""
        (placed,) = session.enqueue([self.request])
        if placed.placing is Placing.KNOWN:
            return Placed(Placing.NEW, placed.lane_id, placed.seq)
        return placed


class LeaseHeads(Operation[Heads]):
    """Asks for heads. Read back by the holder's random number."""

    request: HeadsWanted

    @classmethod
    def run(cls, session: Session, operations: Sequence[LeaseHeads]) -> Sequence[Heads]:
        """Leases for each asker."""
        return [session.lease_heads(operation.request) for operation in operations]

    def recall(self, session: Session) -> Heads | None:
        """Finds what is leased to us. What else is due is not known, and so to be asked again at once."""
        leased = session.leased_by(self.request.holder)
        now = session.now_ticks()
        return Heads(tuple(leased), now, now) if leased else None


class Finish(Operation[Advanced]):
    """Acknowledges a delivery. Read back by its fence, its successor by the holder's number."""

    request: Acknowledgement

    @classmethod
    def run(cls, session: Session, operations: Sequence[Finish]) -> Sequence[Advanced]:
        """Acknowledges many."""
        return session.finish([operation.request for operation in operations])

    def recall(self, session: Session) -> Advanced | None:
        """Looks whether it happened."""
        return _recall_advance(session, self.request)


class GiveUp(Operation[Advanced]):
    """Makes a dead letter. Read back by its fence."""

    request: GivenUp

    @classmethod
    def run(cls, session: Session, operations: Sequence[GiveUp]) -> Sequence[Advanced]:
        """Gives up many."""
        return session.dead_letter([operation.request for operation in operations])

    def recall(self, session: Session) -> Advanced | None:
        """Looks whether it happened."""
        return _recall_advance(session, self.request)


def _recall_advance(session: Session, asked: Acknowledgement | GivenUp) -> Advanced | None:
    if not session.lease_ended(asked.lane_id, asked.seq, asked.fence):
        return None
    leased = session.leased_by(asked.holder) if asked.lease_ms else []
    # The very next lease of this lane: anything later was leased by somebody who knew of it.
    ours = (d for d in leased if d.lane_id == asked.lane_id and d.fence == asked.fence + 1)
    return Advanced(True, next(ours, None))


class Fail(Operation[bool]):
    """Ends a lease whose attempt failed."""

    request: Failure

    @classmethod
    def run(cls, session: Session, operations: Sequence[Fail]) -> Sequence[bool]:
        """Ends many."""
        return session.fail([operation.request for operation in operations])

    def recall(self, session: Session) -> bool | None:
        """Does not matter: a lease that was not ended lapses, and the head is tried again."""
        return None


class Release(Operation[bool]):
    """Gives a head back."""

    request: HeadHeld

    @classmethod
    def run(cls, session: Session, operations: Sequence[Release]) -> Sequence[bool]:
        """Gives many back."""
        return session.release([operation.request for operation in operations])

    def recall(self, session: Session) -> bool | None:
        """Does not matter: a lease that was not given back lapses."""
        return None


class Extend(Operation[bool]):
    """Extends a head's lease."""

    request: HeadHeld

    @classmethod
    def run(cls, session: Session, operations: Sequence[Extend]) -> Sequence[bool]:
        """Extends many."""
        return session.extend([operation.request for operation in operations])

    def recall(self, session: Session) -> bool | None:
        """Does not matter: it is extended again at the next turn, or lapses."""
        return None


class Throttle(Operation[bool]):
    """Leaves a destination alone for a while."""

    request: Throttling

    @classmethod
    def run(cls, session: Session, operations: Sequence[Throttle]) -> Sequence[bool]:
        """Throttles each destination once, for the longest time asked for."""
        longest: dict[str, Throttling] = {}
        for asked in sorted((operation.request for operation in operations), key=_for_ms):
            longest[asked.destination] = asked
        for name in sorted(longest):
            session.throttle(longest[name])
        return [True] * len(operations)

    def recall(self, session: Session) -> bool | None:
        """Does not matter: the next attempt finds out."""
        return True


def _for_ms(asked: Throttling) -> int:
    return asked.for_ms


class Steer(Operation[bool]):
    """Pauses, disables or resumes a destination."""

    request: Steering

    @classmethod
    def run(cls, session: Session, operations: Sequence[Steer]) -> Sequence[bool]:
        """Steers each."""
        return [session.steer(operation.request) for operation in operations]

    def recall(self, session: Session) -> bool | None:
        """Looks at the state and who left it so."""
        wanted = self.request
        for view in session.destinations():
            if view.name == wanted.destination:
                same = view.state is wanted.state and view.since_ms == wanted.at_ms
                return True if same else None
        return None


class RetryHead(Operation[HeadAnswer]):
    """Makes a head due now."""

    request: HeadOrder

    @classmethod
    def run(cls, session: Session, operations: Sequence[Any]) -> Sequence[HeadAnswer]:
        """Retries each."""
        return [session.retry_head(operation.request) for operation in operations]

    def recall(self, session: Session) -> HeadAnswer | None:
        """Orders again: a head that is due already stays so, without a second record."""
        return session.retry_head(self.request)


class SkipHead(Operation[HeadAnswer]):
    """Leaves a head out."""

    request: HeadOrder

    @classmethod
    def run(cls, session: Session, operations: Sequence[Any]) -> Sequence[HeadAnswer]:
        """Skips each."""
        return [session.skip_head(operation.request) for operation in operations]

    def recall(self, session: Session) -> HeadAnswer | None:
        """Orders again: a head that was skipped is no longer the head."""
        answer = session.skip_head(self.request)
        return HeadAnswer.DONE if answer is HeadAnswer.NOT_HEAD else answer


class CountWaiting(Operation[int]):
    """Counts what waits at a destination. Only reads."""

    request: str

    @classmethod
    def run(cls, session: Session, operations: Sequence[CountWaiting]) -> Sequence[int]:
        """Counts for each."""
        return [session.waiting_at(operation.request) for operation in operations]

    def recall(self, session: Session) -> int | None:
        """Counts again."""
        return session.waiting_at(self.request)


class Resumed(Operation[Any]):
    """An operation that is asked for again after nobody could tell whether it had taken effect (I5).

    Read back first, and done only where it was not: its own traces must not be taken for somebody else's.
    """

    request: Operation[Any]

    @classmethod
    def run(cls, session: Session, operations: Sequence[Resumed]) -> Sequence[Any]:
        """Reads back or does each."""
        return [_resume(session, operation.request) for operation in operations]

    def recall(self, session: Session) -> Any:
        """As the operation itself."""
        return self.request.recall(session)


def _resume(session: Session, operation: Operation[Any]) -> Any:
    answer = operation.recall(session)
    if answer is not None:
        return answer
    (answer,) = type(operation).run(session, [operation])
    return answer
