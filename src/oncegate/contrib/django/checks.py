"""System checks: what in settings and databases would keep effects from happening once."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from django.core.checks import CheckMessage, Error, Warning  # noqa: A004  Django's name
from django.db import connections

from oncegate.cli.filesystems import advice_on, filesystem_of
from oncegate.contrib.django.addresses import address_of, is_in_memory
from oncegate.errors import OncegateError
from oncegate.gate.facade import live_gates
from oncegate.wiring import open_store

_CONTAINER_FILES: Final = (Path("/.dockerenv"), Path("/run/.containerenv"))


def _aliases() -> list[str]:
    from oncegate.contrib.django.django_gate import DjangoGate

    return sorted({one.using for one in live_gates() if isinstance(one, DjangoGate)})


def check_settings(app_configs: Sequence[Any] | None, **more: Any) -> list[CheckMessage]:
    """Checks DATABASES without connecting."""
    try:
        return [message for alias in _aliases() for message in _check_alias(alias)]
    except OncegateError as error:
        return [Error(str(error), id="oncegate.E001")]


def _check_alias(alias: str) -> list[CheckMessage]:
    if alias not in connections.settings:
        hint = (
            f"Add it, or name another one in ONCEGATE['DATABASE']; there are {list(connections.settings)}."
        )
        return [
            Error(f"DATABASES has no {alias!r}, which holds the ledger.", hint=hint, id="oncegate.E001")
        ]
    connection = connections[alias]
    if connection.vendor not in ("sqlite", "postgresql"):
        hint = "Add a SQLite or PostgreSQL database and name it in ONCEGATE = {'DATABASE': '…'}."
        return [Error(f"{connection.vendor} cannot hold a ledger.", hint=hint, id="oncegate.E002")]
    found = [_atomic_requests(connection), _autocommit(connection)]
    found += _sqlite(connection) if connection.vendor == "sqlite" else [_isolation(connection)]
    return [message for message in found if message is not None]


def _atomic_requests(connection: Any) -> CheckMessage | None:
    if not connection.settings_dict["ATOMIC_REQUESTS"]:
        return None
    return Warning(
        f"DATABASES[{connection.alias!r}] has ATOMIC_REQUESTS: an outcome inside a request's transaction is"
        " not recorded before the response.",
        hint="Put @transaction.non_atomic_requests on views that admit events, or register their handlers"
        " with same_database=True. Receivers' views have it already.",
        id="oncegate.W001",
    )


def _autocommit(connection: Any) -> CheckMessage | None:
    if connection.settings_dict["AUTOCOMMIT"]:
        return None
    what = f"DATABASES[{connection.alias!r}] has AUTOCOMMIT off: transaction.atomic() commits nothing."
    return Error(what, hint="Leave AUTOCOMMIT out.", id="oncegate.E003")


def _isolation(connection: Any) -> CheckMessage | None:
    options = connection.settings_dict["OPTIONS"]
    level = options.get("isolation_level")
    text = str(options.get("options", "")).lower().replace("\\ ", " ")
    is_other = "default_transaction_isolation" in text and "read committed" not in text
    if (level is None or int(level) == _read_committed()) and not is_other:
        return None
    return Error(
        f"DATABASES[{connection.alias!r}] does not use READ COMMITTED: a joined transaction would judge"
        " keys by an old snapshot.",
        hint="Leave isolation_level out, and use a second alias for work that needs another level.",
        id="oncegate.E004",
    )


def _read_committed() -> int:
    from psycopg import IsolationLevel

    return int(IsolationLevel.READ_COMMITTED)


def _sqlite(connection: Any) -> list[CheckMessage | None]:
    if is_in_memory(connection):
        return []
    found: list[CheckMessage | None] = [_transaction_mode(connection)]
    kind = filesystem_of(Path(connection.settings_dict["NAME"]))
    advice = None if kind is None else advice_on(kind)
    if advice is not None:
        what = f"The SQLite database with the ledger is on {kind}."
        found.append(Warning(what, hint=f"{advice[1][:1].upper()}{advice[1][1:]}.", id="oncegate.W003"))
    elif _is_container():
        hint = "Mount a volume for it, or use PostgreSQL: what a container writes goes with the container."
        what = "The SQLite database with the ledger is in a container."
        found.append(Warning(what, hint=hint, id="oncegate.W003"))
    return found


def _transaction_mode(connection: Any) -> CheckMessage | None:
    if str(connection.settings_dict["OPTIONS"].get("transaction_mode", "")).upper() == "IMMEDIATE":
        return None
    return Warning(
        f"DATABASES[{connection.alias!r}] begins transactions as readers: one that writes later fails with"
        " 'database is locked' if the ledger was written meanwhile.",
        hint="Set OPTIONS = {'transaction_mode': 'IMMEDIATE'}.",
        id="oncegate.W002",
    )


def _is_container() -> bool:
    return "KUBERNETES_SERVICE_HOST" in os.environ or any(file.exists() for file in _CONTAINER_FILES)


def check_database(
    app_configs: Sequence[Any] | None, databases: Sequence[str] | None = None, **more: Any
) -> list[CheckMessage]:
    """Looks for migrations of the ledger that are not applied; `check --database` asks for it."""
    if sys.argv[1:2] == ["migrate"]:
        return []  # it is about to apply them
    return [
        message
        for alias in _aliases()
        if alias in (databases or ()) and alias in connections.settings
        for message in _pending(connections[alias])
    ]


def _pending(connection: Any) -> list[CheckMessage]:
    if is_in_memory(connection):
        return []
    hint = f"Run: python manage.py migrate --database {connection.alias}"
    try:
        pending = open_store(address_of(connection)).pending_migrations()
    except OncegateError as error:
        return [Error(f"The ledger cannot be read: {error}", id="oncegate.E005")]
    what = f"DATABASES[{connection.alias!r}]: {len(pending)} of the ledger's migrations are not applied."
    return [Error(what, hint=hint, id="oncegate.E006")] if pending else []
