"""What an arrival gets, by what is known of its key (`Claims.reserve`)."""

from __future__ import annotations

from oncegate.model.conflicts import LOGGED_MAX
from oncegate.model.states import INTERRUPTIONS_MAX, Decision, State
from oncegate.store import LogKind, Reserved, Session, StepRecord, StepState, read_claim_note
from oncegate.testing.conformance.bench import LEASE_MS, StoreBench, key_of, unchanged

OUTCOME = b'{"value":"stored outcome"}'


class ArrivalConformance(StoreBench):
    """Reserving new and known keys."""

    def test_unknown_key_is_inserted_in_flight(self) -> None:
        """A new key is reserved for its arrival, with everything that came with it."""
        session = self.open()

        answer = self.reserve(session, "new", label="a label", tenant="acme", body=b"[1,2]")

        assert answer.decision is Decision.RUN
        assert answer.attempt == 1
        assert answer.fence > 0
        assert answer.steps == ()
        found = self.detail(answer.entry_id)
        (entry,) = self.read([key_of("new", "acme")])
        assert entry == found.entry
        assert entry is not None
        assert (entry.state, entry.attempt, entry.fence) == (State.IN_FLIGHT, 1, answer.fence)
        assert (entry.tenant, entry.surface, entry.label) == ("acme", "orders", "a label")
        assert entry.fingerprint == b"content-of-event"
        assert entry.received_at_ms == self.clock.wall_ms()
        assert entry.settled_at_ms is None
        assert found.body == self.kept_body(b"[1,2]")
        assert self.log() == []

    def test_token_of_the_winner_stands_on_the_claim(self) -> None:
        """After a doubtful commit, a worker finds out by its own token whether it holds the key."""
        session = self.open()

        self.reserve(session, token=123_456_789_012_345_678)
        self.reserve(session, token=5)

        (entry,) = self.read([key_of("event")])
        assert entry is not None
        assert entry.token == 123_456_789_012_345_678

    def test_key_in_flight_is_busy(self) -> None:
        """A second arrival gets how long to wait, and changes nothing."""
        session = self.open()
        self.reserve(session)
        self.clock.advance(5)

        with unchanged(self, session):
            answer = self.reserve(session)

        assert answer.decision is Decision.BUSY
        assert answer.retry_after_ms == LEASE_MS - 5_000
        assert answer.fence == 0

    def test_same_key_twice_in_one_batch_has_one_winner(self) -> None:
        """Two arrivals that meet in one batch are two arrivals: the first runs, the second is busy."""
        session = self.open()

        with session.unit():
            answers = session.reserve([self.reservation(), self.reservation()])

        assert [answer.decision for answer in answers] == [Decision.RUN, Decision.BUSY]
        assert self.counts() == {State.IN_FLIGHT: 1}

    def test_same_key_twice_in_one_batch_recovers_once(self) -> None:
        """Two arrivals of a stranded key that meet in one batch take it over once."""
        session = self.open()
        self.reserve(session)
        self.let_lapse()

        with session.unit():
            answers = session.reserve([self.reservation(), self.reservation()])

        assert [answer.decision for answer in answers] == [Decision.RECOVER, Decision.BUSY]
        assert [record.kind for record in self.log()] == [LogKind.RECOVERED]

    def test_batch_is_answered_in_its_own_order(self) -> None:
        """New, known, conflicting and quarantined keys in one batch each get their own answer."""
        session = self.open()
        self.reserve(session, "known")

        with session.unit():
            answers = session.reserve(
                [
                    self.reservation("known", fingerprint=b"other"),
                    self.reservation("new-1"),
                    self.reservation("known"),
                    self.reservation("bad", quarantine="key_input: id is missing"),
                    self.reservation("new-2"),
                    self.reservation("new-1"),
                ]
            )

        assert [answer.decision for answer in answers] == [
            Decision.CONFLICT,
            Decision.RUN,
            Decision.BUSY,
            Decision.QUARANTINE,
            Decision.RUN,
            Decision.BUSY,
        ]
        first, second = self.read([key_of("new-1"), key_of("new-2")])
        assert first is not None
        assert second is not None
        assert (first.entry_id, second.entry_id) == (answers[1].entry_id, answers[4].entry_id)
        assert (first.fence, second.fence) == (answers[1].fence, answers[4].fence)

    def test_committed_key_is_replayed(self) -> None:
        """A settled key answers with its recorded outcome, and nothing changes."""
        session = self.open()
        claim = self.reserve(session)
        self.settle(session, claim, outcome=OUTCOME)

        with unchanged(self, session):
            answer = self.reserve(session)

        assert (answer.decision, answer.state) == (Decision.REPLAY, State.COMMITTED)
        assert answer.outcome == OUTCOME

    def test_failed_key_is_replayed_with_its_failure(self) -> None:
        """A final failure is never run again: it answers with what was recorded."""
        session = self.open()
        self.settle(session, self.reserve(session), State.FAILED, outcome=b"{}", reason="no such order")

        answer = self.reserve(session)

        assert (answer.decision, answer.state) == (Decision.REPLAY, State.FAILED)
        assert (answer.outcome, answer.reason) == (b"{}", "no such order")

    def test_other_content_conflicts_and_learns_nothing(self) -> None:
        """The same key with other content gets the same bare answer whatever state the key is in."""
        session = self.open()
        claims = {state: self._bring_to(session, state) for state in State}
        before = {state: self.find(claim.entry_id) for state, claim in claims.items()}

        answers = {state: self.reserve(session, state.label, fingerprint=b"other") for state in State}

        for state, answer in answers.items():
            bare = Reserved(Decision.CONFLICT, claims[state].entry_id, now_ticks=answer.now_ticks)
            assert answer == bare, state
            now = self.detail(claims[state].entry_id)
            then = before[state]
            assert then is not None
            assert (now.entry, now.outcome, now.steps) == (then.entry, then.outcome, then.steps), state
            (record,) = self.records_of(now)[len(self.records_of(then)) :]
            assert record.kind is LogKind.CONFLICT, state

    def test_conflicts_of_one_key_fill_no_disk(self) -> None:
        """I18: the first hundred are in the log, however many come; other keys have room of their own."""
        session = self.open()
        first, other = self.reserve(session), self.reserve(session, "other")
        for number in range(LOGGED_MAX + 20):
            answer = self.reserve(session, fingerprint=b"%d" % number)
            assert (answer.decision, answer.entry_id) == (Decision.CONFLICT, first.entry_id)
        self.reserve(session, "other", fingerprint=b"2")
        logged = [record.entry_id for record in self.log() if record.kind is LogKind.CONFLICT]
        assert logged == [first.entry_id] * LOGGED_MAX + [other.entry_id]

    def test_retryable_key_is_tried_again(self) -> None:
        """A failure that may be tried again is claimed again, with what earlier attempts recorded."""
        session = self.open()
        first = self.reserve(session)
        step = StepRecord("notify", StepState.DONE, "mail", b'"sent"', "m-1")
        self.settle(session, first, State.RETRYABLE, reason="timeout", steps=(step,))
        self.clock.advance(3)

        again = self.reserve(session, token=77)

        assert (again.decision, again.attempt) == (Decision.RETRY, 2)
        assert again.fence > first.fence
        assert again.steps == (step,)
        assert again.first_reserved_ticks == first.first_reserved_ticks
        assert again.entry_id == first.entry_id
        entry = self.detail(first.entry_id).entry
        assert (entry.state, entry.token, entry.reason) == (State.IN_FLIGHT, 77, None)
        assert entry.lease_until_ticks == self.now() + LEASE_MS
        assert [record.kind for record in self.log()] == [LogKind.RETRYABLE, LogKind.TAKEN_UP]
        assert read_claim_note(self.log()[-1].note) == (2, again.fence, False)

    def test_lapsed_key_is_recovered(self) -> None:
        """A stranded key is taken over and logged; the answer says when it was first tried and expired."""
        session = self.open()
        first = self.reserve(session)
        self.let_lapse()

        again = self.reserve(session, token=4_711)

        assert (again.decision, again.attempt) == (Decision.RECOVER, 2)
        assert self.detail(first.entry_id).entry.token == 4_711
        assert again.fence > first.fence
        assert again.first_reserved_ticks == first.first_reserved_ticks
        assert again.lapsed_at_ticks == first.now_ticks + LEASE_MS
        assert again.now_ticks == self.now()
        (record,) = self.log()
        assert (record.kind, record.entry_id) == (LogKind.RECOVERED, first.entry_id)
        assert read_claim_note(record.note) == (2, again.fence, False)

    def test_lease_holds_to_its_last_millisecond(self) -> None:
        """Just before its end a claim still stands; at its end it may be taken over."""
        session = self.open()
        self.reserve(session)

        self.clock.advance((LEASE_MS - 1) / 1000)
        before_end = self.reserve(session)
        self.clock.advance(0.001)
        at_end = self.reserve(session)

        assert before_end.decision is Decision.BUSY
        assert at_end.decision is Decision.RECOVER

    def test_retryable_key_without_attempts_left_is_held(self) -> None:
        """When the attempts are used up the key waits for a person, and that is logged once."""
        session = self.open()
        for attempt in range(3):
            claim = self.reserve(session, attempts_max=3)
            assert claim.attempt == attempt + 1
            self.settle(session, claim, State.RETRYABLE, reason="timeout")

        answer = self.reserve(session, attempts_max=3)
        again = self.reserve(session, attempts_max=3)

        assert (answer.decision, again.decision) == (Decision.HOLD, Decision.HOLD)
        found = self.detail(answer.entry_id)
        assert found.entry.state is State.HELD
        assert answer.reason == found.entry.reason == again.reason
        assert [record.kind for record in self.records_of(found)].count(LogKind.HELD) == 1

    def test_lapsed_key_without_attempts_left_is_held(self) -> None:
        """An event that takes its worker down each time is not recovered for ever."""
        session = self.open()
        claims = []
        for _ in range(3):
            claims.append(self.reserve(session, attempts_max=3))
            self.let_lapse()

        answer = self.reserve(session, attempts_max=3)

        assert [claim.decision for claim in claims] == [Decision.RUN] + [Decision.RECOVER] * 2
        assert answer.decision is Decision.HOLD
        found = self.detail(answer.entry_id)
        assert (found.entry.state, found.entry.reason) == (State.HELD, answer.reason)
        assert [record.kind for record in self.records_of(found)].count(LogKind.HELD) == 1
        with unchanged(self, session):
            assert not self.settle(session, claims[-1]), "who was given up may not write any more"

    def test_key_is_busy_until_its_wait_is_over(self) -> None:
        """I26: a failed attempt is not made again before its time, in the ledger's own time."""
        session = self.open()
        claim = self.reserve(session)
        self.settle(session, claim, State.RETRYABLE, reason="timeout", retry_in_ms=4_000)

        self.clock.advance(1.5)
        early = self.reserve(session)
        self.clock.advance(2.499)
        nearly = self.reserve(session)
        self.clock.advance(0.001)
        due = self.reserve(session)

        assert (early.decision, early.retry_after_ms, early.state) == (
            Decision.BUSY,
            2_500,
            State.RETRYABLE,
        )
        assert early.reason == "timeout"
        assert (nearly.decision, nearly.retry_after_ms) == (Decision.BUSY, 1)
        assert (due.decision, due.attempt) == (Decision.RETRY, 2)
        assert self.detail(claim.entry_id).entry.retry_at_ticks is None

    def test_wait_ends_only_what_may_be_tried_again(self) -> None:
        """A held or final entry has no time of a next attempt."""
        session = self.open()
        for state in (State.HELD, State.UNKNOWN, State.FAILED, State.COMMITTED):
            claim = self.reserve(session, state.label)
            self.settle(session, claim, state, reason="why", retry_in_ms=4_000)
            assert self.detail(claim.entry_id).entry.retry_at_ticks is None

    def test_person_may_let_a_failed_attempt_be_made_at_once(self) -> None:
        """Before its wait is over, and under a new fence as always."""
        session = self.open()
        claim = self.reserve(session)
        self.settle(session, claim, State.RETRYABLE, retry_in_ms=60_000)

        again = self.reserve(session, at_once=True)

        assert (again.decision, again.attempt) == (Decision.RETRY, 2)
        assert again.fence > claim.fence

    def test_event_that_kills_its_workers_is_held_and_one_that_fails_is_not(self) -> None:
        """Deaths in a row are counted apart from attempts: a failed one between them ends the row."""
        session = self.open()
        for _ in range(INTERRUPTIONS_MAX - 1):
            claim = self.reserve(session, attempts_max=1000)
            self.let_lapse()
        claim = self.reserve(session, attempts_max=1000)
        self.settle(session, claim, State.RETRYABLE)
        decisions = []
        for _ in range(INTERRUPTIONS_MAX + 1):
            decisions.append(self.reserve(session, attempts_max=1000).decision)
            self.let_lapse()

        assert decisions == [Decision.RETRY] + [Decision.RECOVER] * (INTERRUPTIONS_MAX - 1) + [
            Decision.HOLD
        ]
        assert "8 workers died of it in a row" in (self.detail(claim.entry_id).entry.reason or "")

    def test_attempt_that_is_given_back_does_not_count(self) -> None:
        """However often an attempt could not even begin, the key keeps its attempts; fences still grow."""
        session = self.open()
        first = self.reserve(session, attempts_max=2)
        self.settle(session, first, State.RETRYABLE)
        fences = [first.fence]
        for _ in range(4):
            claim = self.reserve(session, attempts_max=2)
            assert (claim.decision, claim.attempt) == (Decision.RETRY, 2)
            fences.append(claim.fence)
            self.settle(session, claim, State.RETRYABLE, attempts_given_back=1)

        assert self.detail(first.entry_id).entry.attempt == 1
        assert fences == sorted(set(fences))

    def test_unknown_and_held_keys_wait_for_a_person(self) -> None:
        """An arrival of a key that waits for a person says why, and changes nothing."""
        session = self.open()
        for state in (State.UNKNOWN, State.HELD):
            self.settle(session, self.reserve(session, state.label), state, reason="may have happened")

            with unchanged(self, session):
                answer = self.reserve(session, state.label)

            assert (answer.decision, answer.state) == (Decision.HOLD, state)
            assert answer.reason == "may have happened"

    def test_lapse_means_nothing_to_a_key_that_is_not_in_flight(self) -> None:
        """However late, a key that waits for a person or is settled is never taken over."""
        session = self.open()
        for state in State:
            self._bring_to(session, state)
        self.clock.advance(365 * 24 * 3600)

        answers = {state: self.reserve(session, state.label).decision for state in State}

        assert answers == {
            State.IN_FLIGHT: Decision.RECOVER,
            State.COMMITTED: Decision.REPLAY,
            State.FAILED: Decision.REPLAY,
            State.RETRYABLE: Decision.RETRY,
            State.UNKNOWN: Decision.HOLD,
            State.HELD: Decision.HOLD,
            State.QUARANTINED: Decision.QUARANTINE,
        }

    def test_new_key_can_be_quarantined(self) -> None:
        """An event that cannot be taken waits in quarantine, with its body, its reason and one record."""
        session = self.open()

        answer = self.reserve(session, quarantine="skew: 3 h ahead", body=b'{"bad":true}')
        again = self.reserve(session, quarantine="skew: 3 h ahead")
        plain = self.reserve(session)

        assert (answer.decision, answer.state) == (Decision.QUARANTINE, State.QUARANTINED)
        assert answer.reason == "skew: 3 h ahead"
        assert (again.decision, plain.decision) == (Decision.QUARANTINE, Decision.QUARANTINE)
        found = self.detail(answer.entry_id)
        assert (found.entry.state, found.entry.reason) == (State.QUARANTINED, "skew: 3 h ahead")
        assert found.body == self.kept_body(b'{"bad":true}')
        (record,) = self.log()
        assert (record.kind, record.note) == (LogKind.QUARANTINED, "skew: 3 h ahead")

    def test_late_repeat_of_a_known_key_is_a_replay_not_quarantined(self) -> None:
        """What is known is judged by what is known: a late retry of a settled key is a replay."""
        session = self.open()
        self.settle(session, self.reserve(session), outcome=OUTCOME)

        answer = self.reserve(session, quarantine="skew: 11 days late")

        assert (answer.decision, answer.outcome) == (Decision.REPLAY, OUTCOME)

    def test_records_of_arrivals_name_their_actor(self) -> None:
        """Quarantine, conflict, recovery and giving up are each recorded with who let the event arrive."""
        session = self.open()
        self.reserve(session, "bad", quarantine="skew", actor="worker 1")
        self.reserve(session, attempts_max=2)
        self.reserve(session, fingerprint=b"other", actor="worker 2")
        self.let_lapse()
        self.reserve(session, attempts_max=2, actor="worker 3")
        self.let_lapse()
        self.reserve(session, attempts_max=2, actor="worker 4")

        assert [(record.kind, record.actor) for record in self.log()] == [
            (LogKind.QUARANTINED, "worker 1"),
            (LogKind.CONFLICT, "worker 2"),
            (LogKind.RECOVERED, "worker 3"),
            (LogKind.HELD, "worker 4"),
        ]

    def test_arrivals_of_one_batch_are_recorded_each_with_its_own_actor(self) -> None:
        session = self.open()
        late = self.reservation("late", quarantine="skew", actor="worker 1")
        other = self.reservation("other", quarantine="late", actor="worker 2")

        with session.unit():
            session.reserve([late, other])

        assert {(record.kind, record.actor) for record in self.log()} == {
            (LogKind.QUARANTINED, "worker 1"),
            (LogKind.QUARANTINED, "worker 2"),
        }

    def test_other_tenants_key_is_another_key(self) -> None:
        """The same parts under another tenant are a new key, however the two are split."""
        session = self.open()
        self.settle(session, self.reserve(session, "c", tenant="ab"), outcome=OUTCOME)

        answers = [
            self.reserve(session, "c", tenant="a"),
            self.reserve(session, "bc", tenant="a"),
            self.reserve(session, "c", tenant=""),
            self.reserve(session, "abc", tenant=""),
        ]

        assert [answer.decision for answer in answers] == [Decision.RUN] * 4
        assert all(answer.outcome is None for answer in answers)

    def _bring_to(self, session: Session, state: State) -> Reserved:
        """An entry labelled with its state, in it."""
        if state is State.QUARANTINED:
            return self.reserve(session, state.label, quarantine="skew")
        claim = self.reserve(session, state.label)
        if state is not State.IN_FLIGHT:
            self.settle(session, claim, state, outcome=OUTCOME, reason="secret reason")
        return claim
