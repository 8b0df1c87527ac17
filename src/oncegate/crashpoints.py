"""Named places where a process may die; each is a no-op unless a test arms it.

The gate, the group commit and the worker's jobs are handed a `CrashPoints` and call `hit` at each name.
Production uses `CrashPoints` itself. Tests pass an armed one (`oncegate.testing`), which kills the
process, raises, or stalls there. A name that is not in `CRASH_POINTS` is an error in an armed one, and a
test checks that every name is really reached.
"""

from __future__ import annotations

from typing import Final

CRASH_POINTS: Final[dict[str, str]] = {
    "commit.before": "a batch has been written but not committed",
    "commit.after": "a batch is committed, its callers do not know yet",
    "reserve.before": "the event is read, its key not yet reserved",
    "reserve.after": "the key is reserved, the handler has not started",
    "recover.after": "a stranded key has been taken over, nothing asked or run yet",
    "start.after": "the start of an unrepeatable step is recorded, the step not yet called",
    "effect.before": "about to call the downstream",
    "effect.after": "the downstream has acted, nothing is recorded",
    "step.after": "a finished step is recorded, the handler goes on",
    "probe.before": "about to ask the downstream what the key owns",
    "probe.after": "the downstream has answered, nothing is recorded",
    "settle.before": "the handler has returned, its outcome is not recorded",
    "settle.after": "the outcome is recorded, the caller has no answer yet",
    "attach.before": "the business write is committed, the returned value not yet attached",
}

# Those of the ordered-work engine, which has tests of its own.
LANE_CRASH_POINTS: Final[dict[str, str]] = {
    "lane.lease.after": "heads are leased, none is delivered",
    "lane.deliver.before": "about to deliver a head",
    "lane.deliver.after": "the destination has the event, nothing is recorded",
    "lane.finish.after": "the delivery is recorded, the next event has not started",
    "lane.fail.after": "a failed attempt is recorded",
    "lane.dead.after": "a dead letter is recorded",
}

# Those of a ledger that went back in time.
RESTORE_CRASH_POINTS: Final[dict[str, str]] = {
    "restore.before": "the ledger is another incarnation, what it lost is not yet written down",
    "restore.after": "what the ledger lost is written down, the process still remembers it",
}
# Those of snapshots and roll-backs; with those of the sealer they have a crash matrix of their own.
HISTORY_CRASH_POINTS: Final[dict[str, str]] = {
    "snapshot.part.after": "a part is stored, the manifest is not",
    "snapshot.manifest.before": "all parts are stored, the manifest is not",
    "snapshot.manifest.after": "the manifest is stored, the ledger does not know it",
    "rollback.line.before": "a line's object was looked at and is not changed yet",
    "rollback.line.after": "a line's object is changed, the line is not settled",
    "rollback.end.before": "all lines are settled, the plan is not ended",
}
# Those of the sealer, which has tests of its own.
SEAL_CRASH_POINTS: Final[dict[str, str]] = {
    "seal.before": "records are hashed, nothing is signed or written",
    "seal.after": "a signed head is committed, not published",
    "publish.before": "a head is about to be published",
    "publish.after": "a head is published, the ledger does not know it",
}
# Those of `oncegate reshard`, which has tests of its own.
RESHARD_CRASH_POINTS: Final[dict[str, str]] = {
    "reshard.begun": "a database is fenced and stamped, not every one is",
    "reshard.leaving": "a group of virtual shards takes no new claims, nothing of it is copied",
    "reshard.copied": "a virtual shard is copied, its old home still has it",
    "reshard.removed": "its old home has given it up, its new home does not take it yet",
    "reshard.moved": "a virtual shard is in its new home, others are not",
    "reshard.ending": "everything is moved, not every database is stamped",
}
ALL_CRASH_POINTS: Final = {**CRASH_POINTS, **LANE_CRASH_POINTS, **RESTORE_CRASH_POINTS}


class CrashPoints:
    """Crash points as production has them: nothing happens."""

    def hit(self, name: str) -> None:
        """Marks that execution has reached the crash point `name`."""
