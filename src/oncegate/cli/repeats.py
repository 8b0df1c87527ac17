"""Repeats as people and programs see them; for `oncegate entries` and `oncegate signals`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from oncegate.cli.output import Cell, grouped, print_table, utc

if TYPE_CHECKING:
    from oncegate.store import Repeat


def repeat_facts(repeat: Repeat) -> dict[str, Any]:
    """A repeat as JSON."""
    return {
        "entry": repeat.entry_id,
        "class": repeat.kind.label,
        "times": repeat.times,
        "first_at": utc(repeat.first_at_ms),
        "last_at": utc(repeat.last_at_ms),
        "evidence": repeat.evidence,
    }


def print_repeats(title: str, repeats: Sequence[Repeat], *, with_entry: bool = False) -> None:
    """Prints repeats under a title; nothing where there are none."""
    if not repeats:
        return
    print(f"\n{title}")
    rows = [
        [
            Cell.of(repeat.entry_id if with_entry else ""),
            Cell.of(utc(repeat.last_at_ms)),
            Cell.of(repeat.kind.label),
            Cell.of(grouped(repeat.times)),
            Cell.of(repeat.evidence),
        ]
        for repeat in repeats
    ]
    print_table(("ENTRY", "LAST AT", "CLASS", "TIMES", "EVIDENCE"), rows)
