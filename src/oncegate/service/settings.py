"""The service's settings, each with its default; read from `oncegate.toml` and `ONCEGATE_*`."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct, field

from oncegate.model.surface import OnConflict


class SignatureScheme(Enum):
    """How a surface's senders show that a request is theirs."""

    STANDARD_WEBHOOKS = "standard-webhooks"
    GITHUB = "github"
    STRIPE = "stripe"
    BEARER = "bearer"


class Mode(Enum):
    """When the handler of a surface is called."""

    INLINE = "inline"  # before the sender is answered
    ACCEPT = "accept"  # later, in order; the sender is answered 202 once the event is stored


class ServerSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Where the service listens and how much it takes on."""

    host: str = "127.0.0.1"  # this machine only, until somebody decides otherwise
    port: int = 8700
    hosts: tuple[str, ...] = ()  # names it is called by, beside this machine's own; "*" for any
    body_bytes_max: int = 1024 * 1024  # an event, not a file
    concurrency_max: int = 512  # requests under way in one process; beyond that 503
    tenant_concurrency_max: int = 64  # of one tenant; beyond that 429
    headers_within: str = "10s"
    body_within: str = "30s"
    unread_within: str = "30s"  # how long nothing of an answer may be taken
    drain_within: str = "20s"  # how long SIGTERM waits for requests under way


class NetworkSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Which addresses downstreams may have; public ones over https unless said otherwise."""

    allow_http: bool = False
    allow_loopback: bool = False
    allow_networks: tuple[str, ...] = ()


class ContractSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The planner/executor contract. A surface without a `…_forward` only records what comes."""

    enabled: bool = True
    prefix: str = "/wes/v1"
    retention: str = "30d"
    realtime_forward: str | None = None
    confirmations_forward: str | None = None


class DeliverySettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Whether this process sends to endpoints; another one on the same ledger may do it instead."""

    enabled: bool = True


class FeedSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """How long published events, and their ids, are kept."""

    retention: str = "90d"


class RecordSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Where arrivals are written down, to be replayed; nothing is recorded without a folder.

    `rules` is a file that says what is kept of payloads (docs/recording.md); a surface without rules is
    recorded without. `key` is "$NAME", the variable with the key for hashes; by default a random one.
    """

    folder: str | None = None
    rules: str | None = None
    key: str | None = None


class DownstreamSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """A handler over HTTP, and what it can do about repeats.

    With `honours_key` it is called again with the same `Idempotency-Key`. With `probe_url`, which holds
    `{key}`, it is asked first: 404 says that it never saw the key, 200 what it answered then. With
    neither, what a crash left open goes to a person.
    """

    url: str
    honours_key: str | None = None
    probe_url: str | None = None
    request_life_max: str = "1m"
    timeout: str = "15s"


class SurfaceSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Where webhooks come in. `secrets` are given as "$NAME", the name of an environment variable.

    Another content under a known key is answered 422, and kept for a person unless `on_conflict` is
    "refuse". With `mode = "accept"`, events of one `lane` are run one after the other; without a lane each
    key is one.
    """

    key: str
    signature: SignatureScheme
    secrets: tuple[str, ...]
    tenant: str
    forward: str | None = None
    mode: Mode = Mode.INLINE
    lane: str | None = None
    retention: str = "90d"
    redelivery_horizon: str | None = None
    ignore: tuple[str, ...] = ()
    occurred_at: str | None = None
    skew_max: str = "5m"
    attempts_max: int = 8
    on_conflict: OnConflict = OnConflict.QUARANTINE
    allow_transport: tuple[str, ...] = ()


class Settings(Struct, frozen=True):
    """Everything the service is told."""

    url: str = "sqlite:///oncegate.db"
    server: ServerSettings = field(default_factory=ServerSettings)
    network: NetworkSettings = field(default_factory=NetworkSettings)
    contract: ContractSettings = field(default_factory=ContractSettings)
    feed: FeedSettings = field(default_factory=FeedSettings)
    delivery: DeliverySettings = field(default_factory=DeliverySettings)
    record: RecordSettings = field(default_factory=RecordSettings)
    downstreams: dict[str, DownstreamSettings] = {}
    surfaces: dict[str, SurfaceSettings] = {}
