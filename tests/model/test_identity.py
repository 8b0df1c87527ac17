"""What a ledger keeps of a surface: known keys stay the same, or the program is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncegate.errors import ConfigError
from oncegate.model.identity import (
    FORMER_MAX,
    OVERLAP_MIN_MS,
    VALID_MS,
    Identity,
    KeyRule,
    LedgerNow,
    accepted,
    identity_of,
    plan_of,
    read_identity,
    rekeyed,
    with_former_keys,
)
from oncegate.model.paths import parse_path
from oncegate.model.surface import SurfaceRule, read_arrival
from oncegate.model.template import KeyTemplate

DAY_MS = 86_400_000
NOW = LedgerNow(5_000_000, 1_780_000_000_000)

_fields = st.sampled_from(["{a}", "{b}", "{a:str}", "{a:int}", "{b:str}"])
_literals = st.sampled_from(["", ":", "-", "order", "{{", "é", "e\u0301"])
templates = st.lists(st.tuples(_literals, _fields), min_size=1, max_size=3).map(
    lambda parts: "".join(text for part in parts for text in part)
)
tenants = st.sampled_from([None, "org", "meta.org"])
values = st.one_of(st.integers(-3, 12), st.sampled_from(["1", "x", "é", "e\u0301"]))
events = st.fixed_dictionaries(
    {"a": values, "b": values, "org": st.sampled_from(["acme", "b"]), "meta": st.just({"org": "m"})}
)


def _rule(template: str, tenant: str | None) -> SurfaceRule:
    path = None if tenant is None else parse_path(tenant)
    return SurfaceRule("orders", KeyTemplate.parse(template), path)


def _key(rule: SurfaceRule, event: object) -> bytes:
    return read_arrival(rule, event, None, NOW.wall_ms).key.digest


@pytest.mark.slow
@given(templates, tenants, templates, tenants, st.lists(events, min_size=1, max_size=5))
def test_two_declarations_make_the_same_keys_or_the_second_is_refused(
    first: str, first_tenant: str | None, second: str, second_tenant: str | None, some: list[object]
) -> None:
    """I27: never a program that is let through and makes another key for a known event."""
    before, after = _rule(first, first_tenant), _rule(second, second_tenant)
    kept = read_identity(identity_of(before, "handler").encoded())
    try:
        plan = plan_of("orders", kept, identity_of(after, "handler"), NOW, DAY_MS)
    except ConfigError:
        return
    assert plan.is_plain
    assert [_key(before, event) for event in some] == [_key(after, event) for event in some]


@pytest.mark.slow
@given(st.lists(st.tuples(templates, tenants), min_size=2, max_size=5, unique=True), events)
def test_after_any_changes_every_earlier_key_is_asked_for(
    declared: list[tuple[str, str | None]], event: object
) -> None:
    """During the last overlap and after it, by the old program and the new one alike."""
    rules = [_rule(*one) for one in declared]
    kept, now = identity_of(rules[0], "handler"), NOW
    for rule in rules[1:]:
        now = LedgerNow(now.ticks + OVERLAP_MIN_MS, now.wall_ms + OVERLAP_MIN_MS)
        kept = rekeyed(kept, KeyRule(rule.key, rule.tenant_path), now, OVERLAP_MIN_MS)
    every = {_key(rule, event) for rule in rules if not read_arrival(rule, event, None, 0).is_unreadable}
    for moment, running in ((now, rules[-2:]), (_later(now), rules[-1:])):
        for rule in running:
            plan = plan_of("orders", kept, identity_of(rule, "handler"), moment, 90 * DAY_MS)
            arrival = read_arrival(rule, event, None, 0)
            found = with_former_keys(plan, rule, arrival, event, None)
            assert every <= {found.key.digest, *found.also}
            if moment is now and not arrival.is_unreadable:
                old = read_arrival(rules[-2], event, None, 0)
                assert old.is_unreadable or found.key == old.key
                assert found.tenant == (arrival if old.is_unreadable else old).tenant


def _later(now: LedgerNow) -> LedgerNow:
    return LedgerNow(now.ticks + OVERLAP_MIN_MS, now.wall_ms + OVERLAP_MIN_MS)


def test_nothing_that_was_read_before_a_change_outlives_the_overlap() -> None:
    """The longest that a process relies on what it read ends before the new template makes a key."""
    rule, other = _rule("{a}", None), _rule("{b}", None)
    kept = identity_of(rule, "handler")
    plan = plan_of("orders", kept, kept, NOW, DAY_MS)
    changed = rekeyed(kept, KeyRule(other.key, None), NOW, OVERLAP_MIN_MS)
    assert plan.until_ticks == NOW.ticks + VALID_MS
    assert plan.until_ticks < changed.former[0].until_ticks
    late = LedgerNow(changed.former[0].until_ticks - 1, NOW.wall_ms)
    assert plan_of("orders", changed, kept, late, DAY_MS).until_ticks == changed.former[0].until_ticks


@pytest.mark.parametrize("overlap", [0, OVERLAP_MIN_MS - 1])
def test_an_overlap_that_running_programs_would_miss_is_refused(overlap: int) -> None:
    with pytest.raises(ConfigError, match="at least 30m"):
        rekeyed(identity_of(_rule("{a}", None), "h"), KeyRule(KeyTemplate.parse("{b}"), None), NOW, overlap)


def test_a_change_to_the_same_is_refused() -> None:
    kept = identity_of(_rule("{a}", None), "shop:pay")
    with pytest.raises(ConfigError, match="already"):
        rekeyed(kept, KeyRule(KeyTemplate.parse("{a}"), None), NOW, OVERLAP_MIN_MS)
    with pytest.raises(ConfigError, match="already"):
        accepted(kept, "shop:pay")
    assert accepted(kept, "till:pay").origins == ("shop:pay", "till:pay")


def test_a_surface_has_so_many_templates_and_no_more() -> None:
    kept, now = identity_of(_rule("{a}", None), "h"), NOW
    for number in range(FORMER_MAX):
        now = _later(now)
        kept = rekeyed(kept, KeyRule(KeyTemplate.parse(f"{number}{{a}}"), None), now, OVERLAP_MIN_MS)
    with pytest.raises(ConfigError, match="new surface"):
        rekeyed(kept, KeyRule(KeyTemplate.parse("{b}"), None), _later(now), OVERLAP_MIN_MS)


def test_a_template_that_names_the_transport_by_permission_is_still_read() -> None:
    """What was allowed once is known by its keys, whoever declares what now."""
    rule = SurfaceRule("orders", KeyTemplate.parse("{message_id}", allow_transport=["message_id"]))
    kept = rekeyed(identity_of(rule, "h"), KeyRule(KeyTemplate.parse("{a}"), None), NOW, OVERLAP_MIN_MS)
    plan = plan_of("orders", kept, identity_of(_rule("{a}", None), "h"), NOW, DAY_MS)
    assert plan.first is not None
    assert plan.first.template.text == "{message_id}"


def test_an_identity_of_a_later_version_is_refused_with_words() -> None:
    with pytest.raises(ConfigError, match="newer"):
        read_identity(b'{"key": 7}')
    assert read_identity(Identity("{a}", None, ("h",)).encoded()) == Identity("{a}", None, ("h",))
