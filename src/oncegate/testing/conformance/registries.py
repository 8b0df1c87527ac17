"""Named documents: changed only against the version that was seen, one log record each (I16, I20)."""

from __future__ import annotations

from oncegate.store import Document, DocumentChange, LogKind, Session
from oncegate.testing.conformance.bench import StoreBench


class RegistryConformance(StoreBench):
    """What a registry must do."""

    def change(self, session: Session, name: str, version: int, body: bytes | None) -> bool:
        """Changes a document in a unit of its own."""
        wanted = DocumentChange("endpoint", name, version, body, self.clock.wall_ms(), "ann", f"{name}!")
        with session.unit():
            return session.change_document(wanted)

    def look_up(self, session: Session, name: str) -> Document | None:
        """Reads a document in a unit of its own."""
        with session.unit():
            return session.document("endpoint", name)

    def document_records(self, session: Session) -> list[tuple[str, str | None]]:
        """Who changed what, by the log."""
        self.wait_for_readers()
        with session.unit():
            records = session.read_log(0, 100)
        return [(r.actor, r.note) for r in records if r.kind is LogKind.DOCUMENT_CHANGED]

    def test_a_new_document_can_be_read_by_another_session(self) -> None:
        """It is there with its first version, and one record tells who made it."""
        session, other = self.open(), self.open()
        assert self.change(session, "orders", 0, b"{}")
        found = self.look_up(other, "orders")
        assert found == Document("endpoint", "orders", 1, b"{}", self.clock.wall_ms())
        assert self.document_records(other) == [("ann", "orders!")]

    def test_a_change_is_recorded_as_what_it_says_it_is(self) -> None:
        """Such as a session that was ended, which is no change of settings."""
        session = self.open()
        wanted = DocumentChange("s", "ann", 0, b"{}", 1, "ann", "from here", LogKind.SIGNED_OUT)
        with session.unit():
            assert session.change_document(wanted)
        self.wait_for_readers()
        with session.unit():
            (record,) = session.read_log(0, 100)
        assert (record.kind, record.actor, record.note) == (LogKind.SIGNED_OUT, "ann", "from here")

    def test_a_change_that_says_no_kind_leaves_no_record(self) -> None:
        """For what a program keeps without a person's decision."""
        session = self.open()
        with session.unit():
            assert session.change_document(DocumentChange("s", "ann", 0, b"{}", 1, "gate", "", None))
        self.wait_for_readers()
        with session.unit():
            assert session.document("s", "ann") is not None
            assert session.read_log(0, 100) == []

    def test_a_change_against_an_old_version_changes_nothing_and_leaves_no_record(self) -> None:
        """Two people at one document: the second learns that it has changed."""
        session = self.open()
        assert self.change(session, "orders", 0, b"1")
        assert not self.change(session, "orders", 0, b"again")
        assert self.change(session, "orders", 1, b"2")
        assert not self.change(session, "orders", 1, b"3")
        found = self.look_up(session, "orders")
        assert found is not None
        assert (found.version, found.body) == (2, b"2")
        assert len(self.document_records(session)) == 2

    def test_versions_go_on_counting_after_a_removal(self) -> None:
        """A version seen before the removal never fits what was made after it."""
        session = self.open()
        assert self.change(session, "orders", 0, b"1")
        assert self.change(session, "orders", 1, None)
        assert self.look_up(session, "orders") is None
        assert not self.change(session, "orders", 2, b"gone")
        assert self.change(session, "orders", 0, b"new")
        found = self.look_up(session, "orders")
        assert found is not None
        assert found.version == 3

    def test_documents_of_a_kind_come_by_name(self) -> None:
        """Removed ones and other kinds are not among them."""
        session = self.open()
        for name in ("b", "a", "c"):
            assert self.change(session, name, 0, name.encode())
        assert self.change(session, "c", 1, None)
        with session.unit():
            found, others = session.documents("endpoint"), session.documents("partner")
        assert [document.name for document in found] == ["a", "b"]
        assert others == []
