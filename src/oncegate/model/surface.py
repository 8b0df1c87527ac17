"""A surface's rule, and how an event is read by it into an arrival: key, tenant, content, time.

The gate calls `read_arrival` at the edge, before any store is touched. Must never guess: an event that
the rule cannot read becomes an arrival with a quarantine reason, under a key made of its content.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from oncegate.errors import BadTimestamp, ConfigError, EventNotStorable, InputRefused
from oncegate.model.backoff import Backoff
from oncegate.model.canonical import canonical_again, canonical_json, fingerprint, fingerprint_of
from oncegate.model.content import ContentMark, ContentRule
from oncegate.model.durations import format_duration
from oncegate.model.keys import Key, derive_key, derive_quarantine_key
from oncegate.model.paths import MISSING, lookup, parse_path
from oncegate.model.retention import FORGET_GRACE, RETENTION_FLOOR, RetentionRule, check_horizon
from oncegate.model.same_values import Place, spelled_fields
from oncegate.model.states import INTERRUPTIONS_MAX
from oncegate.model.targets import TargetRule
from oncegate.model.template import KeyTemplate
from oncegate.model.timegate import judge_time
from oncegate.model.timestamps import parse_timestamp, to_utc

PAYLOAD_BYTES_MAX: Final = 1024 * 1024  # an event, not a file: larger ones belong beside the ledger
# What travels inside another event leaves room for the id, key and seq around it, or nobody could take it.
CARRIED_BYTES_MAX: Final = PAYLOAD_BYTES_MAX - 16 * 1024
SHOWN_FIELDS_MAX: Final = 8  # on a card of the operations page
LEASE_MAX: Final = timedelta(hours=1)  # long work is renewed; a crash must not hide for longer
NAME_LENGTH_MAX: Final = 120
LABEL_LENGTH_MAX: Final = 120
RETRY: Final = Backoff()  # 1, 2, 4 s and so on up to 5 minutes, for 24 hours
_SPANS: Final = (
    "retention", "lease", "time_limit", "skew_max", "late_replay_after", "decide_within",
    "payload_retention",
)  # fmt: skip
WORKER: Final = "worker"  # the author of what recovery does
APPROVAL: Final = "waits for approval"
DECIDE_WITHIN: Final = f"{APPROVAL}, to be decided within "  # then a duration, which signals read


class OnBusy(Enum):
    """What an arrival gets while its key is in flight elsewhere."""

    REFUSE = "refuse"
    WAIT = "wait"
    RETRY_LATER = "retry_later"
    ACKNOWLEDGE = "acknowledge"  # the ledger keeps the first arrival's body, and recovery finishes it


class OnConflict(Enum):
    """What becomes of another content under a known key; its sender gets the conflict in any case."""

    QUARANTINE = "quarantine"  # kept for a person, who may release it
    REFUSE = "refuse"  # not kept: whoever sent it decides what to do


class Reason(Enum):
    """Why an event stands in quarantine."""

    KEY_INPUT = "key_input"
    TENANT_INPUT = "tenant_input"
    BAD_TIME = "bad_time"
    SKEW = "skew"
    CONTENT_INPUT = "content_input"
    BEYOND_RETENTION = "beyond_retention"
    CONFLICT = "conflict"
    EVENT_INPUT = "event_input"


_UNREADABLE: Final = (f"{Reason.KEY_INPUT.value}: ", f"{Reason.TENANT_INPUT.value}: ")


@dataclass(frozen=True, slots=True)
class SurfaceRule:
    """How events of one surface are recognised, dated and kept."""

    name: str
    key: KeyTemplate
    tenant_path: tuple[str, ...] | None = None
    retention: timedelta = timedelta(days=90)
    lease: timedelta = timedelta(seconds=20)
    time_limit: timedelta = timedelta(minutes=5)
    attempts_max: int | None = None
    retry: Backoff | None = RETRY  # None: the caller decides when, `attempts_max` how often
    on_busy: OnBusy = OnBusy.REFUSE
    busy_wait_max: timedelta = timedelta(seconds=10)
    fingerprint_ignore: tuple[str, ...] = ()
    occurred_at_path: tuple[str, ...] | None = None
    skew_max: timedelta = timedelta(minutes=5)
    retention_floor: timedelta = RETENTION_FLOOR
    # By tenant, where one's keys are kept for longer or shorter than the others'.
    retention_by_partner: Mapping[str, timedelta] = field(default_factory=dict, hash=False)
    redelivery_horizon: timedelta | None = None
    approve_first: bool = False
    decide_within: timedelta | None = None
    late_replay_after: timedelta = timedelta(hours=1)
    content: ContentRule | None = None
    on_conflict: OnConflict = OnConflict.QUARANTINE
    target: TargetRule | None = None
    show: tuple[str, ...] = ()
    # Canonical JSON by field: a field with this value counts as one that is absent.
    defaults: Mapping[str, bytes] = field(default_factory=dict, hash=False)
    # Where equal values may be spelled in two ways, by field.
    places: Mapping[str, Place] = field(default_factory=dict, hash=False)
    actor: str | None = None  # who its records name as their author; {tenant} stands for the tenant
    subject_path: tuple[str, ...] | None = (
        None  # the field with the id of the person that an event is about
    )
    payload_retention: timedelta | None = None  # how long events and outcomes are kept; None: as the key
    reads_all: bool = field(init=False)  # whether the fingerprint is that of the whole event
    lease_ms: int = field(init=False)
    hold: str | None = field(init=False)
    tries_max: int = field(init=False)  # counted attempts, by the horizon and `attempts_max`
    deaths_max: int = field(init=False)  # workers in a row that may die of one event
    keep_ms: int = field(init=False, repr=False, compare=False)  # how long a key must be known; see below
    _keep_ms: dict[str | None, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_name("surface", self.name)
        object.__setattr__(self, "lease_ms", int(self.lease.total_seconds() * 1000))
        object.__setattr__(self, "reads_all", not (self.fingerprint_ignore or self.defaults or self.places))
        object.__setattr__(self, "hold", self._hold() if self.approve_first else None)
        if self.lease > LEASE_MAX:
            raise ConfigError(f"surface {self.name}: a lease is at most {LEASE_MAX}; use time_limit")
        object.__setattr__(self, "tries_max", self._tries_max())
        object.__setattr__(self, "deaths_max", self.attempts_max or INTERRUPTIONS_MAX)
        for path in (*self.fingerprint_ignore, *self.show):
            parse_path(path)
        if len(self.show) > SHOWN_FIELDS_MAX:
            raise ConfigError(f"surface {self.name}: show has at most {SHOWN_FIELDS_MAX} fields")
        if self.actor is not None:
            check_name("actor", self.actor)
        for setting in _SPANS:
            if (span := getattr(self, setting)) is not None and span <= timedelta(0):
                raise ConfigError(f"surface {self.name}: {setting} must be longer than nothing")
        self._check_retention()
        object.__setattr__(self, "_keep_ms", self._kept())
        object.__setattr__(self, "keep_ms", self._keep_ms[None])

    def _kept(self) -> dict[str | None, int]:
        """How long keys outlive their arrival, by tenant and for all others (None)."""
        spare = self.skew_max + FORGET_GRACE
        kept = [(None, self.retention), *self.retention_by_partner.items()]
        return {tenant: (retention + spare) // timedelta(milliseconds=1) for tenant, retention in kept}

    def keep_ms_of(self, tenant: str) -> int:
        """How long after its arrival a key must be known, for a ledger that removes keys by itself."""
        return self.keep_ms if not self.retention_by_partner else self._keep_ms.get(tenant, self.keep_ms)

    def _tries_max(self) -> int:
        limit = self.attempts_max
        if limit is not None and type(limit) is not int:
            raise ConfigError(f"surface {self.name}: attempts_max is {limit!r}, not a whole number")
        if limit is not None and limit < 1:
            raise ConfigError(f"surface {self.name}: attempts_max is {limit}, not positive")
        within = None if self.retry is None else self.retry.attempts_within
        bounds = [bound for bound in (limit, within) if bound is not None]
        if not bounds:
            raise ConfigError(
                f"surface {self.name}: retries need an end; give retry_for, attempts_max or both"
            )
        return min(bounds)

    def _hold(self) -> str:
        """Why a new event of this surface waits, with the time limit for the person who decides."""
        limit = self.decide_within
        return APPROVAL if limit is None else f"{DECIDE_WITHIN}{format_duration(limit)}"

    def _check_retention(self) -> None:
        for place, retention in [("", self.retention), *self.retention_by_partner.items()]:
            whose = f"tenant {place}: " if place else ""
            try:
                RetentionRule(retention, self.retention_floor)
                check_horizon(retention, self.redelivery_horizon or timedelta(0))
            except ConfigError as refused:
                raise ConfigError(f"surface {self.name}: {whose}{refused}") from None

    def retention_of(self, tenant: str) -> timedelta:
        """How long the keys of a tenant are kept."""
        return self.retention_by_partner.get(tenant, self.retention)

    def author(self, tenant: str) -> str | None:
        """Who the records of a tenant's events name as their author, where the surface says so."""
        if self.actor is None or "{tenant}" not in self.actor:
            return self.actor
        return self.actor.replace("{tenant}", tenant) if tenant else None

    @property
    def retention_max(self) -> timedelta:
        """How long any key of this surface is kept."""
        return max([self.retention, *self.retention_by_partner.values()])

    @property
    def retention_text(self) -> str:
        """How long keys are kept, for people: of all tenants, and of those that have their own."""
        own = [f"{name} {format_duration(age)}" for name, age in sorted(self.retention_by_partner.items())]
        return "; ".join([format_duration(self.retention), *own])


class Arrival(Struct, frozen=True, gc=False):
    """One receipt of an event, read by its surface's rule."""

    key: Key
    tenant: str
    label: str
    fingerprint: bytes
    body: bytes
    quarantine: str | None
    content: ContentMark | None = None
    skew_ms: int | None = None  # how far its own time is ahead of ours, where it was quarantined for it
    also: tuple[bytes, ...] = ()  # other keys that the event may be known by (see `identity`)
    actor: str | None = None  # who the caller says is the author of what happens to it

    @property
    def is_unreadable(self) -> bool:
        """Whether no key could be read, and this one is made of the content."""
        return self.quarantine is not None and self.quarantine.startswith(_UNREADABLE)


def unfit(arrival: Arrival, refused: InputRefused) -> Arrival:
    """An arrival whose event does not fit what its handler takes: kept for a person, and not run."""
    detail = f"{Reason.EVENT_INPUT.value}: {refused.reason}: {refused}"
    return arrival if arrival.quarantine is not None else replace(arrival, quarantine=detail)


def authored(arrival: Arrival, actor: str | None) -> Arrival:
    """The arrival with the author that its caller names, if any."""
    return arrival if actor is None else replace(arrival, actor=check_name("actor", actor))


def check_name(kind: str, name: str) -> str:
    """Returns a surface's, tenant's or downstream's name, or raises ConfigError naming what is wrong."""
    if not name or len(name) > NAME_LENGTH_MAX or not name.isprintable() or name != name.strip():
        raise ConfigError(
            f"{kind} name {name[:40]!r} cannot be used: give 1 to {NAME_LENGTH_MAX} printable characters"
        )
    if not unicodedata.is_normalized("NFC", name):
        raise ConfigError(f"{kind} name {name[:40]!r} is not in NFC: write each letter as one character")
    return name


def read_arrival(rule: SurfaceRule, payload: object, tenant: str | None, now_ms: int) -> Arrival:
    """Reads an event by the surface's rule; raises EventNotStorable if it is not JSON or too large."""
    body = canonical_json(payload)
    if len(body) > PAYLOAD_BYTES_MAX:
        raise EventNotStorable(f"the event is {len(body)} bytes, more than {PAYLOAD_BYTES_MAX}")
    content = fingerprint_of(body) if rule.reads_all else _fingerprint(rule, payload, body)
    try:
        owner = (
            owner_of(rule.tenant_path, payload, tenant) if tenant or rule.tenant_path is not None else ""
        )
    except InputRefused as refused:
        return _unreadable(rule, owner_of(None, payload, tenant), body, Reason.TENANT_INPUT, refused)
    try:
        parts = rule.key.derive(payload)
    except InputRefused as refused:
        return _unreadable(rule, owner, body, Reason.KEY_INPUT, refused)
    key = derive_key(owner, rule.name, rule.key.text, parts.parts)
    quarantine, skew_ms = None, None
    if rule.occurred_at_path is not None:
        now = datetime.fromtimestamp(now_ms / 1000, UTC)
        quarantine, skew_ms = _judge_time(rule, owner, rule.occurred_at_path, payload, now)
    if rule.content is None:
        return Arrival(key, owner, parts.label, content, body, quarantine, None, skew_ms)
    try:
        mark = rule.content.mark(owner, payload)
    except InputRefused as refused:
        quarantine = quarantine or f"{Reason.CONTENT_INPUT.value}: {refused.reason}: {refused}"
        return Arrival(key, owner, parts.label, content, body, quarantine, None, skew_ms)
    return Arrival(key, owner, parts.label, content, body, quarantine, mark, skew_ms)


def _fingerprint(rule: SurfaceRule, payload: object, body: bytes) -> bytes:
    """The content without what may differ between two sendings, or stands there by default."""
    defaults = rule.defaults
    if rule.places and isinstance(payload, dict):
        spelled = spelled_fields(payload, rule.places)
        if not defaults and not rule.fingerprint_ignore:  # most functions
            same = spelled is payload
            return fingerprint_of(body if same else canonical_again(spelled, payload, body))
        payload = spelled
    if defaults and isinstance(payload, dict):
        payload = {
            name: value
            for name, value in payload.items()
            if name not in defaults or canonical_json(value) != defaults[name]
        }
    return fingerprint(payload, rule.fingerprint_ignore)


def owner_of(tenant_path: tuple[str, ...] | None, payload: object, tenant: str | None) -> str:
    """Whose event it is: by its sender, or by the event itself; raises InputRefused."""
    if tenant is not None and not tenant.isascii():
        tenant = unicodedata.normalize("NFC", tenant)
    return tenant or "" if tenant_path is None else _tenant_of(tenant_path, payload, tenant)


def _tenant_of(tenant_path: tuple[str, ...], payload: object, tenant: str | None) -> str:
    path = ".".join(tenant_path)
    found = lookup(payload, tenant_path)
    if not isinstance(found, str) or not found.isprintable() or not 0 < len(found) <= NAME_LENGTH_MAX:
        raise InputRefused("missing" if found is MISSING else "wrong_type", path, "no usable tenant")
    found = unicodedata.normalize("NFC", found)
    if tenant is not None and tenant != found:
        raise InputRefused("wrong_type", path, "the event names another tenant than its sender")
    return found


def _unreadable(
    rule: SurfaceRule, tenant: str, body: bytes, reason: Reason, refused: InputRefused
) -> Arrival:
    content = fingerprint_of(body)
    key = derive_quarantine_key(tenant, rule.name, content)
    detail = f"{reason.value}: {refused.reason}: {refused}"
    return Arrival(
        key, tenant, f"{refused.path}: {refused.reason}"[:LABEL_LENGTH_MAX], content, body, detail
    )


def _judge_time(
    rule: SurfaceRule, owner: str, path: tuple[str, ...], payload: object, now: datetime
) -> tuple[str | None, int | None]:
    """Why an event's time keeps it from running, and how far it is ahead of ours, in milliseconds."""
    try:
        occurred_at = parse_timestamp(lookup(payload, path))
    except BadTimestamp as refused:
        return f"{Reason.BAD_TIME.value}: {'.'.join(path)}: {refused}", None
    ahead_ms = (to_utc(occurred_at) - now) // timedelta(milliseconds=1)
    if RetentionRule(rule.retention_of(owner), floor=timedelta(0)).is_too_old(occurred_at, now):
        return f"{Reason.BEYOND_RETENTION.value}: the event is older than its surface remembers", ahead_ms
    skew = judge_time(occurred_at, now, rule.skew_max)
    if skew is None:
        return None, None
    return f"{Reason.SKEW.value}: {_about(skew.distance)} in the {skew.direction.value}", ahead_ms


def _about(distance: timedelta) -> str:
    """A distance as a person reads it: without the milliseconds of two hours."""
    is_long = distance >= timedelta(minutes=1)
    return format_duration(timedelta(seconds=round(distance.total_seconds())) if is_long else distance)
