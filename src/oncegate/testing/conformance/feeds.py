"""The feed: every committed event once, in order, to readers that only ever move forward (C5, I12)."""

from __future__ import annotations

import random

import msgspec

from oncegate.store import Session
from oncegate.store.feed import (
    Acked,
    EventToPublish,
    FeedAck,
    FeedEvent,
    FeedPage,
    FeedWanted,
    Published,
    Publishing,
)
from oncegate.testing.conformance.bench import StoreBench


class FeedConformance(StoreBench):
    """Publishing, reading, acknowledging, forgetting."""

    def publication(self, event_id: str, key: str = "k", tenant: str = "acme") -> EventToPublish:
        """An event; its content follows from its id and key."""
        return EventToPublish(
            tenant, event_id, key, b"{}", f"{event_id}/{key}".encode(), self.clock.wall_ms()
        )

    def publish(self, session: Session, event_id: str, key: str = "k", tenant: str = "acme") -> Published:
        """Publishes one event in a unit of its own."""
        with session.unit():
            return session.publish([self.publication(event_id, key, tenant)])[0]

    def feed(
        self, session: Session, after: int | None = 0, limit: int = 1_000, tenant: str = "acme"
    ) -> FeedPage:
        """Reads a page in a unit of its own."""
        with session.unit():
            return session.read_feed(FeedWanted(tenant, "reader", after, limit))

    def feed_ids(self, session: Session, after: int | None = 0, tenant: str = "acme") -> list[str]:
        """The ids of what is in the feed."""
        return [event.event_id for event in self.feed(session, after, tenant=tenant).events]

    def ack(self, session: Session, position: int, tenant: str = "acme") -> Acked:
        """Acknowledges in a unit of its own."""
        with session.unit():
            return session.ack_feed([FeedAck(tenant, "reader", position, self.clock.wall_ms())])[0]

    def test_events_of_a_key_are_counted_without_gaps(self) -> None:
        """Each key by itself, also over a unit that was undone."""
        session = self.open()
        seqs = [self.publish(session, "1").seq, self.publish(session, "2").seq]
        try:
            with session.unit():
                session.publish([self.publication("undone")])
                raise ValueError("undone")
        except ValueError:
            pass
        seqs.append(self.publish(session, "3").seq)

        assert seqs == [1, 2, 3]
        assert self.publish(session, "4", key="other").seq == 1
        assert self.feed_ids(session) == ["1", "2", "3", "4"]

    def test_a_page_is_bounded_in_bytes_and_never_empty_for_it(self) -> None:
        """Whatever the sizes: pages that go on after each other give every event once, in order (I18)."""
        session = self.open()
        sizes = [10, 2, 300, 1, 100, 40, 60, 1, 90, 9, 0, 250, 0, 101]
        with session.unit():
            session.publish([self._sized(f"e-{place}", size) for place, size in enumerate(sizes)])

        pages: list[list[int]] = []
        after = 0
        while page := self._page(session, after, bytes_max=100):
            pages.append([len(event.body) for event in page])
            after = page[-1].position

        assert pages == [[10, 2], [300], [1], [100], [40, 60], [1, 90, 9, 0], [250], [0], [101]]

    def test_a_page_that_is_bounded_in_bytes_keeps_its_other_bounds(self) -> None:
        """The number of events, the end of the feed, and where the reader stands."""
        session = self.open()
        with session.unit():
            session.publish([self._sized(str(place), 10) for place in range(6)])
        self.feed(session)
        self.ack(session, 1)

        assert [event.position for event in self._page(session, 0, bytes_max=1_000, limit=4)] == [
            1,
            2,
            3,
            4,
        ]
        assert [event.position for event in self._page(session, None, bytes_max=35)] == [2, 3, 4]
        assert [event.position for event in self._page(session, 4, bytes_max=20)] == [5, 6]
        assert self._page(session, 6, bytes_max=1) == ()

    def _sized(self, event_id: str, size: int) -> EventToPublish:
        return msgspec.structs.replace(self.publication(event_id), body=b"x" * size)

    def _page(
        self, session: Session, after: int | None, *, bytes_max: int, limit: int = 1_000
    ) -> tuple[FeedEvent, ...]:
        with session.unit():
            return session.read_feed(FeedWanted("acme", "reader", after, limit, bytes_max)).events

    def test_an_id_published_again_is_the_same_event(self) -> None:
        """It gets its seq, and no second place in the feed."""
        session = self.open()
        self.publish(session, "1")
        self.publish(session, "2")

        again = self.publish(session, "1")

        assert again == Published(Publishing.KNOWN, 1)
        assert self.feed_ids(session) == ["1", "2"]

    def test_a_known_id_with_another_content_is_a_conflict(self) -> None:
        """And changes nothing: neither the event nor any count."""
        session = self.open()
        self.publish(session, "1")

        conflict = self.publish(session, "1", key="other")

        assert conflict.publishing is Publishing.CONFLICT
        assert self.publish(session, "2", key="other").seq == 1
        assert self.feed_ids(session) == ["1", "2"]

    def test_a_batch_is_answered_in_its_own_order(self) -> None:
        """Also if it holds an id twice, and several keys."""
        session = self.open()
        wanted = [self.publication("1", "b"), self.publication("2", "a"), self.publication("1", "b")]
        wanted.append(self.publication("3", "b"))
        with session.unit():
            answers = session.publish(wanted)

        assert [(answer.publishing, answer.seq) for answer in answers] == [
            (Publishing.NEW, 1),
            (Publishing.NEW, 1),
            (Publishing.KNOWN, 1),
            (Publishing.NEW, 2),
        ]

    def test_feeds_of_tenants_are_apart(self) -> None:
        """Ids, keys and positions: nothing tells of another tenant's events."""
        session = self.open()
        for number in range(3):
            self.publish(session, f"other-{number}", tenant="other")
        self.publish(session, "other-1")
        self.publish(session, "mine")
        self.publish(session, "other-3", tenant="other")

        mine, other = self.feed(session).events, self.feed(session, tenant="other").events

        assert [(event.event_id, event.position, event.seq) for event in mine] == [
            ("other-1", 1, 1),
            ("mine", 2, 2),
        ]
        assert [event.position for event in other] == [1, 2, 3, 4]
        assert self.feed(session, tenant="nobody") == FeedPage(0, (), 0, 0)

    def test_a_feed_follower_sees_every_event_once_in_order(self) -> None:
        """Two writers in turn, some units undone: following positions misses nothing."""
        store = self.make_store(self.clock)
        writers, reader = [self.open(store), self.open(store)], self.open(store)
        choose = random.Random(20_261_116)
        committed: list[str] = []
        seen: list[FeedEvent] = []
        for number in range(30):
            ids = [f"{number}-{part}" for part in range(choose.randint(1, 3))]
            writer = choose.choice(writers)
            try:
                with writer.unit():
                    writer.publish([self.publication(one, choose.choice("abc")) for one in ids])
                    if choose.random() < 0.3:
                        raise ValueError("undone")
            except ValueError:
                pass
            else:
                committed += ids
            if choose.random() < 0.5:
                seen += self.feed(reader, seen[-1].position if seen else 0, 2).events
        while page := self.feed(reader, seen[-1].position if seen else 0, 2).events:
            seen += page

        assert sorted(event.event_id for event in seen) == sorted(committed)
        assert [event.position for event in seen] == list(range(1, len(seen) + 1))
        for key in "abc":
            counted = [event.seq for event in seen if event.key == key]
            assert counted == list(range(1, len(counted) + 1))

    def test_an_event_comes_back_as_it_was_published(self) -> None:
        """Also to a session that was opened later."""
        first = self.open()
        wanted = EventToPublish(
            "acme", "id-1", "key-1", b'{"a":"\xc3\xa4"}', b"print", 1_700_000_000_123, b'{"seq":1}'
        )
        with first.unit():
            first.publish([wanted])
        first.close()

        (event,) = self.feed(self.open()).events

        body = b'{"a":"\xc3\xa4"}'
        assert event == FeedEvent(1, "id-1", "key-1", 1, body, 1_700_000_000_123, b'{"seq":1}')

    def test_acknowledging_only_moves_forward(self) -> None:
        """The same or an older position changes nothing, and the reader goes on from the furthest."""
        session = self.open()
        for number in range(4):
            self.publish(session, str(number))
        self.feed(session)

        answers = [self.ack(session, position) for position in (2, 1, 2, 3)]

        assert answers == [Acked(2, True), Acked(2, False), Acked(2, False), Acked(3, True)]
        session.close()
        assert self.feed(self.open(), after=None).after == 3
        assert self.feed_ids(self.open(), after=None) == ["3"]

    def test_a_position_that_was_never_given_out_cannot_be_acknowledged(self) -> None:
        """Or what is yet to come would be skipped."""
        session = self.open()
        self.publish(session, "1")
        self.feed(session)

        assert self.ack(session, 2) == Acked(0, False)
        assert self.ack(session, 1, tenant="nobody") == Acked(0, False)

    def test_it_is_told_how_far_readers_are_behind(self) -> None:
        """Counted in events, and since when the oldest of them waits."""
        session = self.open()
        for number in range(3):
            self.publish(session, str(number))
            self.clock.advance(1)
        events = self.feed(session).events
        self.ack(session, 1)
        self.publish(session, "late")

        with session.unit():
            (stands,) = session.reader_positions("acme")
            everybody = session.reader_positions()
            nobody = session.reader_positions("nobody")

        assert (stands.reader, stands.position, stands.behind) == ("reader", 1, 3)
        assert stands.oldest_at_ms == events[1].at_ms
        assert (everybody, nobody) == ([stands], [])

    def test_forgetting_goes_from_the_oldest_on_and_says_how_far(self) -> None:
        """Nothing behind a younger event goes before it; positions and seqs are not used again."""
        session = self.open()
        for number in range(4):
            self.publish(session, str(number))
            self.clock.advance(10)
        ages = [event.at_ms for event in self.feed(session).events]

        with session.unit():
            gone = session.forget_published(ages[2], 100)

        page = self.feed(session)
        assert (gone, page.floor, page.last) == (2, 2, 4)
        assert [event.position for event in page.events] == [3, 4]
        assert self.publish(session, "0").seq == 5
        assert self.feed(session).last == 5

    def test_forgetting_is_done_in_steps(self) -> None:
        """At most so many at once, and the next step goes on."""
        session = self.open()
        for number in range(3):
            self.publish(session, str(number))
        self.feed(session)
        self.clock.advance(10)
        steps = []
        for _ in range(3):
            with session.unit():
                steps.append(session.forget_published(self.clock.wall_ms(), 2))

        assert steps == [2, 1, 0]
        assert self.feed(session, after=3).floor == 3

    def test_what_nobody_has_read_is_forgotten_too(self) -> None:
        """A feed that is only pushed from does not grow for ever; a late reader goes on behind."""
        session = self.open()
        for number in range(3):
            self.publish(session, f"e-{number}")
            self.clock.advance(10)
        with session.unit():
            gone = session.forget_published(self.clock.wall_ms() - 15_000, 100)
        assert gone == 2
        assert self.feed_ids(session, after=2) == ["e-2"]

    def test_one_event_is_read_by_its_id(self) -> None:
        """With its key and body, for its own tenant only."""
        session = self.open()
        self.publish(session, "e-1", "k-7")
        with session.unit():
            found, other = session.published_event("acme", "e-1"), session.published_event("b", "e-1")
        assert found is not None
        assert (found.event_id, found.key, found.seq) == ("e-1", "k-7", 1)
        assert other is None

    def test_a_published_event_is_found_by_its_id(self) -> None:
        """For reading back after a commit in doubt."""
        session = self.open()
        self.publish(session, "1")
        with session.unit():
            found = [session.find_published("acme", "1"), session.find_published("nobody", "1")]

        assert found == [(b"1/k", 1), None]

    def test_the_secret_for_cursors_stays_the_same(self) -> None:
        """For every session, and it is long enough."""
        secrets = []
        for _ in range(2):
            session = self.open()
            with session.unit():
                secrets.append(session.feed_secret())

        assert secrets[0] == secrets[1]
        assert len(secrets[0]) >= 32
