"""The address of a Redis ledger, taken apart and checked; nothing is opened."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct

from oncegate.errors import BadUrl
from oncegate.model.ledger_addresses import masked_address

TLS_SCHEMES: Final = frozenset({"rediss", "valkeys"})
UNIX_SCHEME: Final = "redis+unix"
OPTIONS: Final = ("long_retention", "prefix", "ssl_ca_certs", "wait", "waitaof")
PREFIX: Final = "oncegate"
REPLICAS_MAX: Final = 16
_PREFIX_SHAPE: Final = re.compile(r"[A-Za-z0-9_.:-]{1,40}")
PORT: Final = 6379


class RedisAddress(Struct, frozen=True):
    """Where the ledger is and what is asked of it.

    `socket` is the path of a Unix socket, where one is named instead of a host. `wait` and `wait_synced`
    are how many replicas must have a write, or have synced it, before it counts.
    """

    shown: str
    host: str
    port: int
    socket: str | None
    database: int
    username: str | None
    password: str | None
    tls: bool
    ca_file: str | None
    prefix: str
    wait: int
    wait_synced: int
    long_retention: bool


def parse_address(address: str) -> RedisAddress:
    """Reads `redis://user:password@host:6379/0?prefix=oncegate&wait=1`."""
    shown = masked_address(address)
    try:
        parts = urlsplit(address)
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        host, port = parts.hostname, parts.port or PORT
    except ValueError:
        raise BadUrl(f"{shown} cannot be taken apart; check its port, brackets and options") from None
    options = dict(pairs)
    unknown = sorted(set(options) - set(OPTIONS))
    if unknown:
        raise BadUrl(f"{shown}: unknown option {unknown[0][:40]!r}; known: {', '.join(OPTIONS)}")
    socket = unquote(parts.path) if parts.scheme.lower() == UNIX_SCHEME else None
    if parts.fragment or (socket is None and not host) or (socket is not None and (host or not socket)):
        raise BadUrl(
            f"{shown} names no server; use redis://user:password@host:6379/0 or redis+unix:///path"
        )
    prefix = options.get("prefix", PREFIX)
    if not _PREFIX_SHAPE.fullmatch(prefix):
        raise BadUrl(f"{shown}: a prefix is 1 to 40 letters, digits or any of _ . : -")
    wait, synced = _number(shown, options, "wait"), _number(shown, options, "waitaof")
    if wait and synced:
        raise BadUrl(f"{shown}: give wait or waitaof, not both")
    return RedisAddress(
        shown,
        unquote(host or ""),
        port,
        socket,
        0 if socket is not None else _database(shown, parts.path),
        unquote(parts.username) if parts.username else None,
        unquote(parts.password) if parts.password else None,
        parts.scheme.lower() in TLS_SCHEMES,
        options.get("ssl_ca_certs"),
        prefix,
        wait,
        synced,
        _switch(shown, options, "long_retention"),
    )


def _number(shown: str, options: dict[str, str], name: str) -> int:
    text = options.get(name, "0")
    if not (text.isascii() and text.isdigit() and int(text) <= REPLICAS_MAX):
        raise BadUrl(f"{shown}: {name} is a number of replicas, 0 to {REPLICAS_MAX}")
    return int(text)


def _switch(shown: str, options: dict[str, str], name: str) -> bool:
    text = options.get(name, "0")
    if text not in ("0", "1"):
        raise BadUrl(f"{shown}: {name} is 0 or 1")
    return text == "1"


def _database(shown: str, path: str) -> int:
    number = path.strip("/") or "0"
    if not (number.isascii() and number.isdigit() and len(number) <= 4):
        raise BadUrl(f"{shown}: the path is the number of a database, such as /0")
    return int(number)
