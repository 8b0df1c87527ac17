"""What an event would change, and where: the mutation hash that events under different keys share.

A surface that declares its content has each event marked when it is reserved; the content scan compares the
marks later. Must never take part in deciding whether an event runs: equal content under another key is for
a person to judge, because it may be meant.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Final

from msgspec import Struct

from oncegate.errors import ConfigError
from oncegate.model.canonical import canonical_json
from oncegate.model.paths import MISSING, lookup, parse_path
from oncegate.model.template import KeyTemplate

HASH_BYTES: Final = 16
COMPENSATION_LENGTH_MAX: Final = 300
WINDOW: Final = timedelta(hours=72)  # E6
_TAG: Final = b"oncegate content 1\0"
_PLACE: Final = re.compile(r"\{([^{}]+)\}")


@dataclass(frozen=True, slots=True)
class Content:
    """Says which of an event's fields make up what it changes, and what it changes.

    `fields` are dotted paths; `target` is a template such as "{client_id}". `compensation` is a text for
    people that says how the change would be undone; its {names} are filled in from the event and its
    outcome. Events of one tenant are compared within a surface, or with every surface that names the same
    `mutation`.
    """

    fields: Collection[str]
    target: str
    compensation: str | None = None
    mutation: str | None = None


class ContentMark(Struct, frozen=True, gc=False):
    """What is recorded of an event's content: equal hashes mean the same change to the same target."""

    hash: bytes
    target: str
    compensation: str | None = None


@dataclass(frozen=True, slots=True)
class ContentRule:
    """A checked declaration, ready to mark any number of events."""

    mutation: str
    target: KeyTemplate
    fields: tuple[tuple[str, tuple[str, ...]], ...]
    compensation: str | None

    @classmethod
    def of(cls, declared: Content, surface: str) -> ContentRule:
        """Return the rule for a declaration, or raise ConfigError saying what is wrong with it."""
        if isinstance(declared.fields, str) or not declared.fields:
            raise ConfigError("content fields are a tuple of paths, such as ('date', 'stops')")
        if declared.compensation is not None and len(declared.compensation) > COMPENSATION_LENGTH_MAX:
            raise ConfigError(f"a compensation is at most {COMPENSATION_LENGTH_MAX} characters")
        target = KeyTemplate.parse(declared.target)
        fields = tuple((path, parse_path(path)) for path in sorted(set(declared.fields)))
        return cls(declared.mutation or surface, target, fields, declared.compensation)

    def mark(self, tenant: str, payload: object) -> ContentMark:
        """Return an event's mark; raises InputRefused if its target cannot be read.

        A field that is missing counts as missing, which is not the same as null.
        """
        parts = self.target.derive(payload)
        found = {name: lookup(payload, path) for name, path in self.fields}
        content = canonical_json({name: value for name, value in found.items() if value is not MISSING})
        components = [text.encode() for text in (tenant, self.mutation, *parts.parts)]
        return ContentMark(_hashed([*components, content]), parts.label, self.compensation)


def _hashed(components: list[bytes]) -> bytes:
    """Lengths go before the parts, so that no two lists of parts run together into the same text."""
    pieces = [len(component).to_bytes(8, "big") + component for component in components]
    return sha256(_TAG + b"".join(pieces)).digest()[:HASH_BYTES]


def fill_in(template: str, event: object, outcome: object, resource: str | None) -> str:
    """Return a compensation with its names filled in; a name that nothing is known of stays as it is."""
    known: dict[str, object] = {"resource": resource} if resource is not None else {}

    def found(match: re.Match[str]) -> str:
        path = tuple(match.group(1).split("."))
        for source in (known, outcome, event):
            value = lookup(source, path) if isinstance(source, Mapping) else MISSING
            if value is not MISSING and not isinstance(value, (dict, list)):
                return str(value)
        return match.group(0)

    return _PLACE.sub(found, template)
