"""Surfaces and downstreams as users declare them. Every mistake in a declaration is reported here, at once.

The gate that users see registers them, and its engine keeps them. Nothing here reads an event or reaches
a ledger.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from enum import Enum
from typing import Any, TypeVar

from oncegate.errors import ConfigError, UnknownSurface, UsageError
from oncegate.gate.codec.introspection import is_async, refuse_generator
from oncegate.gate.codec.parameters import Parameters
from oncegate.gate.codec.reading import reader_of
from oncegate.gate.codec.values import UntypedCodec, codec_of, declared_codec
from oncegate.gate.flows.accepting import lane_of
from oncegate.gate.flows.key_injection import warn_if_keyless
from oncegate.gate.options import Duration, Limits, ModeText, OnBusyText, OnConflictText
from oncegate.gate.surface import (
    UNDECLARED,
    Downstream,
    Surface,
    check_acknowledges,
    decided_surface,
    takes_once,
)
from oncegate.model.backoff import Backoff
from oncegate.model.content import Content, ContentRule
from oncegate.model.downstream import Capability
from oncegate.model.durations import parse_duration
from oncegate.model.paths import parse_path
from oncegate.model.retention import RETENTION_FLOOR
from oncegate.model.surface import OnBusy, OnConflict, SurfaceRule, check_name
from oncegate.model.surface_decisions import SurfaceDecisions, SurfaceMode
from oncegate.model.targets import TargetRule
from oncegate.model.template import KeyTemplate
from oncegate.store import Statement

F = TypeVar("F", bound=Callable[..., Any])
E = TypeVar("E", bound=Enum)


def _check_probe(downstream: str, probe: Callable[[str], Any]) -> None:
    """A probe is first called after a crash: what is wrong with it must not be found out then."""
    if not callable(probe):
        raise ConfigError(f"downstream {downstream!r}: probe is a {type(probe).__name__}, not a function")
    refuse_generator(probe)
    try:
        inspect.signature(probe).bind("key")
    except TypeError:
        raise ConfigError(f"downstream {downstream!r}: probe must take one argument, the key") from None
    except ValueError:
        return  # made in C, with no signature to look at


def needs_options(method: F) -> F:
    """Says what to write where a decorator has no parentheses, and so gets the function itself."""

    @functools.wraps(method)
    def checked(self: Any, *arguments: Any, **options: Any) -> Any:
        if arguments and (callable(arguments[0]) or isinstance(arguments[0], (classmethod, staticmethod))):
            raise UsageError(_what_to_write(method.__name__, arguments[0]))
        return method(self, *arguments, **options)

    return checked  # type: ignore[return-value]


def _what_to_write(decorator: str, function: Any) -> str:
    name = getattr(function, "__name__", "function")
    if decorator == "handler":
        write = f'@gate.handler("{name}", key="{{id}}")'
        return f"@gate.handler needs a surface and a key: write {write} above {name}"
    try:
        known = [one for one in inspect.signature(function).parameters if one not in ("self", "cls")]
    except (TypeError, ValueError):
        known = []
    field = next(iter(known), "id")
    return f'@gate.{decorator} needs a key: write @gate.{decorator}(key="{{{field}}}") above {name}'


class Registration:
    """How users declare surfaces and downstreams: the base of the gate they see."""

    engine: Declarations

    @property
    def _declarations(self) -> Declarations:
        """Where surfaces and downstreams are declared: the engine, unless the ledger is known later."""
        return self.engine

    def downstream(
        self,
        name: str,
        *,
        honours_key: Duration | None = None,
        probe: Callable[[str], Any] | None = None,
        request_life_max: Duration = "1m",
    ) -> Downstream:
        """Declares what a downstream can do about repeats.

        `honours_key` is how long it remembers an idempotency key. `probe(key)` returns what the key owns,
        or None. With neither, its effects happen at most once and a person decides what a crash left open.
        """
        check_name("downstream", name)
        if probe is not None:
            _check_probe(name, probe)
        capability = Capability(
            honours_key_for=None if honours_key is None else parse_duration(honours_key),
            can_be_asked=probe is not None,
            request_life_max=parse_duration(request_life_max),
        )
        return self._declarations.add_downstream(Downstream(name, capability, probe))

    @needs_options
    def handler(
        self,
        surface: str,
        *,
        key: str,
        tenant: str | None = None,
        retention: Duration = "90d",
        retention_by_partner: Mapping[str, Duration] | None = None,
        retention_floor: Duration = RETENTION_FLOOR,
        redelivery_horizon: Duration | None = None,
        lease: Duration = "20s",
        time_limit: Duration = "5m",
        retry_for: Duration | None = "24h",
        retry_base: Duration = "1s",
        retry_cap: Duration = "5m",
        retry_jitter: float = 0.1,
        attempts_max: int | None = None,
        on_busy: OnBusyText = "refuse",
        on_conflict: OnConflictText | None = None,
        busy_wait_max: Duration = "10s",
        ignore: Collection[str] = (),
        occurred_at: str | None = None,
        skew_max: Duration = "5m",
        late_replay_after: Duration = "1h",
        same_database: bool = False,
        downstream: Downstream | None = None,
        final_errors: tuple[type[BaseException], ...] = (),
        returns: Any = None,
        allow_transport: Collection[str] = (),
        caller_retries: bool = False,
        approve_first: bool = False,
        decide_within: Duration | None = None,
        writes: Callable[[Any], Sequence[Statement]] | None = None,
        content: Content | None = None,
        target: str | None = None,
        target_within: Duration = "72h",
        mode: ModeText = "inline",
        lane: str | None = None,
        correlation: str | None = None,
        show: Collection[str] = (),
        limits: Limits | None = None,
        actor: str | None = None,
        subject: str | None = None,
        payload_retention: Duration | None = None,
    ) -> Callable[[F], F]:
        """Registers a function as the handler of a surface and returns it unchanged.

        It takes (event) or (event, once). `key` is a template over the event's fields; `ignore` names
        fields that may differ between two sendings. `redelivery_horizon` is how long after its first
        sending an event may come again: a shorter `retention` is refused, as is one below
        `retention_floor`. `retention_by_partner` is by tenant, such as {"acme": "180d"}.
        A failed attempt is made again after `retry_base`, then after twice as long, up to `retry_cap`, for
        `retry_for`; `attempts_max` may end it sooner. Attempts that came to nothing use up neither. With
        `retry_for=None` the caller decides when, and `attempts_max` how often. With `approve_first` nothing
        runs before a person says so within `decide_within`. `writes(event)` are business writes that are
        committed with every success. `content` says what an event changes, to find the same change under
        two keys. `target` is a template for what it is about: a second resource within `target_within` is
        a signal. With `mode="accept"` an event is stored and answered at once; the worker runs it, one
        after the other in each `lane`, a template like `key`. With `mode="observe"` the handler runs for
        every arrival, and the gate records what it would have done. `correlation` names the field of the
        correlation id. `limits` are of signals, such as {"quarantines": (1, 10)}. `on_conflict` keeps
        another content under a known key for a person, or refuses it. `show` names fields for people.
        `actor` is the author in the journal, `subject` the field of the person that an event is about.
        """
        _check_lists(ignore, final_errors)
        template = KeyTemplate.parse(key, allow_transport=allow_transport)
        in_lane = lane_of(mode, lane, template, allow_transport)
        rule = SurfaceRule(
            name=surface,
            key=template,
            tenant_path=None if tenant is None else parse_path(tenant.strip("{}")),
            retention=parse_duration(retention),
            retention_by_partner=_by_partner(retention_by_partner),
            retention_floor=parse_duration(retention_floor),
            redelivery_horizon=None if redelivery_horizon is None else parse_duration(redelivery_horizon),
            lease=parse_duration(lease),
            time_limit=parse_duration(time_limit),
            attempts_max=attempts_max,
            retry=_retry(retry_for, retry_base, retry_cap, retry_jitter),
            on_busy=_choice(OnBusy, "on_busy", on_busy),
            on_conflict=_on_conflict(on_conflict, caller_retries=caller_retries),
            busy_wait_max=parse_duration(busy_wait_max),
            fingerprint_ignore=tuple(ignore),
            occurred_at_path=None if occurred_at is None else parse_path(occurred_at.strip("{}")),
            skew_max=parse_duration(skew_max),
            approve_first=approve_first,
            decide_within=None if decide_within is None else parse_duration(decide_within),
            late_replay_after=parse_duration(late_replay_after),
            content=None if content is None else ContentRule.of(content, surface),
            target=_target(target, target_within, allow_transport),
            show=tuple(show),
            actor=actor,
            subject_path=None if subject is None else parse_path(subject.strip("{}")),
            payload_retention=None if payload_retention is None else parse_duration(payload_retention),
        )

        def register(function: F) -> F:
            refuse_generator(function)
            wants_once = takes_once(function)
            if downstream is not None:
                _check_downstream(function, downstream, wants_once=wants_once)
            codec = codec_of(function) if returns is None else declared_codec(returns)
            self._declarations.register(
                Surface(
                    rule,
                    function,
                    codec,
                    wants_once,
                    same_database,
                    downstream or UNDECLARED,
                    final_errors,
                    is_async(function),
                    caller_retries,
                    writes,
                    in_lane,
                    None if correlation is None else parse_path(correlation.strip("{}")),
                    limits=_limits(limits),
                    reader=reader_of(function, sys._getframe(1).f_locals),
                    mode=SurfaceMode.OBSERVE if mode == "observe" else SurfaceMode.ON,
                )
            )
            return function

        return register


class Declarations:
    """What one gate knows of its surfaces and downstreams: the base of its engine."""

    def __init__(self) -> None:
        self._surfaces: dict[str, Surface] = {}
        self._declared: dict[str, Surface] = {}  # those about which people decided, as the program has them
        self._downstreams: dict[str, Downstream] = {}

    @property
    def surfaces(self) -> tuple[Surface, ...]:
        """The registered surfaces."""
        return tuple(self._surfaces.values())

    @property
    def downstreams(self) -> tuple[Downstream, ...]:
        """The declared downstreams."""
        return tuple(self._downstreams.values())

    def add_downstream(self, downstream: Downstream) -> Downstream:
        """Adds a downstream of a new name."""
        if downstream.name in self._downstreams:
            raise ConfigError(f"downstream {downstream.name!r} is declared twice")
        self._downstreams[downstream.name] = downstream
        return downstream

    def register(self, surface: Surface) -> None:
        """Adds a surface of a new name."""
        if surface.name in self._surfaces:
            raise ConfigError(f"surface {surface.name!r} is registered twice")
        self._check(surface)
        self._surfaces[surface.name] = surface

    def _check(self, surface: Surface) -> None:
        """Refuses what cannot be used; the gate knows what its ledger has."""
        check_acknowledges(surface)

    def amend(self, name: str, found: Parameters, origin: str) -> None:
        """Adds to a surface what its function shows and no option declares.

        That is the values of absent arguments, their types, and where the function is.
        """
        surface = self._surfaces[name]
        rule = replace(surface.rule, defaults=found.defaults(), places=found.places)
        reader = None if found.is_plain else found.restored
        codec = UntypedCodec(origin.partition(":")[2]) if surface.codec.is_plain else surface.codec
        self._surfaces[name] = replace(surface, rule=rule, origin=origin, reader=reader, codec=codec)

    def adopt(self, other: Declarations, change: Callable[[Surface], Surface] | None = None) -> None:
        """Takes over every surface and downstream that is registered with another gate.

        For tests: the same handlers on another ledger, without registering them again.
        """
        for name, surface in other._surfaces.items():
            # A copy: what one gate learns of a surface's steps is no part of another's declaration.
            taken = replace(surface) if change is None else change(surface)
            self._check(taken)
            self._surfaces[name] = taken
        self._downstreams.update(other._downstreams)

    def decide(self, name: str, decided: SurfaceDecisions) -> None:
        """Obeys what people decided about a surface; raises ConfigError where it cannot."""
        declared = self._declared.setdefault(name, self._surfaces[name])
        self._surfaces[name] = decided_surface(declared, decided)

    def surface(self, name: str) -> Surface:
        """Finds a registered surface."""
        try:
            return self._surfaces[name]
        except (KeyError, TypeError):
            if not isinstance(name, str):
                raise UsageError(f"a surface is named by a text, not by a {type(name).__name__}") from None
            known = ", ".join(sorted(self._surfaces)) or "none"
            raise UnknownSurface(f"no surface is called {name[:120]!r}; registered: {known}") from None


def _check_downstream(function: Callable[..., Any], downstream: Downstream, *, wants_once: bool) -> None:
    if wants_once:
        raise ConfigError("a handler that takes once names its downstreams in once.effect")
    warn_if_keyless(function, downstream)


def _by_partner(given: Mapping[str, Duration] | None) -> dict[str, timedelta]:
    if given is not None and not isinstance(given, Mapping):
        raise ConfigError("retention_by_partner= is a dict of durations, such as {'acme': '180d'}")
    return {check_name("tenant", name): parse_duration(age) for name, age in (given or {}).items()}


def _limits(given: Limits | None) -> dict[str, Any]:
    if given is not None and not isinstance(given, Mapping):
        raise ConfigError("limits= is a dict of pairs, such as {'quarantines': (1, 10)}")
    return dict(given or {})


def _target(text: str | None, within: Duration, allow_transport: Collection[str]) -> TargetRule | None:
    if text is None:
        return None
    template = KeyTemplate.parse(text, allow_transport=allow_transport)
    return TargetRule(template, parse_duration(within))


def _check_lists(ignore: object, final_errors: object) -> None:
    if isinstance(ignore, str) or not isinstance(ignore, Collection):
        raise ConfigError("ignore= is a list of paths, such as ['sent_at']")
    if not isinstance(final_errors, tuple) or not all(
        isinstance(kind, type) and issubclass(kind, BaseException) for kind in final_errors
    ):
        raise ConfigError("final_errors= is a tuple of exception classes, such as (ValueError,)")


def _retry(within: Duration | None, base: Duration, cap: Duration, jitter: float) -> Backoff | None:
    if within is None:
        return None
    return Backoff(
        parse_duration(base), cap=parse_duration(cap), retry_for=parse_duration(within), jitter=jitter
    )


def _on_conflict(text: str | None, *, caller_retries: bool) -> OnConflict:
    if text is None:
        return OnConflict.REFUSE if caller_retries else OnConflict.QUARANTINE
    chosen = _choice(OnConflict, "on_conflict", text)
    if caller_retries and chosen is OnConflict.QUARANTINE:
        raise ConfigError(
            "on_conflict='quarantine' cannot be used where only the caller sends again: no process could"
            " run what is released"
        )
    return chosen


def _choice(kind: type[E], setting: str, text: str) -> E:
    try:
        return kind(text)
    except ValueError:
        choices = ", ".join(choice.value for choice in kind)
        raise ConfigError(f"{setting}={text!r} cannot be used; choose one of {choices}") from None
