"""A ledger on disk for every test in this folder."""

from tests.support.gates import ledger

__all__ = ["ledger"]
