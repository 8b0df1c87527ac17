"""Decisions of persons: fenced, attributed, once, and on record."""

from __future__ import annotations

import threading
import unittest
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from msgspec.structs import replace

from oncegate.model.decisions import Verb
from oncegate.model.states import Decision, State
from oncegate.store import (
    EntryFilter,
    LogKind,
    Reserved,
    Ruling,
    RulingAnswer,
    Session,
    StepRecord,
    StepState,
    Units,
)
from oncegate.testing.conformance.bench import ALL, StoreBench, unchanged

KINDS = {
    Verb.APPROVE: LogKind.APPROVED,
    Verb.REJECT: LogKind.REJECTED,
    Verb.RELEASE: LogKind.RELEASED,
    Verb.DISCARD: LogKind.DISCARDED,
    Verb.RETRY: LogKind.RUN_AGAIN,
}


class PeopleConformance(StoreBench):
    """What waits for a person, and what the person's word does."""

    @property
    def verbs(self) -> tuple[Verb, ...]:
        """The verbs that the ledger carries out: failed entries run again only where it has review."""
        return tuple(verb for verb in Verb if self.has_review or verb is not Verb.RETRY)

    def park(self, session: Session, state: State, text: str | None = None) -> int:
        """An entry that waits in this state; quarantined ones have never run."""
        name = text or state.label
        if state is State.QUARANTINED:
            return self.reserve(session, name, quarantine="skew: 9m in the past").entry_id
        claim = self.reserve(session, name)
        self.settle(session, claim, state, reason="who knows")
        return claim.entry_id

    def ruling(self, entry_id: int, verb: Verb, **changes: Any) -> Ruling:
        """A decision by a person who has just looked."""
        seen = self.detail(entry_id).entry
        ending = None if verb.runs else b'{"error":"no"}'
        wanted: dict[str, Any] = {
            "fence": seen.fence,
            "key": seen.key,
            "actor": "Ada",
            "note": "because",
            "reason": f"{verb.past} by Ada: because",
            "at_ms": self.clock.wall_ms(),
            "outcome": ending,
        }
        return Ruling(entry_id, verb=verb, **{**wanted, **changes})

    def rule(self, session: Session, ruling: Ruling) -> RulingAnswer:
        """Carries one ruling out, in a unit of its own."""
        with session.unit():
            return session.rule([ruling])[0]

    def test_each_verb_moves_what_waits_for_it_and_says_so_once(self) -> None:
        """State, fence, reason, time, outcome and one record change together."""
        session = self.open()
        for verb in self.verbs:
            for state in sorted(verb.starts_from):
                entry_id = self.park(session, state, f"{verb.value} {state.label}")
                before = self.detail(entry_id)
                self.clock.advance(60)

                answer = self.rule(session, self.ruling(entry_id, verb))

                now = self.detail(entry_id)
                assert answer.done
                assert answer.entry == now.entry
                assert now.entry.state is verb.leads_to
                assert now.entry.fence > before.entry.fence
                assert now.entry.reason == f"{verb.past} by Ada: because"
                assert now.entry.settled_at_ms == self.clock.wall_ms()
                assert now.outcome == (None if verb.runs else b'{"error":"no"}')
                assert now.body == (
                    before.body if verb.runs else self.kept_body(b'{"id":1}', is_final=True)
                )
                (record,) = now.records[len(before.records) :]
                assert (record.kind, record.actor, record.note) == (KINDS[verb], "Ada", "because")
                assert record.at_ms == self.clock.wall_ms()
                assert answer.decided == record

    def test_decision_about_another_event_under_the_same_number_changes_nothing(self) -> None:
        """I23: after a failover the number and the fence that a person saw may be another event's."""
        session = self.open()
        for verb in self.verbs:
            state = min(verb.starts_from)
            entry_id = self.park(session, state, f"{verb.value} another")

            with unchanged(self, session):
                answer = self.rule(session, self.ruling(entry_id, verb, key=b"k" * 24))

            assert not answer.done
            assert answer.entry == self.detail(entry_id).entry

    def test_no_verb_moves_what_does_not_wait_for_it(self) -> None:
        """Whatever else the state is, nothing changes, and the answer says what stands there.

        Without review that is so for failed entries too: none of them runs again.
        """
        session = self.open()
        for state in State:
            entry_id = (
                self.reserve(session, state.label).entry_id
                if state is State.IN_FLIGHT
                else self.park(session, state)
            )
            for verb in Verb:
                if verb in self.verbs and state in verb.starts_from:
                    continue
                with unchanged(self, session):
                    answer = self.rule(session, self.ruling(entry_id, verb))
                assert not answer.done
                assert answer.entry == self.detail(entry_id).entry
                assert answer.decided is None

    def test_a_second_word_changes_nothing_and_learns_who_was_first(self) -> None:
        """I20: a double click, and a second operator who saw the same, both come too late."""
        session, other = self.open(), self.open()
        entry_id = self.park(session, State.HELD)
        first = self.ruling(entry_id, Verb.APPROVE)
        second = self.ruling(entry_id, Verb.REJECT, actor="Ben", note="no")
        assert self.rule(session, first).done

        with unchanged(self, session):
            answers = [self.rule(session, first), self.rule(other, second)]

        for answer in answers:
            assert not answer.done
            assert answer.entry is not None
            assert answer.entry.state is State.RETRYABLE
            assert answer.decided is not None
            assert (answer.decided.kind, answer.decided.actor) == (LogKind.APPROVED, "Ada")

    def test_of_words_said_at_once_one_counts(self) -> None:
        """I20: operators on connections of their own, all of whom saw the same entry."""
        session = self.open()
        entry_id = self.park(session, State.HELD)
        verbs = (Verb.APPROVE, Verb.REJECT) * 3
        sessions = [self.open() for _ in verbs]
        rulings = [self.ruling(entry_id, verb, actor=f"{n}") for n, verb in enumerate(verbs)]
        start = threading.Barrier(len(verbs))

        def speak(place: int) -> RulingAnswer:
            start.wait(10)
            return self.rule(sessions[place], rulings[place])

        with ThreadPoolExecutor(len(verbs)) as operators:
            answers = list(operators.map(speak, range(len(verbs))))

        (winner,) = [place for place, answer in enumerate(answers) if answer.done]
        assert {answer.decided.actor for answer in answers if answer.decided} == {f"{winner}"}
        assert all(answer.decided for answer in answers)
        found = self.detail(entry_id)
        assert found.entry.state is verbs[winner].leads_to
        assert len(found.records) == 2, "held once, decided once"

    def test_a_word_about_what_was_seen_before_does_not_count(self) -> None:
        """I20: the entry ran and waits again: the fence tells it from what the person saw."""
        session = self.open()
        entry_id = self.park(session, State.HELD)
        steps = (StepRecord("call", StepState.NOT_APPLIED, "mail"),)
        old = self.ruling(entry_id, Verb.APPROVE, steps=steps)
        self.rule(session, self.ruling(entry_id, Verb.APPROVE))
        again = self.reserve(session, State.HELD.label)
        self.settle(session, again, State.HELD, reason="held again")

        with unchanged(self, session):
            assert not self.rule(session, old).done

        assert self.rule(session, self.ruling(entry_id, Verb.REJECT)).done

    def test_two_words_in_one_batch_have_one_effect(self) -> None:
        """The first of a batch counts; the order of the answers is that of the rulings."""
        session = self.open()
        one, two = self.park(session, State.HELD), self.park(session, State.UNKNOWN)
        rulings = [
            self.ruling(two, Verb.APPROVE),
            self.ruling(one, Verb.APPROVE),
            self.ruling(two, Verb.REJECT, actor="Ben"),
        ]

        with session.unit():
            answers = session.rule(rulings)

        assert [answer.done for answer in answers] == [True, True, False]
        assert [answer.entry.entry_id for answer in answers if answer.entry] == [two, one, two]
        assert self.detail(two).entry.state is State.RETRYABLE

    def test_an_unknown_entry_is_told_as_none(self) -> None:
        """There is nothing there, and nothing comes to be."""
        session = self.open()
        entry_id = self.park(session, State.HELD)
        with unchanged(self, session):
            ruling = replace(self.ruling(entry_id, Verb.APPROVE), entry_id=999_999_999)
            answer = self.rule(session, ruling)
        assert answer == RulingAnswer(done=False, entry=None)

    def test_a_word_that_is_undone_leaves_nothing(self) -> None:
        """I16: state and record are one transaction."""
        if self.capabilities.units is Units.PER_CALL:
            raise unittest.SkipTest("each decision commits by itself")
        session = self.open()
        entry_id = self.park(session, State.HELD)
        steps = (StepRecord("call", StepState.NOT_APPLIED, "mail"),)
        with unchanged(self, session):
            try:
                with session.unit():
                    assert session.rule([self.ruling(entry_id, Verb.APPROVE, steps=steps)])[0].done
                    raise KeyError("something else in the unit")
            except KeyError:
                pass

    def test_what_a_person_knows_about_steps_is_recorded_and_handed_on(self) -> None:
        """The next claim sees the steps as the person left them, and the attempts counted from zero."""
        session = self.open()
        claim = self.reserve(session)
        doubtful = StepRecord("slot", StepState.STARTED, "terminal")
        done = StepRecord("mail", StepState.DONE, "mail", b'"sent"')
        self.settle(session, claim, State.UNKNOWN, steps=(doubtful, done))
        said = StepRecord("slot", StepState.DONE, "terminal", b'{"id":"R-1"}', "R-1", 1_790_000_000_789)

        self.rule(session, self.ruling(claim.entry_id, Verb.APPROVE, steps=(said,)))
        assert self.detail(claim.entry_id).entry.attempt == 0
        again = self.reserve(session, attempts_max=1)

        assert (again.decision, again.attempt) == (Decision.RETRY, 1)
        assert set(again.steps) == {said, done}
        assert not again.never_run, "an earlier attempt may have called a downstream"
        assert again.first_reserved_ticks == claim.first_reserved_ticks

    def test_decision_that_lets_an_entry_run_says_since_when(self) -> None:
        """The time that retries may take begins again; what was reserved first stays as it was (I26)."""
        session = self.open()
        claim = self.reserve(session)
        assert claim.tried_from_ticks == 0
        self.settle(session, claim, State.HELD)
        self.clock.advance(3600)
        self.rule(session, self.ruling(claim.entry_id, Verb.APPROVE))
        for _ in range(2):
            self.clock.advance(60)
            again = self.reserve(session)
            assert again.tried_from_ticks == claim.now_ticks + 3_600_000
            assert again.first_reserved_ticks == claim.first_reserved_ticks
            self.settle(session, again, State.RETRYABLE)

    def test_what_never_ran_is_taken_up_as_never_run(self) -> None:
        """A released or approved arrival has no earlier attempt to ask about; its second attempt has."""
        session = self.open()
        for verb, parked in ((Verb.RELEASE, "quarantine"), (Verb.APPROVE, "hold")):
            entry_id = self.reserve(session, parked, **{parked: "wait"}, declared="then").entry_id
            seen = self.detail(entry_id).entry
            self.clock.advance(3600)
            self.rule(session, self.ruling(entry_id, verb))

            first = self.reserve(session, parked, declared="at its first claim")
            assert first.declared is None
            assert (first.decision, first.attempt, first.never_run) == (Decision.RETRY, 1, True)
            assert first.fence > seen.fence
            self.clock.advance(60)
            self.let_lapse()
            second = self.reserve(session, parked)
            assert (second.decision, second.attempt, second.never_run) == (Decision.RECOVER, 2, False)
            assert second.declared == "at its first claim"
            self.let_lapse()
            third = self.reserve(session, parked)
            assert second.first_reserved_ticks == third.first_reserved_ticks == first.now_ticks

    def test_what_may_run_is_found_by_workers_at_once(self) -> None:
        """Approved and released entries are among the stranded; ended ones are not."""
        session = self.open()
        runs = {
            self.park(session, state, f"{verb.value} {state.label}"): verb
            for verb in self.verbs
            for state in verb.starts_from
        }
        assert self.stranded(ALL) == []

        for entry_id, verb in runs.items():
            self.rule(session, self.ruling(entry_id, verb))

        found = {item.entry.entry_id for item in self.stranded(ALL)}
        assert found == {entry_id for entry_id, verb in runs.items() if verb.runs}

    def test_what_a_person_ended_is_replayed(self) -> None:
        """Its outcome is what later arrivals get, and nothing of a claim is left on it."""
        session = self.open()
        for verb in (Verb.REJECT, Verb.DISCARD):
            for state in verb.starts_from:
                text = f"{verb.value} {state.label}"
                entry_id = self.park(session, state, text)
                self.rule(session, self.ruling(entry_id, verb))

                again = self.reserve(session, text)
                assert (again.decision, again.state) == (Decision.REPLAY, State.FAILED)
                assert again.outcome == b'{"error":"no"}'
                entry = self.detail(entry_id).entry
                assert (entry.token, entry.lease_until_ticks) == (None, None)

    def test_a_new_key_that_must_wait_is_held_with_one_record(self) -> None:
        """Approval first: stored, not in flight, every arrival told to wait; quarantine goes before it."""
        session = self.open()

        answer = self.reserve(session, hold="waits for approval", actor="gate 1")
        again = self.reserve(session, hold="waits for approval")
        both = self.reserve(session, "both", hold="waits for approval", quarantine="skew: far")

        assert (answer.decision, answer.state, answer.fence) == (Decision.HOLD, State.HELD, 0)
        assert (again.decision, again.reason) == (Decision.HOLD, "waits for approval")
        assert (both.decision, both.reason) == (Decision.QUARANTINE, "skew: far")
        found = self.detail(answer.entry_id)
        assert (found.entry.state, found.entry.reason) == (State.HELD, "waits for approval")
        assert found.entry.settled_at_ms == found.entry.received_at_ms
        assert (found.entry.token, found.body, found.entry.attempt) == (None, b'{"id":1}', 0)
        (record,) = found.records
        assert (record.kind, record.actor, record.note) == (LogKind.HELD, "gate 1", "waits for approval")

    def test_the_sender_of_other_content_learns_nothing_but_the_log_tells(self) -> None:
        """A corrected event under the key of one that waits is refused, and the operator can see it."""
        session = self.open()
        for state in (State.HELD, State.UNKNOWN, State.QUARANTINED):
            entry_id = self.park(session, state)
            answer = self.reserve(session, state.label, fingerprint=b"corrected")
            assert answer == Reserved(Decision.CONFLICT, entry_id, now_ticks=answer.now_ticks)
            record = self.detail(entry_id).records[-1]
            assert record.kind is LogKind.CONFLICT
            assert record.note is not None
            assert "waits for a person" in record.note

    def test_what_waits_is_listed_by_reason_and_by_how_long(self) -> None:
        """Filters of the people's lists: part of the reason, and since when."""
        session = self.open()
        old = self.reserve(session, "old", hold="waits for approval").entry_id
        self.clock.advance(3600)
        young = self.reserve(session, "young", hold="waits for approval").entry_id
        other = self.reserve(session, "other", quarantine="skew: 9m").entry_id
        akin = self.reserve(session, "akin", quarantine="conflict: a skew: of 9m").entry_id
        running = self.reserve(session, "running").entry_id

        def listed(**wanted: Any) -> list[int]:
            found = [entry.entry_id for entry in self.entries(EntryFilter(**wanted), None, ALL)]
            return found if self.has_review else [one for one in known if one in found]

        known = [running, akin, other, young, old]  # where numbers do not follow time
        waiting = (State.HELD, State.UNKNOWN, State.QUARANTINED)
        assert listed(states=waiting) == [akin, other, young, old]
        assert listed(states=(State.IN_FLIGHT, State.COMMITTED)) == [running]
        assert listed(reason_contains="approval") == [young, old]
        assert listed(states=waiting, reason_contains="skew: ") == [akin, other]
        assert listed(states=waiting, cause="skew") == [other]
        assert listed(states=waiting, cause="approval") == [young, old]
        assert listed(states=(State.QUARANTINED,), cause="approval") == []
        assert listed(states=waiting, settled_before_ms=self.clock.wall_ms()) == [old]


class FailedEntryConformance(PeopleConformance):
    """Failed entries that a person sets to run again: only where the ledger has review."""

    def test_failed_entry_that_runs_again_keeps_what_is_known_of_its_calls(self) -> None:
        """Its steps and its first declaration; its outcome goes, its attempts count from one."""
        session = self.open()
        claim = self.reserve(session, declared="the old one")
        done = StepRecord("slot", StepState.DONE, "terminal", b'{"id":"S-1"}', "S-1")
        doubtful = StepRecord("pay", StepState.CALLED, "bank", first_call_ticks=5)
        assert self.settle(session, claim, State.FAILED, outcome=b'{"error":"no"}', steps=(done, doubtful))
        assert self.detail(claim.entry_id).steps == (doubtful, done)

        ruling = self.ruling(claim.entry_id, Verb.RETRY, declared="the old one")
        assert self.rule(session, ruling).done
        assert not self.rule(session, ruling).done
        again = self.reserve(session, declared="the new one")

        assert (again.decision, again.state, again.never_run) == (Decision.RETRY, State.RETRYABLE, False)
        assert (again.declared, again.attempt) == ("the old one", 1)
        assert again.steps == (doubtful, done)
        assert self.settle(session, again, State.COMMITTED, outcome=b'{"value":1}', clear_steps=True)
        now = self.detail(claim.entry_id)
        assert (now.entry.state, now.outcome, now.steps) == (State.COMMITTED, b'{"value":1}', ())
