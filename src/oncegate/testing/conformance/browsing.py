"""What pages read: oldest first, the log backwards, and notes of what people looked at."""

from __future__ import annotations

from oncegate.model.states import State
from oncegate.store import EntryFilter, LogKind, LogRecord, Note
from oncegate.store.browsing import NOTED, PEOPLE_ABOVE
from oncegate.testing.conformance.bench import ALL, StoreBench, refused


class BrowsingConformance(StoreBench):
    """`oldest_entries`, `log_before`, `add_notes`, and the bounds of a filter."""

    def backwards(self, before: int | None, limit: int, *, by_people: bool) -> list[LogRecord]:
        """Reads the log from its end."""
        with self.looking() as session:
            return session.log_before(before, limit, by_people=by_people)

    def note(self, entry_id: int, **changes: object) -> Note:
        """A person has looked at an entry's content."""
        values = {"kind": LogKind.REVEALED, "at_ms": 5_000, "actor": "Ada", "note": "on the page"}
        return Note(entry_id, **(values | changes))  # type: ignore[arg-type]

    def test_what_waits_longest_comes_first_and_pages_go_on_from_there(self) -> None:
        """Oldest first within the filter, each entry on one page only."""
        session = self.open()
        parked = [
            self.reserve(session, f"e{number}", tenant="acme" if number % 2 else "", quarantine="skew: x")
            for number in range(6)
        ]
        self.reserve(session, "in flight")
        wanted = EntryFilter(states=(State.QUARANTINED,))

        with self.looking() as reader:
            first = reader.oldest_entries(wanted, 0, 4)
            rest = reader.oldest_entries(wanted, first[-1].entry_id, ALL)
            acme = reader.oldest_entries(EntryFilter((State.QUARANTINED,), tenant="acme"), 0, ALL)

        assert [entry.entry_id for entry in first + rest] == [claim.entry_id for claim in parked]
        assert [entry.label for entry in acme] == ["e1", "e3", "e5"]

    def test_names_are_listed_up_to_a_bound(self) -> None:
        """Tenants among them, so that a search can try each."""
        session = self.open()
        for number in range(3):
            self.reserve(session, f"e{number}", tenant=f"tenant-{number}")
        with self.looking() as reader:
            names = reader.known_names(ALL)
            assert reader.known_names(2) == names[:2]
        assert {f"tenant-{number}" for number in range(3)} <= set(names)

    def test_a_filter_can_be_bounded_by_time_of_arrival_and_by_number(self) -> None:
        """Bounds exclude the moment and the number they name."""
        session = self.open()
        claims = [
            self.reserve(session, f"e{number}", received_at_ms=1_000 * number) for number in range(1, 6)
        ]

        def labels(**wanted: int) -> list[str]:
            found = self.entries(EntryFilter(**wanted), None, ALL)  # type: ignore[arg-type]
            return [entry.label for entry in found]

        assert labels(received_before_ms=3_000) == ["e2", "e1"]
        assert labels(received_after_ms=3_000) == ["e5", "e4"]
        assert labels(above_id=claims[3].entry_id) == ["e5"]
        assert labels(received_before_ms=4_000, above_id=claims[0].entry_id) == ["e3", "e2"]

    def test_the_log_is_read_backwards_page_by_page(self) -> None:
        """Every record once, the newest first; people's own records alone if asked for."""
        session = self.open()
        for number in range(5):
            claim = self.reserve(session, f"e{number}")
            self.settle(session, claim)
            with session.unit():
                assert session.add_notes([self.note(claim.entry_id, note=f"note {number}")]) == [True]

        everything = self.log()
        pages, before = list[LogRecord](), None
        while page := self.backwards(before, 3, by_people=False):
            pages += page
            before = page[-1].position
        people = self.backwards(None, 2, by_people=True)
        people += self.backwards(people[-1].position, ALL, by_people=True)

        assert pages == everything[::-1]
        assert people == [record for record in everything[::-1] if record.kind > PEOPLE_ABOVE]
        assert [record.note for record in people] == [f"note {number}" for number in (4, 3, 2, 1, 0)]

    def test_a_note_is_one_record_and_changes_nothing_else(self) -> None:
        """An entry that was looked at has one record more; the rest is as it was."""
        session = self.open()
        claim = self.reserve(session)
        before = self.detail(claim.entry_id)

        with session.unit():
            answers = session.add_notes([self.note(claim.entry_id), self.note(claim.entry_id + 1_000)])

        after = self.detail(claim.entry_id)
        assert answers == [True, False]
        assert after.entry == before.entry
        assert [(r.kind, r.actor, r.note, r.at_ms) for r in after.records[len(before.records) :]] == [
            (LogKind.REVEALED, "Ada", "on the page", 5_000)
        ]

    def test_a_note_may_be_about_no_entry_and_is_never_a_decision(self) -> None:
        """Refusals are noted; a note can never be a settlement or a decision."""
        session = self.open()
        with session.unit():
            assert all(session.add_notes([self.note(0, kind=kind) for kind in sorted(NOTED)]))
        for kind in set(LogKind) - NOTED:
            with refused(ValueError), session.unit():
                session.add_notes([self.note(0, kind=kind)])
        assert [(record.entry_id, record.kind) for record in self.log()] == [
            (0, one) for one in sorted(NOTED)
        ]
        by_people = session.log_before(None, len(LogKind), by_people=True)
        assert {record.kind for record in by_people} == NOTED

    def test_the_log_can_be_read_backwards_from_any_place(self) -> None:
        """A place beyond all records, however far, is the end of the log."""
        session = self.open()
        self.reserve(session, "e", quarantine="skew: x")
        everything = self.backwards(None, 10, by_people=False)
        assert everything
        for far in (2**63 - 1, 2**63, 2**64 + 1, 2**127 - 1):
            if far > everything[0].position:
                assert self.backwards(far, 10, by_people=False) == everything
