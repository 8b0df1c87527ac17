"""Events and workers for the lanes' tests, on whatever ledger."""

from __future__ import annotations

from typing import Any

from oncegate.commit.group_commit import GroupCommit
from oncegate.store import Acknowledgement, Delivery, HeadsWanted, Outgoing, Session
from oncegate.testing.forking import stop_this_process
from oncegate.testing.waiting import DEADLINE_SECONDS

ENDPOINT = "endpoint"
LEASE_MS = 20_000


def outgoing(event_id: str, key: str = "k", **changes: Any) -> Outgoing:
    """An event."""
    values: dict[str, Any] = {
        "destination": ENDPOINT, "tenant": "", "key": key, "event_id": event_id, "type": "order.updated",
        "payload": event_id.encode(), "fingerprint": event_id.encode(), "created_at_ms": 1_780_000_000_000,
    }  # fmt: skip
    return Outgoing(**(values | changes))


def lease(session: Session, limit: int = 100, holder: int = 7) -> list[Delivery]:
    """Leases heads in a unit of its own."""
    with session.unit():
        return list(session.lease_heads(HeadsWanted(((ENDPOINT, limit),), LEASE_MS, holder)).deliveries)


def finish(session: Session, delivery: Delivery, *, chain: bool = False) -> Delivery | None:
    """Acknowledges in a unit of its own; returns the successor if one was leased."""
    lease_ms = LEASE_MS if chain else 0
    ack = Acknowledgement(
        delivery.lane_id,
        delivery.seq,
        delivery.fence,
        delivery.holder,
        delivery.event_id,
        1,
        "200",
        lease_ms,
        7,
    )
    with session.unit():
        (advanced,) = session.finish([ack])
    assert advanced.done
    return advanced.successor


def stop_between_commits(commits: GroupCommit, name: str) -> None:
    """Stops this process at a crash point, once none of its writers has a transaction open.

    A writer thread may be in the middle of a commit while another thread comes to the point; the stopped
    process would hold the only lock of an SQLite ledger until it wakes.
    """
    held: list[None] = []
    while len(held) < commits._capabilities.writers_max:
        commits._turns.take(held, DEADLINE_SECONDS)
    stop_this_process(name)
    for _ in held:
        commits._turns.give_back(None)
