"""`oncegate signals`: what matters, with what to do; the exit code tells whether somebody is called."""

from __future__ import annotations

import json

import pytest

from oncegate import Gate
from oncegate.clock import SystemClock
from oncegate.signals.definitions import DEFINITIONS, REPEATS_HIGH
from oncegate.store import Observations, Tally, What
from oncegate.wiring import open_store

ONE = "0190a5c2-7b3e-7ccc-8f00-0123456789ab"
TWO = "6f1c2a90-12ab-4cde-9f00-aaaaaaaaaaaa"


@pytest.fixture
def picks(tmp_path):
    """A ledger with a replay, a conflict and a retry under a new id."""
    with Gate(f"sqlite:///{tmp_path / 'oncegate.db'}") as gate:

        @gate.handler("picks", key="{id:uuid}")
        def pick(event: dict[str, str]) -> str:
            return "picked"

        event = {"id": ONE, "item": "tulip", "bin": "4-2"}
        for sent in (event, event, {**event, "item": "rose"}, {**event, "id": TWO}):
            gate.admit_sync("picks", sent)


def observe(tmp_path, *tallies: tuple[What, int]) -> None:
    session = open_store(f"sqlite:///{tmp_path / 'oncegate.db'}").connect()
    minute = SystemClock().wall_ms() // 60_000
    with session.unit():
        session.observe([Observations(tuple(Tally("picks", minute, *tally) for tally in tallies))])
    session.close()


def test_tickets_are_shown_but_call_nobody(call, picks):
    """A conflict that waits in quarantine does, until a person has decided."""
    assert "page" in call("signals").out
    call("quarantine", "discard", "2", "--reason", "ours")
    ended = call("signals")
    assert ended.code == 0
    assert "sender_bugs" in ended.out
    assert "1 conflict, 1 new_id_per_retry" in ended.out
    assert "oncegate signals repeats --surface picks" in ended.err


def test_what_pages_ends_with_one_and_comes_first(call, picks, tmp_path):
    observe(tmp_path, (What.REPLAY, 50), (What.FRESH, 50))
    ended = call("signals")
    assert ended.code == 1
    rows = [line.split()[:4] for line in ended.out.splitlines()]
    assert rows[1][:2] == ["page", "quarantines"]
    assert rows[2] == ["page", "repeat_ratio_high", "picks", "50.0%"]
    assert "an upstream sends the same events again" in ended.err
    assert "\\n" not in ended.err


def test_json_has_one_object_a_signal(call, picks):
    found = [json.loads(line) for line in call("signals", "--all", "--json").out.splitlines()]
    expected = {one.name for one in DEFINITIONS if one.label == "surface"}  # nothing was sent anywhere
    assert {one["signal"] for one in found} == expected | {"watch_absent"}
    assert all(one["meaning"] and one["action"] for one in found)


def test_a_ledger_that_saw_nothing_says_so(call):
    call("migrate")
    ended = call("signals")
    assert (ended.code, ended.out) == (7, "")
    assert "nothing was seen yet" in ended.err


def test_a_surface_that_does_not_exist_is_a_mistake(call, picks):
    assert "no entry has the surface 'pick'" in call("signals", "--no-repeats", "pick").complaint
    assert "surfaces are picks" in call("signals", "repeats", "--surface", "pick").complaint


def test_no_ledger_is_one_line(call):
    ended = call("signals")
    assert ended.code == 3
    assert "there is no ledger" in ended.complaint


def test_repeats_are_shown_by_class_with_evidence(call, picks):
    ended = call("signals", "repeats", "--surface", "picks")
    assert ended.code == 0
    for said in ("expected_replay", "conflict", "harmful duplicate", "under another id"):
        assert said in ended.out
    assert "tulip" not in ended.out


def test_repeats_as_json(call, picks):
    found = json.loads(call("signals", "repeats", "--surface", "picks", "--json").out)
    assert found["classes"] == {"expected_replay": 1, "conflict": 1, "new_id_per_retry": 1}
    assert {bug["class"] for bug in found["sender_bugs"]} == {"conflict", "new_id_per_retry"}


def test_an_entry_shows_its_repeats(call, picks):
    shown = call("entries", "show", "1").out
    assert "repeats (UTC)" in shown
    assert "another content under the same key" in shown
    found = json.loads(call("entries", "show", "3", "--json").out)
    assert [repeat["class"] for repeat in found["repeats"]] == ["new_id_per_retry"]


def test_rules_have_every_signal_with_its_limit(call):
    text = call("signals", "rules").out
    assert text.count("- alert: ") == sum(
        (d.page is not None) + (d.ticket is not None) for d in DEFINITIONS
    ) + len(["absent", "down"])
    for line in text.splitlines():
        name, _, value = line.strip().partition(": ")
        if name in ("expr", "summary", "description"):
            assert isinstance(json.loads(value), str)
        if "$value" in value:
            assert "$value | humanize" in value, "no long fraction is for people"
    assert '>= 0.2"' in text


def test_dashboard_has_a_panel_for_every_signal(call):
    found = json.loads(call("signals", "dashboard").out)
    assert [panel["title"] for panel in found["panels"]] == [one.title for one in DEFINITIONS]
    assert len({(p["gridPos"]["x"], p["gridPos"]["y"]) for p in found["panels"]}) == len(DEFINITIONS)
    (ratio,) = [p for p in found["panels"] if p["title"] == REPEATS_HIGH.title]
    assert {"color": "red", "value": 0.2} in ratio["fieldConfig"]["defaults"]["thresholds"]["steps"]


def test_an_operator_sets_a_limit_for_one_surface(call, picks):
    """It goes before those in code, for everybody who looks; taken back, all is as declared."""
    assert call("signals").code == 1
    for name in ("quarantines", "sender_bugs", "waiting_for_person"):
        call("signals", "limit", name, "--surface", "picks", "--page", "never", "--reason", "known")
    shown = [json.loads(line) for line in call("signals", "limits", "--json").out.splitlines()]
    assert {"signal": "quarantines", "place": "picks", "ticket": None, "page": None, "set": True} in shown
    assert call("signals").code == 0
    call("signals", "limit", "quarantines", "--surface", "picks", "--reason", "over")
    assert call("signals").code == 1
    assert "limits of quarantines on picks" in call("journal").out
    assert "no signal 'quarantine'" in call("signals", "limit", "quarantine", "--reason", "x").err
