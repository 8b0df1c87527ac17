"""Which ledgers there are: their addresses, what each has of the contract, and how a store is made of one.

`LEDGERS` is the table that `oncegate doctor --ledgers` and docs/stores.md show. A driver is imported when
an address names its ledger. Must never open anything: the first use of a store does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from msgspec import Struct

from oncegate.clock import Clock
from oncegate.config import store_url
from oncegate.errors import BadUrl, ConfigError
from oncegate.model.ledger_addresses import masked_address
from oncegate.store import ALL_FACETS, ClaimStore, Facet, Store


class LedgerKind(Struct, frozen=True):
    """One kind of ledger, in words for people; its store's `Capabilities` say the same to programs."""

    name: str
    address: str
    facets: frozenset[Facet]
    users_writes: str
    durability: str
    loses: str


Maker = Callable[[str, Clock | None], Store]
_BY_KEY: Final = frozenset({Facet.CLAIMS, Facet.OPEN_ENTRIES})  # ledgers that address entries by key
LEDGERS: Final = (
    LedgerKind(
        "sqlite",
        "sqlite:///oncegate.db",
        ALL_FACETS,
        "in the same file",
        "power loss",
        "nothing acknowledged, while the disk keeps what it has synced",
    ),
    LedgerKind(
        "postgres",
        "postgresql://user@host/database",
        ALL_FACETS,
        "in the same database",
        "power loss",
        "the last commits, if an asynchronous standby takes over",
    ),
    LedgerKind(
        "shards",
        "shards: postgresql://a/db postgresql://b/db",
        _BY_KEY,
        "in the shard's database",
        "power loss",
        "what each shard may lose",
    ),
    LedgerKind(
        "redis",
        "redis://user@host:6379/0",
        _BY_KEY,
        "none",
        "power loss with appendfsync always; a crash of the server with everysec; else nothing",
        "the last records in a failover; keys after their retention (72 h at most)",
    ),
    LedgerKind(
        "dynamodb",
        "dynamodb://table?region=eu-central-1",
        _BY_KEY,
        "DynamoDB items: once.commit(transact=[...])",
        "power loss",
        "final keys after their retention; in a global table, the last records of a lost region",
    ),
)
COLUMNS: Final = (
    "ledger",
    "address",
    *(facet.value for facet in Facet),
    "users' writes",
    "survives",
    "may lose",
)


def ledger_rows() -> list[tuple[str, ...]]:
    """The table of ledgers, one row each, in the order of `COLUMNS`."""
    return [
        (
            kind.name,
            kind.address,
            *("yes" if facet in kind.facets else "no" for facet in Facet),
            kind.users_writes,
            kind.durability,
            kind.loses,
        )
        for kind in LEDGERS
    ]


def open_store(url: str | None = None, *, clock: Clock | None = None) -> Store:
    """Makes the store behind an address; nothing is opened yet."""
    address = store_url(url)
    scheme = address.partition(":")[0].lower()
    maker = _MAKERS.get(scheme)
    if maker is None or "://" not in address:
        known = ", ".join(f"{name}://" for name in _MAKERS)
        raise BadUrl(f"{masked_address(address)} is not a store address; it must begin with one of {known}")
    return maker(address, clock)


def _open_sqlite(address: str, clock: Clock | None) -> Store:
    from oncegate.stores.sqlite import SqliteStore

    parts, options = _taken_apart(address, {"synchronous"})
    if parts.fragment or "\0" in unquote(parts.path):
        raise BadUrl(
            f"{masked_address(address)}: a file name here cannot hold '#' or NUL; write %23 for '#'"
        )
    if parts.netloc or not parts.path.strip("/"):
        raise BadUrl(
            f"{masked_address(address)} names no file; use sqlite:///relative.db or sqlite:////absolute.db"
        )
    path = unquote(parts.path[1:])
    return SqliteStore(path, synchronous=options.get("synchronous", "FULL"), clock=clock)


def _open_postgres(address: str, clock: Clock | None) -> Store:
    try:
        from oncegate.stores.postgres import PostgresStore
    except ModuleNotFoundError as error:
        raise ConfigError("PostgreSQL needs its driver: pip install 'oncegate[postgres]'") from error
    address, durability = _without(address, "durability")
    if durability not in (None, "accept"):
        raise BadUrl(f"{masked_address(address)}: durability can only be 'accept', not {durability[:40]!r}")
    return PostgresStore(address, clock=clock, accept_loss=durability == "accept")


def _open_redis(address: str, clock: Clock | None) -> Store:
    try:
        from oncegate.stores.redis import RedisStore
    except ModuleNotFoundError as error:
        raise ConfigError("Redis and Valkey need their driver: pip install 'oncegate[redis]'") from error
    return _claims_only(RedisStore(address, clock=clock))


def _open_dynamodb(address: str, clock: Clock | None) -> Store:
    try:
        from oncegate.stores.dynamodb import DynamoStore
    except ModuleNotFoundError as error:
        raise ConfigError("DynamoDB needs its client: pip install 'oncegate[dynamodb]'") from error
    return _claims_only(DynamoStore(address, clock=clock))


def _open_shards(address: str, clock: Clock | None) -> Store:
    from oncegate.stores.sharded.store import open_shards

    return cast("Store", open_shards(lambda: open_parts(address, clock)))


def open_parts(address: str, clock: Clock | None = None) -> list[Store]:
    """The ledgers of an address, without asking whether they are shards: only for moving keys."""
    found = address.partition(":")[2].split() if address.startswith("shards:") else [address]
    if len(set(found)) < len(found):
        raise BadUrl("a shard is named twice")
    if unknown := [one for one in found if one.partition(":")[0].lower() not in _SQL_MAKERS]:
        raise BadUrl(f"{masked_address(unknown[0])} cannot be a shard; shards are PostgreSQL or SQLite")
    return [_SQL_MAKERS[one.partition(":")[0].lower()](one, clock) for one in found]


def _alone(make: Maker) -> Maker:
    """Makes stores that refuse a ledger which is one of several shards."""

    def made(address: str, clock: Clock | None) -> Store:
        from oncegate.stores.sharded.store import refuse_shard

        store = make(address, clock)
        store.incarnations.guard = lambda session: refuse_shard(store.address, session)
        return store

    return made


def _claims_only(store: ClaimStore) -> Store:
    """A store without every facet: features that need more ask `store.require` at their start."""
    return cast("Store", store)


def _without(address: str, option: str) -> tuple[str, str | None]:
    """Takes one of our own options out of an address; the rest is left as it was written."""
    head, mark, query = address.partition("?")
    kept = [part for part in query.split("&") if part and part.partition("=")[0] != option]
    found = [part.partition("=")[2] for part in query.split("&") if part.partition("=")[0] == option]
    return (f"{head}{mark if kept else ''}{'&'.join(kept)}", found[-1] if found else None)


def _taken_apart(address: str, known: set[str]) -> tuple[SplitResult, dict[str, str]]:
    try:
        parts = urlsplit(address)
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:
        raise BadUrl(
            f"{masked_address(address)} cannot be taken apart; check its brackets and options"
        ) from None
    unknown = sorted(set(options) - known)
    if unknown:
        raise BadUrl(
            f"{masked_address(address)}: unknown option {unknown[0][:40]!r}; known: {', '.join(known)}"
        )
    return parts, options


_SQL_MAKERS: dict[str, Maker] = {
    "sqlite": _open_sqlite,
    "postgresql": _open_postgres,
    "postgres": _open_postgres,
}
_MAKERS: dict[str, Maker] = {
    **{name: _alone(make) for name, make in _SQL_MAKERS.items()},
    "shards": _open_shards,
    "redis": _open_redis,
    "redis+unix": _open_redis,
    "rediss": _open_redis,
    "valkey": _open_redis,
    "valkeys": _open_redis,
    "dynamodb": _open_dynamodb,
}
