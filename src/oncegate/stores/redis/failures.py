"""Errors of a Redis server turned into ours: certainly not done, or unknown.

An error that the server answers is certain for its own command: nothing of that command was done. Must
never call an error certain that is not: a connection lost after a command was sent leaves it open.
"""

from __future__ import annotations

from typing import Final

import redis

from oncegate.errors import StoreCorrupt, StoreError, StoreFull, StoreUnavailable, StoreUnknown

SAID_MAX: Final = 200
_RIGHTS: Final = "the user lacks a right; see the rights in docs/redis.md"
# By how the server's answer begins, or what the driver made of it.
_MEANINGS: Final[tuple[tuple[type[Exception] | str, type[StoreError], str], ...]] = (
    (
        redis.exceptions.OutOfMemoryError,
        StoreFull,
        "the server is out of memory; raise maxmemory or shorten retention",
    ),
    (
        redis.exceptions.ReadOnlyError,
        StoreUnavailable,
        "the server is a read-only replica; name the primary",
    ),
    (
        redis.exceptions.ClusterDownError,
        StoreUnavailable,
        "a part of the cluster is down; run CLUSTER SHARDS",
    ),
    (redis.exceptions.MovedError, StoreUnavailable, "the cluster is moving slots; try again"),
    (redis.exceptions.AskError, StoreUnavailable, "the cluster is moving slots; try again"),
    (redis.exceptions.TryAgainError, StoreUnavailable, "the cluster is moving slots; try again"),
    (redis.exceptions.NoPermissionError, StoreUnavailable, _RIGHTS),
    (redis.exceptions.AuthenticationError, StoreUnavailable, "the server refuses the user or the password"),
    (redis.exceptions.BusyLoadingError, StoreUnavailable, "the server is loading its data; try again"),
    ("CORRUPT", StoreCorrupt, "an entry is damaged; do not delete it"),
    ("MISCONF", StoreUnavailable, "the server cannot save to its disk and refuses writes"),
    ("NOREPLICAS", StoreUnavailable, "too few replicas are connected (min-replicas-to-write)"),
    ("MASTERDOWN", StoreUnavailable, "the replica has lost its primary; name the primary"),
    ("BUSY", StoreUnavailable, "a script of another program blocks the server"),
    ("WRONGTYPE", StoreCorrupt, "a key of the ledger holds something else; choose another prefix"),
)


def said(error: BaseException) -> str:
    """What an error says, on one short line."""
    return " ".join(str(error).split())[:SAID_MAX]


def translate(error: Exception, where: str) -> StoreError:
    """Finds our error for an answer of the server; nothing of the command was done."""
    text = said(error)
    for known, kind, meaning in _MEANINGS:
        if isinstance(error, known) if isinstance(known, type) else text.startswith(known):
            return kind(f"{where}: {meaning} ({text})")
    return StoreUnavailable(f"{where}: the server refused a command: {text}")


def is_strange(answer: object) -> bool:
    """Whether a key holds a value that is no entry: another program's."""
    return isinstance(answer, redis.exceptions.ResponseError) and str(answer).startswith("WRONGTYPE")


def unreachable(error: Exception, where: str) -> StoreError:
    """Nothing was sent: the server cannot be reached, or does not let us in."""
    if isinstance(error, redis.exceptions.ResponseError | redis.exceptions.AuthenticationError):
        return translate(error, where)
    if isinstance(error, redis.exceptions.BusyLoadingError):
        return translate(error, where)
    return StoreUnavailable(f"{where} cannot be reached: {said(error)}")


def lost(error: Exception, where: str) -> StoreUnknown:
    """A command was sent and no answer came."""
    return StoreUnknown(f"{where}: the connection was lost, the write may have happened: {said(error)}")
