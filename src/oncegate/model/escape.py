"""Stored text comes from senders and is not to be trusted: made harmless for terminals and pages."""

from __future__ import annotations


def visible(text: str) -> str:
    """Returns the text with every control, format and bidirectional character written as an escape."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _escape(character) for character in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
