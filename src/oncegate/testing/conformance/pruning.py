"""Forgetting: only what is final and old, with all that belongs to it; no number is used twice (I14)."""

from __future__ import annotations

from typing import Any, Final

from oncegate.model.states import Decision, State
from oncegate.store import (
    EVERY_TENANT,
    Due,
    Forgetting,
    LogKind,
    Session,
    StepRecord,
    StepState,
    Tenants,
)
from oncegate.testing.conformance.bench import StoreBench, key_of, unchanged

DAY_SECONDS: Final = 86_400
_WAITING: Final = (State.RETRYABLE, State.UNKNOWN, State.HELD)


class PruningConformance(StoreBench):
    """What may be forgotten, and how."""

    def settled(self, session: Session, text: str, state: State = State.COMMITTED, **changes: Any) -> int:
        """Lets an event arrive and end; returns its entry."""
        claim = self.reserve(session, text, **changes)
        assert self.settle(session, claim, state, outcome=b'{"ok":1}')
        return claim.entry_id

    def refused(self, session: Session, text: str, *steps: StepState) -> int:
        """Lets an event arrive and be given back with steps that came so far; returns its entry."""
        claim = self.reserve(session, text)
        records = [StepRecord(f"step {place}", state, "bank") for place, state in enumerate(steps)]
        self.progress(session, claim, *records)
        assert self.settle(session, claim, State.RETRYABLE)
        return claim.entry_id

    def due(
        self,
        session: Session,
        surface: str = "orders",
        limit: int = 100,
        after_id: int = 0,
        *,
        refused: bool = False,
    ) -> Due:
        """Looks for what is older than now."""
        now = self.clock.wall_ms()
        with session.unit():
            return session.due(surface, now, now, after_id, limit, refused=refused)

    def forget(
        self, session: Session, *entries: int, before_ms: int | None = None, refused: bool = False
    ) -> int:
        """Forgets entries in a unit of its own; everything until now is old unless told otherwise."""
        now = self.clock.wall_ms()
        before = now if before_ms is None else before_ms
        wanted = Forgetting("orders", before, entries, now, "pruner", refused)
        with session.unit():
            return session.forget(wanted)

    def later(self) -> None:
        """Lets a day pass."""
        self.clock.advance(DAY_SECONDS)

    def test_only_final_entries_of_the_surface_are_due(self) -> None:
        """Committed and failed ones; nothing that still waits, and nothing of another surface."""
        session = self.open()
        final = (self.settled(session, "done"), self.settled(session, "failed", State.FAILED))
        self.reserve(session, "in flight")
        self.reserve(session, "strange", quarantine="key_input: missing")
        for state in _WAITING:
            self.settled(session, state.name, state)
        self.settled(session, "elsewhere", surface="invoices")
        self.later()

        assert self.due(session).entries == final

    def test_tenants_are_told_apart(self) -> None:
        """Named ones alone, or all but these, in looking and in forgetting; an unknown name is none."""
        session = self.open()
        acme, globex, nobody = (self.settled(session, text, tenant=text) for text in ("acme", "globex", ""))
        self.later()
        wanted = {
            (acme,): Tenants(("acme",), False),
            (globex, nobody): Tenants(("acme", "never seen")),
            (): Tenants(("never seen",), False),
            (acme, globex, nobody): EVERY_TENANT,
        }
        now = self.clock.wall_ms()
        with session.unit():
            for entries, tenants in wanted.items():
                assert session.due("orders", now, now, 0, 10, tenants=tenants).entries == entries
        everything = (acme, globex, nobody)
        for tenants, gone in ((Tenants(("globex",), False), 1), (Tenants(("acme",)), 1)):
            with session.unit():
                asked = Forgetting("orders", now, everything, now, "pruner", False, tenants)
                assert session.forget(asked) == gone
        assert self.due(session).entries == (acme,)

    def test_what_is_not_final_stays_whatever_was_asked_for(self) -> None:
        """A state may have changed since it was looked at: forgetting looks again."""
        session = self.open()
        kept = [self.reserve(session, "in flight").entry_id]
        kept.append(self.reserve(session, "strange", quarantine="key_input: missing").entry_id)
        kept += [self.settled(session, state.name, state) for state in _WAITING]
        kept.append(self.settled(session, "elsewhere", surface="invoices"))
        self.later()

        with unchanged(self, session):
            assert self.forget(session, *kept, 999_999) == 0

    def test_refused_entries_go_where_that_is_asked_for_and_nothing_was_called(self) -> None:
        """Retryable without a step, or with steps that are not applied; never one that waits otherwise."""
        session = self.open()
        gone = [self.settled(session, "bare", State.RETRYABLE)]
        gone.append(self.refused(session, "denied", StepState.NOT_APPLIED))
        kept = [
            self.refused(session, state.name, state)
            for state in StepState
            if state is not StepState.NOT_APPLIED
        ]
        kept.append(self.refused(session, "two", StepState.NOT_APPLIED, StepState.DONE))
        kept += [self.settled(session, state.name, state) for state in (State.UNKNOWN, State.HELD)]
        kept.append(self.reserve(session, "in flight").entry_id)
        kept.append(self.reserve(session, "strange", quarantine="key_input: missing").entry_id)
        kept.append(self.settled(session, "elsewhere", State.RETRYABLE, surface="invoices"))
        self.later()

        assert self.due(session).entries == ()
        assert self.due(session, refused=True).entries == tuple(gone)
        assert self.forget(session, *gone, *kept) == 0
        assert self.forget(session, *gone, *kept, refused=True) == len(gone)
        assert [self.find(entry) is None for entry in (*gone, *kept)] == [True] * 2 + [False] * len(kept)

    def test_refused_entry_that_was_taken_up_again_stays(self) -> None:
        """Its caller came back between the look and the removal."""
        session = self.open()
        entry = self.settled(session, "event", State.RETRYABLE)
        self.later()
        assert self.due(session, refused=True).entries == (entry,)

        again = self.reserve(session, "event")

        assert (again.entry_id, again.decision) == (entry, Decision.RETRY)
        assert self.forget(session, entry, refused=True) == 0

    def test_refused_entry_that_is_young_stays(self) -> None:
        """The moment counts for it as for any other."""
        session = self.open()
        moment = self.clock.wall_ms()
        entry = self.settled(session, "event", State.RETRYABLE)
        self.later()

        assert self.forget(session, entry, before_ms=moment, refused=True) == 0

    def test_moment_itself_is_not_old(self) -> None:
        """An entry received in the very millisecond of the moment stays; one millisecond later it goes."""
        session = self.open()
        entry = self.settled(session, "event")
        moment = self.clock.wall_ms()
        self.later()

        with session.unit():
            assert session.due("orders", moment, self.clock.wall_ms(), 0, 10).entries == ()
            assert session.due("orders", moment + 1, self.clock.wall_ms(), 0, 10).entries == (entry,)
        assert self.forget(session, entry, before_ms=moment) == 0
        assert self.forget(session, entry, before_ms=moment + 1) == 1

    def test_entry_that_was_settled_late_is_kept_from_then_on(self) -> None:
        """What a person finished after months is not forgotten the same day."""
        session = self.open()
        claim = self.reserve(session)
        self.later()
        moment = self.clock.wall_ms()
        self.settle(session, claim)
        self.later()

        assert self.forget(session, claim.entry_id, before_ms=moment) == 0
        assert self.forget(session, claim.entry_id, before_ms=moment + 1) == 1

    def test_forgotten_entry_is_gone_with_all_that_belongs_to_it(self) -> None:
        """No detail, no key, no count; the log keeps what it had."""
        session = self.open()
        claim = self.reserve(session)
        self.progress(session, claim, StepRecord("mail", StepState.DONE, "mail", b"1"))
        self.settle(session, claim, outcome=b'{"ok":1}')
        before = self.log()
        self.later()

        assert self.forget(session, claim.entry_id) == 1

        assert self.find(claim.entry_id) is None
        assert self.read([key_of("event")]) == [None]
        assert self.counts() == {}
        assert self.log()[: len(before)] == before

    def test_every_step_that_removed_something_is_on_record(self) -> None:
        """One record for each step, saying who and how many; none where nothing was removed."""
        session = self.open()
        entries = [self.settled(session, f"e{number}") for number in range(3)]
        self.later()
        self.forget(session, *entries)
        self.forget(session, *entries)

        told = [record for record in self.log() if record.kind is LogKind.FORGOTTEN]

        assert len(told) == 1
        assert (told[0].entry_id, told[0].actor, told[0].at_ms) == (0, "pruner", self.clock.wall_ms())
        assert "3 entries of orders" in str(told[0].note)

    def test_no_number_is_given_out_again(self) -> None:
        """The same key arrives again: its id and fence are larger than any it had (I4)."""
        session = self.open()
        first = self.reserve(session)
        self.let_lapse()
        second = self.reserve(session)
        self.settle(session, second)
        self.later()
        self.forget(session, first.entry_id)

        again = self.reserve(self.open())

        assert again.decision is Decision.RUN
        assert again.fence > second.fence
        assert again.entry_id > second.entry_id
        assert not self.settle(session, second)

    def test_undone_step_forgets_nothing(self) -> None:
        """A unit that is rolled back leaves everything, bodies included."""
        session = self.open()
        entry = self.settled(session, "event")
        self.later()
        now = self.clock.wall_ms()

        with unchanged(self, session):
            try:
                with session.unit():
                    assert session.forget(Forgetting("orders", now, (entry,), now, "pruner")) == 1
                    raise ValueError("undone")
            except ValueError:
                pass

    def test_same_entry_asked_for_twice_counts_once(self) -> None:
        """And a second session that asks again finds nothing."""
        session = self.open()
        entry = self.settled(session, "event")
        self.later()

        assert self.forget(session, entry, entry) == 1
        assert self.forget(self.open(), entry) == 0

    def test_looking_is_bounded_and_goes_on(self) -> None:
        """Never more than `limit` entries are looked at; the end is said."""
        session = self.open()
        entries = [self.settled(session, f"e{number}") for number in range(5)]
        self.later()

        first = self.due(session, limit=3)
        second = self.due(session, limit=3, after_id=first.last_id)

        assert (first.looked, second.looked) == (3, 2)
        assert [*first.entries, *second.entries] == entries
        assert (first.is_end, second.is_end) == (False, True)

    def test_looking_ends_where_entries_are_recent(self) -> None:
        """Nothing is due: one look tells, however many entries there are."""
        session = self.open()
        moment = self.clock.wall_ms()
        for number in range(5):
            self.settled(session, f"e{number}")

        with session.unit():
            found = session.due("orders", moment, moment, 0, 3)

        assert (found.entries, found.looked, found.is_end) == ((), 3, True)

    def test_looking_passes_entries_that_a_wrong_clock_dated_ahead(self) -> None:
        """A clock that was a year ahead for a while does not hide what came after."""
        session = self.open()
        self.clock.step_wall(365 * DAY_SECONDS)
        for number in range(3):
            self.settled(session, f"ahead{number}")
        self.clock.step_wall(-365 * DAY_SECONDS)
        entry = self.settled(session, "event")
        self.later()

        first = self.due(session, limit=3)

        assert (first.entries, first.is_end) == ((), False)
        assert self.due(session, limit=3, after_id=first.last_id).entries == (entry,)

    def test_surface_that_was_never_seen_has_nothing_due(self) -> None:
        """No error, and no name is made of it."""
        session = self.open()
        self.settled(session, "event")
        self.later()

        assert self.due(session, "nowhere").entries == ()
        with session.unit():
            assert session.forget(Forgetting("nowhere", self.clock.wall_ms(), (1,), 0, "pruner")) == 0

    def test_wall_clock_that_leaps_ahead_is_not_believed(self) -> None:
        """Sessions share what was seen; a small leap counts only after it has lasted."""
        with (first := self.open()).unit():
            assert first.sight(self.clock.wall_ms()).wall_ms == self.clock.wall_ms()
        right = self.clock.wall_ms()
        self.clock.step_wall(6 * DAY_SECONDS)

        with (second := self.open()).unit():
            assert second.sight(self.clock.wall_ms()).wall_ms == right
        self.later()
        with second.unit():
            assert second.sight(self.clock.wall_ms()).wall_ms == self.clock.wall_ms()

    def test_wall_clock_a_year_ahead_is_believed_on_a_persons_word_only(self) -> None:
        """Also at the first sight, which is compared with the newest entry."""
        session, right = self.open(), self.clock.wall_ms()
        self.settled(session, "event")
        self.clock.step_wall(365 * DAY_SECONDS)
        with session.unit():
            assert session.sight(self.clock.wall_ms()).wall_ms == right
        self.later()
        with session.unit():
            assert session.sight(self.clock.wall_ms()).doubted_since_ms is not None
        with session.unit():
            seen = session.sight(self.clock.wall_ms(), is_certain=True)
        assert (seen.wall_ms, seen.doubted_since_ms) == (self.clock.wall_ms(), None)
