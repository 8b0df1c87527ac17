"""What the feed asks of a ledger, as values that a batch of the group commit can hold."""

from __future__ import annotations

from collections.abc import Sequence

from oncegate.commit.operations import Operation
from oncegate.feed.dispatch import KIND, deliveries
from oncegate.store import Session
from oncegate.store.feed import (
    Acked,
    EventToPublish,
    FeedAck,
    FeedPage,
    FeedWanted,
    Published,
    Publishing,
    ReaderPosition,
)


class Publish(Operation[Published]):
    """Publishes an event and enqueues it for its followers. Read back by its id, which is its alone."""

    request: EventToPublish

    @classmethod
    def run(cls, session: Session, operations: Sequence[Publish]) -> Sequence[Published]:
        """Publishes many, then puts what is new into the lanes of those who follow."""
        wanted = [operation.request for operation in operations]
        answers = session.publish(wanted)
        fresh = [
            (item, answer.seq)
            for item, answer in zip(wanted, answers, strict=True)
            if answer.publishing is Publishing.NEW
        ]
        if fresh and (events := deliveries(session.documents(KIND), fresh)):
            session.enqueue(events)
        return answers

    def recall(self, session: Session) -> Published | None:
        """Finds the event, from any publisher: the same id with the same content is the same event."""
        known = session.find_published(self.request.tenant, self.request.event_id)
        if known is None or known[0] != self.request.fingerprint:
            return None
        return Published(Publishing.NEW, known[1])


class FindPublished(Operation["tuple[bytes, int] | None"]):
    """Reads an event's fingerprint and seq by its tenant and id."""

    request: tuple[str, str]

    @classmethod
    def run(
        cls, session: Session, operations: Sequence[FindPublished]
    ) -> Sequence[tuple[bytes, int] | None]:
        """Reads many."""
        return [session.find_published(*operation.request) for operation in operations]

    def recall(self, session: Session) -> tuple[bytes, int] | None:
        """Reads again."""
        return session.find_published(*self.request)


class ReadFeed(Operation[FeedPage]):
    """Reads a page, in turn with the writes."""

    request: FeedWanted

    @classmethod
    def run(cls, session: Session, operations: Sequence[ReadFeed]) -> Sequence[FeedPage]:
        """Reads many pages."""
        return [session.read_feed(operation.request) for operation in operations]

    def recall(self, session: Session) -> FeedPage | None:
        """Reads again."""
        return session.read_feed(self.request)


class Acknowledge(Operation[Acked]):
    """Moves a reader forward."""

    request: FeedAck

    @classmethod
    def run(cls, session: Session, operations: Sequence[Acknowledge]) -> Sequence[Acked]:
        """Moves many."""
        return session.ack_feed([operation.request for operation in operations])

    def recall(self, session: Session) -> Acked | None:
        """Acknowledging twice is acknowledging once, so it is simply done again."""
        return session.ack_feed([self.request])[0]


class ReadPositions(Operation[list[ReaderPosition]]):
    """Reads where the readers of a tenant stand."""

    request: str | None

    @classmethod
    def run(cls, session: Session, operations: Sequence[ReadPositions]) -> Sequence[list[ReaderPosition]]:
        """Reads for many tenants."""
        return [session.reader_positions(operation.request) for operation in operations]

    def recall(self, session: Session) -> list[ReaderPosition] | None:
        """Reads again."""
        return session.reader_positions(self.request)


class ReadSecret(Operation[bytes]):
    """Reads the ledger's secret for cursors."""

    @classmethod
    def run(cls, session: Session, operations: Sequence[ReadSecret]) -> Sequence[bytes]:
        """Reads it."""
        return [session.feed_secret() for _ in operations]

    def recall(self, session: Session) -> bytes | None:
        """Reads again."""
        return session.feed_secret()
