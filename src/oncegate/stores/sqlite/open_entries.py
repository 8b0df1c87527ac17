"""What is open on the embedded ledger: which entries are not final, and how they are found.

Most claims run once and are over within milliseconds. To put each into an index and take it out again
changes two pages an event, so first claims are in none. Each of them either has a number above the mark
`listed`, where all entries are read, or stands in the list of those that last. Must never let a first claim
be neither: only its sender would come back to it.
"""

from __future__ import annotations

import sqlite3
from typing import Final

LISTED_EVERY_BITS: Final = (
    12  # numbers: as many entries, and those of one batch, are read for each question
)

# A first claim's fence is its entry's own number; whoever takes it over raises the fence.
_FIRST: Final = "state = 1 AND fence = id"
_NEW: Final = "id > (SELECT value FROM oncegate_meta WHERE name = 'listed')"
_IN_INDEX: Final = "state NOT IN (2, 3) AND (state <> 1 OR fence <> id)"
_OPEN: Final = (
    "SELECT {columns} FROM oncegate_entry INDEXED BY oncegate_entry_open"
    f" WHERE {_IN_INDEX}{{where}}"
    f" UNION ALL SELECT {{columns}} FROM oncegate_entry WHERE {_NEW} AND {_FIRST}{{where}}"
    " UNION ALL SELECT {columns} FROM oncegate_lasting CROSS JOIN oncegate_entry ON id = entry"
    f" WHERE {_FIRST}{{where}}"
)
_FORGET: Final = (
    "DELETE FROM oncegate_lasting"
    f" WHERE NOT EXISTS (SELECT 1 FROM oncegate_entry WHERE id = entry AND {_FIRST})"
)
_LIST: Final = (
    "INSERT INTO oncegate_lasting (entry)"
    f" SELECT id FROM oncegate_entry WHERE {_NEW} AND id < ?1 AND {_FIRST}"
)
_MARK: Final = "UPDATE oncegate_meta SET value = ?1 - 1 WHERE name = 'listed'"


def open_entries(columns: str, where: str = "") -> str:
    """The statement that reads these columns of what is open; parameters in it have numbers (?1)."""
    return _OPEN.format(columns=columns, where=f" AND {where}" if where else "")


def is_listed_at(before: int, last: int) -> bool:
    """Whether numbers after `before`, up to `last`, reach the next time at which the list is made."""
    return before >> LISTED_EVERY_BITS != last >> LISTED_EVERY_BITS


def list_lasting(at: sqlite3.Connection | sqlite3.Cursor, first: int) -> None:
    """Moves the mark up to this number and lists the claims below that still run; in the open unit."""
    at.execute(_FORGET)
    at.execute(_LIST, (first,))
    at.execute(_MARK, (first,))
