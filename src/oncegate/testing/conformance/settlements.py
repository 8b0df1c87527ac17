"""Settling: state, outcome, steps, business writes and one log record are one transaction."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from oncegate.errors import StoreRejected
from oncegate.model.states import Decision, State
from oncegate.store import Attachment, LogKind, Settlement, StepRecord, StepState
from oncegate.testing.conformance.bench import StoreBench, refused, unchanged

KINDS = {
    State.COMMITTED: LogKind.COMMITTED,
    State.FAILED: LogKind.FAILED,
    State.RETRYABLE: LogKind.RETRYABLE,
    State.UNKNOWN: LogKind.UNKNOWN,
    State.HELD: LogKind.HELD,
    State.QUARANTINED: LogKind.QUARANTINED,
}


# What one settlement of a batch may have that its neighbours have not.
ODD_ONES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "another state": {"state": State.FAILED},
    "a reason": {"reason": "looked at twice"},
    "another actor": {"actor": "Ada Müller"},
    "a later time": {"at_ms": 86_400_000},
    "an earlier time": {"at_ms": -86_400_000},
    "an attempt given back": {"attempts_given_back": 1},
    "no outcome": {"outcome": None},
    "a long outcome": {"outcome": b"1" * 70_000},
}


class SettlementConformance(StoreBench):
    """The end of a claim."""

    def test_settlement_appends_exactly_one_record(self) -> None:
        """Whatever state a claim ends in, one record tells which, when, by whom and why."""
        session = self.open()
        for state, kind in KINDS.items():
            claim = self.reserve(session, state.label)
            self.clock.advance(1)

            assert self.settle(session, claim, state, actor="Ada Müller", reason=f"because {state.label}")

            found = self.detail(claim.entry_id)
            (record,) = self.records_of(found)
            assert (record.entry_id, record.kind) == (claim.entry_id, kind)
            assert (record.actor, record.note) == ("Ada Müller", f"because {state.label}")
            assert record.at_ms == found.entry.settled_at_ms == self.clock.wall_ms()
            assert (found.entry.state, found.entry.reason) == (state, f"because {state.label}")
        assert len(self.log()) == len(KINDS)

    def test_settled_entry_keeps_nothing_of_its_claim(self) -> None:
        """A final entry has no lease; attempt and fence stay, and the token of the claim that ended it."""
        session = self.open()
        for state in (State.COMMITTED, State.FAILED):
            claim = self.reserve(session, state.label)
            self.settle(session, claim, state, outcome=b"1")

            entry = self.detail(claim.entry_id).entry
            assert (entry.token, entry.lease_until_ticks) == (claim.token, None)
            assert (entry.attempt, entry.fence) == (1, claim.fence)

    def test_business_write_and_state_are_one_transaction(self) -> None:
        """The booking, the state, the outcome and the record are all there after the commit."""
        session = self.open()
        self.make_business_table(session)
        claim = self.reserve(session)

        writes = (self.booking("b-1"), self.booking("b-2"))
        assert self.settle(session, claim, outcome=b'"ok"', writes=writes)

        other = self.open()
        found = self.detail(claim.entry_id)
        assert (found.entry.state, found.outcome) == (State.COMMITTED, b'"ok"')
        assert self.bookings(other) == ["b-1", "b-2"]
        assert [record.kind for record in self.records_of(found)] == [LogKind.COMMITTED]

    def test_failing_business_write_undoes_everything(self) -> None:
        """A business write that is refused leaves state, outcome, steps, log and earlier writes alone."""
        session = self.open()
        self.make_business_table(session)
        with session.unit():
            session.execute(*self.booking("taken"))
        claim = self.reserve(session)

        with unchanged(self, session), refused(StoreRejected):
            self.settle(
                session,
                claim,
                outcome=b'"ok"',
                steps=(StepRecord("s", StepState.DONE, "d"),),
                writes=(self.booking("fresh"), self.booking("taken")),
            )

        assert self.settle(session, claim), "the claim can still be ended"

    def test_failing_business_write_undoes_the_whole_unit(self) -> None:
        """Settlements of other claims in the same unit are undone with it."""
        session = self.open()
        self.make_business_table(session)
        good, bad = self.reserve(session, "good"), self.reserve(session, "bad")
        wrong_table = ("INSERT INTO no_such_table_anywhere (ref) VALUES (1)", ())

        with unchanged(self, session), refused(StoreRejected), session.unit():
            session.settle(
                [
                    self.settlement(good, writes=(self.booking("good"),)),
                    self.settlement(bad, writes=(wrong_table,)),
                ]
            )

    def test_business_writes_keep_their_order(self) -> None:
        """Each settlement's own statements run in the order it gave them, also in a batch."""
        session = self.open()
        self.make_business_table(session)
        claims = [self.reserve(session, f"e{number}") for number in range(3)]
        forget = (self.delete_drafts_sql, ())

        with session.unit():
            answers = session.settle(
                [
                    self.settlement(
                        claim,
                        writes=(
                            self.booking(f"draft-{number}"),
                            forget,
                            self.booking(f"final-{number}"),
                        ),
                    )
                    for number, claim in enumerate(claims)
                ]
            )

        assert answers == [True, True, True]
        assert self.bookings(session) == ["final-0", "final-1", "final-2"]

    def test_every_right_settlement_of_a_batch_is_there(self) -> None:
        """Several claims end together: each caller gets that, and another session finds each so."""
        session = self.open()
        claims = [self.reserve(session, name) for name in ("first", "second", "third")]

        with session.unit():
            told = session.settle([self.settlement(claim, outcome=b"1") for claim in claims])

        found = [self.detail(claim.entry_id) for claim in claims]
        assert told == [True, True, True]
        assert [each.entry.state for each in found] == [State.COMMITTED] * 3
        assert [each.outcome for each in found] == [b"1"] * 3
        assert [len(self.records_of(each)) for each in found] == [1, 1, 1]

    def test_each_of_a_batch_is_settled_as_it_would_be_alone(self) -> None:
        """Whatever one has that its neighbours have not, it is kept, and theirs stays theirs."""
        session = self.open()
        for name, odd in ODD_ONES.items():
            claims = [self.reserve(session, f"{name}-{number}") for number in range(6)]
            plain = {"state": State.COMMITTED, "outcome": b'{"slot": 7}', "at_ms": 0}
            wanted = [{**plain, **(odd if number == 2 else {})} for number in range(6)]
            for each in wanted:
                each["at_ms"] += self.clock.wall_ms()
            settlements = [self.settlement(c, **w) for c, w in zip(claims, wanted, strict=True)]

            with session.unit():
                assert session.settle(settlements) == [True] * 6

            for ended in settlements:
                self._check_settled(ended)

    def _check_settled(self, ended: Settlement) -> None:
        found = self.detail(ended.entry_id)
        entry, (record,) = found.entry, self.records_of(found)
        token = ended.token if ended.state.is_final else None
        assert (entry.state, entry.reason, entry.token) == (ended.state, ended.reason, token)
        assert (entry.attempt, entry.fence) == (1 - ended.attempts_given_back, ended.fence)
        assert (record.kind, record.actor, record.note) == (KINDS[ended.state], ended.actor, ended.reason)
        assert record.at_ms == entry.settled_at_ms == ended.at_ms
        assert found.outcome == ended.outcome

    def test_claim_that_has_ended_is_not_settled_with_others(self) -> None:
        """In a batch too, an ended claim changes nothing: not its state, not its outcome, not the log."""
        session = self.open()
        claims = [self.reserve(session, f"e{number}") for number in range(6)]
        assert self.settle(session, claims[2], State.FAILED, reason="refused")

        with session.unit():
            answers = session.settle([self.settlement(claim, outcome=b"1") for claim in claims])

        assert answers == [True, True, False, True, True, True]
        found = self.detail(claims[2].entry_id)
        assert (found.entry.state, found.outcome, len(self.records_of(found))) == (State.FAILED, None, 1)

    def test_batch_ends_no_claim_that_is_not_in_it(self) -> None:
        """Whatever the times and fences of a batch are, its neighbours go on."""
        session = self.open()
        for late_ms in (1 << 20, 1 << 21, 1 << 22, 1 << 32, 1 << 40):
            claims = [self.reserve(session, f"{late_ms}-{number}") for number in range(16)]
            wanted = [self.settlement(claim, outcome=b"1") for claim in claims[::2]]
            wanted[3] = replace(wanted[3], at_ms=wanted[3].at_ms + late_ms)

            with session.unit():
                assert session.settle(wanted) == [True] * 8

            for ended in wanted:
                self._check_settled(ended)
            found = [self.detail(claim.entry_id).entry.state for claim in claims]
            assert found == [State.COMMITTED, State.IN_FLIGHT] * 8

    def test_wrong_number_for_a_fence_ends_nothing_in_a_batch(self) -> None:
        """A number that is no claim's fence is refused, also where the entry is at its first attempt."""
        session = self.open()
        claims = [self.reserve(session, f"e{number}") for number in range(6)]
        wanted = [self.settlement(claim, outcome=b"1") for claim in claims]
        wanted[4] = replace(wanted[4], fence=claims[4].fence + 1_000)

        with session.unit():
            assert session.settle(wanted) == [True, True, True, True, False, True]

        assert self.detail(claims[4].entry_id).entry.state is State.IN_FLIGHT

    def test_later_attempts_are_settled_in_a_batch(self) -> None:
        """Claims that took over from others end together under their own fences."""
        session = self.open()
        names = [f"e{number}" for number in range(6)]
        for name in names:
            self.reserve(session, name)
        self.let_lapse()
        claims = [self.reserve(session, name) for name in names]

        with session.unit():
            assert session.settle([self.settlement(claim, outcome=b"1") for claim in claims]) == [True] * 6

        assert self.counts() == {State.COMMITTED: 6}

    def test_right_and_wrong_fences_in_one_batch(self) -> None:
        """Of many settlements exactly those with the right fence happen, and each caller gets which."""
        session = self.open()
        self.make_business_table(session, required=False)
        claims = [self.reserve(session, f"e{number}") for number in range(5)]
        self.let_lapse()
        taken = {number: self.reserve(session, f"e{number}") for number in (1, 3)}
        before = len(self.log())

        with session.unit():
            answers = session.settle(
                [
                    self.settlement(claim, outcome=b"1", writes=self.writes(f"b-{number}"))
                    for number, claim in enumerate(claims)
                ]
            )

        assert answers == [True, False, True, False, True]
        assert self.bookings(session) == self.booked("b-0", "b-2", "b-4")
        assert self.counts() == {State.COMMITTED: 3, State.IN_FLIGHT: 2}
        records = self.log()[before:]
        assert [record.entry_id for record in records] == [claims[n].entry_id for n in (0, 2, 4)]
        for number, claim in enumerate(claims):
            found = self.detail(claim.entry_id)
            committed = [record.kind for record in self.records_of(found)].count(LogKind.COMMITTED)
            assert committed == (0 if number in taken else 1)
            assert found.outcome == (None if number in taken else b"1")

    def test_last_settlement_of_a_unit_commits_with_it(self) -> None:
        """Announced as the last call or not, what was written before it is there with it."""
        session = self.open()
        self.make_business_table(session)
        cases = {"a": (b"1", ()), "b": (None, ()), "c": (b"1", (self.booking("staged"),))}
        for name, (outcome, writes) in cases.items():
            claim = self.reserve(session, name)
            wanted = self.settlement(claim, outcome=outcome, writes=writes)
            with session.unit():
                session.execute(*self.booking(name))
                assert session.settle([wanted], last=True) == [True]
            assert self.detail(claim.entry_id).entry.state is State.COMMITTED
        assert self.bookings(self.open()) == ["a", "b", "c", "staged"]

    def test_lost_fence_undoes_what_came_before_the_last_settlement(self) -> None:
        """False changes nothing: the caller leaves the unit, and nothing of it is there."""
        session = self.open()
        self.make_business_table(session)
        old = self.reserve(session)
        self.let_lapse()
        self.reserve(session)

        def give_up() -> None:
            raise StoreRejected("the fence was lost")

        with unchanged(self, session), refused(StoreRejected), session.unit():
            session.execute(*self.booking("lost"))
            assert session.settle([self.settlement(old, outcome=b"1")], last=True) == [False]
            give_up()
        assert self.bookings(self.open()) == []

    def test_same_claim_twice_in_one_batch_is_settled_once(self) -> None:
        """The second settlement of a claim changes nothing, also inside one batch."""
        session = self.open()
        self.make_business_table(session, required=False)
        claim = self.reserve(session)

        with session.unit():
            answers = session.settle(
                [
                    self.settlement(claim, outcome=b'"first"', writes=self.writes("first")),
                    self.settlement(claim, State.FAILED, outcome=b'"second"'),
                ]
            )

        assert answers == [True, False]
        found = self.detail(claim.entry_id)
        assert (found.entry.state, found.outcome) == (State.COMMITTED, b'"first"')
        assert len(self.records_of(found)) == 1
        assert self.bookings(session) == self.booked("first")

    def test_settling_again_changes_nothing(self) -> None:
        """A final entry never changes: not its state, not its outcome, not the log."""
        session = self.open()
        claim = self.reserve(session)
        self.settle(session, claim, outcome=b'"first"')

        with unchanged(self, session):
            answers = [self.settle(session, claim, state, outcome=b'"second"') for state in KINDS]

        assert answers == [False] * len(KINDS)

    def test_outcome_can_be_attached_once(self) -> None:
        """A committed entry without an outcome is given one; the second is refused."""
        session = self.open()
        claim = self.reserve(session)
        self.settle(session, claim)
        assert self.reserve(session).outcome is None

        with session.unit():
            first = session.attach([Attachment(*claim.claim, b'"first"')])
        with unchanged(self, session), session.unit():
            second = session.attach([Attachment(*claim.claim, b'"second"')])

        assert (first, second) == ([True], [False])
        answer = self.reserve(session)
        assert (answer.decision, answer.outcome) == (Decision.REPLAY, b'"first"')

    def test_outcome_is_not_attached_over_one_that_is_there(self) -> None:
        """What was committed with the business write is never replaced."""
        session = self.open()
        claim = self.reserve(session)
        self.settle(session, claim, outcome=b'"committed"')

        with unchanged(self, session), session.unit():
            answers = session.attach([Attachment(*claim.claim, b'"late"')])

        assert answers == [False]

    def test_outcome_is_attached_to_committed_entries_only(self) -> None:
        """An entry in any other state takes no outcome this way."""
        session = self.open()
        for state in set(State) - {State.COMMITTED}:
            claim = self.reserve(session, state.label)
            if state is not State.IN_FLIGHT:
                self.settle(session, claim, state)

            with unchanged(self, session), session.unit():
                answers = session.attach([Attachment(*claim.claim, b'"late"')])

            assert answers == [False], state

    def test_outcomes_of_many_are_attached_in_one_call(self) -> None:
        """Each caller gets its own answer: the right claim, not a stale one; the first, not a second."""
        session = self.open()
        claims = [self.reserve(session, name) for name in ("one", "two", "open")]
        for claim in claims[:2]:
            self.settle(session, claim)
        one, two, still_open = (claim.claim for claim in claims)
        asked = [
            Attachment(*two._replace(fence=two.fence + 100), b'"stale"'),
            Attachment(*two, b'"two"'),
            Attachment(*still_open, b'"early"'),
            Attachment(*one, b'"one"'),
            Attachment(*one, b'"again"'),
        ]

        with session.unit():
            answers = session.attach(asked)

        assert answers == [False, True, False, True, False]
        assert [self.reserve(session, name).outcome for name in ("one", "two")] == [b'"one"', b'"two"']

    def test_failure_remembers_when_the_downstream_was_last_called(self) -> None:
        """An entry that may be tried again keeps that time: the given one, else the settlement's own."""
        session = self.open()
        given, own = self.reserve(session, "given"), self.reserve(session, "own")
        self.clock.advance(7)
        self.settle(session, given, State.RETRYABLE, last_call_ticks=given.now_ticks + 2)
        self.settle(session, own, State.RETRYABLE)
        settled_at = self.now()
        self.clock.advance(60)

        assert self.reserve(session, "given").lapsed_at_ticks == given.now_ticks + 2
        assert self.reserve(session, "own").lapsed_at_ticks == settled_at

    def test_large_bodies_come_back_whole(self) -> None:
        """Bodies and outcomes of a megabyte, and bytes that are no text, are kept as they are."""
        session = self.open()
        body, outcome = bytes(range(256)) * 4096, b"\x00\xff" * 500_000
        claim = self.reserve(session, body=body)
        self.settle(session, claim, outcome=outcome)

        found = self.detail(claim.entry_id)

        assert (found.body, found.outcome) == (self.kept_body(body, is_final=True), outcome)
