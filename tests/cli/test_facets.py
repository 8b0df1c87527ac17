"""Commands on a ledger with claims only: what it cannot answer is said in one line."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from oncegate.cli import ledger
from oncegate.cli.doctor import Status, examine
from oncegate.testing import ManualClock
from oncegate.testing.simulation import Ledger
from tests.support.claims_only_store import ClaimsOnlyStore


@pytest.fixture
def store(monkeypatch):
    """The ledger that every address names."""
    made = ClaimsOnlyStore(Ledger(), ManualClock())
    made.connect()
    monkeypatch.setattr(ledger, "open_store", lambda address: made)
    return made


@pytest.mark.parametrize(
    ("command", "facet"),
    [
        (("entries", "list"), "open entries"),
        (("quarantine", "list"), "open entries"),
        (("journal",), "review"),
        (("lanes", "list"), "lanes"),
        (("signals", "limits"), "stats"),
    ],
)
def test_command_that_needs_a_missing_facet_says_so(call, store, command, facet):
    """With the stores that have it, and without a trace of the program."""
    ended = call(*command)

    assert ended.code == 2
    assert f"no {facet} in this ledger (claims-only: claims only)" in ended.err
    others = "SQLite, PostgreSQL, Redis or DynamoDB" if facet == "open entries" else "SQLite or PostgreSQL"
    assert ended.err.rstrip().endswith(f"need {others}")
    assert len(ended.err.splitlines()) == 1


def test_doctor_says_what_a_ledger_has(store):
    """Which facets, what a unit holds together, what is recorded, and that no events are kept."""
    (line,) = [one for one in examine(store, None, ManualClock()) if one.what == "facets"]

    assert line.status is Status.OK
    assert line.value == "claims; units: per call; audit trail: per entry; keeps no events"


def test_doctor_warns_of_a_ledger_that_may_forget(store, monkeypatch):
    """A failover that loses acknowledged records lets events run again."""
    forgetful = replace(store.capabilities, forgets_on_failover=True)
    monkeypatch.setattr(ClaimsOnlyStore, "capabilities", forgetful)

    (line,) = [one for one in examine(store, None, ManualClock()) if one.what == "facets"]

    assert line.status is Status.WARN
    assert "events run again" in line.next_step
