"""What a message queue must offer to be consumed: the `Source` protocol, `Delivery` and `Traits`.

The consumer (`consumer.py`) calls a source from one event loop. An adapter is one file that implements
`Source` with one client library. It decides nothing about events: it receives, acknowledges, returns,
extends and buries. `oncegate.testing.SourceConformance` checks these clauses against a server.

The order of calls: `open`, then any number of the others, then `close`. `receive` is never called twice at
the same time. The other methods may run beside it and beside each other.

Errors: `SourceUnavailable` where the broker cannot be reached now; the consumer waits and tries again.
`BadSource` where the queue or a setting must be changed by a person; the consumer stops and reports it.
Any other exception is a defect of the adapter and stops the consumer too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct


class Delivery(Struct, eq=False):
    """One delivery of one message. The same message delivered twice is two deliveries.

    `message_id` is the broker's name for the message: for logs only, never part of a key. `lane` names what
    the broker keeps in order (a message group, a partition with its record key); deliveries of one lane
    are started in the order of `receive`, one at a time. None means that no order is kept.
    `times_delivered` counts from 1 where the broker counts, else it is None. `handle` is the
    adapter's own.
    """

    body: bytes
    message_id: str
    headers: Mapping[str, str] = {}
    lane: str | None = None
    times_delivered: int | None = None
    handle: Any = None


class Traits(Struct, frozen=True, kw_only=True):
    """What a source promises, as `open` found it.

    `lease_seconds`: the broker delivers an unacknowledged message again after this time, unless it is
    extended; None where it does so only when the connection ends. `hold_max_seconds`: the longest time that
    one delivery may be held, with extensions. `delay_max_seconds`: the longest delay of `give_back`; None
    for a source that cannot give back with a delay, which the consumer then waits for itself.
    `blocks_lanes`: the broker delivers nothing later of a lane while an earlier message of it is neither
    acknowledged nor given back. `has_dead_letters`: `bury` moves a message to a dead-letter queue of the
    broker. `retention_seconds`: how long each part of the broker keeps a message, such as `queue` and
    `dead-letter queue`; None for a part that keeps it without end, and empty where the broker does not say.
    `poll_seconds`: how long a `receive` waits when idle; stopping waits for it. `warnings` are
    settings that a person should know of.
    """

    kind: str
    server: str
    queue: str
    lease_seconds: float | None = None
    hold_max_seconds: float | None = None
    delay_max_seconds: float | None = None
    counts_deliveries: bool = False
    blocks_lanes: bool = False
    has_dead_letters: bool = False
    retention_seconds: Mapping[str, float | None] = {}
    receive_max: int = 1_000
    poll_seconds: float = 1.0
    warnings: tuple[str, ...] = ()

    @property
    def gives_back(self) -> bool:
        """Whether a message can be returned to the broker; without, the consumer tries again itself."""
        return self.delay_max_seconds is not None


class InFlight(Protocol):
    """What a source may ask of its consumer, from the consumer's event loop."""

    async def drain(self, which: Callable[[Delivery], bool], within_seconds: float) -> None:
        """Starts no further delivery that matches, and waits for those that run; for partitions that leave.

        Returns when none runs and all finished ones were passed to `ack`, or when the time is over. Those
        not started are forgotten: the consumer calls no method for them any more.
        """


class Source(Protocol):
    """A queue that delivers each message at least once."""

    @property
    def name(self) -> str:
        """The name in lists and logs unless the user gives another, such as `sqs:bookings`; no secret."""

    async def open(self, in_flight: InFlight) -> Traits:
        """Connects and checks. Refuses with BadSource what would lose messages or acknowledge early."""

    async def receive(self, count_max: int, wait_seconds: float) -> Sequence[Delivery]:
        """Receives at most `count_max` messages, in order; waits at most `wait_seconds` for the first.

        Returns no more than was asked for and fetches nothing beyond it that could expire unseen. A call
        that is cancelled loses no message: what it had received is delivered again.
        """

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledges what the ledger has on record.

        Raises SourceUnavailable if any acknowledgement may not have arrived. A message that is delivered
        again afterwards is a replay and harmless. Each delivery is acknowledged at most once.
        """

    async def give_back(self, delivery: Delivery, delay_seconds: float) -> None:
        """Returns a message, to be delivered again after the delay; never acknowledges it.

        Only called where `Traits.gives_back`, with at most `delay_max_seconds`.
        """

    async def extend(self, deliveries: Sequence[Delivery]) -> None:
        """Holds messages for another `lease_seconds`; called at a third of it. Only where there is a lease.

        Leaves out deliveries that the broker has taken away.
        """

    async def bury(self, delivery: Delivery, reason: str) -> None:
        """Hands a message to the broker's dead-letter queue. Only called where `has_dead_letters`."""

    async def lag(self) -> int | None:
        """How many messages wait; None where the broker does not say."""

    async def close(self) -> None:
        """Disconnects. What was neither acknowledged nor given back is delivered again. Never raises."""
