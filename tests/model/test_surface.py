"""A surface's rule: how an event becomes an arrival, or an arrival with a reason for quarantine."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncegate.errors import ConfigError, EventNotStorable
from oncegate.model.keys import derive_key, derive_quarantine_key
from oncegate.model.surface import PAYLOAD_BYTES_MAX, OnBusy, SurfaceRule, check_name, read_arrival
from oncegate.model.template import KeyTemplate
from tests.support.properties import tried

bounded = tried(80)

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
KEY = KeyTemplate.parse("{id}:{line}")
RULE = SurfaceRule("bookings", KEY)
EVENT = {"id": "N-1", "line": 7, "more": [1, 2]}


def rule(**options: Any) -> SurfaceRule:
    """A rule with other settings."""
    return SurfaceRule("bookings", KEY, **options)


def test_an_event_is_read_into_key_content_and_body() -> None:
    """The key is made of tenant, surface, template and parts; the body is canonical JSON."""
    arrival = read_arrival(RULE, EVENT, "acme", NOW_MS)
    assert arrival.key == derive_key("acme", "bookings", "{id}:{line}", ("N-1", "7"))
    assert (arrival.tenant, arrival.label, arrival.quarantine) == ("acme", "N-1:7", None)
    assert arrival.body == b'{"id":"N-1","line":7,"more":[1,2]}'


def test_the_same_content_has_the_same_fingerprint_however_it_is_written() -> None:
    """Order of fields and spelling of numbers do not matter."""
    other = {"more": [1.0, 2], "line": 7, "id": "N-1"}
    assert read_arrival(RULE, other, None, NOW_MS) == read_arrival(RULE, EVENT, None, NOW_MS)


def test_ignored_fields_are_kept_in_the_body_but_not_in_the_fingerprint() -> None:
    """They are part of the event, only not of the comparison."""
    reads = [
        read_arrival(rule(fingerprint_ignore=("more",)), {**EVENT, "more": more}, None, NOW_MS)
        for more in (1, 2)
    ]
    assert reads[0].fingerprint == reads[1].fingerprint
    assert reads[0].body != reads[1].body


def test_no_tenant_and_an_empty_one_are_the_same() -> None:
    """A single-tenant program needs no name for it."""
    assert read_arrival(RULE, EVENT, None, NOW_MS) == read_arrival(RULE, EVENT, "", NOW_MS)


@bounded
@given(st.text(min_size=1, max_size=5), st.text(min_size=1, max_size=5))
def test_tenants_never_share_a_key(one: str, other: str) -> None:
    """I8: nothing that a tenant is called reaches into another one's keys."""
    keys = [read_arrival(RULE, EVENT, tenant, NOW_MS).key for tenant in (one, other)]
    assert (keys[0] == keys[1]) == (one == other)


def test_an_unreadable_event_waits_under_its_content() -> None:
    """Its key is made of what came, so the same event is one entry and others are others."""
    arrival = read_arrival(RULE, {"id": "N-1"}, "acme", NOW_MS)
    assert arrival.key == derive_quarantine_key("acme", "bookings", arrival.fingerprint)
    assert arrival.quarantine == "key_input: missing: line: the event has no such field"
    assert arrival.label == "line: missing"
    assert arrival.key != read_arrival(RULE, {"id": "N-2"}, "acme", NOW_MS).key


def test_an_unreadable_event_is_compared_with_all_its_fields() -> None:
    """Ignored fields are ignored only where a key tells what the event is."""
    ignoring = rule(fingerprint_ignore=("sent",))
    keys = {read_arrival(ignoring, {"sent": sent}, None, NOW_MS).key for sent in (1, 2)}
    assert len(keys) == 2


@pytest.mark.parametrize("payload", [None, 7, "text", [1], True], ids=str)
def test_an_event_that_is_no_object_is_unreadable(payload: Any) -> None:
    """JSON, but nothing to read a field from."""
    assert str(read_arrival(RULE, payload, None, NOW_MS).quarantine).startswith("key_input: not_an_object")


def test_an_event_that_is_no_json_or_too_large_is_not_an_arrival() -> None:
    """It cannot be kept, so it is refused instead of quarantined."""
    with pytest.raises(EventNotStorable):
        read_arrival(RULE, {"id": object()}, None, NOW_MS)
    with pytest.raises(EventNotStorable, match="more than"):
        read_arrival(RULE, {"id": "x" * PAYLOAD_BYTES_MAX}, None, NOW_MS)


@pytest.mark.parametrize(
    ("ago", "reason"),
    [
        (timedelta(0), None),
        (timedelta(minutes=5), None),
        (timedelta(minutes=5, seconds=1), "skew"),
        (timedelta(minutes=-5, seconds=-1), "skew"),
        (timedelta(days=30), "skew"),
        (timedelta(days=30, seconds=1), "beyond_retention"),
        (timedelta(days=-31), "skew"),
    ],
    ids=str,
)
def test_the_time_gate_gives_a_reason_but_keeps_the_key(ago: timedelta, reason: str | None) -> None:
    """The store decides whether the key is known; only then does the reason matter."""
    dated = rule(occurred_at_path=("at",), retention=timedelta(days=30))
    event = {**EVENT, "at": (NOW - ago).isoformat()}
    arrival = read_arrival(dated, event, None, NOW_MS)
    assert arrival.key == read_arrival(RULE, EVENT, None, NOW_MS).key
    assert (arrival.quarantine or "").partition(":")[0] == (reason or "")


def test_an_event_is_too_old_by_its_own_partners_retention() -> None:
    """F8, I14: the partner's key may be forgotten, or is still known, where another's is not."""
    own = {"brief": timedelta(days=14), "long": timedelta(days=90)}
    dated = rule(
        occurred_at_path=("at",), retention=timedelta(days=30), skew_max=timedelta(days=99),
        retention_by_partner=own,
    )  # fmt: skip
    reasons = {
        (tenant, days): read_arrival(
            dated, {**EVENT, "at": (NOW - timedelta(days=days)).isoformat()}, tenant, NOW_MS
        ).quarantine
        for tenant in ("brief", "long", "other")
        for days in (20, 40)
    }
    taken = {place for place, reason in reasons.items() if reason is None}
    assert taken == {("other", 20), ("long", 20), ("long", 40)}
    assert (dated.retention_max, dated.retention_text) == (timedelta(days=90), "30d; brief 2w; long 90d")


@pytest.mark.parametrize("at", [None, 7, "yesterday", "2026-06-01T12:00:00", ["2026-06-01T12:00:00Z"]])
def test_a_time_that_cannot_be_read_is_a_reason(at: Any) -> None:
    """E2: never guessed, never skipped."""
    event = {**EVENT, "at": at}
    quarantine = read_arrival(rule(occurred_at_path=("at",)), event, None, NOW_MS).quarantine
    assert str(quarantine).startswith("bad_time: at: ")
    missing = read_arrival(rule(occurred_at_path=("at",)), EVENT, None, NOW_MS).quarantine
    assert str(missing).startswith("bad_time: at: ")


def test_the_tenant_of_the_event_and_of_its_sender_must_agree() -> None:
    """I8: nobody may write under another one's name."""
    owned = rule(tenant_path=("owner",))
    event = {**EVENT, "owner": "acme"}
    assert read_arrival(owned, event, None, NOW_MS).tenant == "acme"
    assert read_arrival(owned, event, "acme", NOW_MS).quarantine is None
    refused = read_arrival(owned, event, "other", NOW_MS)
    assert refused.tenant == "other"
    assert str(refused.quarantine).startswith("tenant_input: ")


@pytest.mark.parametrize("owner", ["", "x" * 121, "a\nb", 7, None, ["acme"]], ids=repr)
def test_a_tenant_that_cannot_be_shown_is_a_reason(owner: Any) -> None:
    """Its name stands in lists and on pages."""
    arrival = read_arrival(rule(tenant_path=("owner",)), {**EVENT, "owner": owner}, None, NOW_MS)
    assert str(arrival.quarantine).startswith("tenant_input: ")


@pytest.mark.parametrize(
    "options",
    [
        {"lease": timedelta(0)},
        {"lease": timedelta(hours=1, milliseconds=1)},
        {"retention": timedelta(0)},
        {"retention_by_partner": {"acme": timedelta(days=13)}},
        {"retention_by_partner": {"acme": timedelta(days=20)}, "redelivery_horizon": timedelta(days=30)},
        {"time_limit": timedelta(seconds=-1)},
        {"skew_max": timedelta(0)},
        {"attempts_max": 0},
    ],
    ids=str,
)
def test_a_rule_that_cannot_work_is_refused(options: dict[str, Any]) -> None:
    """Found when the surface is registered, not when the first event comes."""
    with pytest.raises(ConfigError, match="surface bookings"):
        rule(**options)


def test_the_defaults_are_those_of_the_documentation() -> None:
    """A change here changes every surface that does not say otherwise."""
    assert RULE.retention == timedelta(days=90)
    assert RULE.skew_max == timedelta(minutes=5)
    assert (RULE.lease, RULE.lease_ms) == (timedelta(seconds=20), 20_000)
    assert RULE.time_limit == timedelta(minutes=5)
    assert (RULE.attempts_max, RULE.on_busy) == (None, OnBusy.REFUSE)
    assert RULE.retry is not None
    assert RULE.retry.retry_for == timedelta(hours=24)


@pytest.mark.parametrize("name", ["a", "portbase.cis", "Käse 7", "x" * 120])
def test_a_name_that_can_be_shown_is_taken(name: str) -> None:
    """Letters of any script, up to a length that fits a line."""
    assert check_name("surface", name) == name


def test_a_name_that_is_not_composed_is_refused() -> None:
    """Two spellings of one name would be two surfaces, and no event of one would be known to the other."""
    assert check_name("surface", "caf\u00e9")
    with pytest.raises(ConfigError, match="NFC"):
        check_name("surface", "cafe\u0301")
