"""A ledger on disk for every test in this folder; async tests run in a loop of their own."""

from tests.support.gates import ledger
from tests.support.loops import pytest_pyfunc_call

__all__ = ["ledger", "pytest_pyfunc_call"]
