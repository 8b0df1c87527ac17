"""Surfaces that accept first: stored and answered, run later, in order of their lanes, each once (I2)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from oncegate import ConfigError, Gate, UsageError, Verdict
from oncegate.errors import Failed, NotApplied
from oncegate.gate.flows import accepting
from oncegate.gate.flows.accepting import accepted_arrival, destination_of
from oncegate.lanes import Delivered
from oncegate.lanes.outcomes import Dead
from oncegate.maintenance.accepted_events import AcceptedWork
from oncegate.maintenance.accepted_events import _outcome as work_outcome
from oncegate.model.backlog import Backlog
from oncegate.model.conflicts import KEPT_MAX
from oncegate.model.identity import KIND, OVERLAP_MIN_MS, KeyRule, LedgerNow, read_identity, rekeyed
from oncegate.model.states import State
from oncegate.model.surface import read_arrival
from oncegate.model.template import KeyTemplate
from oncegate.store import (
    DocumentChange,
    EntryFilter,
    HeadsWanted,
    LaneState,
    LaneView,
    LogKind,
    Outgoing,
    Store,
)
from oncegate.stores.postgres import PostgresStore
from oncegate.stores.sqlite import SqliteStore
from oncegate.testing import ManualClock
from oncegate.testing.waiting import DEADLINE_SECONDS, wait_until
from tests.support.gates import until

SURFACE = "orders"


class Shop:
    """A gate with one accepting surface, and what its handler saw."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.clock = clock
        self.gate = Gate(store=store, clock=clock)
        self.ran: list[str] = []
        self.errors: dict[str, list[Exception]] = {}

        @self.gate.handler(SURFACE, key="{id}", mode="accept", lane="{order}", attempts_max=3)
        def take(event: dict[str, Any], once: Any) -> str:
            self.ran.append(event["id"])
            errors = self.errors.get(event["id"])
            if errors:
                raise errors.pop(0)
            return f"took {event['id']}"

        self.work = AcceptedWork(self.gate, jitter=lambda: 0.5)

    def admit(self, event_id: str, order: str = "o", **more: Any) -> Any:
        return self.gate.admit_sync(SURFACE, {"id": event_id, "order": order, **more})

    def run(self, seconds: float = 0) -> None:
        """Lets time pass and runs what is due, as often as something is."""
        self.clock.advance(seconds)
        asyncio.run(self.work.run_once())

    def lane(self, order: str = "o") -> LaneView:
        with self.gate.engine.store.look() as reader:
            found = reader.find_lane(destination_of(SURFACE), "", order)
        assert found is not None
        return found


@pytest.fixture(params=["sqlite", "postgres"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    clock = ManualClock()
    store: Store = (
        SqliteStore(tmp_path / "ledger.db", clock=clock)
        if request.param == "sqlite"
        else PostgresStore(request.getfixturevalue("ledger_url"), clock=clock)
    )
    made = Shop(store, clock)
    yield made
    made.gate.close()


def test_accepted_events_run_later_in_order_of_their_lanes(shop: Shop) -> None:
    """Nothing runs while it is accepted; then each lane runs in the order of its arrivals."""
    for number in range(1, 4):
        assert shop.admit(f"a{number}", "a").verdict is Verdict.ACCEPTED
        assert shop.admit(f"b{number}", "b").result() is None
    assert shop.ran == []

    shop.run()

    assert [event for event in shop.ran if event[0] == "a"] == ["a1", "a2", "a3"]
    assert [event for event in shop.ran if event[0] == "b"] == ["b1", "b2", "b3"]


def test_repeats_are_accepted_once_and_replayed_afterwards(shop: Shop) -> None:
    """Before it ran a repeat is accepted again; afterwards it gets the outcome; it runs once."""
    assert [shop.admit("e").verdict for _ in range(2)] == [Verdict.ACCEPTED] * 2
    shop.run()

    again = shop.admit("e")

    assert (again.verdict, again.value) == (Verdict.REPLAY, "took e")
    shop.run()
    assert shop.ran == ["e"]


@pytest.mark.parametrize("order", ["o", "p"], ids=["one lane", "two lanes"])
def test_an_event_in_its_lane_under_an_old_key_and_under_a_new_one_runs_once(
    shop: Shop, order: str
) -> None:
    """I27: its key template was changed while it waited."""
    shop.admit("e")
    with closing(shop.gate.engine.store.connect()) as session, session.unit():
        kept = session.document(KIND, SURFACE)
        assert kept is not None
        now = LedgerNow(session.now_ticks(), shop.clock.wall_ms())
        rule = KeyRule(KeyTemplate.parse("{id:str}"), None)
        made = rekeyed(read_identity(kept.body), rule, now, OVERLAP_MIN_MS).encoded()
        assert session.change_document(DocumentChange(KIND, SURFACE, kept.version, made, 1, "ann", "yes"))
    newer = Gate(store=shop.gate.engine.store, clock=shop.clock)

    @newer.handler(SURFACE, key="{id:str}", mode="accept", lane="{order}", ignore=["order"])
    def take(event: dict[str, Any], once: Any) -> None:
        shop.ran.append(event["id"])

    shop.clock.advance(OVERLAP_MIN_MS / 1000)
    again = newer.admit_sync(SURFACE, {"id": "e", "order": order})
    assert again.verdict is Verdict.ACCEPTED
    work = AcceptedWork(newer, jitter=lambda: 0.5)
    for _ in range(3):
        asyncio.run(work.run_once())
        shop.clock.advance(60)
    assert shop.ran == ["e"]
    newer.close()


def test_another_content_under_the_same_key_is_a_conflict(shop: Shop) -> None:
    """Before and after it ran, each in the log; it is kept once for a person, and not run (I7)."""
    shop.admit("e")
    assert shop.admit("e", amount=2).verdict is Verdict.CONFLICT
    with shop.gate.engine.store.look() as reader:
        conflict, kept = reader.read_log(0, 100)
        (waiting,) = reader.entries(EntryFilter((State.QUARANTINED,)), None, 10)
    assert (conflict.kind, conflict.entry_id) == (LogKind.CONFLICT, -shop.lane().lane_id)
    assert (kept.kind, kept.entry_id) == (LogKind.QUARANTINED, waiting.entry_id)
    assert "of an event in its lane" in (waiting.reason or "")
    shop.run()
    assert shop.admit("e", amount=2).verdict is Verdict.CONFLICT
    shop.run()
    assert shop.ran == ["e"]
    with shop.gate.engine.store.look() as reader:
        assert reader.counts() == {State.COMMITTED: 1, State.QUARANTINED: 1}


def test_an_accepted_event_that_conflicts_only_when_it_runs_is_not_lost(shop: Shop) -> None:
    """It was acknowledged: what is not kept as a conflict stays in its lane as a dead letter (I2)."""

    def accepts(amount: int) -> Any:
        event = {"id": "e", "order": "o", "amount": amount}
        return read_arrival(shop.gate.engine.surface(SURFACE).rule, event, None, shop.clock.wall_ms())

    def run(amount: int) -> Any:
        return asyncio.run(shop.gate.engine.run_accepted(SURFACE, accepts(amount)))

    run(0)
    kept = [work_outcome(run(amount)) for amount in range(1, KEPT_MAX + 1)]
    beyond = work_outcome(run(KEPT_MAX + 1))
    assert kept == [Delivered("conflict")] * KEPT_MAX
    assert isinstance(beyond, Dead)


def test_another_content_while_an_event_is_tried_again_is_in_the_log(shop: Shop) -> None:
    """Once there is an entry, a conflict is recorded as inline (I7)."""
    shop.errors["e"] = [NotApplied("not now")]
    shop.admit("e")
    shop.run()

    assert shop.admit("e", amount=2).verdict is Verdict.CONFLICT

    with shop.gate.engine.store.look() as reader:
        assert LogKind.CONFLICT in [record.kind for record in reader.read_log(0, 100)]


def test_unreadable_key_or_lane_is_quarantined(shop: Shop) -> None:
    """As inline: kept, visible, never run."""
    assert shop.gate.admit_sync(SURFACE, {"order": "o"}).verdict is Verdict.QUARANTINE
    unplaced = shop.gate.admit_sync(SURFACE, {"id": "e"})
    assert unplaced.verdict is Verdict.QUARANTINE
    assert "lane_input" in (unplaced.reason or "")
    shop.run()
    assert shop.ran == []


def test_failing_event_keeps_only_its_lane_waiting(shop: Shop) -> None:
    """It is tried again later; what is behind it waits, other lanes do not."""
    shop.errors["a1"] = [NotApplied("not now")]
    for event in ("a1", "a2", "b1"):
        shop.admit(event, event[0])
    shop.run()
    assert sorted(shop.ran) == ["a1", "b1"]

    shop.run(10)

    assert [event for event in shop.ran if event[0] == "a"] == ["a1", "a1", "a2"]


def test_final_failure_lets_the_next_one_go(shop: Shop) -> None:
    """A failure for good is an outcome: recorded, replayed, and out of the way."""
    shop.errors["e1"] = [Failed("never")]
    shop.admit("e1")
    shop.admit("e2")
    shop.run()
    shop.run(10)

    assert shop.ran == ["e1", "e2"]
    assert shop.admit("e1").error is not None


def test_lane_waits_while_its_head_waits_for_a_person(shop: Shop) -> None:
    """After its attempts the gate holds it; nothing overtakes, however long that takes."""
    shop.errors["e1"] = [RuntimeError("no")] * 9
    shop.admit("e1")
    shop.admit("e2")
    for _ in range(12):
        shop.run(60)

    assert shop.ran == ["e1"] * 3
    assert shop.lane().state is LaneState.WAITING
    assert shop.lane().waiting_behind == 1
    assert shop.admit("e1").verdict is Verdict.HOLD


def test_engine_that_died_after_the_handler_does_not_run_it_again(shop: Shop) -> None:
    """The outcome is recorded, the lane is not moved on: the next one finds a replay."""
    shop.admit("e1")
    shop.admit("e2")
    session = shop.gate.engine.store.connect()
    with session.unit():
        heads = session.lease_heads(HeadsWanted(((destination_of(SURFACE), 9),), 60_000, 1))
    session.close()
    asyncio.run(shop.gate.engine.run_accepted(SURFACE, *accepted_arrival(heads.deliveries[0])))

    shop.run(61)

    assert shop.ran == ["e1", "e2"]


def test_running_work_is_woken_by_what_is_accepted(shop: Shop) -> None:
    """In the same process an accepted event runs at once."""

    async def scenario() -> None:
        async with shop.work, asyncio.timeout(DEADLINE_SECONDS):
            await shop.gate.admit(SURFACE, {"id": "e", "order": "o"})
            await until(lambda: shop.ran)

    asyncio.run(scenario())
    assert shop.ran == ["e"]


def test_wrong_settings_are_refused(shop: Shop) -> None:
    """Each with what to do instead."""
    for settings in ({"mode": "later"}, {"lane": "{order}"}):
        with pytest.raises(ConfigError):
            shop.gate.handler("wrong", key="{id}", **settings)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="later"):
        shop.gate.admit_sync(SURFACE, {"id": "e", "order": "o"}, tx=object())
    with pytest.raises(ConfigError, match="accept"):
        AcceptedWork(Gate(store=shop.gate.engine.store, clock=shop.clock))


def test_program_without_an_event_loop_runs_what_it_accepted(shop: Shop) -> None:
    """`with` works in a thread of its own, with plain handlers; leaving the block ends it."""
    with shop.gate.worker(only=["accepted"]):
        shop.admit("e1")
        shop.admit("e2")
        wait_until(lambda: shop.ran == ["e1", "e2"])
    assert shop.lane().state is LaneState.IDLE


def test_async_handlers_need_their_own_loop(shop: Shop) -> None:
    """A thread's loop is not theirs: refused, with what to do."""

    @shop.gate.handler("later", key="{id}", mode="accept")
    async def later(event: dict[str, Any], once: Any) -> None: ...

    with pytest.raises(UsageError, match="async with"), shop.gate.worker():
        pass


def test_full_lane_is_busy_until_something_has_run(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sender is told to come again: refused, not dropped (I18)."""
    monkeypatch.setattr(accepting, "Outgoing", lambda *values: replace(Outgoing(*values), backlog_max=2))
    for event in ("e1", "e2"):
        assert shop.admit(event).verdict is Verdict.ACCEPTED

    refused = shop.admit("e3")

    assert (refused.verdict, refused.retry_after_seconds > 0) == (Verdict.BUSY, True)
    assert "lane" in (refused.reason or "")
    shop.run()
    assert shop.admit("e3").verdict is Verdict.ACCEPTED
    shop.run()
    assert shop.ran == ["e1", "e2", "e3"]


def test_full_surface_is_busy_over_all_its_lanes(shop: Shop) -> None:
    """Counted for the whole surface: whatever lane the next one is for, it waits until some have run."""
    shop.gate.engine._context.backlog = Backlog(2)
    assert [shop.admit(event, event).verdict for event in ("a", "b")] == [Verdict.ACCEPTED] * 2

    refused = shop.admit("c", "c")

    assert (refused.verdict, "about 2" in (refused.reason or "")) == (Verdict.BUSY, True)
    shop.run(11)
    assert shop.admit("c", "c").verdict is Verdict.ACCEPTED


def test_lane_that_no_store_could_index_is_quarantined(shop: Shop) -> None:
    """Two thousand bytes are enough for the name of a lane."""
    long = shop.admit("e", "o" * 3_000)
    assert (long.verdict, "lane_input" in (long.reason or "")) == (Verdict.QUARANTINE, True)
