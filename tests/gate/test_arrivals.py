"""First arrivals, replays, conflicts and tenants: the same event has one effect and one answer."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import Any

import pytest

from oncegate import Admission, Conflict, EventError, Gate, Verdict
from oncegate.gate.flows.conflicts import WAITS
from oncegate.store import LogKind
from tests.support.gates import Ledger, Style, Terminal

EVENT = {"id": "N-1", "equipment": "MSKU1234565"}


def counting(style: Style, gate: Gate, runs: list[Any], **options: Any) -> None:
    """Registers a handler that counts its runs and returns the number of the run."""

    def body(event, once):
        runs.append(event)
        return {"run": len(runs), "equipment": event.get("equipment")}

    style.register(gate, "bookings", body, **options)


def test_first_arrival_runs_and_second_replays_the_same_value(ledger: Ledger, style: Style) -> None:
    """A2: the handler runs for the first arrival only; both are answered alike."""
    # Given a surface whose handler counts its runs
    runs: list[Any] = []
    gate = ledger.gate()
    counting(style, gate, runs)
    # When the same event arrives three times
    first, *repeats = [style.admit(gate, "bookings", EVENT) for _ in range(3)]
    # Then one arrival has run it and the others got its value
    assert first.verdict is Verdict.RUN
    assert not first.replay
    assert first.value == {"run": 1, "equipment": "MSKU1234565"}
    for repeat in repeats:
        assert repeat.verdict is Verdict.REPLAY
        assert repeat.replay
        assert repeat.value == first.value
        assert repeat.key == first.key
    assert len(runs) == 1
    assert ledger.states() == ["committed"]


def test_the_gate_of_a_new_process_replays_from_the_ledger(ledger: Ledger, style: Style) -> None:
    """What one process recorded, another one answers, without running anything."""
    # Given an event settled by a gate that is then closed
    runs: list[Any] = []
    gate = ledger.gate()
    counting(style, gate, runs)
    first = style.admit(gate, "bookings", EVENT)
    gate.close()
    # When it arrives at another gate on the same file
    later = ledger.gate()
    counting(style, later, runs)
    replay = style.admit(later, "bookings", EVENT)
    # Then it is a replay of the same value
    assert (replay.verdict, replay.value) == (Verdict.REPLAY, first.value)
    assert len(runs) == 1


class Onlooker:
    """Is told of every arrival, so that none is answered before it has a flow."""

    def arrived(self, *_: object) -> int:
        return 1

    def answered(self, *_: object) -> None: ...

    def close(self) -> None: ...


@pytest.mark.parametrize("same_database", [False, True])
@pytest.mark.parametrize("is_watched", [False, True])
def test_a_replay_from_memory_does_not_need_the_ledger(
    ledger: Ledger, style: Style, is_watched: bool, same_database: bool
) -> None:
    """A settled key's replay costs no store call: it is answered even while another process writes."""
    # Given a settled event
    runs: list[Any] = []
    gate = ledger.gate()
    if is_watched:
        gate.engine.observe(Onlooker())
    counting(style, gate, runs, same_database=same_database)
    first = style.admit(gate, "bookings", EVENT)
    # When it arrives again while somebody else holds the ledger's write lock
    with contextlib.closing(sqlite3.connect(ledger.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        replay = style.admit(gate, "bookings", EVENT)
    # Then it is answered all the same
    assert (replay.verdict, replay.value) == (Verdict.REPLAY, first.value)


def test_without_memory_every_replay_is_answered_from_the_ledger(ledger: Ledger, style: Style) -> None:
    """The memory of outcomes is bounded: what has been dropped from it is read from the ledger."""
    # Given a gate that remembers a single outcome
    runs: list[Any] = []
    gate = ledger.gate(replay_cache_max=1)
    counting(style, gate, runs)
    # When many events arrive twice
    events = [{"id": f"N-{number}"} for number in range(5)]
    firsts = [style.admit(gate, "bookings", event) for event in events]
    replays = [style.admit(gate, "bookings", event) for event in events]
    # Then every second arrival is a replay
    assert [replay.value for replay in replays] == [first.value for first in firsts]
    assert all(replay.replay for replay in replays)
    assert len(runs) == 5


def test_the_key_does_not_depend_on_the_order_of_fields(ledger: Ledger, style: Style) -> None:
    """The same JSON written differently is the same event."""
    runs: list[Any] = []
    gate = ledger.gate()
    counting(style, gate, runs)
    style.admit(gate, "bookings", {"id": "N-1", "weight": 1.0, "equipment": "X"})
    # When its fields come in another order and a number is spelled differently
    replay = style.admit(gate, "bookings", {"equipment": "X", "weight": 1, "id": "N-1"})
    # Then it is a replay, not a conflict
    assert replay.verdict is Verdict.REPLAY
    assert len(runs) == 1


@pytest.mark.parametrize("from_memory", [True, False], ids=["settled here", "settled elsewhere"])
def test_other_content_under_a_known_key_conflicts_and_learns_nothing(
    ledger: Ledger, style: Style, from_memory: bool
) -> None:
    """I7: same key, other fingerprint: no effect, on record, kept, the outcome is not revealed."""
    # Given a settled event whose outcome is confidential
    runs: list[Any] = []
    gate = ledger.gate()
    counting(style, gate, runs)
    style.admit(gate, "bookings", EVENT)
    if not from_memory:
        gate = ledger.gate()
        counting(style, gate, runs)
    # When the same key arrives with another content
    conflict = style.admit(gate, "bookings", {**EVENT, "equipment": "CANARY"})
    # Then it is told that it conflicts, and what became of it; of the first one nothing
    assert conflict.verdict is Verdict.CONFLICT
    assert (conflict.value, conflict.resource, conflict.reason, conflict.error) == (None, None, WAITS, None)
    assert conflict.retry_after_seconds == 0
    with pytest.raises(Conflict) as raised:
        conflict.result()
    assert "MSKU1234565" not in str(raised.value)
    assert len(runs) == 1
    # And it stands in the log
    assert ledger.log_kinds() == [LogKind.COMMITTED, LogKind.CONFLICT, LogKind.QUARANTINED]


def test_a_conflict_looks_the_same_whatever_state_the_key_is_in(ledger: Ledger, style: Style) -> None:
    """Another content must not learn whether the key is in flight, settled or failed."""
    # Given three keys: one settled, one that may be tried again, one in flight
    gate, other = ledger.gate(), ledger.gate()
    answers: list[Admission] = []

    def conflict(key: str) -> None:
        answers.append(other.admit_sync("bookings", {"id": key, "other": True}))

    def body(event, once):
        if event["id"] == "in flight":
            conflict("in flight")
        if event["id"] == "fails":
            raise RuntimeError("no luck")
        return "done"

    style.register(gate, "bookings", body)
    Style("plain").register(other, "bookings", lambda event, once: "never")
    style.admit(gate, "bookings", {"id": "settled"})
    with pytest.raises(RuntimeError):
        style.admit(gate, "bookings", {"id": "fails"})
    # When each gets an arrival with another content
    conflict("settled")
    conflict("fails")
    style.admit(gate, "bookings", {"id": "in flight"})
    # Then the three answers differ in nothing but the key, and since when it is known
    assert len(answers) == 3
    for answer in answers:
        expected = Admission(
            Verdict.CONFLICT, answer.key, reason=WAITS, first_seen_ms=answer.first_seen_ms,
            differs=("other",), difference=answer.difference,
        )  # fmt: skip
        assert (answer.difference or "").startswith("differs in: other")
        assert answer == expected
        assert answer.first_seen_ms is not None


def test_ignored_fields_may_differ_between_two_sendings(ledger: Ledger, style: Style) -> None:
    """`ignore=` names what changes with every sending; it takes no part in the comparison."""
    runs: list[Any] = []
    gate = ledger.gate()
    counting(style, gate, runs, ignore=["sent", "meta.hop"])
    style.admit(gate, "bookings", {"id": "N-1", "sent": 1, "meta": {"hop": 1, "of": "x"}})
    # When only ignored fields differ, it is a replay
    replay = style.admit(gate, "bookings", {"id": "N-1", "sent": 2, "meta": {"hop": 7, "of": "x"}})
    assert replay.verdict is Verdict.REPLAY
    # When anything else differs, it is a conflict
    conflict = style.admit(gate, "bookings", {"id": "N-1", "sent": 1, "meta": {"hop": 1, "of": "y"}})
    assert conflict.verdict is Verdict.CONFLICT
    assert len(runs) == 1


def test_tenants_do_not_see_each_others_keys(ledger: Ledger, style: Style) -> None:
    """I8: another tenant's key is an unseen one: same event, own run, own outcome, own key."""
    # Given an event settled for one tenant
    runs: list[Any] = []
    gate = ledger.gate()
    counting(style, gate, runs)
    one = style.admit(gate, "bookings", EVENT, tenant="one")
    # When the same event, and another content under the same id, arrive for other tenants
    two = style.admit(gate, "bookings", EVENT, tenant="two")
    three = style.admit(gate, "bookings", {**EVENT, "equipment": "OTHER"}, tenant="three")
    nobody = style.admit(gate, "bookings", EVENT)
    # Then each runs for itself: neither a replay nor a conflict shows that the key is taken elsewhere
    assert [answer.verdict for answer in (one, two, three, nobody)] == [Verdict.RUN] * 4
    assert len({answer.key for answer in (one, two, three, nobody)}) == 4
    assert style.admit(gate, "bookings", EVENT, tenant="two").value == two.value
    assert len(runs) == 4


def test_the_tenant_can_be_read_from_the_event(ledger: Ledger, style: Style) -> None:
    """`tenant=` names the field that says whose event it is."""
    runs: list[Any] = []
    gate = ledger.gate()
    counting(style, gate, runs, tenant="owner.name")
    events = [{"id": "N-1", "owner": {"name": name}} for name in ("one", "two", "one")]
    verdicts = [style.admit(gate, "bookings", event).verdict for event in events]
    assert verdicts == [Verdict.RUN, Verdict.RUN, Verdict.REPLAY]
    assert ledger.rows("SELECT tenant FROM oncegate_entries ORDER BY id") == [("one",), ("two",)]


def test_surfaces_do_not_share_keys(ledger: Ledger, style: Style) -> None:
    """The same event at two surfaces is two pieces of work."""
    runs: list[Any] = []
    gate = ledger.gate()
    counting(style, gate, runs)
    style.register(gate, "invoices", lambda event, once: "invoiced")
    answers = [style.admit(gate, surface, EVENT) for surface in ("bookings", "invoices")]
    assert [answer.verdict for answer in answers] == [Verdict.RUN, Verdict.RUN]
    assert answers[0].key != answers[1].key


def test_an_event_that_is_not_json_is_refused_and_leaves_nothing(ledger: Ledger, style: Style) -> None:
    """What cannot be stored cannot be run again, so it is not taken at all."""
    runs: list[Any] = []
    gate = ledger.gate()
    counting(style, gate, runs)
    for event in ({"id": "N-1", "when": object()}, {"id": "N-1", "x": float("nan")}, {1: "N-1"}):
        with pytest.raises(EventError):
            style.admit(gate, "bookings", event)
    with pytest.raises(EventError, match="bytes"):
        style.admit(gate, "bookings", {"id": "N-1", "blob": "x" * 1_100_000})
    assert not runs
    assert ledger.gate().engine.store.connect().counts() == {}


def test_the_event_of_a_replay_is_not_changed_by_a_handler_that_changes_its_own(
    ledger: Ledger, style: Style
) -> None:
    """The content is read before the handler runs; a handler that edits the event changes no record."""
    gate = ledger.gate()

    def body(event, once):
        event["equipment"] = "changed"
        return "done"

    style.register(gate, "bookings", body)
    style.admit(gate, "bookings", dict(EVENT))
    assert style.admit(gate, "bookings", dict(EVENT)).verdict is Verdict.REPLAY


def test_the_resource_of_an_effect_is_shown_by_the_replay(ledger: Ledger, style: Style) -> None:
    """A9: what a downstream handed out stands beside the outcome."""
    gate, terminal = ledger.gate(), Terminal(honours_key=True)
    ect = gate.downstream("ect", honours_key="7d")

    def body(event, once):
        slot = yield once.effect(ect, style.function(terminal.claim), event["equipment"])
        return slot["id"]

    style.register(gate, "bookings", body)
    first = style.admit(gate, "bookings", EVENT)
    assert first.resource == first.value == "MSKU1234565-1"
    assert style.admit(gate, "bookings", EVENT).resource == first.resource
