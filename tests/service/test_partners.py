"""Partners stand in the ledger: known to every process, on record when changed or refused (I8, I18)."""

from __future__ import annotations

import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from oncegate.clock import SystemClock
from oncegate.errors import ConfigError
from oncegate.service import denial_log, partners
from oncegate.service.partners import PartnerBook, PartnerRole
from oncegate.store import LogKind, LogRecord
from oncegate.testing.clock import ManualClock
from oncegate.testing.waiting import wait_until
from oncegate.wiring import Gate
from tests.service.site import Answer, Site, settings

PENDING = "/wes/v1/dispatch/pending"


def _records(site: Site) -> list[LogRecord]:
    with site.gate.engine.store.look() as session:
        return [one for one in session.read_log(0, 1000) if one.kind is LogKind.DOCUMENT_CHANGED]


def test_another_process_knows_a_new_partner_at_once_and_a_change_soon(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a second process on the same ledger; when it adds, rotates and revokes; the service follows."""
    monkeypatch.setattr(partners, "FRESH_MS", 200)
    with Gate(str(site.gate.engine.store.address)) as other:
        book = PartnerBook(other.engine.commits, SystemClock())
        token = book.add("late", "acme", [PartnerRole.READ])
        wait_until(lambda: site.partner("GET", PENDING, token=token).status == 200, what="the partner")

        book.revoke("late")
        wait_until(lambda: site.partner("GET", PENDING, token=token).status == 401, what="the revocation")


def test_the_ledger_holds_no_token_and_says_who_changed_what(site: Site) -> None:
    site.book.rotate("exec-1", "ann")
    with site.gate.engine.store.look() as session:
        bodies = b"".join(one.body for one in session.documents("partner"))

    assert site.token.encode() not in bodies
    assert site.token not in repr(site.book.partners)
    last = _records(site)[-1]
    assert (last.actor, last.note) == ("ann", "partner exec-1 got a new token")


def test_two_people_at_one_partner_both_succeed(site: Site) -> None:
    """A rotation against an old version is made again against the new one; nobody's token is lost."""
    with Gate(str(site.gate.engine.store.address)) as other:
        mine, theirs = (
            site.book.rotate("exec-1"),
            PartnerBook(other.engine.commits, SystemClock()).rotate("exec-1"),
        )
    wait_until(lambda: site.partner("GET", PENDING, token=theirs).status == 200, what="the rotation")
    assert site.partner("GET", PENDING, token=mine).status == 200


def test_a_name_is_given_once(site: Site) -> None:
    with pytest.raises(ConfigError, match="already"):
        site.book.add("exec-1", "other", [PartnerRole.READ])


def test_refusals_are_on_record_for_each_partner_and_bounded(site: Site) -> None:
    """Given a partner without a role; when it is refused often; then there are few records, with counts."""
    token = site.book.add("reader", "acme", [PartnerRole.READ])
    before = len(_records(site))
    for _ in range(20):
        assert site.partner("POST", "/v1/events", {}, token).status == 403
    assert site.call("GET", "/none-of-ours").status == 404

    def noted() -> bool:
        return any(str(one.note).startswith("reader was refused: events 403 x") for one in _records(site))

    wait_until(noted, what="the record")
    assert len(_records(site)) <= before + 2  # the rest comes a minute later
    assert not any("none-of-ours" in str(one.note) for one in _records(site))


def test_refusals_of_several_processes_add_up(tmp_path: Path) -> None:
    with Gate(f"sqlite:///{tmp_path}/ledger.db") as gate:
        gate.engine.store.migrate()
        both = [denial_log.DenialLog(gate.engine.commits, ManualClock()) for _ in range(2)]
        for one in both:
            one._gathered["exec-1"] = Counter({"ack 403": 2})
            one.write()
        with gate.engine.store.look() as session:
            document = session.document(denial_log.KIND, "exec-1")

    assert document is not None
    assert msgspec.json.decode(document.body)["counts"] == {"ack 403": 4}


def test_another_tenants_event_is_not_told_from_one_that_never_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same status, headers and body, and the same work: a second query could be told by the clock."""
    said = _listen_to_sqlite(monkeypatch)
    answers, lookups = [], []
    with Site(tmp_path, settings()).serving() as site:
        assert site.partner("POST", "/v1/events", {"id": "mine", "key": "k", "data": 1}).status == 200
        assert site.partner("GET", "/v1/events/mine").document == {"id": "mine", "seq": 1}
        for event_id in ("mine", "none"):
            said.clear()
            answers.append(site.partner("GET", f"/v1/events/{event_id}", token=site.other))
            lookups.append([line.replace(event_id, "…") for line in said if "oncegate_feed" in line])

    theirs, unknown = answers
    assert (theirs.status, theirs.body) == (unknown.status, unknown.body) == (404, theirs.body)
    assert _but_date(theirs) == _but_date(unknown)
    assert lookups[0] == lookups[1]
    assert len(lookups[0]) == 1, lookups


def _listen_to_sqlite(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every statement that connections opened from now on run."""
    said: list[str] = []
    connect = sqlite3.connect

    def listening(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments, **options)
        connection.set_trace_callback(said.append)
        return connection

    monkeypatch.setattr(sqlite3, "connect", listening)
    return said


def _but_date(answer: Answer) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name != "date"}
