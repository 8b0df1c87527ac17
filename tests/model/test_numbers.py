"""Numbers from JSON texts: kept to the last digit, or refused."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oncegate.errors import MalformedRequest
from oncegate.model.canonical import canonical_json
from oncegate.model.numbers import exact_float
from oncegate.model.strictjson import read_json

KEPT = [
    *("0.1", "1.50", "1e3", "1E+3", "-0.0", "0e5", "0.0", "-2.5e-3", "1e-6", "0.30000000000000004", "1e23"),
    *(
        "5e-324",
        "1.7976931348623157e308",
        "123456789012345.0",
        "100000000000000000000.0",
        "0.1" + "0" * 400,
    ),
]
LOST = [
    *("12345678901234567.1", "12345678901234567.9", "0.10000000000000001", "0.10000000000000000001"),
    *(
        "1e-400",
        "-1e-400",
        "1e400",
        "2e-324",
        "123456789e-330",
        "9007199254740993.0",
        "1152921504606846976.0",
    ),
    *("1e-99999999999999999999", "0e-99999999999999999999", "0." + "1" * 100_000),
]


@pytest.mark.parametrize("text", KEPT)
def test_a_number_that_a_double_keeps_is_read(text: str) -> None:
    found = read_json(b"[" + text.encode() + b"]")[0]
    assert Decimal(repr(found)) == Decimal(text)


@pytest.mark.parametrize("text", LOST)
def test_a_number_that_would_lose_digits_is_refused(text: str) -> None:
    """Also in a document that the quick reader leaves alone, here for its escape."""
    for body in (text.encode(), b'{"n":' + text.encode() + b"}", b'["\\u0041",' + text.encode() + b"]"):
        with pytest.raises(MalformedRequest, match="digits that a double cannot keep"):
            read_json(body)


digits = st.text("0123456789", min_size=1, max_size=22)
spelled = st.builds(
    lambda sign, whole, rest, exponent: f"{sign}{whole}{rest}{exponent}",
    st.sampled_from(["", "-"]),
    st.integers(0, 10**20).map(str),
    digits.map(".{}".format),
    st.just("") | st.integers(-345, 315).map("e{}".format) | st.integers(0, 30).map("E+{}".format),
)


@given(spelled)
@example("999999999999999.5")
@example("0.000000000000001")
@example("1.2345678901e-290")
def test_what_is_read_is_passed_on_as_the_same_number(text: str) -> None:
    try:
        number = exact_float(text)
    except ValueError:
        return
    assert Fraction(canonical_json(number).decode()) == Fraction(text)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_what_a_double_prints_and_what_we_write_is_read(number: float) -> None:
    assert exact_float(repr(number)) == number
    written = canonical_json([number])
    assert canonical_json(read_json(written)) == written


@given(st.integers(1, 10**15 - 1), st.integers(-280, 270))
def test_fifteen_digits_are_always_kept(whole: int, exponent: int) -> None:
    assert exact_float(f"{whole}e{exponent}") == float(f"{whole}e{exponent}")
