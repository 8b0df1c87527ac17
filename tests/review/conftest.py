"""A ledger on disk and the two styles of handlers, for every test in this folder."""

from tests.support.gates import ledger, style

__all__ = ["ledger", "style"]
