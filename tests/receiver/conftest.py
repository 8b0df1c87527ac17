"""A ledger on disk; async tests run in a loop of their own."""

from tests.loops import pytest_pyfunc_call
from tests.support import ledger

__all__ = ["ledger", "pytest_pyfunc_call"]
