"""The scan for content duplicates, through the gate: found once, stopped or listed, never dropped."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest

from oncegate import Content, Verdict
from oncegate.clock import SystemClock
from oncegate.maintenance.content_scan import ContentScan, ScanReport
from oncegate.maintenance.reconciler import Reconciler
from oncegate.review.duplicates import compensation_of
from oncegate.store import Duplicate
from tests.support.gates import Ledger, Style

PLAIN = Style("plain")
ROUTES = Content(("date", "stops"), "{client}", compensation="cancel route {route_id} of {client}")


class Office:
    """Plans routes; those for client "flaky" fail for now."""

    def __init__(self, ledger: Ledger, **options: Any) -> None:
        self.ledger = ledger
        self.planned: list[str] = []
        self.gate = ledger.gate()
        self.fails = True
        PLAIN.register(self.gate, "routes", self.plan, **{"content": ROUTES, **options})

    def plan(self, event: Any, once: Any) -> Any:
        if event["client"] == "flaky" and self.fails:
            raise RuntimeError("not now")
        self.planned.append(event["id"])
        return {"route_id": f"r-{event['id']}"}

    def send(self, number: str, client: str = "c7", **more: Any) -> Verdict | str:
        event = {"id": number, "client": client, "date": "2025-10-26", "stops": [1, 2], **more}
        try:
            return self.gate.admit_sync("routes", event).verdict
        except RuntimeError as error:
            return str(error)

    def scan(self, **options: Any) -> ScanReport:
        return ContentScan(self.gate.engine.store, self.ledger.clock, **options).run_once()

    def pairs(self) -> list[tuple[Duplicate, str | None]]:
        with self.gate.engine.store.look() as session:
            found = session.duplicates(None, 100, dismissed=False)
            return [(pair, compensation_of(session, pair)) for pair in found]


@pytest.fixture
def office(ledger: Ledger) -> Office:
    return Office(ledger)


def test_what_ran_twice_is_listed_with_what_would_undo_it(office: Office) -> None:
    """Trap 9: both stay committed; a person decides."""
    office.send("1")
    office.send("2")
    office.send("3", date="2025-10-27")
    report = office.scan()
    assert (report.looked, len(report.pairs), report.stopped) == (3, 1, [])
    ((pair, undoing),) = office.pairs()
    assert (pair.target, undoing) == ("c7", "cancel route r-2 of c7")
    assert office.ledger.states() == ["committed"] * 3
    assert office.send("2") is Verdict.REPLAY


def test_what_has_not_run_is_stopped_for_a_person(office: Office) -> None:
    """And neither an arrival nor a reconciler runs it after that."""
    office.send("1", "flaky")
    office.send("2", "flaky")
    assert len(office.scan().stopped) == 2
    office.fails = False
    assert office.send("1", "flaky") is Verdict.QUARANTINE
    office.ledger.lapse()
    assert Reconciler(office.gate, at_once=True).run_once().looked == []
    assert (office.planned, office.ledger.states()) == ([], ["quarantined"] * 2)


def test_scanning_again_flags_nothing_again(office: Office) -> None:
    """Incremental and idempotent: the second scan looks at nothing, a third at what is new."""
    office.send("1")
    office.send("2")
    office.scan()
    kinds = office.ledger.log_kinds()
    again = office.scan()
    assert (again.looked, again.pairs, office.ledger.log_kinds()) == (0, [], kinds)
    office.send("3")
    third = office.scan()
    assert (third.looked, len(third.pairs)) == (1, 1)


def test_scans_go_in_bounded_steps(office: Office) -> None:
    """What is left over comes next time."""
    for number in range(5):
        office.send(str(number))
    first = office.scan(step_marks=2, steps_max=1)
    assert (first.looked, first.is_complete) == (2, False)
    second = office.scan(step_marks=2, steps_max=9)
    assert (second.looked, len(second.pairs), second.is_complete) == (3, 3, True)


def test_a_scan_that_dies_repeats_and_never_skips(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    """I6: the place is kept in the transaction that flags."""
    office.send("1")
    office.send("2")
    session = type(office.gate.engine.store.connect())
    with monkeypatch.context() as patched:
        patched.setattr(session, "note_scanned", lambda self, position: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            office.scan()
    assert office.pairs() == []
    assert len(office.scan().pairs) == 1


def test_the_window_can_be_chosen(office: Office) -> None:
    """72 hours unless told otherwise."""
    office.send("1")
    office.ledger.clock.advance(71 * 3600)
    office.send("2")
    office.ledger.clock.advance(73 * 3600)
    office.send("3")
    assert len(office.scan().pairs) == 1
    office.ledger.rows("DELETE FROM oncegate_meta WHERE name = 'scanned'")
    assert len(office.scan(window=timedelta(hours=100)).pairs) == 1


def test_an_entry_in_flight_is_stopped_by_a_later_scan_if_it_fails(ledger: Ledger) -> None:
    """It is left to its worker; once it only waits, it is stopped."""
    office = Office(ledger)
    reports: list[ScanReport] = []
    office.send("1")

    def scan_meanwhile(event: Any, once: Any) -> Any:
        reports.append(office.scan())
        raise RuntimeError("not now")

    other = ledger.gate()
    PLAIN.register(other, "routes", scan_meanwhile, content=ROUTES)
    with pytest.raises(RuntimeError):
        other.admit_sync("routes", {"id": "2", "client": "c7", "date": "2025-10-26", "stops": [1, 2]})
    assert (len(reports[0].pairs), reports[0].stopped) == (1, [])
    assert office.scan().stopped == [2]
    assert ledger.states() == ["committed", "quarantined"]


def test_surfaces_that_declare_nothing_leave_no_marks(ledger: Ledger) -> None:
    """No cost for those who do not ask for it."""
    office = Office(ledger, content=None)
    office.send("1")
    office.send("2")
    assert office.scan() == ScanReport()
    assert ledger.rows("SELECT count(*) FROM oncegate_content") == [(0,)]


def test_an_event_without_a_readable_target_is_quarantined(office: Office) -> None:
    """It could not be compared, and that must not go unseen."""
    answer = office.gate.admit_sync("routes", {"id": "1", "date": "2025-10-26"})
    assert answer.verdict is Verdict.QUARANTINE
    assert answer.reason is not None
    assert answer.reason.startswith("content_input: missing: client")
    assert office.send("1") is Verdict.CONFLICT


def test_a_mark_is_kept_with_the_users_own_transaction(ledger: Ledger) -> None:
    """Same-database mode: rolled back with it, committed with it."""
    gate = ledger.gate()
    gate.engine.store.connect().close()
    PLAIN.register(gate, "routes", lambda event, once: "done", content=ROUTES, same_database=True)
    event = {"id": "1", "client": "c7", "date": "2025-10-26", "stops": []}
    for ends, marks in (("ROLLBACK", 0), ("COMMIT", 1)):
        with closing(sqlite3.connect(ledger.path, isolation_level=None)) as users:
            users.execute("BEGIN IMMEDIATE")
            gate.admit_sync("routes", event, tx=users)
            users.execute(ends)
        assert ledger.rows("SELECT count(*) FROM oncegate_content") == [(marks,)]


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_million_marks_are_scanned_in_a_minute(ledger: Ledger) -> None:
    """E6: fast, in steps that hold nobody up; a second scan costs nothing."""
    gate = ledger.gate()
    gate.engine.store.connect().close()
    fill_with_marks(ledger, 1_000_000)
    clock = SystemClock()
    began = clock.ticks_ms()
    report = ContentScan(gate.engine.store, clock, steps_max=1_000).run_once()
    took_ms = clock.ticks_ms() - began
    assert ContentScan(gate.engine.store, clock).run_once().looked == 0
    assert (report.looked, len(report.pairs)) == (1_000_000, 1_000)
    assert took_ms < 60_000


def fill_with_marks(ledger: Ledger, count: int) -> None:
    """A million committed entries of a surface, one in a thousand of which has its like."""
    names = [(1, "routes"), (2, "")]
    with closing(sqlite3.connect(ledger.path)) as users:
        users.executemany("INSERT INTO oncegate_name (id, text) VALUES (?, ?)", names)
        users.executemany(
            "INSERT INTO oncegate_entry (id, key, surface, tenant, state, attempt, fence, fingerprint,"
            " label, received_at, settled_at) VALUES (?, ?, 1, 2, 2, 1, ?, x'00', 'route', ?, ?)",
            ((n, n.to_bytes(24, "big"), n, n, n) for n in range(1, count + 1)),
        )
        users.executemany(
            "INSERT INTO oncegate_content (entry, hash, target) VALUES (?, ?, 'c')",
            ((n, ((n - 1 if n % 1000 == 0 else n) * 2654435761 % 2**64).to_bytes(16, "big"))
             for n in range(1, count + 1)),
        )  # fmt: skip
        users.commit()


def test_a_released_duplicate_that_had_begun_is_asked_about_first(ledger: Ledger) -> None:
    """I1: stopping it does not make anybody forget that its call may have been made."""
    sold: list[str] = []

    def claim(idempotency_key: str) -> dict[str, str]:
        sold.append(idempotency_key)
        raise TimeoutError("no answer")

    gate = ledger.gate()
    ect = gate.downstream("ect", probe=lambda key: [{"id": "slot"}] if key in sold else [])

    def book(event: Any, once: Any) -> Any:
        return once.effect(ect, claim)["id"]

    PLAIN.register(gate, "routes", book, content=Content(("date",), "{client}"))
    for number in ("1", "2"):
        with pytest.raises(TimeoutError):
            gate.admit_sync("routes", {"id": number, "client": "c7", "date": "2025-10-26"})
    assert len(ContentScan(gate.engine.store, ledger.clock).run_once().stopped) == 2
    gate.people.release(1, reason="checked", actor="ann")
    ledger.lapse()
    assert Reconciler(gate, at_once=True).run_once().finished == 1
    assert len(sold) == 2
