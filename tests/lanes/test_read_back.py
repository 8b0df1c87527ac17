"""Reading back many acknowledgements of a doubtful commit: together, each with its own answer (I5)."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing
from typing import Any

from oncegate.commit.lane_operations import Finish, Resumed
from oncegate.store import Acknowledgement, Delivery, Session
from tests.lanes.engine_site import Site
from tests.lanes.lane_site import LEASE_MS, finish, lease, outgoing

LANES = 4


class Counting:
    """A session that counts how often a holder's heads are read."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.reads = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def leased_by(self, holders: Collection[int]) -> list[Delivery]:
        self.reads += 1
        return self._session.leased_by(holders)


def fill(session: Session) -> list[Delivery]:
    """Two events for each lane, the first of each leased."""
    with session.unit():
        session.enqueue([outgoing(f"e{seq}-{lane}", f"k{lane}") for seq in (1, 2) for lane in range(LANES)])
    return lease(session)


def ack(delivery: Delivery) -> Finish:
    return Finish(
        Acknowledgement(
            delivery.lane_id,
            delivery.seq,
            delivery.fence,
            delivery.holder,
            delivery.event_id,
            1,
            "200",
            LEASE_MS,
            next_holder=7,
        )
    )


def test_what_a_holder_has_is_read_once_for_a_whole_batch(site: Site) -> None:
    """Given acknowledgements of many lanes, all but one committed; when they are read back, each has its
    own successor, the one that did not happen has nothing, and the holder's heads were read once."""
    with closing(site.store.connect()) as session:
        heads = fill(session)
        successors = [finish(session, head, chain=True) for head in heads[1:]]
        counting: Any = Counting(session)
        with session.unit():
            found = Finish.recall_all(counting, [ack(head) for head in heads])
    assert found[0] is None
    assert [answer and answer.successor for answer in found[1:]] == successors
    assert counting.reads == 1


def test_resumed_acknowledgements_are_done_where_they_were_not_and_answered_in_their_order(
    site: Site,
) -> None:
    """Given every other acknowledgement committed; when all are resumed, every lane has moved on by one and
    each answer has the second event of its own lane."""
    with closing(site.store.connect()) as session:
        heads = fill(session)
        for head in heads[::2]:
            finish(session, head, chain=True)
        with session.unit():
            answers = Resumed.run(session, [Resumed(ack(head)) for head in heads])
        lanes = [
            answer.successor and (answer.successor.lane_id, answer.successor.seq) for answer in answers
        ]
    assert lanes == [(head.lane_id, 2) for head in heads]
    assert all(answer.done for answer in answers)
