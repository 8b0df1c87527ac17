"""The service's settings, each with its default; read from `oncegate.toml` and `ONCEGATE_*`."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct, field

from oncegate.model.limits import VALUES_MAX
from oncegate.model.surface import OnBusy, OnConflict
from oncegate.receiver.providers import ProviderName


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
    trusted_proxies: tuple[str, ...] = ()  # whose X-Forwarded-For and -Proto count
    body_bytes_max: int = 1024 * 1024  # an event, not a file
    body_values_max: int = VALUES_MAX  # JSON values in a body; beyond that 400
    concurrency_max: int = 512  # requests under way in one process; beyond that 503
    tenant_concurrency_max: int = 64  # of one tenant; beyond that 429
    parked_max: int = 10_000  # events of one surface and tenant that wait for a person; beyond that 429
    parked_bytes_max: int = 256 * 1024 * 1024  # of those
    headers_within: str = "10s"
    body_within: str = "30s"
    unread_within: str = "30s"  # how long nothing of an answer may be taken
    unread_bytes_max: int = 64 * 1024 * 1024  # of large answers that are being read; beyond that 503
    connections_max: int = 4096  # of one process, a quarter of them idle ones of one address
    idle_within: str = "5s"  # how long a connection may have nothing to say
    drain_within: str = "20s"  # how long SIGTERM waits for requests under way


class ListenersSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Where operators find what is theirs; each part can be switched off.

    `admin` is HOST:PORT, an address of its own for all three; without it they are at the service's.
    """

    admin: str | None = None
    metrics: bool = True  # /metrics
    openapi: bool = True  # /openapi.json
    page: bool = True  # /ui


class NetworkSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Which addresses downstreams may have; public ones over https unless said otherwise."""

    allow_http: bool = False
    allow_loopback: bool = False
    allow_networks: tuple[str, ...] = ()


class ContractSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The planner/executor contract. A surface without a `…_forward` only records what comes.

    Realtime calls and the confirmation of their window are compared by `item_field` and `quantity_field`;
    a confirmation has its items in the list `lines_field`.
    """

    enabled: bool = True
    prefix: str = "/wes/v1"
    retention: str = "30d"
    retention_by_partner: dict[str, str] = {}  # by tenant, where it differs
    realtime_forward: str | None = None
    confirmations_forward: str | None = None
    window_field: str = "window"
    item_field: str = "item"
    quantity_field: str = "quantity"
    lines_field: str = "lines"


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


class LimitSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """From which value on a signal is a ticket, and from which a page; without one, never."""

    ticket: float | None = None
    page: float | None = None


class AlarmsSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Whom alarms go to beside the log, and the limits that differ.

    Addresses and the password may be "$NAME", the name of an environment variable. `smtp` is HOST:PORT,
    `smtp_tls` "starttls", "implicit" or "none". `command` is a program with its arguments. `ping` is posted
    to at every look that went well.
    """

    webhook: str | None = None
    email_to: tuple[str, ...] = ()
    email_from: str | None = None
    smtp: str | None = None
    smtp_tls: str = "starttls"
    smtp_user: str | None = None
    smtp_password: str | None = None
    command: tuple[str, ...] = ()
    ping: str | None = None
    limits: dict[str, LimitSettings] = {}


class PoisonPlace(Enum):
    """Where messages go that are no events."""

    QUARANTINE = "quarantine"
    DEAD_LETTER = "dead-letter"


class SourceSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """A queue that events of a surface come from. `kind` is nats, redis, sqs or rabbitmq.

    `url` is an address, or "$NAME", the name of an environment variable that has it. NATS needs `stream`
    and `durable`, Redis `stream` and `group`, RabbitMQ `queue`; the `url` of SQS is that of the queue.
    """

    kind: str
    surface: str
    url: str
    concurrency: int = 16
    order_by: str | None = None
    poison: PoisonPlace = PoisonPlace.QUARANTINE
    stream: str | None = None
    durable: str | None = None
    subject: str | None = None
    queue: str | None = None
    group: str | None = None
    region: str | None = None
    endpoint: str | None = None


class SurfaceSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where webhooks come in. `secrets` are given as "$NAME", the name of an environment variable.

    A surface without a `signature` takes no webhooks: its events come from a source.

    Another content under a known key is answered 422, and kept for a person unless `on_conflict` is
    "refuse". A repeat of an event that is being handled is answered 409; with `on_busy = "wait"` it gets
    the outcome, with "acknowledge" 202 at once. With `mode = "accept"`, events of one `lane` are run one
    after the other; without a lane each key is one.

    With a `provider` its signature, ids and changing fields are known: the event is {"id", "type",
    "payload"}, as a `Receiver` gives it, and the key is "{id}" unless told otherwise. `url` is the address
    that a provider calls, where it signs that (twilio). Without one, `signature` says how requests are
    checked, and the event is the body.
    """

    provider: ProviderName | None = None
    url: str | None = None
    trust_id_header: bool = False
    key: str | None = None
    signature: SignatureScheme | None = None
    secrets: tuple[str, ...] = ()
    tenant: str
    forward: str | None = None
    mode: Mode = Mode.INLINE
    lane: str | None = None
    retention: str = "90d"
    retention_by_partner: dict[str, str] = {}  # by tenant, where it differs
    redelivery_horizon: str | None = None
    ignore: tuple[str, ...] = ()
    show: tuple[str, ...] = ()
    occurred_at: str | None = None
    skew_max: str = "5m"
    target: str | None = None  # what an event is about: two resources for one are a signal
    target_within: str = "72h"
    retry_for: str = "24h"
    retry_base: str = "1s"
    retry_cap: str = "5m"
    retry_jitter: float = 0.1
    attempts_max: int | None = None
    on_conflict: OnConflict = OnConflict.QUARANTINE
    on_busy: OnBusy = OnBusy.REFUSE
    allow_transport: tuple[str, ...] = ()
    limits: dict[str, LimitSettings] = {}  # of its signals, where they differ


class Settings(Struct, frozen=True):
    """Everything the service is told."""

    url: str = "sqlite:///oncegate.db"
    server: ServerSettings = field(default_factory=ServerSettings)
    listeners: ListenersSettings = field(default_factory=ListenersSettings)
    network: NetworkSettings = field(default_factory=NetworkSettings)
    contract: ContractSettings = field(default_factory=ContractSettings)
    feed: FeedSettings = field(default_factory=FeedSettings)
    delivery: DeliverySettings = field(default_factory=DeliverySettings)
    record: RecordSettings = field(default_factory=RecordSettings)
    alarms: AlarmsSettings = field(default_factory=AlarmsSettings)
    downstreams: dict[str, DownstreamSettings] = {}
    surfaces: dict[str, SurfaceSettings] = {}
    sources: dict[str, SourceSettings] = {}
