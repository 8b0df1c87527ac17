"""What belongs to an entry on the embedded ledger, for the statements that remove one.

Must raise the floor in the same transaction that removes an entry: its number and fence must never be
given out again.
"""

from __future__ import annotations

from typing import Final

BELONGINGS: Final = (
    "DELETE FROM oncegate_payload WHERE entry = ?",
    "DELETE FROM oncegate_outcome WHERE entry = ?",
    "DELETE FROM oncegate_step WHERE entry = ?",
    "DELETE FROM oncegate_repeat WHERE entry = ?",
    "DELETE FROM oncegate_trace WHERE entry = ?",
    "DELETE FROM oncegate_content WHERE entry = ?",
    "DELETE FROM oncegate_duplicate WHERE entry = ?",
    "DELETE FROM oncegate_second WHERE entry = ?",
)
RAISE_FLOOR: Final = "UPDATE oncegate_meta SET value = max(value, ?) WHERE name = 'floor'"
