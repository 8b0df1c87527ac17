"""Dotted paths: what they find, and that they never raise on an event."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncegate.errors import ConfigError
from oncegate.model.paths import MISSING, lookup, parse_path
from tests.support.properties import tried

bounded = tried(80)

EVENT: dict[str, Any] = {
    "id": 7,
    "null": None,
    "data": {"object": {"id": "x"}},
    "items": [{"id": "a"}, {"id": "b"}],
    "pair": ("left", "right"),
    "0": {"id": "digit key"},
    "text": "abc",
}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("id", 7),
        ("null", None),
        ("data.object.id", "x"),
        ("items.1.id", "b"),
        ("pair.0", "left"),
        ("0.id", "digit key"),
    ],
)
def test_path_leads_to_the_value(path: str, expected: object) -> None:
    """Names go into mappings, digits into lists, and a mapping may have digits as names."""
    assert lookup(EVENT, parse_path(path)) == expected


@pytest.mark.parametrize(
    "path",
    [
        "absent",
        "data.absent.id",
        "null.id",
        "id.real",
        "text.0",
        "items.2.id",
        "items.-1.id",
        "items.01.id",
        "items.+1.id",
        "items.1_0",
        "items.\u0660.id",
        "items." + "9" * 5000,
        "items.id",
        "items.count",
        "data.keys",
    ],
)
def test_what_is_not_there_is_missing(path: str) -> None:
    """Odd indexes, scalars on the way and attribute names lead nowhere."""
    assert lookup(EVENT, parse_path(path)) is MISSING


def test_any_mapping_can_be_entered() -> None:
    """A read-only mapping is as good as a dict."""
    assert lookup(MappingProxyType({"a": MappingProxyType({"b": 1})}), ("a", "b")) == 1


def test_empty_path_is_the_event_itself() -> None:
    """No component means no step."""
    assert lookup(EVENT, ()) is EVENT


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b"])
def test_empty_component_is_refused(text: str) -> None:
    """A slip of the pen in the settings is found when they are read."""
    with pytest.raises(ConfigError, match="empty component"):
        parse_path(text)


@pytest.mark.slow
@bounded
@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=3) | st.binary(max_size=3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
        max_leaves=10,
    ),
    st.lists(st.text(max_size=2) | st.sampled_from(["0", "1", "-1"]), max_size=5).map(tuple),
)
def test_no_event_and_no_path_make_lookup_raise(event: object, path: tuple[str, ...]) -> None:
    """Whatever the shape, the answer is a value or MISSING."""
    lookup(event, path)
