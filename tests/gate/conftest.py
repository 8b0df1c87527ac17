"""A ledger on disk and the two styles of handlers, for every test in this folder."""

import pytest

from tests.support.gates import Ledger, ledger, style
from tests.support.loops import pytest_pyfunc_call

__all__ = ["ledger", "pytest_pyfunc_call", "style"]


@pytest.fixture
def booked_ledger(ledger: Ledger) -> Ledger:
    """A ledger whose database also holds the user's table."""
    ledger.create_bookings()
    return ledger
