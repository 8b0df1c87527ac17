"""Processes that book slots at one terminal and die where they are told, for tests of recovery."""

from __future__ import annotations

from typing import Any

from oncegate import Gate
from oncegate.crashpoints import CrashPoints
from tests.support.gates import Ledger, Style, Terminal


class BookingYard:
    """Workers at a terminal that `honours keys` or `can be asked`, all on one ledger."""

    def __init__(self, ledger: Ledger, style: Style, ability: str, **options: Any) -> None:
        self.ledger, self.style, self.ability = ledger, style, ability
        self._options = options  # of the surface
        self.terminal = Terminal(honours_key=ability == "honours keys")

    def process(self, crashpoints: CrashPoints | None = None) -> Gate:
        """One more process, with the handler."""
        gate, style = self.ledger.gate(crashpoints), self.style
        find = style.function(self.terminal.find)
        able: dict[str, Any] = {"probe": find} if self.ability == "can be asked" else {"honours_key": "7d"}
        ect = gate.downstream("ect", **able)

        def book(event, once):
            slot = yield once.effect(ect, style.function(self.terminal.claim), "X")
            return slot["id"]

        style.register(gate, "bookings", book, **self._options)
        return gate
