"""Numbers with a fraction or an exponent, from JSON texts: kept to the last digit, or refused.

A double has room for 15 digits, and for some numbers of 16 and 17. Of a longer number the rest would be
dropped without a word: two events that differ only there would be one and the same, and what is passed on
would not be what came. Every reader of strangers' JSON asks here. What the canonical form writes is always
kept: it is the shortest text of a double.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final

SURE_LENGTH: Final = 16  # 15 digits and a point, which a double always keeps
_LEAST_SURE: Final = 1e-290  # nearer to zero doubles have fewer digits
_MOST_SURE: Final = 1e290


def exact_float(text: str) -> float:
    """The number that a JSON text denotes, or ValueError if a double would be another number."""
    number = float(text)
    if len(text) <= SURE_LENGTH and _LEAST_SURE < number < _MOST_SURE:
        return number  # nearly every one; looking closely takes ten times as long
    try:
        is_kept = Decimal(text) == Decimal(repr(number))
    except ArithmeticError:  # an exponent beyond all measure
        is_kept = False
    if not is_kept:
        raise ValueError("a number has digits that a double cannot keep; send it as a text")
    return number
