"""Erasure on both ledgers: content goes, keys, records and proofs stay. Authors of records."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from oncegate.errors import ConfigError, Failed, OutcomeErased, RecordedFailure
from oncegate.feed import Feed
from oncegate.gate.admission import Verdict
from oncegate.journal.erasing import Eraser
from oncegate.journal.proofs import prove_entry
from oncegate.journal.snapshots.beliefs import id_of
from oncegate.maintenance.payload_pruner import PayloadPruner
from oncegate.maintenance.pruner import Pruner
from oncegate.store import EntryFilter, LogKind
from oncegate.store.sealing import ERASED_VALUE
from oncegate.wiring import Gate
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
