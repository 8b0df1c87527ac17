"""What both ledgers share about interned names: how long numbers are kept in memory, and who uses them.

A name is removed in steps. A look finds that no row uses it, and the pruner marks it. A session that looks
up a marked name takes the mark away first. Sessions drop numbers after `NUMBERS_KEPT_MS`. A name that is
still marked and unused after `UNUSED_MS` is in no memory. Must never remove a name by the first look alone.
"""

from __future__ import annotations

from typing import Final

NAMES_CACHED_MAX: Final = 4_096
NUMBERS_KEPT_MS: Final = 10 * 60_000
UNUSED_MS: Final = 6 * NUMBERS_KEPT_MS

# Every column that holds the number of a name, on both ledgers.
USES: Final = (
    ("entry", "surface"),
    ("entry", "tenant"),
    ("step", "downstream"),
    ("step", "declared"),
    ("log", "actor"),
    ("feed_tenant", "tenant"),
    ("feed_key", "tenant"),
    ("feed", "tenant"),
    ("feed_reader", "tenant"),
    ("destination", "id"),
    ("lane", "destination"),
    ("lane", "tenant"),
    ("delivery", "destination"),
    ("delivery", "type"),
    ("tally", "surface"),
    ("duplicate", "dismissed_by"),
    ("replay_order", "destination"),
    ("replay_order", "tenant"),
    ("seen", "surface"),
    ("seen_repeat", "surface"),
    ("second", "dismissed_by"),
)
