"""What the gate has seen is counted and classified beside the arrivals, and never in their way."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import reduce
from typing import Any

import pytest

from oncegate import Gate, Once
from oncegate.gate.runtime import arrival_stats as module
from oncegate.gate.runtime import asked, duplicate_detector
from oncegate.gate.runtime.surface_sightings import taken
from oncegate.model.repeats import RepeatClass
from oncegate.signals.snapshot import NOTHING, Counts, by_surface
from oncegate.store import Repeat, What
from oncegate.store.tallies import ARRIVALS, REPEATS, RETRIES, class_of, latency_bound_us
from oncegate.testing import ManualClock
from oncegate.testing.faults import Faults, faulty
from oncegate.testing.forking import run_forked
from oncegate.testing.waiting import DEADLINE_SECONDS
from oncegate.wiring import open_store
from tests.support.gates import Ledger, Style

ONE = "0190a5c2-7b3e-7ccc-8f00-0123456789ab"
TWO = "6f1c2a90-12ab-4cde-9f00-aaaaaaaaaaaa"


def orders(gate: Gate, style: Style | None = None, **options: Any) -> None:
    (style or Style("plain")).register(gate, "orders", lambda event: "done", **options)


def counted(ledger: Ledger) -> dict[What, int]:
    """What the ledger has been told, latencies, classes and reasons left out."""
    with open_store(ledger.url, clock=ledger.clock).look() as session:
        found: dict[What, int] = {}
        for tally in session.tallies(0, 2**40):
            if tally.what < 20:
                found[What(tally.what)] = found.get(What(tally.what), 0) + tally.count
        return found


def classes(ledger: Ledger) -> dict[RepeatClass, int]:
    with open_store(ledger.url, clock=ledger.clock).look() as session:
        found = [(class_of(tally.what), tally.count) for tally in session.tallies(0, 2**40)]
        return {
            kind: sum(n for other, n in found if other is kind) for kind, _ in found if kind is not None
        }


def reasons(ledger: Ledger) -> dict[str, int]:
    with open_store(ledger.url, clock=ledger.clock).look() as session:
        return reduce(Counts.plus, by_surface(session.tallies(0, 2**40)).values(), NOTHING).reasons()


def repeats_of(ledger: Ledger, entry_id: int) -> list[Repeat]:
    with open_store(ledger.url, clock=ledger.clock).look() as session:
        return session.repeats(entry_id)


def test_arrivals_are_counted_by_what_they_got(ledger: Ledger, style: Style) -> None:
    """New keys, replays, conflicts and quarantines each have their counter; also a replay from memory."""
    # Given a surface with all kinds of arrivals
    gate = ledger.gate()
    orders(gate, style)
    for event in ({"id": "1"}, {"id": "2"}, {"id": "1"}, {"id": "1"}, {"id": "1", "other": 1}, {}, {}):
        style.admit(gate, "orders", event)
    # When the gate tells the ledger
    assert gate.engine.sightings.flush()
    # Then each was counted once
    assert counted(ledger) == {
        What.FRESH: 2,
        What.REPLAY: 2,
        What.CONFLICT: 1,
        What.QUARANTINED: 1,
        What.QUARANTINED_AGAIN: 1,
    }
    assert classes(ledger) == {RepeatClass.EXPECTED_REPLAY: 3, RepeatClass.CONFLICT: 1}
    # And what was put in quarantine has its reason, once
    assert reasons(ledger) == {"key_input": 1}


def test_replays_from_memory_and_from_the_ledger_count_alike(ledger: Ledger) -> None:
    for cached in (20_000, 0):
        gate = ledger.gate(replay_cache_max=cached)
        orders(gate)
        gate.admit_sync("orders", {"id": "1"})
        gate.admit_sync("orders", {"id": "1"})
        gate.engine.sightings.flush()
    # One new, then one replay from memory; two from the ledger by the gate without a memory.
    assert counted(ledger) == {What.FRESH: 1, What.REPLAY: 3}
    assert repeats_of(ledger, 1)[0].times == 3


def test_same_database_handlers_are_counted_too(ledger: Ledger) -> None:
    gate = ledger.gate()

    @gate.handler("local", key="{id}", same_database=True)
    def local(event: dict[str, str], once: Any) -> str:
        return "done"

    for _ in range(3):
        gate.admit_sync("local", {"id": "1"})
    gate.close()
    assert counted(ledger) == {What.FRESH: 1, What.REPLAY: 2}


def test_late_replay_is_told_from_an_expected_one(ledger: Ledger) -> None:
    """An hour is late by default; a surface may have its own idea."""
    gate = ledger.gate(replay_cache_max=0)
    orders(gate)
    Style("plain").register(gate, "slow", lambda event: "done", late_replay_after="2d")
    for surface in ("orders", "slow"):
        gate.admit_sync(surface, {"id": "1"})
    ledger.clock.advance(3601)
    for surface in ("orders", "slow"):
        gate.admit_sync(surface, {"id": "1"})
    gate.engine.sightings.flush()
    assert [repeat.kind for repeat in repeats_of(ledger, 1)] == [RepeatClass.LATE_REPLAY]
    assert [repeat.kind for repeat in repeats_of(ledger, 2)] == [RepeatClass.EXPECTED_REPLAY]


def test_replay_from_memory_knows_how_late_it_is(ledger: Ledger) -> None:
    gate = ledger.gate()
    orders(gate)
    gate.admit_sync("orders", {"id": "1"})
    ledger.clock.advance(11 * 24 * 3600)
    gate.admit_sync("orders", {"id": "1"})
    gate.engine.sightings.flush()
    (found,) = repeats_of(ledger, 1)
    assert (found.kind, found.evidence) == (
        RepeatClass.LATE_REPLAY,
        "the same content, 11 d after the first arrival",
    )


def test_arrival_of_a_key_in_flight_is_a_race(ledger: Ledger) -> None:
    gate, other = ledger.gate(), ledger.gate()
    orders(other)

    def outer(event: Any) -> str:
        assert other.admit_sync("orders", {"id": "1"}).verdict.value == "busy"
        return "done"

    Style("plain").register(gate, "orders", outer)
    gate.admit_sync("orders", {"id": "1"})
    other.engine.sightings.flush()
    assert classes(ledger) == {RepeatClass.RACE: 1}


def test_sender_that_waited_for_a_slow_event_has_not_sent_it_twice(ledger: Ledger) -> None:
    """A7: it timed out, heard Busy and came again; only what it sends after that is a repeat."""
    gate, other = ledger.gate(), ledger.gate()
    orders(other)

    def outer(event: Any) -> str:
        ledger.clock.advance(30)
        assert other.admit_sync("orders", {"id": "1"}).verdict.value == "busy"
        return "done"

    Style("plain").register(gate, "orders", outer)
    gate.admit_sync("orders", {"id": "1"})
    for _ in range(2):
        ledger.clock.advance(30)
        assert other.admit_sync("orders", {"id": "1"}).verdict.value == "replay"
    gate.engine.sightings.flush()
    other.engine.sightings.flush()
    assert counted(ledger) == {What.FRESH: 1, What.BUSY: 1, What.AWAITED: 1, What.REPLAY: 1}
    assert classes(ledger) == {RepeatClass.ASKED_RETRY: 2, RepeatClass.EXPECTED_REPLAY: 1}


def test_events_whose_senders_were_asked_to_come_again_are_kept_up_to_a_bound(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I18: the oldest are forgotten first."""
    monkeypatch.setattr(asked, "ASKED_MAX", 3)
    gate = ledger.gate()

    @gate.handler("orders", key="{id}")
    def order(event: Any, once: Once) -> None:
        raise RuntimeError("down")

    for _ in range(2):
        for number in range(5):
            with pytest.raises(RuntimeError):
                gate.admit_sync("orders", {"id": str(number)})
        ledger.clock.advance(60)
    assert len(gate.engine.sightings._asked) == 3


def test_a_new_id_per_retry_is_found_and_runs_all_the_same(ledger: Ledger) -> None:
    """The report names the entry it repeats and the field; no value of the event is in it."""
    # Given a sender that draws a new id for its retry
    gate = ledger.gate()
    Style("plain").register(gate, "picks", lambda event: "done", key="{correlation_id:uuid}")
    event = {"correlation_id": ONE, "item": "secret-item", "bin": "4-2", "quantity": 6}
    gate.admit_sync("picks", event)
    ledger.clock.advance(3)
    # When the retry arrives
    assert gate.admit_sync("picks", {**event, "correlation_id": TWO}).verdict.value == "run"
    gate.engine.sightings.flush()
    # Then it ran, as it must, and it stands in the report with its evidence
    (found,) = repeats_of(ledger, 2)
    assert (found.kind, found.evidence) == (
        RepeatClass.NEW_ID_PER_RETRY,
        "the content of entry 1, 3 s before, under another correlation_id",
    )


def test_a_busy_surface_leaves_another_its_share_of_attention(ledger: Ledger) -> None:
    """However many orders come within a second, the few picks are compared too."""
    gate = ledger.gate()
    orders(gate)
    Style("plain").register(gate, "picks", lambda event: "done", key="{correlation_id:uuid}")
    for number in range(module.COMPARED_MAX + 50):
        gate.admit_sync("orders", {"id": str(number), "amount": number, "city": f"c{number}"})
    for correlation_id in (ONE, TWO):
        gate.admit_sync("picks", {"correlation_id": correlation_id, "item": "A", "bin": "4-2"})
    gate.engine.sightings.flush()
    assert classes(ledger) == {RepeatClass.NEW_ID_PER_RETRY: 1}


def test_one_action_under_two_ids_is_found(ledger: Ledger) -> None:
    gate = ledger.gate()
    Style("plain").register(gate, "picks", lambda event: "done", key="{correlation_id:uuid}")
    event = {"correlation_id": ONE, "item": "A", "bin": "4-2", "quantity": 6}
    gate.admit_sync("picks", event)
    gate.admit_sync("picks", {**event, "correlation_id": TWO, "quantity": 4})
    gate.engine.sightings.flush()
    (found,) = repeats_of(ledger, 2)
    assert found.kind is RepeatClass.SPLIT_ACTION
    assert found.evidence.endswith("only in correlation_id and in quantity")


def test_content_that_many_events_share_is_no_evidence(ledger: Ledger) -> None:
    """Pings are all alike: after a few of them nobody is told about any more."""
    gate = ledger.gate()
    orders(gate)
    for number in range(60):
        gate.admit_sync("orders", {"id": str(number), "type": "ping", "version": 1})
    gate.engine.sightings.flush()
    assert sum(classes(ledger).values()) <= 5


def test_a_reader_that_began_at_an_old_position_is_found(ledger: Ledger) -> None:
    # Given twenty events in a row
    gate = ledger.gate()
    orders(gate)
    for number in range(20):
        gate.admit_sync("orders", {"id": str(number)})
        ledger.clock.advance(1)
    gate.engine.sightings.flush()
    # When they all come again in their order
    for number in range(20):
        gate.admit_sync("orders", {"id": str(number)})
    gate.engine.sightings.flush()
    # Then from the eighth on each is known for what it is
    assert classes(ledger) == {RepeatClass.EXPECTED_REPLAY: 7, RepeatClass.STALE_OFFSET: 13}


@pytest.mark.parametrize("remembered", [20_000, 0])
def test_a_caretakers_second_look_is_no_arrival(ledger: Ledger, remembered: int) -> None:
    """Neither where memory answers it nor where the ledger does."""
    gate = ledger.gate(replay_cache_max=remembered)
    orders(gate)
    gate.admit_sync("orders", {"id": "1"})
    with gate.engine.store.look() as session:
        detail = session.detail(1)
    assert detail is not None
    gate.engine.recover_sync(detail)
    gate.engine.sightings.flush()
    assert counted(ledger) == {What.FRESH: 1, What.RECONCILED: 1}


def test_reservations_are_timed(ledger: Ledger) -> None:
    gate = ledger.gate()
    orders(gate)
    gate.admit_sync("orders", {"id": "1"})
    gate.engine.sightings.flush()
    with gate.engine.store.look() as session:
        timed = [tally for tally in session.tallies(0, 2**40) if latency_bound_us(tally.what) is not None]
    # By a clock that stands still it took no time at all.
    assert [(tally.count, tally.total, latency_bound_us(tally.what)) for tally in timed] == [(1, 0, 250)]


def test_totals_grow_and_are_never_taken_away(ledger: Ledger) -> None:
    gate = ledger.gate()
    orders(gate)
    for _ in range(3):
        gate.admit_sync("orders", {"id": "1"})
    assert gate.engine.sightings.totals()["orders", What.REPLAY] == (2, 0)
    gate.engine.sightings.flush()
    gate.admit_sync("orders", {"id": "1"})
    assert gate.engine.sightings.totals()["orders", What.REPLAY] == (3, 0)


def test_closing_tells_what_is_left(ledger: Ledger) -> None:
    gate = ledger.gate()
    orders(gate)
    gate.admit_sync("orders", {"id": "1"})
    gate.close()
    assert counted(ledger) == {What.FRESH: 1}


def test_a_ledger_that_is_down_costs_no_counts(ledger: Ledger) -> None:
    """What could not be told is told later, once."""
    faults = Faults()
    gate = Gate(store=faulty(open_store(ledger.url, clock=ledger.clock), faults), clock=ledger.clock)
    orders(gate)
    gate.admit_sync("orders", {"id": "1"})
    faults.down = True
    assert not gate.engine.sightings.flush()
    assert not gate.engine.sightings.flush()
    faults.down = False
    assert gate.engine.sightings.flush()
    assert gate.engine.sightings.flush()
    gate.close()
    assert counted(ledger) == {What.FRESH: 1}


def test_memory_is_bounded_whatever_comes(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """With nobody to take them over, sightings are lost and the loss is counted."""
    monkeypatch.setattr(module, "WAITING_MAX", 10)
    monkeypatch.setattr(module, "CLASSIFIED_MAX", 4)
    gate = ledger.gate()
    orders(gate)
    for number in range(25):
        gate.admit_sync("orders", {"id": str(number)})
    for _ in range(15):
        gate.admit_sync("orders", {"id": "1"})
    gate.engine.sightings.flush()
    assert counted(ledger) == {What.FRESH: 10, What.REPLAY: 14, What.LOST: 16}


def test_only_so_many_repeats_are_classified_at_once(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CLASSIFIED_MAX", 4)
    gate = ledger.gate()
    orders(gate)
    for _ in range(11):
        gate.admit_sync("orders", {"id": "1"})
    gate.engine.sightings.flush()
    assert counted(ledger)[What.REPLAY] == 10
    assert sum(classes(ledger).values()) == 4


def test_threads_lose_no_count(ledger: Ledger) -> None:
    """Arrivals are noted while others are being gathered."""
    gate = ledger.gate()
    orders(gate)
    gate.admit_sync("orders", {"id": "1"})
    done = threading.Event()

    def replay() -> None:
        for _ in range(2_000):
            gate.admit_sync("orders", {"id": "1"})

    def gather() -> None:
        while not done.is_set():
            gate.engine.sightings.totals()

    gatherer = threading.Thread(target=gather)
    gatherer.start()
    threads = [threading.Thread(target=replay) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
    done.set()
    gatherer.join(DEADLINE_SECONDS)
    assert gate.engine.sightings.totals()["orders", What.REPLAY] == (8_000, 0)


class _Busy(list[int]):
    """A list to which another thread appends in the very moment it is read."""

    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        self.append(99)
        return found

    def __iter__(self) -> Iterator[int]:
        yield from list.__getitem__(self, slice(None))
        self.append(99)


def test_what_comes_while_others_are_taken_stays_for_the_next_time() -> None:
    waiting = _Busy([1, 2, 3])
    assert taken(waiting) == [1, 2, 3]
    assert len(waiting) == 1


def test_only_so_many_contents_are_brought_to_the_ledger_at_once(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole contents come first: new ids are found where splits no longer are."""
    monkeypatch.setattr(duplicate_detector, "CONTENTS_MAX", 5)
    gate = ledger.gate()
    orders(gate)
    for number in range(50):
        gate.admit_sync("orders", {"id": str(number), "city": f"c{number}", "amount": number})
    gate.engine.sightings.flush()
    assert ledger.rows("SELECT count(*) FROM oncegate_seen") == [(5,)]


PICK = {"correlation_id": ONE, "item": "A", "bin": "4-2", "quantity": 6}


@pytest.mark.parametrize(
    ("second", "kind"),
    [
        ({**PICK, "correlation_id": TWO}, RepeatClass.NEW_ID_PER_RETRY),
        ({**PICK, "correlation_id": TWO, "quantity": 4}, RepeatClass.SPLIT_ACTION),
    ],
)
@pytest.mark.parametrize("told_first", [0, 1])
def test_two_halves_of_a_duplicate_are_one_whichever_processes_they_reach(
    ledger: Ledger, second: dict[str, Any], kind: RepeatClass, told_first: int
) -> None:
    """C6: each process has one half; the later arrival is the repeat, whoever tells the ledger first."""
    gates = [ledger.gate(), ledger.gate()]
    for gate in gates:
        Style("plain").register(gate, "picks", lambda event: "done", key="{correlation_id:uuid}")
    gates[0].admit_sync("picks", PICK)
    ledger.clock.advance(3)
    gates[1].admit_sync("picks", second)
    gates[told_first].engine.sightings.flush()
    assert not classes(ledger)
    gates[1 - told_first].engine.sightings.flush()

    assert classes(ledger) == {kind: 1}
    (found,) = repeats_of(ledger, 2)
    assert found.kind is kind
    assert "entry 1, 3 s before" in found.evidence


def test_a_process_that_starts_later_knows_what_was_seen_before_it(ledger: Ledger) -> None:
    """A restart between the two sendings hides nothing."""
    for correlation_id in (ONE, TWO):
        gate = ledger.gate()
        Style("plain").register(gate, "picks", lambda event: "done", key="{correlation_id:uuid}")
        gate.admit_sync("picks", {**PICK, "correlation_id": correlation_id})
        gate.close()
    assert classes(ledger) == {RepeatClass.NEW_ID_PER_RETRY: 1}


def test_tenants_with_the_same_content_are_no_duplicate(ledger: Ledger) -> None:
    gate = ledger.gate()
    Style("plain").register(gate, "picks", lambda event: "done", key="{correlation_id:uuid}")
    gate.admit_sync("picks", PICK, tenant="acme")
    gate.admit_sync("picks", {**PICK, "correlation_id": TWO}, tenant="other")
    gate.engine.sightings.flush()
    assert not classes(ledger)


def test_a_stale_offset_is_found_when_the_run_is_spread_over_processes(ledger: Ledger) -> None:
    """Twelve repeats over four processes: none sees eight, together they are a run."""
    gates = [ledger.gate() for _ in range(4)]
    for gate in gates:
        orders(gate)
    for number in range(12):
        gates[0].admit_sync("orders", {"id": str(number)})
        ledger.clock.advance(1)
    for number in range(12):
        gates[number % 4].admit_sync("orders", {"id": str(number)})
        ledger.clock.advance(0.1)
    for gate in gates:
        gate.engine.sightings.flush()

    found = classes(ledger)
    assert found[RepeatClass.STALE_OFFSET] >= 3
    assert sum(found.values()) == 12


def test_repeats_in_no_order_over_processes_are_no_stale_offset(ledger: Ledger) -> None:
    gates = [ledger.gate() for _ in range(4)]
    for gate in gates:
        orders(gate)
    for number in range(12):
        gates[0].admit_sync("orders", {"id": str(number)})
        ledger.clock.advance(1)
    for place, number in enumerate((7, 2, 11, 0, 5, 9, 1, 10, 3, 8, 6, 4)):
        gates[place % 4].admit_sync("orders", {"id": str(number)})
        ledger.clock.advance(0.1)
    for gate in gates:
        gate.engine.sightings.flush()
    assert classes(ledger) == {RepeatClass.EXPECTED_REPLAY: 12}


def test_a_forked_child_tells_only_what_it_saw_itself(ledger: Ledger) -> None:
    gate = ledger.gate()
    orders(gate)
    gate.admit_sync("orders", {"id": "1"})

    def child() -> None:
        gate.admit_sync("orders", {"id": "2"})
        gate.close()

    assert run_forked(child)[0] == 0
    gate.close()
    assert counted(ledger) == {What.FRESH: 2}


def test_the_thread_tells_by_itself(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has to call anything: a moment later the ledger knows."""
    told = threading.Event()
    monkeypatch.setattr(module, "FLUSH_SECONDS", 0.01)
    gate = ledger.gate()
    observe = gate.engine.sightings._commits.submit

    def perform(operation: Any) -> Any:
        answer = observe(operation)
        told.set()
        return answer

    monkeypatch.setattr(
        gate.engine.sightings, "_commits", type("Commits", (), {"submit": staticmethod(perform)})
    )
    orders(gate)
    gate.admit_sync("orders", {"id": "1"})
    assert told.wait(DEADLINE_SECONDS)
    assert counted(ledger) == {What.FRESH: 1}


def test_arrivals_are_new_retries_or_repeats() -> None:
    assert {What.FRESH, What.QUARANTINED, What.HELD} == ARRIVALS - REPEATS - RETRIES
    assert not REPEATS & RETRIES
    assert isinstance(ManualClock().elapsed_us(), int)
