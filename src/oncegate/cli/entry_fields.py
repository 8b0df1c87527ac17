"""Entries by a field of their event (`--field amount=995`). No index leads there: it is bounded."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from oncegate.model.paths import lookup, parse_path
from oncegate.store import Entry, EntryFilter, Session

EVENTS_READ_MAX: Final = 5_000
_PAGE: Final = 500


class FieldValue(NamedTuple):
    """A field and the text of its value."""

    path: tuple[str, ...]
    text: str

    def fits(self, event: Any) -> bool:
        """Whether an event has this value there: as text, or as JSON writes it."""
        found = lookup(event, self.path)
        return found == self.text or _as_json(found) == self.text


def _as_json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError):
        return ""


def read_field(text: str) -> FieldValue:
    """Reads PATH=VALUE."""
    path, equals, value = text.partition("=")
    if not equals or not path.strip():
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not PATH=VALUE, such as payload.amount=995")
    return FieldValue(parse_path(path.strip()), value)


def with_fields(
    session: Session, wanted: EntryFilter, before: int | None, fields: list[FieldValue], limit: int
) -> tuple[list[Entry], bool]:
    """The newest entries whose events have all these values, and whether the bound ended the search."""
    looked = 0

    def fitting() -> Iterator[Entry]:
        nonlocal looked
        last = before
        while looked < EVENTS_READ_MAX and (page := session.entries(wanted, last, _PAGE)):
            for entry in page:
                looked += 1
                if _fits(session, entry, fields):
                    yield entry
            last = page[-1].entry_id

    found = list(islice(fitting(), limit))
    return found, looked >= EVENTS_READ_MAX and len(found) < limit


def _fits(session: Session, entry: Entry, fields: list[FieldValue]) -> bool:
    detail = session.detail(entry.entry_id)
    if detail is None or detail.body is None:
        return False
    try:
        event = msgspec.json.decode(detail.body)
    except msgspec.DecodeError:
        return False
    return all(field.fits(event) for field in fields)
