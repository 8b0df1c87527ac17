"""Registered surfaces and downstreams: a rule with its handler, a capability with its probe."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from oncegate.errors import ConfigError
from oncegate.gate.codec.introspection import KEY_PARAMETERS
from oncegate.gate.codec.reading import Reader
from oncegate.gate.codec.values import Codec
from oncegate.gate.declared import Declaring
from oncegate.model.declarations import HandlerKind, text_of
from oncegate.model.downstream import Capability, Promise
from oncegate.model.identity import HANDLER
from oncegate.model.surface import OnBusy, SurfaceRule
from oncegate.model.surface_decisions import SurfaceDecisions, SurfaceMode, decided_rule
from oncegate.model.template import KeyTemplate
from oncegate.store import ClaimStore, Facet, Statement, require, require_retention, require_transactions


async def record(event: Any, once: Any) -> None:
    """The handler of surfaces whose events are only recorded: it calls nothing."""


@dataclass(frozen=True, slots=True)
class Downstream:
    """An outside system that an effect calls, and what it can do about repeats."""

    name: str
    capability: Capability
    probe: Callable[[str], Any] | None = None
    # Whether nobody but a person can decide what an interrupted call did; asked at every effect.
    is_unrepeatable: bool = field(init=False)
    declared: str = field(init=False, repr=False, compare=False)  # the capability as steps keep it

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_unrepeatable", self.promise is Promise.AT_MOST_ONCE)
        object.__setattr__(self, "declared", text_of(self.capability))

    @property
    def promise(self) -> Promise:
        """What holds for effects at this downstream."""
        return self.capability.promise


UNDECLARED: Final = Downstream("(undeclared)", Capability())


@dataclass(frozen=True, slots=True)
class Surface:
    """A rule and the handler behind it.

    A handler that takes `once` promises that what it does outside goes through it, and may be run again
    after a crash. One that does not is a single opaque call: `opaque_at` says what its downstream can do,
    and without that it runs at most once. Where `caller_retries`, a failed attempt is taken up again by a
    new arrival only, never by a worker. `writes` are business writes made of the event, committed with
    every success. With a `lane`, events are accepted first and run later, in order of their lanes.
    `correlation` is where the event has the id of the journey it belongs to. `origin` names the function
    behind a surface that `gate.once` made. `limits` are those of its signals that differ, by signal, for a
    ticket and for a page. `is_plain` is asked at every event: neither is its mode another than on, nor did
    a person decide to ignore a field.
    """

    rule: SurfaceRule
    handler: Callable[..., Any]
    codec: Codec
    takes_once: bool
    same_database: bool = False
    opaque_at: Downstream = UNDECLARED
    final_errors: tuple[type[BaseException], ...] = ()
    is_async: bool = field(default=False)
    caller_retries: bool = False
    writes: Callable[[Any], Sequence[Statement]] | None = None
    lane: KeyTemplate | None = None
    correlation: tuple[str, ...] | None = None
    origin: str = HANDLER
    limits: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)
    reader: Reader | None = None  # how its events become what the handler takes; None: as they are
    mode: SurfaceMode = SurfaceMode.ON
    is_plain: bool = field(init=False)
    # Whether there is nothing to call, and nothing else to do either; asked at every event.
    only_records: bool = field(init=False)
    # What reservations carry, for versions of the program that come later.
    declaring: Declaring = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        kind = HandlerKind.ONCE if self.takes_once else HandlerKind.OPAQUE
        kind = HandlerKind.DATABASE if self.same_database else kind
        object.__setattr__(self, "declaring", Declaring(kind, self.opaque_at))
        does_more = self.same_database or self.writes is not None or self.correlation is not None
        object.__setattr__(self, "only_records", self.handler is record and not does_more)
        object.__setattr__(self, "is_plain", self.mode is SurfaceMode.ON)

    @property
    def name(self) -> str:
        """The surface's name."""
        return self.rule.name

    @property
    def promise(self) -> str:
        """What can be promised of this surface's effects, for people."""
        if self.same_database:
            return Promise.SAME_DATABASE.value
        if self.takes_once:
            return "by downstream: each effect by what its downstream can do"
        return self.opaque_at.promise.value


def decided_surface(declared: Surface, decided: SurfaceDecisions) -> Surface:
    """A surface as it is obeyed; raises ConfigError where it cannot be what was decided."""
    rule, mode = decided_rule(declared.rule, decided), decided.mode or declared.mode
    found = replace(declared, rule=rule, mode=mode)
    check_observes(found)
    # What was learned of its steps stays: it is the same declaration.
    object.__setattr__(found, "declaring", declared.declaring)
    is_plain = mode is SurfaceMode.ON and rule.fingerprint_ignore == declared.rule.fingerprint_ignore
    object.__setattr__(found, "is_plain", is_plain)
    return found


def check_observes(surface: Surface) -> None:
    """Raises ConfigError for a surface that observes and could not run its handler without the ledger."""
    if surface.mode is not SurfaceMode.OBSERVE:
        return
    why = ""
    if surface.lane is not None:
        why = "it accepts events first, in the ledger"
    elif surface.same_database or surface.writes is not None:
        why = "its handler writes in the ledger's transaction (same_database, writes, ordered receivers)"
    if why:
        raise ConfigError(f"surface {surface.name} cannot observe: {why}; it can be on or paused")


def check_on_store(surface: Surface, store: ClaimStore) -> None:
    """Raises ConfigError for a surface that needs what the ledger has not."""
    name = f"surface {surface.name}"
    check_observes(surface)
    if surface.mode is SurfaceMode.OBSERVE:
        require(store, Facet.STATS, f"{name}: surfaces with mode='observe'")
    if surface.lane is not None:
        require(store, Facet.LANES, f"{name}: events with mode='accept'")
    if surface.rule.approve_first:
        require(store, Facet.OPEN_ENTRIES, f"{name}: approvals")
    if surface.rule.content is not None or surface.rule.target is not None:
        require(store, Facet.REVIEW, f"{name}: content= and target=")
    if surface.same_database or surface.writes is not None:
        require_transactions(store, f"{name}: same_database= and writes=")
    require_retention(store, surface.rule.retention_max, name)
    check_acknowledges(surface, keeps_bodies=store.capabilities.keeps_bodies)


def check_acknowledges(surface: Surface, *, keeps_bodies: bool = True) -> None:
    """`on_busy="acknowledge"` needs an event that the ledger has, and a recovery that finishes it."""
    if surface.rule.on_busy is not OnBusy.ACKNOWLEDGE:
        return
    why = ""
    if not keeps_bodies:
        why = (
            "this ledger keeps no events, and a crash would lose what was acknowledged; use on_busy='wait'"
        )
    elif surface.lane is not None:
        why = "mode='accept' acknowledges each event at once already; leave on_busy= out"
    elif surface.same_database:
        why = (
            "same_database=True keeps nothing of an event before its transaction commits, and a crash"
            " would lose what was acknowledged; use on_busy='wait'"
        )
    elif surface.caller_retries:
        why = "with caller_retries only the caller's next try finishes an event; use on_busy='wait'"
    elif not surface.takes_once and surface.opaque_at.promise is Promise.AT_MOST_ONCE:
        why = (
            "recovery cannot run an opaque handler again; take (event, once), or name a downstream= that"
            " honours the key or has a probe"
        )
    if why:
        raise ConfigError(f"surface {surface.name}: on_busy='acknowledge' cannot be used: {why}")


def takes_once(handler: Callable[..., Any]) -> bool:
    """Tells whether a handler takes (event, once) or only (event); refuses anything else.

    Parameters that receive the key (`idempotency_key`, `headers`) do not count.
    """
    parameters = [p for p in inspect.signature(handler).parameters.values() if p.name not in KEY_PARAMETERS]
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in positional if p.default is p.empty]
    if len(required) not in (1, 2) or any(
        p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in parameters
    ):
        raise ConfigError(
            f"handler {getattr(handler, '__name__', handler)!r} must take (event) or (event, once)"
        )
    return len(required) == 2
