"""Notices: replaced by their writer's next word, gone after a while, the first one told apart."""

from __future__ import annotations

from msgspec.structs import replace

from oncegate.store import Notice, Posting, Session
from oncegate.testing.conformance.bench import StoreBench


class NoticeConformance(StoreBench):
    """What notices must do."""

    def posting(self, name: str = "orders", writer: str = "a", body: bytes = b"1") -> Posting:
        """A posting that is kept for a minute."""
        return Posting("circuit", name, writer, body, self.clock.wall_ms(), 60_000)

    def put_up(self, session: Session, posting: Posting) -> bool:
        """Posts in a unit of its own."""
        with session.unit():
            return session.post(posting)

    def told(self, session: Session, name: str | None = None) -> list[Notice]:
        """Reads in a unit of its own."""
        with session.unit():
            return session.notices("circuit", name)

    def test_a_notice_is_read_by_others_with_its_age(self) -> None:
        """Its age is by the ledger's time."""
        session, other = self.open(), self.open()
        told_at = self.clock.wall_ms()
        assert self.put_up(session, self.posting())
        self.clock.advance(1.5)
        assert self.told(other) == [Notice("circuit", "orders", "a", b"1", told_at, 1_500)]

    def test_a_writer_replaces_its_own_word_and_no_other(self) -> None:
        """Two writers about one name stand beside each other."""
        session = self.open()
        for posting in (self.posting(), self.posting(writer="b"), self.posting(body=b"2")):
            assert self.put_up(session, posting)
        assert [(one.writer, one.body) for one in self.told(session)] == [("a", b"2"), ("b", b"1")]

    def test_notices_come_by_name_and_those_of_one_name_alone(self) -> None:
        """Other kinds are not among them."""
        session = self.open()
        for name in ("b", "a"):
            assert self.put_up(session, self.posting(name))
        assert self.put_up(session, replace(self.posting("c"), kind="job"))
        assert [one.name for one in self.told(session)] == ["a", "b"]
        assert [one.name for one in self.told(session, "b")] == ["b"]

    def test_a_notice_that_is_over_is_not_read_any_more(self) -> None:
        """And the next posting of its kind takes it away."""
        session = self.open()
        assert self.put_up(session, self.posting("old"))
        self.clock.advance(60)
        assert self.told(session) == []
        assert self.put_up(session, self.posting("new"))
        assert [one.name for one in self.told(session)] == ["new"]

    def test_only_the_first_of_two_is_put_up_where_it_must_be_the_first(self) -> None:
        """The second changes nothing; when the first is over, another may come."""
        session, other = self.open(), self.open()
        first = replace(self.posting(body=b"first"), must_be_first=True)
        second = replace(first, body=b"second")
        assert self.put_up(session, first)
        assert not self.put_up(other, second)
        assert [one.body for one in self.told(session)] == [b"first"]
        self.clock.advance(60)
        assert self.put_up(other, replace(second, at_ms=self.clock.wall_ms()))

    def test_the_oldest_make_room(self) -> None:
        """No more of a kind stay up than its writers allow."""
        session = self.open()
        for number in range(5):
            assert self.put_up(session, replace(self.posting(str(number)), kept_max=3))
            self.clock.advance(0.01)
        assert [one.name for one in self.told(session)] == ["2", "3", "4"]
