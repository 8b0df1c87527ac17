"""Which ledger a database of DATABASES is: its address, and what of it oncegate cannot use.

Must never open a connection: settings are read at import time of users' modules too.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from django.conf import settings
from django.db import connections

from oncegate.errors import ConfigError

DEFAULT_ALIAS: Final = "default"
# What Django keeps among the options of a connection and libpq does not know.
_NOT_LIBPQ: Final = {"dbname", "user", "password", "host", "port", "client_encoding", "prepare_threshold"}


def ledger_alias(using: str | None = None) -> str:
    """The alias in DATABASES that holds the ledger: the given one, else ONCEGATE["DATABASE"]."""
    given = getattr(settings, "ONCEGATE", {})
    if not isinstance(given, dict):
        raise ConfigError('settings.ONCEGATE is a dict, such as {"DATABASE": "default"}')
    return using or str(given.get("DATABASE", DEFAULT_ALIAS))


def database(alias: str) -> Any:
    """The calling thread's connection of an alias; not opened by this."""
    if alias not in connections.settings:
        known = ", ".join(sorted(connections.settings))
        raise ConfigError(f"DATABASES has no {alias!r}; it has {known}. See ONCEGATE['DATABASE']")
    return connections[alias]


def is_testing() -> bool:
    """Whether Django's test environment is set up, as `manage.py test` and pytest-django do."""
    state = getattr(sys.modules.get("django.test.utils"), "_TestState", None)
    return hasattr(state, "saved_data")


def is_in_memory(connection: Any) -> bool:
    """Whether the database is SQLite's in memory: only Django's own connection reaches it."""
    return connection.vendor == "sqlite" and bool(connection.is_in_memory_db())


def address_of(connection: Any) -> str:
    """The ledger's address for a database of Django's, as settings and test runner have it now."""
    if connection.vendor == "sqlite":
        if is_in_memory(connection):
            raise ConfigError(f"DATABASES[{connection.alias!r}] is in memory; a ledger needs a file")
        return f"sqlite:///{quote(str(Path(connection.settings_dict['NAME']).absolute()))}"
    if connection.vendor == "postgresql":
        return _postgres_address(connection)
    raise ConfigError(
        f"DATABASES[{connection.alias!r}] is {connection.vendor}; a ledger is in SQLite or PostgreSQL: add"
        " such a database and name it in ONCEGATE = {'DATABASE': '…'}"
    )


def _postgres_address(connection: Any) -> str:
    given = connection.get_connection_params()
    options = {name: str(value) for name, value in given.items() if _is_libpq(name, value)}
    if role := connection.settings_dict["OPTIONS"].get("assume_role"):
        options["options"] = f"{options.get('options', '')} -c role={role}".strip()
    if is_testing():
        options["durability"] = "accept"  # a test server may run without fsync
    host = str(given.get("host", ""))
    if host.startswith("/"):
        host, options["host"] = "", host
    user = quote(str(given.get("user", "")), safe="")
    password = f":{quote(str(given['password']), safe='')}" if given.get("password") else ""
    port = f":{given['port']}" if given.get("port") else ""
    where = f"{user}{password}@{host}{port}" if user else f"{host}{port}"
    query = f"?{urlencode(options, quote_via=quote)}" if options else ""
    return f"postgresql://{where}/{quote(str(given.get('dbname', '')), safe='')}{query}"


def _is_libpq(name: str, value: object) -> bool:
    return name not in _NOT_LIBPQ and isinstance(value, (str, int)) and not isinstance(value, bool)
