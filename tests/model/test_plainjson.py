"""The quick reader of JSON beside the strict ones: it reads as they do, or leaves it to them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncegate.errors import MalformedRequest
from oncegate.model.plainjson import NOT_PLAIN, read_plainly
from oncegate.model.strictjson import read_closely
from tests.support.properties import tried

PLAIN = [
    b'{"id":"a","at":"2024-05-31T10:00:00Z","n":[1,-2,0.5,1e3,null,true]}',
    b' { "a" : { "b" : [ ] } } ',
    '{"näme":"Jörg: \u2028","a":"\\n\\"\\\\:"}'.encode(),
    b"18446744073709551616",
    b"-0",
    b"9" * 40,
]
NOT = [
    b'{"a":1,"a":1}',
    b'{"a":1,"a":":"}',
    b'{"a":1,"a":1,"b":"\\u003a"}',  # the hidden colon makes up for the lost one
    b'[{"a":{"b":1,"b":2}}]',
    b'{"a":":","a":1}',
    b"9" * 41,
    b'{"n":-' + b"1234567890" * 5 + b"}",
    b"1e400",
    b"1e-400",
    b'{"n":12345678901234567.1}',
    b"[0.10000000000000000001]",
    b"NaN",
    b"-Infinity",
    b'"\xff"',
    b'"\xed\xa0\x80"',
    b"\xef\xbb\xbf{}",
    b"{} {}",
    b"",
    b"[1,]",
    b'"a\tb"',
    b"01",
]


@pytest.mark.parametrize("body", PLAIN)
def test_what_is_plain_is_read_at_once(body: bytes) -> None:
    assert repr(read_plainly(body)) == repr(read_closely(body))


@pytest.mark.parametrize("body", NOT)
def test_what_might_be_read_differently_is_left_to_the_strict_readers(body: bytes) -> None:
    assert read_plainly(body) is NOT_PLAIN
    with pytest.raises(MalformedRequest):
        read_closely(body)


def outcome(read: Callable[[bytes], Any], body: bytes) -> str:
    try:
        return repr(read(body))
    except MalformedRequest:
        return "refused"


def agrees(body: bytes) -> None:
    """Quick answers are the strict readers' own, to the type and the order of names."""
    quick = read_plainly(body)
    if quick is not NOT_PLAIN:
        assert repr(quick) == outcome(read_closely, body)


names = st.sampled_from(["a", "b", ":", "", "\\", '"', "ä", "a:b"]) | st.text(max_size=4)
numbers = (
    st.integers() | st.integers(10**38, 10**43) | st.floats(allow_nan=True, allow_infinity=True)
)  # also what is no JSON
# As no double prints them: too long, too near to zero, with zeros that mean nothing.
odd_numbers = st.from_regex(r"-?(0|[1-9][0-9]{0,18})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)
space = st.sampled_from(["", "", " ", "\n\t", "\r "])
scalars = st.none() | st.booleans() | numbers | st.text(max_size=8)


@st.composite
def texts(draw: st.DrawFn, depth: int = 3) -> str:
    """JSON texts as strangers write them: names that come twice, any spacing, escapes of any kind."""
    kind = draw(st.integers(0, 3 if depth else 1))
    if kind < 2:
        if draw(st.integers(0, 3)) == 0:
            return draw(space) + draw(odd_numbers) + draw(space)
        value = json.dumps(draw(scalars), ensure_ascii=draw(st.booleans()))
        value = value.replace(":", "\\u003a") if draw(st.integers(0, 5)) == 0 else value
        return draw(space) + value + draw(space)
    parts = []
    for _ in range(draw(st.integers(0, 4))):
        value = draw(texts(depth - 1))
        if kind == 2:
            name = json.dumps(draw(names), ensure_ascii=draw(st.booleans()))
            value = draw(space) + name + draw(space) + ":" + value
        parts.append(value)
    inner = ",".join(parts) + ("," if draw(st.integers(0, 20)) == 0 else "")
    return "{" + inner + "}" if kind == 2 else "[" + inner + "]"


@pytest.mark.slow
@tried(80)
@given(texts())
def test_whatever_is_written_is_read_alike(text: str) -> None:
    agrees(text.encode("utf-8", "surrogatepass"))


@pytest.mark.slow
@tried(80)
@given(texts(), st.data())
def test_whatever_becomes_of_it_on_the_way_is_read_alike(text: str, data: st.DataObject) -> None:
    body = bytearray(text.encode("utf-8", "surrogatepass"))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(body)))
        body[place : place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    agrees(bytes(body))


@tried(80)
@given(st.lists(st.sampled_from(list(b'{}[]":,\\u0aAe1-+. \n\xc3\xa4\x00tfn')), max_size=24))
def test_whatever_bytes_there_are_are_read_alike(codes: list[int]) -> None:
    agrees(bytes(codes))


@pytest.mark.slow
@tried(120)
@given(odd_numbers)
def test_numbers_are_kept_or_refused_by_every_reader_alike(text: str) -> None:
    quick, strict = read_plainly(text.encode()), outcome(read_closely, text.encode())
    assert strict == ("refused" if quick is NOT_PLAIN else repr(quick))
