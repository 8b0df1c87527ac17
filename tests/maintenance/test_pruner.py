"""The pruner forgets what each surface's retention allows, in short steps, by a clock it can believe."""

from __future__ import annotations

import contextlib
import sqlite3
from datetime import timedelta
from itertools import count

import pytest

from oncegate import ConfigError, Gate, Verdict
from oncegate.errors import StoreBusy
from oncegate.maintenance.pruner import SWEEP_EVERY, Bounds, Pruner, forget_older
from oncegate.stores.sqlite.session import SqliteSession
from tests.support.gates import BOOK, Ledger

DAY = 86_400
LONG_AFTER = 91 * DAY


def register(gate: Gate, surface: str = "orders", **options) -> list[str]:
    runs: list[str] = []

    @gate.handler(surface, key="{id}", lease="10m", **options)
    def handle(event):
        runs.append(event["id"])
        if event["id"] == "again":
            raise ValueError("not now")
        return event["id"]

    look(gate)
    return runs


def look(gate: Gate) -> None:
    """As a worker does from the first minute on: the ledger notes what time it is."""
    with contextlib.closing(gate.engine.store.connect()) as session, session.unit():
        session.sight(gate.engine.clock.wall_ms())


def admit(gate: Gate, *names: str, surface: str = "orders") -> None:
    for name in names:
        gate.admit_sync(surface, {"id": name})


def ids(ledger: Ledger) -> list[int]:
    return [number for (number,) in ledger.rows("SELECT id FROM oncegate_entry ORDER BY id")]


def test_old_keys_go_and_young_ones_stay(ledger: Ledger) -> None:
    """After retention, skew and grace, and not before."""
    gate = ledger.gate(replay_cache_max=0)
    runs = register(gate, retention="30d")
    pruner = Pruner(gate)
    admit(gate, "old")
    ledger.clock.advance(30 * DAY + 300 + 3600)
    assert pruner.run_once().entries == 0
    admit(gate, "young")
    ledger.clock.advance(1)

    report = pruner.run_once()

    assert (report.entries, report.is_complete) == (1, True)
    admit(gate, "old", "young")
    assert runs == ["old", "young", "old"]


def test_each_surface_has_its_own_retention(ledger: Ledger) -> None:
    """A short one does not shorten another's."""
    gate = ledger.gate()
    register(gate, "ids", retention="24h", retention_floor="24h")
    register(gate, "orders", retention="90d")
    admit(gate, "a", surface="ids")
    admit(gate, "a", surface="orders")
    ledger.clock.advance(3 * DAY)

    report = Pruner(gate).run_once()

    assert [(item.surface, item.entries) for item in report.surfaces] == [("ids", 1), ("orders", 0)]


def test_what_waits_is_never_forgotten(ledger: Ledger) -> None:
    """However old: what a failure left in doubt, and what stands in quarantine."""
    gate = ledger.gate()
    register(gate)
    with pytest.raises(ValueError, match="not now"):
        admit(gate, "again")
    gate.admit_sync("orders", {"no": "id"})
    ledger.clock.advance(10 * LONG_AFTER)

    assert Pruner(gate).run_once().entries == 0
    assert ledger.states() == ["unknown", "quarantined"]


def test_run_is_bounded_and_the_next_one_goes_on(ledger: Ledger, monkeypatch) -> None:
    """A long backlog takes several runs, each of several short steps."""
    gate = ledger.gate()
    register(gate)
    admit(gate, *(f"e{number}" for number in range(25)))
    ledger.clock.advance(LONG_AFTER)
    monkeypatch.setattr("oncegate.maintenance.pruner.STEP_ENTRIES", 4)
    pruner = Pruner(gate, bounds=Bounds(forgotten_max=10, look_entries=7))

    reports = [pruner.run_once() for _ in range(3)]

    assert [report.entries for report in reports] == [10, 10, 5]
    assert [report.is_complete for report in reports] == [False, False, True]
    assert ledger.rows("SELECT count(*) FROM oncegate_log WHERE kind = 10") == [(3 + 3 + 2,)]


def test_looking_is_bounded(ledger: Ledger) -> None:
    """Entries of other surfaces in between cost a bounded look a run, and are passed in the end."""
    gate = ledger.gate()
    register(gate, "others", retention="900d")
    register(gate)
    admit(gate, *(f"e{number}" for number in range(20)), surface="others")
    admit(gate, "mine")
    ledger.clock.advance(LONG_AFTER)
    pruner = Pruner(gate, bounds=Bounds(looked_max=10, look_entries=5))

    found = [pruner.run_once().surfaces[1] for _ in range(3)]

    assert [item.looked for item in found] == [10, 10, 1]
    assert [item.entries for item in found] == [0, 0, 1]


def test_what_was_passed_over_is_looked_at_again_the_next_day(ledger: Ledger) -> None:
    """An entry that could not go when the pruner passed it goes with the daily sweep."""
    gate = ledger.gate()
    register(gate)
    with pytest.raises(ValueError, match="not now"):
        admit(gate, "again")
    admit(gate, *(f"e{number}" for number in range(6)))
    ledger.clock.advance(LONG_AFTER)
    pruner = Pruner(gate, bounds=Bounds(look_entries=2))
    assert pruner.run_once().entries == 6
    admit(gate, "new")
    ledger.rows("UPDATE oncegate_entry SET state = 2 WHERE state = 5")
    assert pruner.run_once().entries == 0

    ledger.clock.advance(SWEEP_EVERY / timedelta(seconds=1))

    assert pruner.run_once().entries == 1


def test_numbers_are_not_used_again_when_the_newest_is_forgotten(ledger: Ledger) -> None:
    """The ledger may become empty and still goes on counting."""
    gate = ledger.gate(replay_cache_max=0)
    register(gate)
    admit(gate, "a", "b")
    before = ids(ledger)
    ledger.clock.advance(LONG_AFTER)
    Pruner(gate).run_once()
    assert ids(ledger) == []

    admit(gate, "a")

    assert min(ids(ledger)) > max(before)


def test_clock_that_leaps_a_year_forgets_nothing(ledger: Ledger) -> None:
    """And when it is set right again, replays are still replays."""
    gate = ledger.gate(replay_cache_max=0)
    runs = register(gate)
    pruner = Pruner(gate)
    admit(gate, "event")
    pruner.run_once()
    ledger.clock.step_wall(365 * DAY)

    report = pruner.run_once()

    assert (report.entries, report.clock_is_doubted) == (0, True)
    ledger.clock.step_wall(-365 * DAY)
    assert pruner.run_once().clock_is_doubted is False
    admit(gate, "event")
    assert runs == ["event"]


def test_small_leap_that_lasts_is_believed(ledger: Ledger) -> None:
    """A machine that was off for a week goes on by its clock after a day."""
    gate = ledger.gate()
    register(gate)
    ledger.clock.step_wall(7 * DAY)
    assert Pruner(gate).run_once().clock_is_doubted
    ledger.clock.advance(DAY)

    assert not Pruner(gate).run_once().clock_is_doubted


def test_large_leap_is_never_believed_without_a_person(
    ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    """A clock a year ahead, however long it lasts, forgets nothing; the log names the command (I15)."""
    gate = ledger.gate(replay_cache_max=0)
    runs = register(gate)
    admit(gate, "event")
    ledger.clock.step_wall(365 * DAY)
    for _ in range(5):
        ledger.clock.advance(DAY)
        assert Pruner(gate).run_once().entries == 0

    admit(gate, "event")

    assert runs == ["event"]
    assert "oncegate prune --believe-clock" in caplog.text


def test_the_first_prune_under_a_clock_a_year_ahead_forgets_nothing(ledger: Ledger) -> None:
    """There is no sighting to compare with: the newest entry says what time it was."""
    gate = ledger.gate(replay_cache_max=0)
    runs = register(gate)
    admit(gate, "event")
    ledger.rows("DELETE FROM oncegate_meta WHERE name = 'sighting'")
    ledger.clock.step_wall(365 * DAY)

    report = Pruner(gate).run_once()

    assert (report.entries, report.clock_is_doubted) == (0, True)
    admit(gate, "event")
    assert runs == ["event"]


def test_a_person_may_say_that_the_clock_is_right(ledger: Ledger) -> None:
    """After a year in which the machine was really off."""
    gate = ledger.gate()
    register(gate)
    admit(gate, "event")
    ledger.clock.step_wall(365 * DAY)
    bounds, age = Bounds(), timedelta(days=90)

    kept, was_doubted = forget_older(
        gate.engine.store, gate.engine.clock, "orders", age, actor="anna", bounds=bounds
    )
    gone, is_doubted = forget_older(
        gate.engine.store, gate.engine.clock, "orders", age, actor="anna", bounds=bounds, is_certain=True
    )

    assert (kept.entries, was_doubted, gone.entries, is_doubted) == (0, True, 1, False)
    assert not Pruner(gate).run_once().clock_is_doubted


def test_writers_work_between_steps(ledger: Ledger, monkeypatch) -> None:
    """No lock outlives its step: somebody who would not wait at all writes before and after each."""
    gate = ledger.gate()
    register(gate)
    ledger.create_bookings()
    admit(gate, *(f"e{number}" for number in range(8)))
    ledger.clock.advance(LONG_AFTER)

    def write_between(entries, size):
        with contextlib.closing(sqlite3.connect(ledger.path, isolation_level=None, timeout=0)) as other:
            for start in range(0, len(entries), size):
                other.execute(BOOK, (f"before {start}", ""))
                yield tuple(entries[start : start + size])
                other.execute(BOOK, (f"after {start}", ""))

    monkeypatch.setattr("oncegate.maintenance.pruner._steps", write_between)
    monkeypatch.setattr("oncegate.maintenance.pruner.STEP_ENTRIES", 2)

    assert Pruner(gate).run_once().entries == 8
    assert len(ledger.bookings()) == 8


def test_busy_ledger_puts_the_rest_off(ledger: Ledger, monkeypatch) -> None:
    """Others come first: what was done stays done, and the next run takes the rest."""
    gate = ledger.gate()
    register(gate)
    admit(gate, *(f"e{number}" for number in range(6)))
    ledger.clock.advance(LONG_AFTER)
    forget, calls = SqliteSession.forget, count()

    def forget_once(session, wanted):
        if next(calls) == 1:
            raise StoreBusy("somebody else is writing")
        return forget(session, wanted)

    monkeypatch.setattr("oncegate.maintenance.pruner.STEP_ENTRIES", 2)
    monkeypatch.setattr(SqliteSession, "forget", forget_once)
    pruner = Pruner(gate)

    first, second = pruner.run_once(), pruner.run_once()

    assert (first.entries, first.is_complete) == (2, False)
    assert (second.entries, second.is_complete) == (4, True)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"retention": "13d"}, "below the floor of 2w"),
        ({"retention": "24h"}, "below the floor of 2w"),
        ({"retention": "23h", "retention_floor": "24h"}, "below the floor of 1d"),
        ({"retention": "30d", "redelivery_horizon": "31d"}, "would run twice"),
        ({"redelivery_horizon": "92d"}, "keep keys for at least 92d"),
    ],
)
def test_retention_that_is_too_short_is_refused(ledger: Ledger, options, says) -> None:
    """With the surface, the reason and the way out."""
    with pytest.raises(ConfigError, match=says) as refused:
        register(ledger.gate(), **options)
    assert str(refused.value).startswith("surface orders: ")


@pytest.mark.parametrize(
    "options",
    [
        {"retention": "14d"},
        {"retention": "24h", "retention_floor": "24h"},
        {"retention": "30d", "redelivery_horizon": "30d"},
        {},
    ],
)
def test_retention_that_is_long_enough_is_taken(ledger: Ledger, options) -> None:
    """Up to the boundary itself."""
    gate = ledger.gate()
    register(gate, **options)
    assert gate.admit_sync("orders", {"id": "event"}).verdict is Verdict.RUN


def test_a_partner_may_have_its_own_retention(ledger: Ledger) -> None:
    """F8: longer or shorter than its surface's; two partners with one retention share a walk."""
    gate = ledger.gate(replay_cache_max=0)
    own = {"acme": "90d", "globex": "90d", "brief": "14d"}
    register(gate, retention="30d", retention_by_partner=own)
    for tenant in ("acme", "globex", "brief", "other"):
        gate.admit_sync("orders", {"id": tenant}, tenant=tenant)
    pruner, gone = Pruner(gate), []
    for days in (15, 16, 60):
        ledger.clock.advance(days * DAY)
        gone.append([(item.tenants.names, item.entries) for item in pruner.run_once().surfaces])

    every, long = ("acme", "brief", "globex"), ("acme", "globex")
    assert gone == [
        [(every, 0), (("brief",), 1), (long, 0)],
        [(every, 1), (("brief",), 0), (long, 0)],
        [(every, 0), (("brief",), 0), (long, 2)],
    ]
    notes = [note for (note,) in ledger.rows("SELECT note FROM oncegate_log WHERE kind = 10")]
    assert [note.partition(" from")[0] for note in notes] == [
        "1 entry of orders, brief,", "1 entry of orders", "2 entries of orders, acme, globex,",
    ]  # fmt: skip
