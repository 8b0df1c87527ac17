"""Other contents that are kept beside a known key, read with what every store has: keys and records."""

from __future__ import annotations

from oncegate.model.conflicts import KEPT_MAX, known_key
from oncegate.model.keys import Key, conflict_prefix
from oncegate.store.census import Census, EntryFilter
from oncegate.store.claims import Entry, EntryDetail
from oncegate.store.log import LogKind


def kept_beside(session: Census, known: Key, limit: int = 2 * KEPT_MAX) -> list[Entry]:
    """Entries that came under this key with other content, the newest first."""
    return session.entries(EntryFilter(key_prefix=conflict_prefix(known)), None, limit)


def wanted_key(seen: EntryDetail) -> Key | None:
    """The key that an entry came under, if another content has it; whatever was decided since."""
    notes = (record.note for record in seen.records if record.kind is LogKind.QUARANTINED)
    return next((key for note in notes if (key := known_key(note)) is not None), None)
