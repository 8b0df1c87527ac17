"""Async tests of this folder run in a loop of their own."""

from tests.support.loops import pytest_pyfunc_call

__all__ = ["pytest_pyfunc_call"]
