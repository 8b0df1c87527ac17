"""Changes of users' objects: noted in order, found behind a mark, trimmed by age (E9)."""

from __future__ import annotations

from oncegate.model.states import State
from oncegate.store import NOTE_MUTATION, Mutated, Session
from oncegate.testing.conformance.bench import StoreBench


def a_change(target: str, at_ms: int = 1, *, after: bytes | None = b"{}") -> Mutated:
    """One change by entry 1."""
    return Mutated(0, 1, "route.add", target, 7, None, after, True, at_ms)


class MutationConformance(StoreBench):
    """`note_mutation`, `mutation_mark`, `mutations_since`, `trim_mutations`, `counts_by_surface`."""

    def since(self, session: Session, mark: str, after: int = 0) -> list[str]:
        """The targets behind a mark."""
        with session.unit():
            return [one.target for one in session.mutations_since(mark, after, 10)]

    def test_changes_are_read_as_they_were_noted(self) -> None:
        """Every value, in order of the numbers; a value that is absent stays absent."""
        session = self.open()
        with session.unit():
            session.note_mutation(a_change("a"))
            session.note_mutation(a_change("b", after=None))
            found = session.mutations_since("0", 0, 10)
        assert [(one.target, one.before, one.after, one.is_done, one.at_ms) for one in found] == [
            ("a", None, b"{}", True, 1),
            ("b", None, None, True, 1),
        ]
        assert found[0].number < found[1].number

    def test_only_changes_behind_the_mark_are_found(self) -> None:
        """And of those only the ones above a number, for the next page."""
        session = self.open()
        with session.unit():
            session.note_mutation(a_change("a"))
        with session.unit():
            mark = session.mutation_mark()
        with session.unit():
            session.note_mutation(a_change("b"))
            session.note_mutation(a_change("c"))
        with session.unit():
            first = session.mutations_since(mark, 0, 1)[0]
        assert self.since(session, mark) == ["b", "c"]
        assert self.since(session, mark, first.number) == ["c"]

    def test_undone_unit_leaves_no_change(self) -> None:
        """It is part of the transaction."""
        session = self.open()
        try:
            with session.unit():
                session.note_mutation(a_change("a"))
                raise LookupError
        except LookupError:
            pass
        assert self.since(session, "0") == []

    def test_change_may_be_a_business_write(self) -> None:
        """`NOTE_MUTATION` with the row of a change, as writes of an event carry it."""
        session = self.open()
        with session.unit():
            session.execute(NOTE_MUTATION, a_change("a").row)
        assert self.since(session, "0") == ["a"]

    def test_old_changes_are_trimmed_and_the_newest_number_stays_used(self) -> None:
        """A change that follows is behind every mark made before."""
        session = self.open()
        with session.unit():
            for place in range(3):
                session.note_mutation(a_change(str(place), place))
            mark = session.mutation_mark()
        with session.unit():
            assert session.trim_mutations(2, 1) == 1
        with session.unit():
            session.trim_mutations(10, 10)
        with session.unit():
            session.note_mutation(a_change("new"))
        assert self.since(session, mark)[-1:] == ["new"]

    def test_entries_are_counted_by_surface_and_state(self) -> None:
        """One row for each that has any."""
        session = self.open()
        claim = self.reserve(session, "one")
        self.reserve(session, "two")
        self.settle(session, claim, State.COMMITTED)
        with session.unit():
            found = session.counts_by_surface()
        assert [(state, count) for _, state, count in found] == [(State.IN_FLIGHT, 1), (State.COMMITTED, 1)]
