"""Traces: what belongs to one journey is found by it, and nothing else is."""

from __future__ import annotations

from oncegate.store import Forgetting, Outgoing, Session, TraceLink
from oncegate.store.feed import EventToPublish
from oncegate.testing.conformance.bench import StoreBench

TRACE = "0af7651916cd43dd8448eb211c80319c"
OTHER_TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
FIRST_LETTERS = b'{"trace_id":"'


class TraceConformance(StoreBench):
    """Links of entries, and traces of emitted events."""

    def emit(self, session: Session, event_id: str, context: bytes, destination: str = "shop") -> None:
        """Emits an event with a context, in a unit of its own."""
        event = Outgoing(
            destination, "t", "order-1", event_id, "order.updated", b"{}", event_id.encode(),
            self.clock.wall_ms(), context,
        )  # fmt: skip
        with session.unit():
            session.enqueue([event])

    def test_entry_keeps_the_place_that_it_was_given_first(self) -> None:
        """Linking again changes nothing; an entry without a link has none."""
        session = self.open()
        with session.unit():
            session.link([TraceLink(2, TRACE, b"{}"), TraceLink(1, TRACE, b'{"a":1}')])
        with session.unit():
            session.link([TraceLink(1, OTHER_TRACE, b"{}")])
            assert session.link_of(1) == TraceLink(1, TRACE, b'{"a":1}')
            assert session.link_of(3) is None
            assert session.linked(TRACE, 10) == [1, 2]
            assert session.linked(TRACE, 1) == [1]
            assert session.linked(OTHER_TRACE, 10) == []

    def test_link_is_forgotten_with_its_entry(self) -> None:
        """Another entry's link stays."""
        session = self.open()
        claims = [self.reserve(session, text) for text in ("gone", "kept")]
        gone, kept = (claim.entry_id for claim in claims)
        assert all(self.settle(session, claim) for claim in claims)
        with session.unit():
            session.link([TraceLink(gone, TRACE, b"{}"), TraceLink(kept, TRACE, b"{}")])
        self.clock.advance(86_400)
        now = self.clock.wall_ms()
        with session.unit():
            assert session.forget(Forgetting("orders", now, (gone,), now, "pruner")) == 1
        with session.unit():
            assert session.linked(TRACE, 10) == [kept]

    def test_emitted_events_are_found_by_the_trace_that_their_context_begins_with(self) -> None:
        """Whatever else a context is, it is no trace; where the event goes does not matter."""
        session = self.open()
        ours = FIRST_LETTERS + TRACE.encode() + b'"}'
        self.emit(session, "e-1", ours)
        self.emit(session, "e-2", FIRST_LETTERS + OTHER_TRACE.encode() + b'"}')
        self.emit(session, "e-3", b"")
        self.emit(session, "e-4", b'{"correlati":"' + TRACE.encode() + b'"}')
        self.emit(session, "e-5", ours, "books")
        with session.unit():
            found = session.traced(TRACE, 10)
        assert [(one.event_id, one.destination, one.seq) for one in found] == [
            ("e-1", "shop", 1),
            ("e-5", "books", 1),
        ]
        assert (found[0].tenant, found[0].key, found[0].type, found[0].context) == (
            "t", "order-1", "order.updated", ours,
        )  # fmt: skip

    def test_emitted_event_is_found_by_its_id_at_every_destination(self) -> None:
        """With what came of it: nothing yet."""
        session = self.open()
        for destination in ("shop", "books"):
            self.emit(session, "e-1", b"{}", destination)
        self.emit(session, "e-2", b"{}")
        with session.unit():
            found = session.emitted_as("e-1", 10)
            assert session.emitted_as("e-9", 10) == []
        assert {one.destination for one in found} == {"shop", "books"}
        assert {(one.head_seq, one.acknowledged_at_ms, one.attempts, one.is_dead) for one in found} == {
            (1, None, 0, False)
        }

    def test_published_events_are_found_by_their_trace_and_by_their_id(self) -> None:
        """In whichever tenant's feed; one without a context belongs to no journey."""
        session = self.open()
        ours, other = (FIRST_LETTERS + one.encode() + b'"}' for one in (TRACE, OTHER_TRACE))
        given = (("a", "p-1", ours), ("b", "p-1", ours), ("a", "p-2", other), ("a", "p-3", b""))
        with session.unit():
            for tenant, event_id, context in given:
                wanted = EventToPublish(
                    tenant, event_id, "k", b"{}", event_id.encode(), self.clock.wall_ms(), context
                )
                session.publish([wanted])
        with session.unit():
            found = session.published_on(TRACE, 10)
            assert [(one.tenant, one.event_id, one.key, one.seq) for one in found] == [
                ("a", "p-1", "k", 1),
                ("b", "p-1", "k", 1),
            ]
            assert (found[0].context, found[0].at_ms) == (ours, self.clock.wall_ms())
            assert len(session.published_on(TRACE, 1)) == 1
            assert [one.tenant for one in session.published_as("p-1", 10)] == ["a", "b"]
            assert [one.context for one in session.published_as("p-3", 10)] == [b""]
            assert session.published_as("p-9", 10) == []
            assert [one.tenant for one in session.published_on(TRACE, 10, "b")] == ["b"]
            assert session.published_on(TRACE, 10, "nobody") == []

    def test_no_tenants_entries_push_anothers_out_of_a_trace(self) -> None:
        """A limit is shared, each tenant's first ones first; who names a tenant gets that one's."""
        session = self.open()
        loud = [self.reserve(session, f"loud-{n}", tenant="loud").entry_id for n in range(5)]
        quiet = [self.reserve(session, f"quiet-{n}", tenant="quiet").entry_id for n in range(2)]
        with session.unit():
            session.link([TraceLink(one, TRACE, b"{}") for one in (*loud, *quiet)])
        with session.unit():
            assert session.linked(TRACE, 4) == [*loud[:2], *quiet]
            assert session.linked(TRACE, 6) == [*loud[:4], *quiet]
            assert session.linked(TRACE, 2, "quiet") == quiet
            assert session.linked(TRACE, 2, "loud") == loud[:2]
            assert session.linked(TRACE, 2, "nobody") == []

    def test_no_tenants_emitted_or_published_events_push_anothers_out_of_a_trace(self) -> None:
        """The same for what was sent and for what is in the feeds."""
        session = self.open()
        ours = FIRST_LETTERS + TRACE.encode() + b'"}'
        for tenant, count in (("loud", 5), ("quiet", 2)):
            for number in range(count):
                self._send(session, tenant, f"{tenant}-{number}", ours)
        with session.unit():
            for find in (session.traced, session.published_on):
                assert [one.event_id for one in find(TRACE, 3)] == ["loud-0", "loud-1", "quiet-0"]
                assert [one.event_id for one in find(TRACE, 9, "quiet")] == ["quiet-0", "quiet-1"]
                assert find(TRACE, 9, "nobody") == []

    def _send(self, session: Session, tenant: str, event_id: str, context: bytes) -> None:
        """Emits and publishes an event of a tenant."""
        now_ms = self.clock.wall_ms()
        with session.unit():
            session.enqueue(
                [Outgoing("shop", tenant, "k", event_id, "t", b"{}", event_id.encode(), now_ms, context)]
            )
            session.publish(
                [EventToPublish(tenant, event_id, "k", b"{}", event_id.encode(), now_ms, context)]
            )
