"""Requests about lanes, as values that a batch can hold (see `operations.py`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from oncegate.commit.operations import Operation
from oncegate.store import (
    Acknowledgement,
    Advanced,
    Attempt,
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


class Enqueue(Operation[Placed], gc=False):
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


class EnqueueTogether(Operation[tuple[Placed, ...]]):
    """Puts one event at the end of several lanes, in one transaction. Read back by its own id."""

    request: tuple[Outgoing, ...]

    @classmethod
    def run(cls, session: Session, operations: Sequence[EnqueueTogether]) -> Sequence[tuple[Placed, ...]]:
        """Enqueues many, in their order."""
        placed = iter(session.enqueue([event for operation in operations for event in operation.request]))
        return [tuple(next(placed) for _ in operation.request) for operation in operations]

    def recall(self, session: Session) -> tuple[Placed, ...] | None:
        """Enqueues again: what had happened is known, and the places are the same."""
        return tuple(
            Placed(Placing.NEW, one.lane_id, one.seq) if one.placing is Placing.KNOWN else one
            for one in session.enqueue(list(self.request))
        )


class LeaseHeads(Operation[Heads]):
    """Asks for heads. Read back by the holder's random number."""

    request: HeadsWanted

    @classmethod
    def run(cls, session: Session, operations: Sequence[LeaseHeads]) -> Sequence[Heads]:
        """Leases for each asker."""
        return [session.lease_heads(operation.request) for operation in operations]

    def recall(self, session: Session) -> Heads | None:
        """Finds what is leased to us. What else is due is not known, and so to be asked again at once."""
        leased = session.leased_by((self.request.holder,))
        now = session.now_ticks()
        return Heads(tuple(leased), now, now) if leased else None


class Finish(Operation[Advanced], gc=False):
    """Acknowledges a delivery. Read back by fence and event, its successor by the next holder's number."""

    request: Acknowledgement

    @classmethod
    def run(cls, session: Session, operations: Sequence[Finish]) -> Sequence[Advanced]:
        """Acknowledges many."""
        return session.finish([operation.request for operation in operations])

    def recall(self, session: Session) -> Advanced | None:
        """Looks whether it happened."""
        return _recall_advances(session, [self.request])[0]

    @classmethod
    def recall_all(cls, session: Session, operations: Sequence[Any]) -> Sequence[Advanced | None]:
        """Looks which of many happened; successors are read once for all."""
        return _recall_advances(session, [operation.request for operation in operations])


class GiveUp(Operation[Advanced]):
    """Makes a dead letter. Read back by fence and event."""

    request: GivenUp

    @classmethod
    def run(cls, session: Session, operations: Sequence[GiveUp]) -> Sequence[Advanced]:
        """Gives up many."""
        return session.dead_letter([operation.request for operation in operations])

    def recall(self, session: Session) -> Advanced | None:
        """Looks whether it happened."""
        return _recall_advances(session, [self.request])[0]

    @classmethod
    def recall_all(cls, session: Session, operations: Sequence[Any]) -> Sequence[Advanced | None]:
        """Looks which of many happened; successors are read once for all."""
        return _recall_advances(session, [operation.request for operation in operations])


def _recall_advances(session: Session, asked: Sequence[Acknowledgement | GivenUp]) -> list[Advanced | None]:
    ended = [session.lease_ended(one) for one in asked]
    holders = {
        one.next_holder for one, is_over in zip(asked, ended, strict=True) if is_over and one.lease_ms
    }
    leased = {(d.lane_id, d.fence, d.holder): d for d in (session.leased_by(holders) if holders else ())}
    # The very next lease of a lane: anything later was leased by somebody who knew of it.
    return [
        Advanced(True, leased.get((one.lane_id, one.fence + 1, one.next_holder))) if is_over else None
        for one, is_over in zip(asked, ended, strict=True)
    ]


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


class NoteAttempt(Operation[bool]):
    """Keeps a failed attempt for people."""

    request: Attempt

    @classmethod
    def run(cls, session: Session, operations: Sequence[NoteAttempt]) -> Sequence[bool]:
        """Keeps many."""
        session.note_attempts([operation.request for operation in operations])
        return [True] * len(operations)

    def recall(self, session: Session) -> bool | None:
        """Taken for done: an attempt that is missing from the list changes nothing."""
        return True


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


class ThrottleDestination(Operation[bool]):
    """Leaves a destination alone for a while."""

    request: Throttling

    @classmethod
    def run(cls, session: Session, operations: Sequence[ThrottleDestination]) -> Sequence[bool]:
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
    """An operation that is asked for again, because it was unknown whether it had taken effect (I5).

    Read back first, and done only where it was not. It must not take its own traces for another's.
    """

    request: Operation[Any]

    @classmethod
    def run(cls, session: Session, operations: Sequence[Resumed]) -> Sequence[Any]:
        """Reads back those of each kind together, and does together what did not happen."""
        kinds: dict[type[Operation[Any]], list[int]] = {}
        for place, operation in enumerate(operations):
            kinds.setdefault(type(operation.request), []).append(place)
        answers: dict[int, Any] = {}
        for kind, places in kinds.items():
            answers |= zip(
                places, _resume(session, kind, [operations[place].request for place in places]), strict=True
            )
        return [answers[place] for place in range(len(operations))]

    def recall(self, session: Session) -> Any:
        """As the operation itself."""
        return self.request.recall(session)


def _resume(
    session: Session, kind: type[Operation[Any]], operations: Sequence[Operation[Any]]
) -> Iterator[Any]:
    found = list(kind.recall_all(session, operations))
    undone = [operation for operation, answer in zip(operations, found, strict=True) if answer is None]
    done_now = iter(kind.run(session, undone) if undone else ())
    return (next(done_now) if answer is None else answer for answer in found)
