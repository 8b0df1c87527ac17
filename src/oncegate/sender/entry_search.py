"""Entries by whatever a person has in hand: a label, a key, an entry's number, a resource's id.

Keys and numbers are found by their index, and so are whole labels: the ledger keeps each surface's key
template, which leads from a label to the key. Parts of labels and resources have no index, so that no event
pays for one: a search looks at the latest entries, up to a bound, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from oncegate.model.identity import KIND, read_identity
from oncegate.model.keys import Key, conflict_prefix, derive_key
from oncegate.model.template import KeyTemplate
from oncegate.store import Entry, EntryFilter, Session

LOOKED_BACK: Final = 100_000  # entries whose label is looked at
RESOURCES_LOOKED_BACK: Final = 20_000  # entries whose outcome is looked at, which costs more
TENANTS_TRIED: Final = 2_000  # names that may be a label's tenant
KEYS_TRIED: Final = 20_000
FOUND_MAX: Final = 10
KEY_DIGITS_MIN: Final = 6
_HEX: Final = frozenset("0123456789abcdef")


def find_entries(
    session: Session, text: str, tenant: str | None = None, *, labels: bool = True
) -> list[Entry]:
    """The entries that a text names, newest first; the surest kind of name that fits anything counts.

    Without `labels` no label is looked at: the caller does that.
    """
    ways: list[Callable[[], list[Entry]]] = [
        lambda: _numbered(session, text),
        lambda: _keyed(session, text),
        lambda: labelled(session, text, tenant),
        lambda: _scanned(session, text, tenant) if labels else [],
    ]
    for way in ways:
        mine = [entry for entry in way() if tenant in (None, entry.tenant)]
        if mine:
            return mine
    return holders(session, text, tenant)


def holders(session: Session, resource: str, tenant: str | None = None) -> list[Entry]:
    """The latest entries whose outcome or steps name a resource."""
    wanted = EntryFilter(
        tenant=tenant, resource=resource, above_id=floor_of(session, RESOURCES_LOOKED_BACK)
    )
    return session.entries(wanted, None, FOUND_MAX) if resource else []


def floor_of(session: Session, numbers: int) -> int:
    """The number from which a search goes no further back."""
    newest = session.entries(EntryFilter(), None, 1)
    return max(0, newest[0].entry_id - numbers) if newest else 0


def labelled(session: Session, label: str, tenant: str | None = None) -> list[Entry]:
    """The entries of exactly this label in the whole ledger, newest first, by their keys."""
    if not label:
        return []
    keys = list(dict.fromkeys(islice(_keys_of(session, label, tenant), KEYS_TRIED)))
    read = [entry for entry in session.read([key.digest for key in keys]) if entry is not None]
    known = [entry for entry in read if entry.label == label]
    for entry in known[:FOUND_MAX]:  # other contents that came under the same key
        prefix = conflict_prefix(Key(entry.key))
        known += session.entries(EntryFilter(key_prefix=prefix), None, FOUND_MAX)
    return sorted(known, key=lambda entry: -entry.entry_id)[:FOUND_MAX]


def _keys_of(session: Session, label: str, tenant: str | None) -> Iterator[Key]:
    """The keys that may have this label: of every surface, by its templates, for every tenant."""
    surfaces = [(one.name, read_identity(one.body)) for one in session.documents(KIND)]
    tenants = ["", *session.known_names(TENANTS_TRIED)] if tenant is None else [tenant]
    for name, identity in surfaces:
        for template in {identity.key, *(former.key for former in identity.former)}:
            for parts in KeyTemplate.parse_kept(template).parts_of(label):
                yield from (derive_key(owner, name, template, parts) for owner in tenants)


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


def _scanned(session: Session, text: str, tenant: str | None) -> list[Entry]:
    """Late entries of this label; where there are none, those whose label contains the text."""
    wanted = EntryFilter(tenant=tenant, label_contains=text, above_id=floor_of(session, LOOKED_BACK))
    found = session.entries(wanted, None, 10 * FOUND_MAX) if text else []
    exact = [entry for entry in found if entry.label == text]
    return (exact or found)[:FOUND_MAX]
