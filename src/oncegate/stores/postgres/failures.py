"""PostgreSQL's errors turned into ours: certainly not done, refused, or unknown.

An error that the server answers, and goes on, is certain: whatever its code, nothing was done. Must never
call an error certain that is not: a connection lost while a commit was under way leaves it open.
"""

from __future__ import annotations

import re
from typing import Final, TypeGuard

import psycopg
from psycopg import errors as postgres

from oncegate.errors import (
    DurabilityRefused,
    PartUnavailable,
    SchemaMismatch,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreRejected,
    StoreUnavailable,
    StoreUnknown,
)
from oncegate.stores.postgres import poolers
from oncegate.stores.shared.homes import REFUSAL, REFUSAL_STATE

_SECRET: Final = re.compile(r"(password=)\S+|(://[^:/@\s]*:)\S*(@)")
_RETRY: Final = (postgres.DeadlockDetected, postgres.SerializationFailure, postgres.LockNotAvailable)
_NO_SCHEMA: Final = (postgres.UndefinedTable, postgres.UndefinedColumn, postgres.UndefinedFunction)


def first_line(error: BaseException) -> str:
    """What an error says, on one line and without secrets."""
    text = " ".join(str(error).split())[:300]
    return _SECRET.sub(lambda m: f"{m.group(1) or m.group(2)}…{m.group(3) or ''}", text)


def is_answer(error: BaseException) -> bool:
    """Whether the server said this and goes on with the connection; a FATAL error is its last word."""
    return isinstance(error, psycopg.Error) and error.diag.severity_nonlocalized == "ERROR"


def is_deadlock(error: BaseException | None) -> TypeGuard[psycopg.Error]:
    """Whether two transactions got into each other's way, and the same may go well a moment later."""
    return isinstance(error, (postgres.DeadlockDetected, postgres.SerializationFailure))


def is_lost(error: psycopg.Error) -> bool:
    """Whether the connection was lost, or the server's last word was an error."""
    if is_answer(error):
        return False
    is_last_word = error.diag.severity_nonlocalized is not None
    return is_last_word or isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))


def translate(error: psycopg.Error, *, committing: bool) -> StoreError:
    """Finds our error. `committing` says that the statement may have committed before it failed."""
    text = first_line(error)
    if committing and is_lost(error):
        return StoreUnknown(f"the connection was lost; the commit may have happened: {text}")
    if error.sqlstate == REFUSAL_STATE:
        return PartUnavailable(REFUSAL)
    if isinstance(error, postgres.DiskFull):
        return StoreFull(f"the server has no space left: {text}")
    if isinstance(error, _RETRY):
        return StoreBusy(f"the server asks to try again: {text}")
    if isinstance(error, postgres.InsufficientPrivilege):
        return StoreUnavailable(f"{text}; grant the user rights on the oncegate tables and its schema")
    if isinstance(error, postgres.ReadOnlySqlTransaction):
        return StoreUnavailable("the server is read-only (a standby?); point the address at the primary")
    if isinstance(error, _NO_SCHEMA) and "oncegate" in text:
        return SchemaMismatch(f"the schema is missing or incomplete ({text}); see `oncegate doctor`")
    if poolers.is_shared_server(error):
        return StoreUnavailable(poolers.TRANSACTION_MODE)
    if isinstance(error, postgres.InvalidSchemaName):
        return StoreUnavailable(f"{text}; create the schema that the search_path names")
    if isinstance(error, postgres.QueryCanceled):
        return StoreUnavailable(f"the server took too long and gave up: {text}")
    if is_lost(error):
        return StoreUnavailable(f"the server cannot be reached: {text}")
    return StoreUnavailable(text)


def users_failure(error: Exception, *, patient: bool) -> StoreError:
    """What the failure of a user's statement means: whatever the server answers, it is theirs alone.

    A lock that was not waited for long is tried again; so is a deadlock, by the caller that counts them.
    """
    if isinstance(error, psycopg.Error):
        gave_up = isinstance(error, postgres.LockNotAvailable) and not patient
        if is_lost(error) or gave_up or is_deadlock(error):
            return translate(error, committing=False)
    return rejected(error)


def rejected(error: Exception) -> StoreRejected:
    """A user's own statement was refused."""
    return StoreRejected(f"a business write failed and was undone: {first_line(error)}")


def refuse_durability(setting: str, value: str) -> DurabilityRefused:
    """The server would acknowledge what it has not kept."""
    return DurabilityRefused(
        f"the server has {setting}={value}: it acknowledges commits that a crash can lose; set "
        f"{setting}=on, or say durability=accept in the address to go on with a lesser promise"
    )
