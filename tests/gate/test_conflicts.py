"""Another content under a known key is refused, and kept for a person who may let it run once (I2, I7)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from oncegate import ConfigError, Gate, Verdict
from oncegate.clock import from_wall_ms
from oncegate.errors import Conflict, RulingRefused, StoreUnavailable
from oncegate.gate.flows import conflicts
from oncegate.gate.flows.conflicts import DECIDED, FULL, WAITS
from oncegate.maintenance.reconciler import Reconciler
from oncegate.model.conflicts import KEPT_MAX, known_key
from oncegate.model.decisions import Verb
from oncegate.model.keys import Key, conflict_prefix, derive_conflict_key
from oncegate.model.states import State
from oncegate.review.conflicts import contest_of
from oncegate.review.review_view import consequence, remarks
from oncegate.store import Entry, EntryFilter, LogKind, Store
from oncegate.stores.postgres import PostgresStore
from oncegate.stores.sqlite import SqliteStore
from oncegate.testing import CrashReached, ManualClock
from oncegate.testing.faults import Fault, Faults, faulty
from tests.support.gates import DeadAfter, running

ADA: dict[str, Any] = {"actor": "Ada", "reason": "asked the sender"}
FIRST, OTHER = {"id": 1, "amount": 10}, {"id": 1, "amount": 20}


class Office:
    """Processes on one ledger that pay what they are told, and a bank that remembers keys."""

    def __init__(self, store: Any, clock: ManualClock) -> None:
        self.store, self.clock = store, clock
        self.paid: list[tuple[int, str]] = []
        self.gates: list[Gate] = []

    def process(self, store: Store | None = None, **options: Any) -> Gate:
        gate = Gate(store=store or self.store(), clock=self.clock, crashpoints=options.pop("points", None))
        self.gates.append(gate)
        bank = gate.downstream("bank", honours_key="7d")

        def pay(event: dict[str, Any], once: Any) -> int:
            def call(idempotency_key: str) -> dict[str, str]:
                self.paid.append((event["amount"], idempotency_key))
                return {"id": idempotency_key}

            once.effect(bank, call, name="pay")
            return int(event["amount"])

        gate.handler("pay", key="{id}", **options)(pay)
        return gate

    def entries(self, *states: State) -> list[Entry]:
        with self.gates[0].engine.store.look() as session:
            return session.entries(EntryFilter(states), None, 100)

    def kept(self) -> Entry:
        (entry,) = self.entries(State.QUARANTINED)
        return entry

    def reconcile(self, gate: Gate) -> None:
        self.clock.advance(60)
        Reconciler(gate).run_once()

    def told(self, entry: Entry) -> tuple[list[str], str]:
        """What a person is shown: remarks, and what a release would do."""
        with self.gates[0].engine.store.look() as session:
            seen = session.detail(entry.entry_id)
            assert seen is not None
            contest = contest_of(session, seen)
        return remarks(seen, contest), consequence(Verb.RELEASE, seen, contest)


@pytest.fixture(params=["sqlite", "postgres"])
def office(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Office]:
    clock = ManualClock()

    def open_store() -> Store:
        if request.param == "sqlite":
            return SqliteStore(tmp_path / "ledger.db", clock=clock)
        return PostgresStore(request.getfixturevalue("ledger_url"), clock=clock)

    made = Office(open_store, clock)
    yield made
    for gate in made.gates:
        gate.close()


def test_the_other_content_is_kept_once_and_its_sender_still_gets_the_conflict(office: Office) -> None:
    # Given a key that has run
    gate = office.process()
    gate.admit_sync("pay", FIRST)
    # When other content comes under it, three times and in two processes
    answers = [one.admit_sync("pay", OTHER) for one in (gate, gate, office.process())]
    # Then each time it is a conflict that says that it waits, and one entry waits, with the content
    assert {(a.verdict, a.reason, a.value) for a in answers} == {(Verdict.CONFLICT, WAITS, None)}
    with pytest.raises(Conflict, match="waits for a person"):
        answers[0].result()
    kept = office.kept()
    assert (kept.surface, kept.tenant, kept.attempt) == ("pay", "", 0)
    first = Key.from_text(answers[0].key)
    assert (known_key(kept.reason), kept.key) == (
        first,
        derive_conflict_key(first, kept.fingerprint).digest,
    )
    with gate.engine.store.look() as session:
        seen = session.detail(kept.entry_id)
    assert seen is not None
    assert seen.body == b'{"amount":20,"id":1}'
    assert [record.kind for record in seen.records] == [LogKind.QUARANTINED]
    assert [amount for amount, _ in office.paid] == [10]


def test_a_release_runs_it_once_under_a_key_of_its_own(office: Office) -> None:
    """The downstream sees another Idempotency-Key; a second release and repeats change nothing."""
    gate = office.process()
    first = gate.admit_sync("pay", FIRST)
    gate.admit_sync("pay", OTHER)
    kept = office.kept()
    gate.people.release(kept.entry_id, **ADA)
    with pytest.raises(RulingRefused, match="Ada released it"):
        gate.people.release(kept.entry_id, actor="Ben", reason="me too")
    for _ in range(2):
        office.reconcile(gate)
        again = gate.admit_sync("pay", OTHER)
        assert (again.verdict, again.reason) == (Verdict.CONFLICT, DECIDED)
    assert office.paid == [(10, f"{first.key}:pay"), (20, f"{kept.key.hex()}:pay")]
    assert office.entries(State.QUARANTINED) == []
    assert gate.admit_sync("pay", FIRST).replay


def test_a_discarded_content_stays_known_and_never_runs(office: Office) -> None:
    gate = office.process()
    gate.admit_sync("pay", FIRST)
    gate.admit_sync("pay", OTHER)
    with gate.engine.store.look() as session:
        seen = session.detail(office.kept().entry_id)
        assert seen is not None
        assert "still gets the conflict" in consequence(Verb.DISCARD, seen, contest_of(session, seen))
    gate.people.discard(office.kept().entry_id, **ADA)
    office.reconcile(gate)
    assert gate.admit_sync("pay", OTHER).reason == DECIDED
    assert (office.entries(State.QUARANTINED), len(office.paid)) == ([], 1)


def test_an_event_quarantined_for_its_time_and_sent_again_corrected_waits_beside_it(office: Office) -> None:
    """The person discards one and releases the other; each says what became of its neighbour."""
    gate = office.process(occurred_at="at")
    now = from_wall_ms(office.clock.wall_ms())
    wrong = {"id": 1, "amount": 10, "at": (now - timedelta(hours=2)).isoformat()}
    assert gate.admit_sync("pay", wrong).verdict is Verdict.QUARANTINE
    assert gate.admit_sync("pay", {**wrong, "at": now.isoformat()}).verdict is Verdict.CONFLICT
    corrected, first = office.entries(State.QUARANTINED)
    said, release = office.told(corrected)
    assert f"entry {first.entry_id} has with other content" in said[0]
    assert f"Entry {first.entry_id} waits too: discard it, or both run" in release
    assert f"entry {corrected.entry_id} (quarantined)" in " ".join(office.told(first)[0])
    # When the corrected one is chosen
    gate.people.discard(first.entry_id, **ADA)
    assert f"Entry {first.entry_id} is not run any more" in office.told(corrected)[1]
    gate.people.release(corrected.entry_id, **ADA)
    office.reconcile(gate)
    assert [key for _, key in office.paid] == [f"{corrected.key.hex()}:pay"]


def test_whoever_decides_is_told_that_the_first_has_run(office: Office) -> None:
    gate = office.process()
    gate.admit_sync("pay", FIRST)
    gate.admit_sync("pay", OTHER)
    gate.admit_sync("pay", {**OTHER, "amount": 30})
    newer, older = office.entries(State.QUARANTINED)
    said, release = office.told(older)
    assert "which is committed" in said[0]
    assert f"entry {newer.entry_id} (quarantined)" in said[1]
    assert "both will have" in release
    assert "another Idempotency-Key" in release


def test_so_many_contents_are_kept_and_the_next_is_only_refused(office: Office) -> None:
    """I18: bounded for each key; another key has its own room."""
    gate = office.process()
    for key in (1, 2):
        gate.admit_sync("pay", {"id": key, "amount": 0})
    answers = [gate.admit_sync("pay", {"id": 1, "amount": n}).reason for n in range(1, KEPT_MAX + 3)]
    assert answers == [WAITS] * KEPT_MAX + [FULL] * 2
    assert gate.admit_sync("pay", {"id": 1, "amount": 1}).reason == WAITS
    assert gate.admit_sync("pay", {"id": 2, "amount": 1}).reason == WAITS
    assert len(office.entries(State.QUARANTINED)) == KEPT_MAX + 1
    told = " ".join(office.told(office.entries(State.QUARANTINED)[-1])[0])
    assert f"no more than {KEPT_MAX} contents" in told


def test_of_twelve_contents_under_one_key_eight_are_kept(office: Office) -> None:
    """The number that the docs promise, whatever the constant says (I18)."""
    gate = office.process()
    told = [gate.admit_sync("pay", {"id": 1, "amount": n}).reason for n in range(13)]
    assert told[1:] == [WAITS] * 8 + [FULL] * 4
    assert len(office.entries(State.QUARANTINED)) == 8


@pytest.mark.slow
def test_no_number_of_contents_at_one_instant_passes_the_bound(office: Office) -> None:
    """Counting and keeping are one step: of 40 at once 8 wait and 32 are refused (I18)."""
    gates = [office.process() for _ in range(4)]
    gates[0].admit_sync("pay", {"id": 1, "amount": 0})

    def arrivals() -> Iterator[Any]:
        for number in range(1, 41):
            yield lambda n=number: gates[n % 4].admit_sync("pay", {"id": 1, "amount": n})

    with running(*arrivals()) as answers:
        pass

    told = [answer.reason for answer in answers]
    assert (told.count(WAITS), told.count(FULL)) == (KEPT_MAX, 40 - KEPT_MAX)
    assert len(office.entries(State.QUARANTINED)) == KEPT_MAX


def test_the_same_conflict_in_many_processes_at_once_is_one_entry(office: Office) -> None:
    gates = [office.process() for _ in range(4)]
    gates[0].admit_sync("pay", FIRST)
    arrivals = [lambda gate=gate: gate.admit_sync("pay", OTHER) for gate in gates * 2]
    with running(*arrivals) as answers:
        pass
    assert {(answer.verdict, answer.reason) for answer in answers} == {(Verdict.CONFLICT, WAITS)}
    assert office.kept().attempt == 0


def test_a_crash_between_the_two_reservations_answers_nobody_and_a_repeat_keeps_it(office: Office) -> None:
    """Nothing is kept and nothing was answered: the sender tries again."""
    office.process().admit_sync("pay", FIRST)
    doomed = office.process(points=DeadAfter("commit.after"))
    with pytest.raises(CrashReached):
        doomed.admit_sync("pay", OTHER)
    assert office.entries(State.QUARANTINED) == []
    assert office.process().admit_sync("pay", OTHER).reason == WAITS
    assert office.kept().attempt == 0


@pytest.mark.parametrize("fault", [Fault.LOST_REPLY, Fault.UNDONE])
def test_a_doubtful_commit_of_what_is_kept_is_read_back(office: Office, fault: Fault) -> None:
    """I5: kept or not, nobody is answered before that is certain; sent again it is there once."""
    faults = Faults()
    gate = office.process(faulty(office.store(), faults))
    gate.admit_sync("pay", FIRST)
    # The conflict, the first arrival, the look at what is kept, the count of all that waits,
    # and then what is kept itself
    faults.plan.extend([*[Fault.NONE] * 4, fault])
    if fault is Fault.UNDONE:
        with pytest.raises(StoreUnavailable):
            gate.admit_sync("pay", OTHER)
    else:
        assert gate.admit_sync("pay", OTHER).reason == WAITS, "the key is this content's own"
    assert not faults.plan
    assert gate.admit_sync("pay", OTHER).reason == WAITS
    assert office.kept().attempt == 0


def test_where_it_cannot_be_kept_nobody_is_told_that_it_conflicts(office: Office) -> None:
    """An answer would end the matter for its sender; an error lets it come again (I19)."""
    faults = Faults()
    gate = office.process(faulty(office.store(), faults))
    gate.admit_sync("pay", FIRST)
    faults.plan.extend([Fault.NONE, Fault.NONE, *[Fault.DOWN] * 20])
    with pytest.raises(StoreUnavailable):
        gate.admit_sync("pay", OTHER)
    faults.plan.clear()
    assert gate.admit_sync("pay", OTHER).reason == WAITS


def test_a_content_that_was_released_since_we_looked_is_not_taken_from_the_reconciler(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look and the reservation are two commits: in between others keep it, and a person releases it."""
    gate, slow = office.process(), office.process()
    gate.admit_sync("pay", FIRST)
    looked = conflicts._told_already

    def meanwhile(*arguments: Any) -> Any:
        found = looked(*arguments)
        monkeypatch.setattr(conflicts, "_told_already", looked)
        gate.admit_sync("pay", OTHER)
        gate.people.release(office.kept().entry_id, **ADA)
        return found

    monkeypatch.setattr(conflicts, "_told_already", meanwhile)
    assert slow.admit_sync("pay", OTHER).verdict is Verdict.CONFLICT
    (released,) = office.entries(State.RETRYABLE)
    assert released.attempt == 0
    office.reconcile(gate)
    assert [amount for amount, _ in office.paid] == [10, 20]


def test_a_surface_that_refuses_keeps_nothing(office: Office) -> None:
    gate = office.process(on_conflict="refuse")
    gate.admit_sync("pay", FIRST)
    answer = gate.admit_sync("pay", OTHER)
    assert (answer.verdict, answer.reason) == (Verdict.CONFLICT, None)
    assert len(office.entries()) == 1


def test_it_belongs_to_the_tenant_whose_key_it_came_under(office: Office) -> None:
    """I8: nobody else's keys are touched, nor found."""
    gate = office.process(tenant="owner")
    for owner in ("acme", "globex"):
        gate.admit_sync("pay", {**FIRST, "owner": owner})
    gate.admit_sync("pay", {**OTHER, "owner": "acme"})
    assert office.kept().tenant == "acme"
    (globex,) = [entry for entry in office.entries(State.COMMITTED) if entry.tenant == "globex"]
    assert office.told(globex)[0] == []


def test_a_plain_function_whose_caller_waits_keeps_nothing(office: Office) -> None:
    """The caller is told at once and can call again; a release would return to nobody."""
    gate = office.process()

    @gate.once(key="{order}")
    def charge(order: int, amount: int) -> int:
        return amount

    charge(1, 10)
    with pytest.raises(Conflict):
        charge(1, 20)
    assert office.entries(State.QUARANTINED) == []


def test_settings_that_cannot_be_are_refused(office: Office) -> None:
    with pytest.raises(ConfigError, match="choose one of quarantine, refuse"):
        office.process(on_conflict="keep")
    with pytest.raises(ConfigError, match="no process could run what is released"):
        office.process(on_conflict="quarantine", caller_retries=True)


def test_keys_of_other_contents_begin_alike_and_never_collide() -> None:
    """Lengths stand before the parts: no key and content run together into those of another (I8)."""
    one, two = Key(b"a" * 24), Key(b"a" * 23 + b"b")
    keys = {derive_conflict_key(key, content).text for key in (one, two) for content in (b"x", b"xy", b"")}
    assert len(keys) == 6
    assert all(key.startswith((conflict_prefix(one), conflict_prefix(two))) for key in keys)
    assert derive_conflict_key(one, b"x").text == "3d8b7cd895805cb596d43892f44c2f097c1433ffbcba7f75"


@pytest.mark.slow
def test_conflicts_beyond_the_log_are_said_to_be_more(ledger) -> None:
    """The log has the first hundred of an entry; a person reads no wrong number (E5)."""
    gate = ledger.gate()

    @gate.handler("payouts", key="{id}", approve_first=True, on_conflict="refuse")
    def pay(event, once):
        return "paid"

    for number in range(122):
        gate.admit_sync("payouts", {"id": "P-1", "amount": number})
        if number in (2, 121):
            with gate.engine.store.look() as session:
                told = " ".join(remarks(session.detail(1)))
            assert f"came under this key {'2 times' if number == 2 else '100 times or more'} since" in told
