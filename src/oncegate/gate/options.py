"""The options of surfaces, as type checkers and editors see them where a function passes them on.

`Declarations.handler` spells each option out with its default. Functions that pass options on to it take
`**options: Unpack[...]` of one of these dicts. A test compares the names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, TypeAlias, TypedDict

from oncegate.commit.group_commit import GroupCommit
from oncegate.gate.runtime.ambient import AmbientTransactions
from oncegate.gate.runtime.arrival_stats import Sightings
from oncegate.gate.runtime.leases import LeaseKeeper
from oncegate.gate.surface import Downstream
from oncegate.model.content import Content
from oncegate.store import Statement

Duration: TypeAlias = str | timedelta
Limits: TypeAlias = Mapping[str, tuple[float | None, float | None]]
OnBusyText: TypeAlias = Literal["refuse", "wait", "retry_later", "acknowledge"]
OnConflictText: TypeAlias = Literal["quarantine", "refuse"]
ModeText: TypeAlias = Literal["inline", "accept", "observe"]


class _EverySurfaceOptions(TypedDict, total=False):
    """What each kind of surface takes."""

    tenant: str | None
    retention_by_partner: Mapping[str, Duration] | None
    retention_floor: Duration
    redelivery_horizon: Duration | None
    lease: Duration
    time_limit: Duration
    retry_base: Duration
    retry_cap: Duration
    retry_jitter: float
    on_conflict: OnConflictText | None
    busy_wait_max: Duration
    ignore: Collection[str]
    occurred_at: str | None
    skew_max: Duration
    late_replay_after: Duration
    same_database: bool
    final_errors: tuple[type[BaseException], ...]
    allow_transport: Collection[str]
    approve_first: bool
    decide_within: Duration | None
    writes: Callable[[Any], Sequence[Statement]] | None
    content: Content | None
    target: str | None
    target_within: Duration
    mode: ModeText
    lane: str | None
    correlation: str | None
    show: Collection[str]
    limits: Limits | None
    actor: str | None
    subject: str | None
    payload_retention: Duration | None


class MiddlewareOptions(_EverySurfaceOptions, total=False):
    """What the `Idempotency-Key` middlewares pass on; they decide about retries themselves."""

    on_busy: OnBusyText


class OnceOptions(_EverySurfaceOptions, total=False):
    """What `gate.once` passes on; a caller that wants a value cannot get an acknowledgement."""

    on_busy: Literal["refuse", "wait", "retry_later"]
    retention: Duration
    retry_for: Duration | None
    attempts_max: int | None
    returns: Any
    caller_retries: bool


class HandlerOptions(_EverySurfaceOptions, total=False):
    """What `gate.handler` takes besides the surface and the key."""

    on_busy: OnBusyText
    retention: Duration
    retry_for: Duration | None
    attempts_max: int | None
    returns: Any
    caller_retries: bool
    downstream: Downstream | None


class GateOptions(TypedDict, total=False):
    """What a gate takes besides its ledger, its clock and its crash points."""

    actor: str
    new_token: Callable[[], int] | None
    replay_cache_max: int
    parked_max: int
    parked_bytes_max: int
    commits: GroupCommit | None
    leases: LeaseKeeper | None
    sightings: Sightings | None
    ambient: AmbientTransactions | None
