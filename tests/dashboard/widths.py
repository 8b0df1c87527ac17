"""How wide the screen is in tests of the browser.

A test of what a page looks like runs on a desk and on a phone. A test of what a page does runs on one of
them, and on the other one with `make soak`.
"""

from __future__ import annotations

import pytest

DESK, PHONE = 1280, 390


def first(width: int, other: int) -> list[object]:
    """The parameters of a test that runs at one width in `make test`, and at the other with `make soak`."""
    return [width, pytest.param(other, marks=pytest.mark.soak)]
