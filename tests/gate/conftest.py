"""A ledger on disk and the two styles of handlers, for every test in this folder."""

import pytest

from tests.loops import pytest_pyfunc_call
from tests.support import Ledger, ledger, style

__all__ = ["ledger", "pytest_pyfunc_call", "style"]


@pytest.fixture
def booked_ledger(ledger: Ledger) -> Ledger:
    """A ledger whose database also holds the user's table."""
    ledger.create_bookings()
    return ledger
