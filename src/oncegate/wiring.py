"""Where implementations are chosen: an address becomes a store, a store becomes a gate.

The public `Gate` lives here so that the gate itself knows no store.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from oncegate.clock import Clock
from oncegate.config import store_url
from oncegate.crashpoints import CrashPoints
from oncegate.errors import BadUrl
from oncegate.gate.gate import Gate as GateOnStore
from oncegate.store import Store


def open_store(url: str | None = None, *, clock: Clock | None = None) -> Store:
    """Makes the store behind an address; nothing is opened yet."""
    address = store_url(url)
    scheme = address.partition(":")[0].lower()
    maker = _MAKERS.get(scheme)
    if maker is None or "://" not in address:
        known = ", ".join(f"{name}://" for name in _MAKERS)
        raise BadUrl(f"{_shown(address)} is not a store address; it must begin with one of {known}")
    return maker(address, clock)


def _open_sqlite(address: str, clock: Clock | None) -> Store:
    from oncegate.stores.sqlite import SqliteStore

    parts = urlsplit(address)
    options = dict(parse_qsl(parts.query))
    unknown = sorted(set(options) - {"synchronous"})
    if unknown:
        raise BadUrl(f"{_shown(address)}: unknown option {unknown[0]!r}; known: synchronous")
    if parts.fragment or "\0" in unquote(parts.path):
        raise BadUrl(f"{_shown(address)}: a file name here cannot hold '#' or NUL; write %23 for '#'")
    if parts.netloc or not parts.path.strip("/"):
        raise BadUrl(
            f"{_shown(address)} names no file; use sqlite:///relative.db or sqlite:////absolute.db"
        )
    path = unquote(parts.path[1:])
    return SqliteStore(path, synchronous=options.get("synchronous", "FULL"), clock=clock)


_MAKERS: dict[str, Callable[[str, Clock | None], Store]] = {"sqlite": _open_sqlite}


def _shown(address: str) -> str:
    """An address without its secrets, short enough for one line."""
    head, at, tail = address.rpartition("@")
    scheme, _, _ = head.partition("://")
    return f"{scheme}://…@{tail}"[:120] if at else address[:120]


class Gate(GateOnStore):
    """The gate on the ledger at `url`, else at ONCEGATE_URL, else in ./oncegate.db."""

    def __init__(
        self,
        url: str | None = None,
        *,
        store: Store | None = None,
        clock: Clock | None = None,
        crashpoints: CrashPoints | None = None,
        **options: Any,
    ) -> None:
        chosen = store if store is not None else open_store(url, clock=clock)
        super().__init__(chosen, clock=clock, crashpoints=crashpoints, **options)
