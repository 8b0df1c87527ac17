"""How many values a JSON text has, without reading it (I18)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from oncegate.errors import MalformedRequest
from oncegate.model.limits import (
    CARRIED_VALUES_MAX,
    VALUES_MAX,
    cannot_be_carried,
    has_more_values,
    is_nested_beyond,
    values_at_most,
)
from oncegate.model.strictjson import read_json

DOCUMENTS = some.recursive(
    some.none() | some.booleans() | some.integers() | some.text(',"\\[]{}a') | some.floats(allow_nan=False),
    lambda inner: some.lists(inner) | some.dictionaries(some.text(',"[{}'), inner),
    max_leaves=20,
)


def count(value: Any) -> int:
    """The values, counted one by one."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(count, inner))


def depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth, inner), default=0)


@pytest.mark.slow
@given(DOCUMENTS, some.booleans())
def test_values_are_counted_as_a_reader_counts_them(document: Any, is_spelled: bool) -> None:
    text = json.dumps(document, ensure_ascii=is_spelled).encode()
    values = count(document)

    assert values_at_most(text) >= values
    assert not has_more_values(text, values)
    assert has_more_values(text, values - 1)
    assert not is_nested_beyond(text, depth(document))
    assert depth(document) == 0 or is_nested_beyond(text, depth(document) - 1)


@pytest.mark.parametrize("text", [b"", b'"', b'"a', b'"\\', b"[,,,", b'"",' * 10])
def test_what_is_no_json_is_counted_too(text: bytes) -> None:
    assert has_more_values(text, text.count(b",") - 1)
    assert not has_more_values(text, 100)


def test_a_receiver_refuses_what_a_service_refuses() -> None:
    assert len(read_json(b"[" + b"1," * (VALUES_MAX - 2) + b"1]")) == VALUES_MAX - 1
    with pytest.raises(MalformedRequest, match=f"more than {VALUES_MAX} JSON values"):
        read_json(b"[" + b"1," * (VALUES_MAX - 1) + b"1]")


def test_what_is_sent_can_be_received_with_what_is_around_it() -> None:
    most = b"[" + b"1," * (CARRIED_VALUES_MAX - 2) + b"1]"
    around = b'{"a":' * 2 + most + b',"b":1}}'

    assert cannot_be_carried(most) is None
    assert not has_more_values(around, VALUES_MAX)
    assert "JSON values" in (cannot_be_carried(b"[" + b"1," * CARRIED_VALUES_MAX + b"1]") or "")
