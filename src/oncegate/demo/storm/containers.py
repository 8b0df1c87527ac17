"""Container numbers as ISO 6346 writes them: owner, serial, check digit.

The story makes its containers up here, so that they look and validate like real ones. Must never give out a
number whose sum leaves ten: the standard asks not to use those serials.
"""

from __future__ import annotations

import random
import string
from typing import Final

# Invented owner codes; the final U says "freight container".
OWNERS: Final = ("ONGU", "KVTU", "NRDU", "WESU", "PLZU", "TKMU")
SERIAL_DIGITS: Final = 6


def _letter_values() -> dict[str, int]:
    """A is 10, B is 12, ...: the multiples of eleven are left out, because the check is modulo eleven."""
    usable = (value for value in range(10, 40) if value % 11 != 0)
    return dict(zip(string.ascii_uppercase, usable, strict=False))


_VALUES: Final = {**_letter_values(), **{digit: int(digit) for digit in string.digits}}


def check_sum(stem: str) -> int:
    """Return what the first ten characters leave modulo eleven; ten means: do not use this serial."""
    return sum(_VALUES[character] << place for place, character in enumerate(stem)) % 11


def is_valid(number: str) -> bool:
    """Whether a container number's check digit belongs to the rest of it."""
    return len(number) == 11 and check_sum(number[:-1]) % 10 == int(number[-1])


def make_numbers(count: int, generator: random.Random) -> list[str]:
    """Make up `count` different valid container numbers."""
    numbers: dict[str, None] = {}
    while len(numbers) < count:
        serial = generator.randrange(10**SERIAL_DIGITS)
        stem = f"{generator.choice(OWNERS)}{serial:0{SERIAL_DIGITS}d}"
        digit = check_sum(stem)
        if digit < 10:
            numbers[f"{stem}{digit}"] = None
    return list(numbers)
