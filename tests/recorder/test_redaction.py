"""Redaction: what may stand in a recording, and that keys, repeats and conflicts survive it (E10)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from oncegate.errors import ConfigError
from oncegate.model.durations import parse_duration
from oncegate.model.surface import SurfaceRule, read_arrival
from oncegate.model.template import KeyTemplate
from oncegate.recorder import Rules
from oncegate.recorder.pseudonyms import Pseudonyms
from oncegate.recorder.redaction import Redaction
from tests.support.properties import tried

bounded = tried(80, suppress_health_check=list(HealthCheck))
KEY = b"a key that is used in these tests only"
EVENT = {
    "id": "N-1",
    "status": "READY",
    "driver": {"name": "Anna Jansen-3", "phone": "0612345678", "licence": {"number": 77}},
    "lines": [{"sku": "A", "price": 12.5}, {"sku": "B", "price": 3}],
    "urgent": True,
    "weight": 1200,
    "remark": None,
}


def rule(key: str = "{id}", **options: Any) -> SurfaceRule:
    return SurfaceRule("s", KeyTemplate.parse(key), retention=parse_duration("90d"), **options)


def redacted(rules: Rules, event: Any = EVENT, of: SurfaceRule | None = None) -> Any:
    return Redaction(rules, Pseudonyms(KEY), of or rule()).redact(event)


def test_without_a_rule_every_value_is_hashed_and_no_name_below_the_top_is_shown() -> None:
    """The safe default: nothing can be read, not even what the fields inside are called."""
    shown = json.dumps(redacted(Rules()))
    for word in ("N-1", "READY", "Anna", "0612345678", "licence", "sku", "12.5", "1200", "A"):
        assert f'"{word}"' not in shown
        assert word not in shown or word == "A"


def test_a_rule_holds_below_its_path_and_the_longer_path_counts() -> None:
    kept = redacted(
        Rules(keep=["status", "driver.licence"], mask=["driver"], drop=["driver.phone", "lines.*.price"])
    )
    assert kept["status"] == "READY"
    assert kept["driver"] == {"name": "xxxx xxxxxx-0", "licence": {"number": 77}}
    assert [set(line) for line in kept["lines"]] == [{"sku"}, {"sku"}]
    assert kept["lines"][0]["sku"].startswith("~")


def test_the_shape_of_what_is_hashed_stays() -> None:
    """A text stays a text, a number a number: what could be read still can, and what could not cannot."""
    kept = redacted(Rules())
    assert kept["remark"] is None
    assert isinstance(kept["urgent"], bool)
    assert isinstance(kept["weight"], int)
    assert kept["weight"] != 1200
    assert isinstance(kept["driver"], dict)
    assert isinstance(kept["lines"], list)
    assert redacted(Rules(), {"id": "", "a": {}, "b": []}) == {"id": "", "a": {}, "b": []}


def test_masking_keeps_the_shape_and_nothing_else() -> None:
    kept = redacted(Rules(mask=["driver", "lines", "weight", "urgent", "remark"]))
    assert kept["driver"] == {"name": "xxxx xxxxxx-0", "phone": "0000000000", "licence": {"number": 0}}
    assert (kept["weight"], kept["urgent"], kept["remark"]) == (0, False, None)


def test_equal_values_have_equal_hashes_wherever_they_stand_and_another_key_has_others() -> None:
    event = {"id": "MSKU1", "again": "MSKU1", "other": "MSKU2"}
    kept = redacted(Rules(), event)
    assert kept["id"] == kept["again"] != kept["other"]
    assert Redaction(Rules(), Pseudonyms(KEY), rule()).redact(event) == kept
    assert Redaction(Rules(), Pseudonyms(), rule()).redact(event)["id"] != kept["id"]


@pytest.mark.parametrize(
    "name", ["password", "api_key", "X-Signature", "access_token", "clientSecret", "Authorization", "pin"]
)
def test_what_is_named_like_a_secret_is_never_kept(name: str) -> None:
    with pytest.raises(ConfigError, match="named like a secret"):
        Rules(keep=[f"auth_data.{name}"])
    kept = redacted(Rules(keep=["*"]), {"id": "1", name: "tulip", "a": {name: "tulip", "b": "rose"}})
    assert kept["a"]["b"] == "rose"
    assert "tulip" not in json.dumps(kept)


@pytest.mark.parametrize(
    "text",
    [
        "whsec_c2VjcmV0c2VjcmV0",
        "Bearer abc.def",
        "-----BEGIN PRIVATE KEY-----",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln",
        "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        "AKIAABCDEFGHIJKLMNOP",
    ],
)
def test_a_text_that_looks_like_a_secret_is_hashed_where_others_are_kept(text: str) -> None:
    kept = redacted(Rules(keep=["*"]), {"id": "1", "note": f"use {text}", "deep": [{"x": text}]})
    assert text not in json.dumps(kept)


def test_the_gate_can_still_read_what_it_needs() -> None:
    """Whatever is done with the rest, key and tenant are hashed and the time is kept."""
    needs = rule("{order.id}", tenant_path=("customer",), occurred_at_path=("at",))
    event = {"order": {"id": 7, "note": "x"}, "customer": "acme", "at": "2026-03-02T06:00:00Z", "more": "y"}
    kept = redacted(Rules(rest="drop"), event, needs)
    assert set(kept) == {"order", "customer", "at"}
    assert kept["at"] == event["at"]
    assert kept["customer"] != "acme"
    assert set(kept["order"]) == {"id"}


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        (Rules(drop=["id"]), "the gate reads 'id', so that drop"),
        (Rules(mask=["*"]), "the gate reads 'id', so that mask"),
        (Rules(hash=["at"]), "the gate reads 'at', so that hash"),
    ],
)
def test_rules_that_would_take_the_key_away_are_refused(rules: Rules, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        redacted(rules, {}, rule(occurred_at_path=("at",)))


def test_a_date_in_the_key_must_be_kept_openly() -> None:
    """No hash is a date; saying so at the start is better than a recording that cannot be played."""
    with pytest.raises(ConfigError, match="the key has the date 'day'"):
        redacted(Rules(), {}, rule("{id}:{day:date}"))
    kept = redacted(Rules(keep=["day"]), {"id": "1", "day": "2026-03-02"}, rule("{id}:{day:date}"))
    assert kept["day"] == "2026-03-02"


def test_numbers_and_uuids_in_a_key_stay_numbers_and_uuids() -> None:
    """7 and "7" are one key before and after; a UUID may be spelled in either case."""
    reads, ident = rule("{n:int}:{u:uuid}"), "3f2b8c1e-5d4a-4f6b-9c7d-0a1b2c3d4e5f"
    events = [{"n": 7, "u": ident}, {"n": "7", "u": ident.upper()}, {"n": 8, "u": ident}]
    kept = [redacted(Rules(), event, reads) for event in events]
    read = [read_arrival(reads, event, None, 0) for event in kept]
    assert [arrival.quarantine for arrival in read] == [None, None, None]
    assert read[0].key == read[1].key != read[2].key
    assert ident not in json.dumps(kept)


def test_what_stands_in_the_field_for_times_and_is_none_is_hashed() -> None:
    kept = redacted(Rules(), {"id": "1", "at": "Anna Jansen"}, rule(occurred_at_path=("at",)))
    assert kept["at"].startswith("~")


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Rules(keep="status"), "keep= is a list of paths"),
        (lambda: Rules(keep=[3]), "not of int"),  # type: ignore[list-item]
        (lambda: Rules(keep=["a"], drop=["a"]), "'a' has two rules"),
        (lambda: Rules(keep=["a..b"]), "empty component"),
        (lambda: Rules(rest="forget"), "rest='forget'"),
        (lambda: Rules(tenant="drop"), "tenant='drop'"),
        (lambda: Rules(keep=[f"p{n}" for n in range(501)]), "at most 500"),
    ],
)
def test_a_rule_that_cannot_be_used_is_refused_in_one_line(make: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        make()


FIELD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
)
EVENTS = st.fixed_dictionaries({"id": FIELD, "part": FIELD}, optional={"more": FIELD})


@bounded
@given(EVENTS, EVENTS)
def test_two_events_have_the_same_key_and_content_after_as_before(one: Any, two: Any) -> None:
    """What makes a recording worth playing: repeats stay repeats, conflicts conflicts, the rest apart."""
    reads, hides = rule("{id}:{part}"), Redaction(Rules(), Pseudonyms(KEY), rule("{id}:{part}"))
    before = [read_arrival(reads, event, None, 0) for event in (one, two)]
    after = [read_arrival(reads, hides.redact(event), None, 0) for event in (one, two)]
    readable = [arrival.quarantine is None for arrival in before]
    if readable == [arrival.quarantine is None for arrival in after]:
        assert (before[0].key == before[1].key) == (after[0].key == after[1].key)
        assert (before[0].fingerprint == before[1].fingerprint) == (
            after[0].fingerprint == after[1].fingerprint
        )


@bounded
@given(st.one_of(FIELD, st.text()), st.binary(min_size=16, max_size=20))
def test_any_value_has_a_pseudonym_that_is_the_same_each_time(value: Any, key: bytes) -> None:
    assert Pseudonyms(key).of(value, "a.b") == Pseudonyms(key).of(value, "a.b")
