"""Bodies of strangers: read in one way, or refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncegate.errors import MalformedRequest
from oncegate.model.strictjson import read_json


def nested(depth: int, mark: str = "[]") -> bytes:
    return (mark[0] * depth + mark[1] * depth).encode()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"{} {}",
        b'{"a":NaN}',
        b"Infinity",
        b"-Infinity",
        b"1e999",
        b'{"a":1,"a":2}',
        b'[{"b":{"a":1,"a":1}}]',
        b"9" * 41,
        b"-" + b"9" * 41,
        b"9" * 5000,
        b'"\xff"',
        b"\xef\xbb\xbf{}",
        b'"a\nb"',
        nested(65),
        nested(100_000),
        b'{"a":' * 70 + b"1" + b"}" * 70,
    ],
)
def test_a_body_that_could_be_read_in_two_ways_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedRequest):
        read_json(body)


def test_a_body_at_the_limits_is_read() -> None:
    read_json(nested(64))
    assert read_json(b"-" + b"9" * 40) == 1 - 10**40
    assert read_json(b'{"a":{"a":1}}') == {"a": {"a": 1}}


_NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
_JSON = st.recursive(
    st.none() | st.booleans() | _NUMBERS | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(_JSON)
def test_any_document_is_read_as_it_was_written(document) -> None:
    assert read_json(json.dumps(document).encode()) == document


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    try:
        read_json(body)
    except MalformedRequest:
        return
