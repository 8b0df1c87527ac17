"""Addresses of PostgreSQL ledgers: read, shown without their passwords, refused with what to check."""

from __future__ import annotations

from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict

from oncegate.errors import (
    BadUrl,
    StoreUnavailable,
)
from oncegate.stores.postgres.failures import first_line

_PASSWORDS: Final = "write @ : / # ? % in a password as %40 %3A %2F %23 %3F %25"
FILES: Final = ("passfile", "sslcert", "sslkey", "sslrootcert", "sslcrl", "sslcrldir")
_MAY_HOLD_AT: Final = {"user", "password", "sslpassword", "options", "application_name", *FILES}


def taken_apart(url: str) -> dict[str, Any]:
    """The address as the driver understands it; an error never shows what may be a password."""
    shape = "a PostgreSQL address looks like postgresql://user:password@host:5432/database"
    if url.partition("://")[0] not in ("postgresql", "postgres"):
        raise BadUrl(shape)
    try:
        given = conninfo_to_dict(url)
    except psycopg.Error as error:
        text = first_line(error)
        is_theirs = "URI query parameter" in text and "@" not in url.partition("?")[2]
        told = f" ({text})" if is_theirs else ""
        raise BadUrl(f"{shape}{told}; {_PASSWORDS}") from None
    ports = [port for port in str(given.get("port", "")).split(",") if port]
    if not all(port.isascii() and port.isdigit() and 0 < int(port) < 65536 for port in ports):
        raise BadUrl(f"{shape}; a port is a number from 1 to 65535")
    # The driver ends a password at its first @ and takes the rest for whatever comes next.
    if any("@" in str(value) for name, value in given.items() if name not in _MAY_HOLD_AT):
        raise BadUrl(f"{shape}; {_PASSWORDS}")
    return {name: value for name, value in given.items() if value is not None}


def _places(given: dict[str, Any]) -> str:
    """Hosts and ports for people; a folder of Unix sockets is left out."""
    hosts = [host for host in str(given.get("host", "")).split(",") if not host.startswith("/")]
    ports = str(given.get("port", "")).split(",")
    if len(ports) == 1:
        ports *= len(hosts)
    return ",".join(f"{host}:{port}" if port else host for host, port in zip(hosts, ports, strict=False))


def shown_user(given: dict[str, Any]) -> str:
    """A user without what an escaped colon (`user%3Apassword@`) makes a part of the name."""
    name, colon, _ = str(given["user"]).partition(":")
    return f"{name}:…" if colon else name


def unreachable(address: str, text: str) -> StoreUnavailable:
    """The error for a server that cannot be reached, with what to check."""
    if "password" in text or "authentication" in text:
        step = "check user and password"
    elif "does not exist" in text:
        step = "create the database or the user first"
    else:
        step = "check that the server runs and that host and port are right"
    return StoreUnavailable(f"{address} cannot be reached ({text}); {step}")


def escaped(value: str) -> str:
    """A value as it stands in a connection's options."""
    return value.replace(" ", "\\ ")


def shown_address(given: dict[str, Any]) -> str:
    """An address without its password."""
    user = f"{shown_user(given)}@" if "user" in given else ""
    return f"postgresql://{user}{_places(given)}/{given.get('dbname', '')}"
