"""What cannot be recognised or dated is quarantined with its reason, kept, and never guessed."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from oncegate import Quarantined, Verdict
from oncegate.clock import from_wall_ms
from oncegate.store import LogKind
from tests.support.gates import Ledger, Style

DEEP: Any = {"inner": {"x": 1}}


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        ({}, "key_input: missing: id"),
        ({"id": None}, "key_input: null: id"),
        ({"id": ""}, "key_input: empty: id"),
        ({"id": " N-1"}, "key_input: padded: id"),
        ({"id": "N\u202e1"}, "key_input: control_character: id"),
        ({"id": "x" * 300}, "key_input: too_long: id"),
        ({"id": 1.5}, "key_input: wrong_type: id"),
        ({"id": True}, "key_input: wrong_type: id"),
        ({"id": DEEP}, "key_input: not_scalar: id"),
        (["id"], "key_input: not_an_object: $"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_malformed_key_input_is_quarantined_with_its_reason_and_its_payload(
    ledger: Ledger, style: Style, event: Any, reason: str
) -> None:
    """D8: a field that the key needs is not guessed; the event is kept as it came."""
    # Given a surface whose handler must not be reached
    gate, runs = ledger.gate(), []
    style.register(gate, "bookings", lambda event, once: runs.append(event))
    # When the event arrives, twice
    answers = [style.admit(gate, "bookings", event) for _ in range(2)]
    # Then both are in quarantine under one entry, with the reason and the payload
    for answer in answers:
        assert answer.verdict is Verdict.QUARANTINE
        assert str(answer.reason).startswith(reason)
    assert not runs
    assert ledger.states() == ["quarantined"]
    assert ledger.reason().startswith(reason)
    ((body,),) = ledger.rows("SELECT body FROM oncegate_payload")
    assert json.loads(body) == event
    assert ledger.log_kinds() == [LogKind.QUARANTINED]
    # And asking for its value raises the typed error
    with pytest.raises(Quarantined, match=reason.split(":", maxsplit=1)[0]):
        answers[0].result()


def test_two_malformed_events_do_not_share_an_entry(ledger: Ledger, style: Style) -> None:
    """Without a key of its own an event waits under its content."""
    gate = ledger.gate()
    style.register(gate, "bookings", lambda event, once: None)
    for number in range(3):
        style.admit(gate, "bookings", {"n": number})
    assert ledger.states() == ["quarantined"] * 3


def test_a_refusal_does_not_repeat_the_value(ledger: Ledger, style: Style) -> None:
    """The reason is shown to people and logged: personal data in a key's field stays out of it."""
    gate = ledger.gate()
    style.register(gate, "bookings", lambda event, once: None)
    answer = style.admit(gate, "bookings", {"id": " CANARY "})
    assert answer.verdict is Verdict.QUARANTINE
    assert "CANARY" not in ledger.reason() + str(answer)


@pytest.mark.parametrize(
    ("event", "tenant", "reason"),
    [
        ({"id": 1}, None, "tenant_input: missing: owner"),
        ({"id": 1, "owner": 7}, None, "tenant_input: wrong_type: owner"),
        ({"id": 1, "owner": ""}, None, "tenant_input: wrong_type: owner"),
        ({"id": 1, "owner": "one"}, "two", "tenant_input: wrong_type: owner"),
    ],
)
def test_an_event_without_a_usable_tenant_is_quarantined(
    ledger: Ledger, style: Style, event: Any, tenant: str | None, reason: str
) -> None:
    """I8: nobody may reach another tenant's keys by leaving the tenant out or naming someone else."""
    gate, runs = ledger.gate(), []
    style.register(gate, "bookings", lambda event, once: runs.append(event), tenant="owner")
    answer = style.admit(gate, "bookings", event, tenant=tenant)
    assert answer.verdict is Verdict.QUARANTINE
    assert str(answer.reason).startswith(reason)
    assert not runs


def dated(ledger: Ledger, style: Style, runs: list[Any], **options: Any) -> Callable[..., Any]:
    """A surface with a time gate, and a way to admit an event of a given time."""
    gate = ledger.gate()
    style.register(gate, "routes", lambda event, once: runs.append(event), occurred_at="at", **options)
    return lambda at, key=1: style.admit(gate, "routes", {"id": key, "at": at})


def now(ledger: Ledger) -> datetime:
    """The manual clock's wall time."""
    return from_wall_ms(ledger.clock.wall_ms())


@pytest.mark.parametrize(
    "at",
    ["2026-05-28T20:26:40", "2026-05-28 20:26:40Z", "2026-05-28", "28.05.2026", "", None, 1_780_000_000],
)
def test_a_time_without_an_explicit_offset_is_quarantined(ledger: Ledger, style: Style, at: Any) -> None:
    """E2: RFC 3339 with an offset, or it is not a time."""
    runs: list[Any] = []
    answer = dated(ledger, style, runs)(at)
    assert answer.verdict is Verdict.QUARANTINE
    assert str(answer.reason).startswith("bad_time: at: ")
    assert not runs


def test_the_same_instant_in_another_offset_is_within_the_skew(ledger: Ledger, style: Style) -> None:
    """E2: offsets are only spelling; the instant is what counts."""
    runs: list[Any] = []
    admit = dated(ledger, style, runs)
    far_east = now(ledger).astimezone(tz=datetime.strptime("+0900", "%z").tzinfo)
    assert admit(far_east.isoformat()).verdict is Verdict.RUN


@pytest.mark.parametrize("distance", [timedelta(minutes=-6), timedelta(minutes=6)], ids=["past", "future"])
def test_a_new_event_too_far_from_our_clock_is_quarantined(
    ledger: Ledger, style: Style, distance: timedelta
) -> None:
    """E3: more than five minutes in either direction is not processed."""
    runs: list[Any] = []
    admit = dated(ledger, style, runs)
    answer = admit((now(ledger) + distance + timedelta(milliseconds=3)).isoformat())
    assert answer.verdict is Verdict.QUARANTINE
    assert str(answer.reason).startswith("skew: 6m in the ")
    assert not runs
    # Exactly at the limit is still taken
    assert admit((now(ledger) - timedelta(minutes=5)).isoformat(), 2).verdict is Verdict.RUN


def test_the_reason_for_a_skew_reads_as_words(ledger: Ledger, style: Style) -> None:
    """E5: a person reads the reason on a page; it tells how far off and in which direction."""
    admit = dated(ledger, style, [])
    reason = admit((now(ledger) - timedelta(minutes=6)).isoformat()).reason
    assert "past" in reason
    assert "timedelta" not in reason
    assert "<" not in reason


@pytest.mark.parametrize("remembers", [True, False], ids=["from memory", "from the ledger"])
def test_a_late_retry_of_a_known_key_is_a_replay(ledger: Ledger, style: Style, remembers: bool) -> None:
    """E3: skew judges new events only; hours and days later the same event is still a replay."""
    runs: list[Any] = []
    admit = dated(ledger, style, runs)
    at = now(ledger).isoformat()
    assert admit(at).verdict is Verdict.RUN
    for later in (timedelta(hours=2), timedelta(days=11)):
        ledger.clock.advance(later.total_seconds())
        assert (admit if remembers else dated(ledger, style, runs))(at).verdict is Verdict.REPLAY
    assert len(runs) == 1


def test_a_late_retry_of_a_failed_attempt_runs(ledger: Ledger, style: Style) -> None:
    """A key that is known and may be tried again is not new, so its lateness does not matter."""
    gate, fails = ledger.gate(), [True]

    def body(event, once):
        if fails:
            fails.pop()
            raise RuntimeError("no luck")
        return "done"

    style.register(gate, "routes", body, occurred_at="at")
    event = {"id": 1, "at": now(ledger).isoformat()}
    with pytest.raises(RuntimeError):
        style.admit(gate, "routes", event)
    ledger.clock.advance(3600)
    assert style.admit(gate, "routes", event).verdict is Verdict.RUN


def test_a_new_event_older_than_the_retention_is_quarantined(ledger: Ledger, style: Style) -> None:
    """E7, I14: its key may have been forgotten already, so it is never processed as new."""
    runs: list[Any] = []
    admit = dated(ledger, style, runs, retention="30d", skew_max="60d")
    answer = admit((now(ledger) - timedelta(days=31)).isoformat())
    assert answer.verdict is Verdict.QUARANTINE
    assert str(answer.reason).startswith("beyond_retention: ")
    assert not runs
    # While one that the surface still remembers is taken
    assert admit((now(ledger) - timedelta(days=29)).isoformat(), 2).verdict is Verdict.RUN


def test_the_end_of_daylight_saving_lets_no_event_through_twice(ledger: Ledger, style: Style) -> None:
    """The story behind E: the same local hour twice, 27 real minutes apart, is one event."""
    # Given an event of the first 02:15 of that night, in an offset of its own
    runs: list[Any] = []
    night = datetime(2026, 10, 25, 0, 15, tzinfo=UTC)
    ledger.clock.step_wall((night - now(ledger)).total_seconds())
    admit = dated(ledger, style, runs)
    assert admit("2026-10-25T02:15:00+02:00").verdict is Verdict.RUN
    # When the provider fires it again after the clocks went back
    ledger.clock.advance(27 * 60)
    assert admit("2026-10-25T02:15:00+02:00").verdict is Verdict.REPLAY
    assert len(runs) == 1
