"""What all stores share about content duplicates: the words in reasons and in the log."""

from __future__ import annotations

from typing import Final

REASON_LENGTH_MAX: Final = 300


def reason_for(other: int, was: str, old_reason: str | None) -> str:
    """Why an entry was stopped, with what it waited for before."""
    before = f"; was {was}: {old_reason}" if old_reason else f"; was {was}"
    return f"content_duplicate: the same change as entry {other} under another key{before}"[
        :REASON_LENGTH_MAX
    ]


def note_for(other: int) -> str:
    """What the log says under each entry of a pair."""
    return f"the same change as entry {other} under another key"
