"""A ledger on disk; async tests run in a loop of their own."""

from tests.support.gates import ledger
from tests.support.loops import pytest_pyfunc_call

__all__ = ["ledger", "pytest_pyfunc_call"]
