"""Erasure on both ledgers: content goes, keys, records and proofs stay. Authors of records."""

from __future__ import annotations

import zlib
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from oncegate.errors import ConfigError, Failed, OutcomeErased, RecordedFailure
from oncegate.feed import Feed
from oncegate.gate.admission import Verdict
from oncegate.journal.erasing import Eraser
from oncegate.journal.proofs import prove_entry
from oncegate.journal.rollback.plans import PlanState
from oncegate.journal.rollback.releasing import Releasing
from oncegate.journal.snapshots.beliefs import id_of
from oncegate.maintenance.payload_pruner import PayloadPruner
from oncegate.maintenance.pruner import Pruner
from oncegate.maintenance.reconciler import Reconciler
from oncegate.store import EntryFilter, LogKind
from oncegate.store.sealing import ERASED_VALUE
from oncegate.wiring import Gate
from oncegate.wiring.history import history_of
from tests.journal.conftest import SealedLedger
from tests.support.care import Care


def everything(made: SealedLedger, entry: int) -> str:
    with made.store.look() as session:
        return repr(session.detail(entry))


def test_a_subject_is_erased_and_everything_else_stays(sealed: SealedLedger) -> None:
    sealed.fill(9)  # number 3 fails, with an address in its message
    sealed.seal()
    Pruner(sealed.gate).run_once()  # tells the ledger which field names a person
    eraser = Eraser(sealed.store, sealed.clock)
    entries = eraser.find("c-0", eraser.subject_fields())
    assert len(entries) == 3
    with sealed.store.look() as session:
        before = [proof["leaf"] for entry in entries for proof in prove_entry(session, entry)]
    report = eraser.erase(entries, actor="ann", reason="request 12")
    assert (report.erased, report.open) == (entries, [])
    for entry in entries:
        text = everything(sealed, entry)
        assert "c-0" not in text
        assert "example.org" not in text
    again = eraser.erase(entries, actor="ann", reason="request 12")
    assert (again.erased, again.already) == ([], 3)
    found = sealed.verify()
    assert found.is_intact, found.findings
    with sealed.store.look() as session:
        after = [proof["leaf"] for entry in entries for proof in prove_entry(session, entry)]
        records = session.log_before(None, 20, by_people=True)
    assert after[: len(before)] == before or sorted(after) == sorted(before)
    erased = [one for one in records if one.kind is LogKind.ERASED]
    assert {(one.actor, one.note) for one in erased} == {("ann", "request 12")}
    assert len(erased) == 3
    sealed.seal()
    found = sealed.verify()
    assert found.is_intact, found.findings


def test_erasure_reaches_the_feed_and_values_of_changed_objects(
    sealed: SealedLedger, tmp_path: Path
) -> None:
    """A plan that knows no value any more leaves the object to a person."""
    care = Care(sealed.url, tmp_path, clock=sealed.clock)
    care.take()
    feed, gate = Feed(care.gate), care.gate

    @gate.handler("told", key="{id}")
    def tell(event: dict[str, Any], once: Any) -> None:
        feed.publish_sync(event_id=event["id"], key="k", data={"name": event["name"]})
        with once.commit() as tx:
            care.add(tx, event["id"], event["name"], "monday")

    for name in ("anna", "berta"):
        gate.admit_sync("told", {"id": name[0], "name": name})
    with sealed.store.look() as session:
        (first, _) = sorted(one.entry_id for one in session.entries(EntryFilter(surface="told"), None, 9))
    Eraser(sealed.store, sealed.clock).erase([first], actor="ann", reason="request 12")

    assert [one.data for one in feed.read_sync("r").events] == [{"erased": True}, {"name": "berta"}]
    with sealed.store.look() as session:
        rows = session.mutations_since("0", 0, 99)
    assert [(one.before, one.after == ERASED_VALUE) for one in rows] == [(None, True), (None, False)]
    _, lines = care.plan()
    assert {id_of(one.target): one.hand for one in lines.lines} == {
        "a": "values of its changes were erased on request: remove it, by hand in routes, id a",
        "b": None,
    }
    care.close()


def test_what_roll_backs_keep_of_an_erased_event_goes_too(tmp_path: Path) -> None:
    """Compensations, released copies, plans that brought it back, and plans that wait."""
    care = Care(f"sqlite:///{tmp_path / 'ledger.db'}", tmp_path)
    care.fill(1)
    care.take()
    care.visit("CANARY", "x0", "CANARY")
    care.take()
    for to in (1, 2, 1):  # undone, brought back, undone
        last, _ = care.plan(to)
        care.approve(last)
        care.apply()
    care.visit("CANARY2", "x1", "CANARY")
    first, second = (one for one in _numbers(care, "visits") if one > 1)
    undone, _ = care.plan()
    care.approve(undone)
    care.apply()
    engine = care.gate.engine
    (copy,) = Releasing(engine.commits, engine.clock).release(undone.name, [second], "ann", "wanted")
    Reconciler(care.gate).run_once()
    waits, _ = care.plan()
    assert (copy.refused, waits.chosen) == ("", 1)
    care.approve(waits)

    report = Eraser(engine.store, engine.clock).erase([first, second], actor="ann", reason="request 12")
    assert set(report.erased) == {first, second, copy.again, *_numbers(care, "oncegate.rollback")}
    assert report.open == []
    care.apply()
    assert care.stands(waits.name).state is PlanState.MOVED
    assert care.sql("SELECT carer FROM route WHERE id = 'x1'") == [("CANARY",)]  # the person's own data
    care.sql("DELETE FROM route")
    tables = [one for (one,) in care.sql("SELECT name FROM sqlite_master WHERE type = 'table'")]
    left = {one for one in tables for row in care.sql(f"SELECT * FROM {one}") if _has_canary(row)}
    assert left == set()
    care.close()


def test_an_event_behind_a_plan_that_is_being_applied_is_left_and_named(tmp_path: Path) -> None:
    """Without its values the plan's line could not go on."""
    care = Care(f"sqlite:///{tmp_path / 'ledger.db'}", tmp_path)
    care.take()
    care.visit("E", "x0", "anna")
    plan, lines = care.plan()
    history_of(care.gate).rollback().book.change(
        plan.name, lambda one: replace(one, state=PlanState.APPLYING)
    )
    report = Eraser(care.gate.engine.store, care.gate.engine.clock).erase([1], actor="ann", reason="12")
    assert (report.erased, report.open, lines.lines[0].entries) == ([], [1], (1,))
    care.apply()
    assert care.compensations() == ["x0"]
    care.close()


def _numbers(care: Care, surface: str) -> list[int]:
    with care.gate.engine.store.look() as session:
        return sorted(one.entry_id for one in session.entries(EntryFilter(surface=surface), None, 99))


def _has_canary(row: tuple[Any, ...]) -> bool:
    for value in row:
        raw = value if isinstance(value, bytes) else str(value).encode()
        with suppress(zlib.error):
            raw += zlib.decompress(raw)
        if b"CANARY" in raw:
            return True
    return False


def test_a_replay_of_an_erased_event_says_so_and_does_not_run(sealed: SealedLedger) -> None:
    sealed.fill(4)
    Eraser(sealed.store, sealed.clock).erase([1, 4], actor="ann", reason="request 12")
    fresh = SealedLedger(sealed.url, sealed.key)  # another process: nothing is in its memory
    admission = fresh.admit(0, bad=False)
    assert (admission.verdict, admission.value) == (Verdict.REPLAY, None)
    with pytest.raises(OutcomeErased, match="erased"):
        admission.result()
    with pytest.raises(RecordedFailure, match="erased"):
        fresh.admit(3, bad=True).result()
    fresh.gate.close()


def test_erasure_needs_a_reason(sealed: SealedLedger) -> None:
    with pytest.raises(ConfigError):
        Eraser(sealed.store, sealed.clock).erase([1], actor="ann", reason=" ")


@pytest.mark.slow
def test_payloads_go_before_their_keys(sealed: SealedLedger) -> None:
    gate = Gate(sealed.url, clock=sealed.clock)
    gate.handler("bills", key="{id}", payload_retention="30d", retention="90d")(lambda event: event["id"])
    gate.admit_sync("bills", {"id": "b-1", "name": "Ann"})
    sealed.seal()
    assert PayloadPruner(gate).run_once().entries == 0
    Pruner(gate).run_once()
    for _ in range(31):
        sealed.clock.advance(24 * 3600)
        Pruner(gate).run_once()  # the ledger believes a clock that goes on day by day
    assert PayloadPruner(gate).run_once().entries == 1
    assert "Ann" not in everything(sealed, 1)
    assert gate.admit_sync("bills", {"id": "b-1", "name": "Ann"}).verdict is Verdict.REPLAY
    found = sealed.verify()
    assert found.is_intact, found.findings
    gate.close()


def test_keys_stay_for_as_long_as_their_payloads_are_wanted(sealed: SealedLedger) -> None:
    from oncegate.maintenance.pruner import by_retention

    gate = sealed.gate
    gate.handler("bills", key="{id}", payload_retention="90d", retention="30d")(lambda event: None)
    ((_, age),) = by_retention(gate.engine.surface("bills").rule)
    assert age == timedelta(days=90)


def test_every_settlement_has_one_record_with_its_author(sealed: SealedLedger) -> None:
    gate = sealed.gate

    @gate.handler("slots", key="{id}", actor="desk/{tenant}", retry_for=None, attempts_max=2)
    def slot(event: dict[str, Any]) -> None:
        if event["id"] == "bad":
            raise Failed("no")

    gate.admit_sync("slots", {"id": "a"}, tenant="acme")
    gate.admit_sync("slots", {"id": "b"}, tenant="acme", actor="planning-agent/1.4")
    gate.admit_sync("slots", {"id": "c"})
    with suppress(Failed):
        gate.admit_sync("slots", {"id": "bad"}, tenant="acme")
    gate.admit_sync("slots", {"nothing": 1}, tenant="acme", actor="planning-agent/1.4")  # quarantined
    with sealed.store.look() as session:
        records = session.read_log(0, 20)
    assert [(one.kind, one.actor) for one in records] == [
        (LogKind.COMMITTED, "desk/acme"),
        (LogKind.COMMITTED, "planning-agent/1.4"),
        (LogKind.COMMITTED, "gate"),
        (LogKind.FAILED, "desk/acme"),
        (LogKind.QUARANTINED, "planning-agent/1.4"),
    ]
    with pytest.raises(ConfigError, match="actor"):
        gate.admit_sync("slots", {"id": "d"}, actor="two\nlines")
