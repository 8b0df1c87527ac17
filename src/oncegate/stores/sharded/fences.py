"""What a database of a re-sharded ledger says of itself: its stamp, and what it has of each virtual shard.

Documents of the kind `home`, one for each virtual shard, say `here`; `leaving`, where claims may end and
none may begin; `arrived`, a copy that is not used yet; or `gone`. The trigger of `engines` obeys them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from oncegate.stores.sharded.shard_map import Stamp
from oncegate.stores.sharded.sides import LedgerSide, marks
from oncegate.stores.shared.homes import HOME, STAMP

_NOT_SHARDED: Final = ("lane", "delivery", "feed", "feed_key", "position")


def phases(side: LedgerSide) -> dict[str, bytes]:
    """What the database has of each virtual shard; empty before its first re-sharding."""
    found = side.run("SELECT name, body FROM oncegate_document WHERE kind = ?", HOME)
    return {name: bytes(body) for name, body in found}


def declare(side: LedgerSide, phases: dict[str, bytes], at_ms: int) -> None:
    """Says for the first time what the database has; what it said before stays."""
    side.run_many(
        "INSERT INTO oncegate_document (kind, name, version, body, changed_at)"
        " VALUES (?, ?, 1, ?, ?) ON CONFLICT (kind, name) DO NOTHING",
        [(HOME, name, phase, at_ms) for name, phase in phases.items()],
    )


def set_phases(side: LedgerSide, names: Sequence[str], phase: bytes, *only_from: bytes) -> int:
    """Changes what the database has of virtual shards; tells of how many it had one of `only_from`."""
    if not names:
        return 0
    found = side.run(
        "UPDATE oncegate_document SET body = ?, version = version + 1 WHERE kind = ?"
        f" AND name IN ({marks(names)}) AND body IN ({marks(only_from)}) RETURNING 1",
        *(phase, HOME, *names, *only_from),
    )
    return len(found)


def write_stamp(side: LedgerSide, stamp: Stamp, at_ms: int) -> None:
    """Says what the database is, in a transaction of its own."""
    side.run(
        "INSERT INTO oncegate_document (kind, name, version, body, changed_at) VALUES (?, ?, 1, ?, ?)"
        " ON CONFLICT (kind, name) DO UPDATE SET body = excluded.body,"
        " version = oncegate_document.version + 1, changed_at = excluded.changed_at",
        *(*STAMP, str(stamp).encode(), at_ms),
    )


def stamp_of(side: LedgerSide) -> Stamp | None:
    """What the database is."""
    found = side.run("SELECT body FROM oncegate_document WHERE kind = ? AND name = ?", *STAMP)
    return Stamp.read(bytes(found[0][0]).decode()) if found else None


def other_uses(side: LedgerSide) -> list[str]:
    """Tables with rows that a sharded ledger has no use for: lanes and the feed."""
    return [table for table in _NOT_SHARDED if side.run(f"SELECT 1 FROM oncegate_{table} LIMIT 1")]
