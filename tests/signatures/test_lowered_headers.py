"""Headers whose names a server has lowered are read like any others, without looking at each."""

from __future__ import annotations

import pytest

from oncegate.errors import MalformedRequest
from oncegate.signatures import Headers, LoweredHeaders

NAMES = ("authorization", "x-empty", "x-twice", "x-spaces", "x-odd", "missing")
PAIRS = [
    (b"authorization", b"Bearer t"),
    (b"x-empty", b" \t"),
    (b"x-twice", b"1"),
    (b"x-spaces", b" \tin between \t"),
    (b"x-odd", b"\xe9\xff"),
]


def _told(headers: Headers, name: str) -> tuple[str | None, str | None]:
    try:
        return headers.find(name), headers.only(name)
    except MalformedRequest as refused:
        return str(refused), headers.only(name)


@pytest.mark.parametrize("pairs", [PAIRS, [*PAIRS, (b"x-twice", b"2")], []], ids=["once", "twice", "none"])
def test_both_ways_of_reading_tell_the_same(pairs: list[tuple[bytes, bytes]]) -> None:
    plain, lowered = Headers(pairs), LoweredHeaders(pairs)

    assert [_told(plain, name) for name in NAMES] == [_told(lowered, name) for name in NAMES]


def test_what_came_twice_is_not_the_only_one() -> None:
    headers = LoweredHeaders([*PAIRS, (b"x-twice", b"2")])

    assert headers.sole(b"x-twice") is None
    assert headers.sole(b"authorization") == b"Bearer t"
    assert headers.sole(b"missing") is None
    assert headers.has_none(frozenset({b"missing"}))
    assert not headers.has_none(frozenset({b"missing", b"x-odd"}))
