"""The service's settings, each with its default; read from `oncegate.toml` and `ONCEGATE_*`.

The comment beside or above a setting is its meaning in docs/settings.md, which
`python -m lab.site` writes.
"""

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
    OBSERVE = "observe"  # for every arrival; what the gate would have done is recorded


class ServerSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The address of the service and its limits."""

    host: str = "127.0.0.1"  # the address to listen on; the default is this machine only
    port: int = 8700  # the port to listen on; 0 takes a free one
    # host names that requests may carry, beside this machine's own; "*" allows any
    hosts: tuple[str, ...] = ()
    # proxies whose X-Forwarded-For and X-Forwarded-Proto headers count, as addresses or networks
    trusted_proxies: tuple[str, ...] = ()
    body_bytes_max: int = 1024 * 1024  # bytes of a request body; more is 413
    body_values_max: int = VALUES_MAX  # JSON values in a body; more is 400
    concurrency_max: int = 512  # requests under way in one process; more is 503
    tenant_concurrency_max: int = 64  # requests under way of one tenant; more is 429
    parked_max: int = 10_000  # events of one surface and tenant that wait for a person; more is 429
    parked_bytes_max: int = 256 * 1024 * 1024  # bytes of those events; more is 429
    headers_within: str = "10s"  # time limit for the headers of a request
    body_within: str = "30s"  # time limit for the body of a request
    # closes a connection whose client reads nothing of a response for this long
    unread_within: str = "30s"
    # bytes of large responses that clients still read; more is 503
    unread_bytes_max: int = 64 * 1024 * 1024
    # open connections of one process; one address may have a quarter of them idle
    connections_max: int = 4096
    idle_within: str = "5s"  # closes a connection without a request after this long
    drain_within: str = "20s"  # how long SIGTERM waits for requests under way


class ListenersSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """What the service offers to operators, and at which address."""

    # HOST:PORT of a second address for metrics, the API description and the page
    admin: str | None = None
    metrics: bool = True  # serves Prometheus metrics at /metrics
    openapi: bool = True  # serves the API description at /openapi.json
    page: bool = True  # serves the operations page at /ui


class NetworkSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Which addresses downstreams and endpoints may have: by default public https addresses only."""

    allow_http: bool = False  # allows addresses without TLS
    allow_loopback: bool = False  # allows this machine's own addresses, for development
    allow_networks: tuple[str, ...] = ()  # allows these private networks, such as "10.20.0.0/16"


class ContractSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The planner/executor contract, and the fields that compare realtime calls with confirmations."""

    enabled: bool = True  # serves the planner/executor contract
    prefix: str = "/wes/v1"  # the path before its calls
    retention: str = "30d"  # how long keys of its calls are remembered
    retention_floor: str = "14d"  # the shortest retention that is accepted
    retention_by_partner: dict[str, str] = {}  # another retention for single tenants
    # the downstream for realtime calls; without one they are recorded only
    realtime_forward: str | None = None
    confirmations_forward: str | None = None  # the downstream for confirmations; without one recorded only
    window_field: str = "window"  # the field with the name of the window
    item_field: str = "item"  # the field with the item of a realtime call or line
    quantity_field: str = "quantity"  # the field with the quantity
    lines_field: str = "lines"  # the field with the list of lines of a confirmation


class DeliverySettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Whether this process delivers to endpoints. Another process on the same ledger may do it instead."""

    enabled: bool = True  # delivers emitted and published events to endpoints in this process


class FeedSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """How long the feed keeps published events."""

    retention: str = "90d"  # how long published events and their ids are kept; at least an hour


class RecordSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Recording of arrivals for a later replay (docs/recording.md)."""

    folder: str | None = None  # the folder for recordings; without it nothing is recorded
    rules: str | None = None  # the file with the rules for payloads; without it no payload is recorded
    key: str | None = None  # "$NAME" of the variable with the key for hashes; without it a random key


class DownstreamSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """A handler over HTTP, and what it can do about repeats.

    With `honours_key` the service calls it again with the same `Idempotency-Key`. With `probe_url` it
    asks first. With neither, a call whose end is unknown waits for a person.
    """

    url: str  # the address of the handler; events are posted to it as JSON
    honours_key: str | None = None  # how long the handler recognises an Idempotency-Key, such as "7d"
    # an address with {key} that tells what a key owns: 200 with the outcome, or 404 for an unknown key
    probe_url: str | None = None
    request_life_max: str = "1m"  # after this time a request that was sent can no longer take effect
    timeout: str = "15s"  # time limit for one call


class LimitSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The values from which a signal is a ticket or a page. Without a value it is never one."""

    ticket: float | None = None  # from this value on the signal is a ticket
    page: float | None = None  # from this value on the signal pages


class AlarmsSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Where alarms go beside the log, and which limits differ from the defaults."""

    webhook: str | None = None  # an address that alarms are posted to, or "$NAME" of a variable with it
    email_to: tuple[str, ...] = ()  # who gets alarms by e-mail
    email_from: str | None = None  # the sender of these e-mails
    smtp: str | None = None  # HOST:PORT of the mail server
    smtp_tls: str = "starttls"  # "starttls", "implicit" or "none"
    smtp_user: str | None = None  # the user at the mail server, or "$NAME"
    smtp_password: str | None = None  # "$NAME" of the variable with the password
    command: tuple[str, ...] = ()  # a program with its arguments that runs for each alarm
    ping: str | None = None  # an address that is posted to after every successful measurement
    limits: dict[str, LimitSettings] = {}  # other limits by signal name: [alarms.limits.NAME]


class PoisonPlace(Enum):
    """Where messages go that are no events."""

    QUARANTINE = "quarantine"
    DEAD_LETTER = "dead-letter"


class SourceSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """A queue that events of a surface come from."""

    kind: str  # "nats", "redis", "sqs", "rabbitmq" or "kafka"
    surface: str  # the surface that its events belong to
    url: str  # the address of the broker, or of the queue for SQS; or "$NAME" of a variable with it
    concurrency: int = 16  # how many events run at once
    order_by: str | None = None  # the field whose values run in order; without it the broker's own order
    # where messages go that are no events: "quarantine" keeps them, "dead-letter" leaves them to the broker
    poison: PoisonPlace = PoisonPlace.QUARANTINE
    stream: str | None = None  # the stream, for NATS and Redis
    durable: str | None = None  # the durable consumer, for NATS
    subject: str | None = None  # the subject, for NATS
    queue: str | None = None  # the queue, for RabbitMQ
    group: str | None = None  # the consumer group, for Redis and Kafka
    region: str | None = None  # the region, for SQS
    endpoint: str | None = None  # another address of the service, for SQS
    start: str | None = None  # where a group without an offset begins, for Kafka: "earliest" or "latest"
    dead_letters: str | None = (
        None  # the queue or stream for messages that are no events, for RabbitMQ and Redis
    )
    management: str | None = (
        None  # the management API, for RabbitMQ: it says how long messages stay; or "$NAME"
    )


class ContentSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """What an event changes: the same change under two keys is listed as a duplicate for a person."""

    fields: tuple[str, ...]  # the fields that make up the change
    target: str  # the template of what is changed, such as "{client_id}"
    compensation: str | None = None  # how a person undoes the change; {names} are filled in
    mutation: str | None = None  # the same name on several surfaces compares their events with each other


class SurfaceSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An entrance for webhooks: `POST /in/NAME`. Without a signature a source brings its events."""

    # "stripe", "github", "shopify", "slack", "twilio", "standard" or "svix": signature and ids are known
    provider: ProviderName | None = None
    url: str | None = None  # the address that the provider calls, where it signs that (twilio)
    trust_id_header: bool = False  # take the event's id from a header that the provider does not sign
    key: str | None = None  # the template of the key, such as "{order_id}"; with a provider "{id}"
    # how senders sign without a provider: "standard-webhooks", "github", "stripe" or "bearer"
    signature: SignatureScheme | None = None
    secrets: tuple[str, ...] = ()  # "$NAME" of each variable with a secret; several while secrets rotate
    tenant: str  # the party that the events belong to
    forward: str | None = None  # the downstream to call; without one events are recorded only
    # "inline" calls the handler before the response, "accept" stores and calls later
    mode: Mode = Mode.INLINE
    # the template of the lane in mode "accept": a lane runs in order; without it each key is a lane
    lane: str | None = None
    retention: str = "90d"  # how long keys are remembered
    retention_by_partner: dict[str, str] = {}  # another retention for single tenants
    payload_retention: str | None = None  # how long events and outcomes are kept; else as long as the key
    subject: str | None = None  # the field with the id of the person that an event is about, for erasure
    actor: str | None = None  # the author that the journal names; else "partner/" and the tenant
    retention_floor: str = "14d"  # the shortest retention that is accepted; lower it to keep keys for hours
    redelivery_horizon: str | None = None  # how long the sender may redeliver; must not exceed retention
    ignore: tuple[str, ...] = ()  # fields that may differ between deliveries of one event
    show: tuple[str, ...] = ()  # fields that the operations page shows of a waiting event
    occurred_at: str | None = None  # the field with the event's own time, for the skew check
    late_replay_after: str = "1h"  # a repeat that comes later than this counts as a late replay
    correlation: str | None = None  # the field with the id of the journey, for `oncegate trace`
    # the field with the event's type, where `routes` sends types to other surfaces; with a provider "type"
    route_by: str | None = None
    routes: dict[str, str] = {}  # the surface of each type; events of other types stay on this surface
    # keeps each event for a person first, who approves or rejects it
    approve_first: bool = False
    decide_within: str | None = None  # how long a person has for it; later it is a signal
    skew_max: str = "5m"  # quarantines an event whose own time differs from now by more
    # the template of what an event is about: two resources for one target are a signal
    target: str | None = None
    target_within: str = "72h"  # the time span for that comparison
    content: ContentSettings | None = None  # what an event changes: [surfaces.NAME.content]
    time_limit: str = "5m"  # how long one attempt may take at most
    retry_for: str = "24h"  # how long a failed event is retried
    retry_base: str = "1s"  # the wait before the first retry; it doubles with each retry
    retry_cap: str = "5m"  # the longest wait between retries
    retry_jitter: float = 0.1  # the random share that is added to each wait
    attempts_max: int | None = None  # ends retries after this many attempts as well
    # what other content under a known key gets: "quarantine" keeps it for a person, "refuse" does not
    on_conflict: OnConflict = OnConflict.QUARANTINE
    # what a repeat gets while the event runs: "refuse" (409), "wait" (the outcome) or "acknowledge" (202)
    on_busy: OnBusy = OnBusy.REFUSE
    allow_transport: tuple[str, ...] = ()  # transport-level fields that the key may use all the same
    # other limits of this surface's signals: [surfaces.NAME.limits.SIGNAL]
    limits: dict[str, LimitSettings] = {}


class Settings(Struct, frozen=True):
    """All settings of the service."""

    url: str = "sqlite:///oncegate.db"  # the address of the ledger; ONCEGATE_URL comes first
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
