"""Declared fields of events on cards, plans and pairs: values for operators, names for others."""

from __future__ import annotations

from typing import Final

from oncegate.dashboard.auth import Visitor
from oncegate.dashboard.operators import Role
from oncegate.dashboard.request_context import Tools
from oncegate.review.differences import fields_of
from oncegate.store import EntryDetail

MASKED: Final = "•••"

Fields = list[tuple[str, str]]


def declared(tools: Tools, seen: EntryDetail | None) -> Fields:
    """The fields that the entry's surface shows; none where the page does not know the surface's rule."""
    if seen is None:
        return []
    shows = (one.rule.show for one in tools.surfaces() if one.rule.name == seen.entry.surface)
    return fields_of(seen.body, next(shows, ()))


def masked(fields: Fields, visitor: Visitor) -> Fields:
    """The same for a visitor: those who may not reveal content see the names alone."""
    return fields if visitor.may(Role.OPERATOR) else [(name, MASKED) for name, _ in fields]
