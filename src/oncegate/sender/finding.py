"""Entries by whatever a person has in hand: a label, a key, an entry's number, a resource's id.

Keys and numbers are found by their index. Labels and resources have none: a search looks at the latest
entries, up to a bound, and says where it stopped.
"""

from __future__ import annotations

from typing import Final

from oncegate.store import Entry, EntryFilter, Session

LOOKED_BACK: Final = 100_000
FOUND_MAX: Final = 10
KEY_DIGITS_MIN: Final = 6
_HEX: Final = frozenset("0123456789abcdef")


def find_entries(session: Session, text: str, tenant: str | None = None) -> list[Entry]:
    """The entries that a text names, newest first; the surest kind of name that fits anything counts."""
    for found in (_numbered(session, text), _keyed(session, text), _labelled(session, text, tenant)):
        mine = [entry for entry in found if tenant in (None, entry.tenant)]
        if mine:
            return mine
    return holders(session, text, tenant)


def holders(session: Session, resource: str, tenant: str | None = None) -> list[Entry]:
    """The latest entries whose outcome or steps name a resource."""
    wanted = EntryFilter(tenant=tenant, resource=resource, above_id=floor_of(session))
    return session.entries(wanted, None, FOUND_MAX) if resource else []


def floor_of(session: Session) -> int:
    """The number from which a search goes no further back."""
    newest = session.entries(EntryFilter(), None, 1)
    return max(0, newest[0].entry_id - LOOKED_BACK) if newest else 0


def _numbered(session: Session, text: str) -> list[Entry]:
    number = text.removeprefix("#").removeprefix("entry ").strip()
    if not (number.isascii() and number.isdigit() and len(number) <= 18 and int(number)):
        return []
    seen = session.detail(int(number))
    return [] if seen is None else [seen.entry]


def _keyed(session: Session, text: str) -> list[Entry]:
    digits = text.partition(":")[0].lower()
    if not KEY_DIGITS_MIN <= len(digits) <= 48 or not set(digits) <= _HEX:
        return []
    return session.entries(EntryFilter(key_prefix=digits), None, FOUND_MAX)


def _labelled(session: Session, text: str, tenant: str | None) -> list[Entry]:
    """Entries of this label; where there are none, those whose label contains the text."""
    wanted = EntryFilter(tenant=tenant, label_contains=text, above_id=floor_of(session))
    found = session.entries(wanted, None, 10 * FOUND_MAX) if text else []
    exact = [entry for entry in found if entry.label == text]
    return (exact or found)[:FOUND_MAX]
