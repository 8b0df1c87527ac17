"""Registered surfaces and downstreams: a rule with its handler, a capability with its probe."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from oncegate.errors import ConfigError
from oncegate.gate.codec import Codec
from oncegate.gate.walks import record
from oncegate.model.downstream import Capability, Promise
from oncegate.model.surface import SurfaceRule
from oncegate.model.template import KeyTemplate
from oncegate.store import Statement


@dataclass(frozen=True, slots=True)
class Downstream:
    """Something outside that acts for us, and what it can do about repeats."""

    name: str
    capability: Capability
    probe: Callable[[str], Any] | None = None
    # Whether nobody but a person can decide what an interrupted call did; asked at every effect.
    is_unrepeatable: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_unrepeatable", self.promise is Promise.AT_MOST_ONCE)

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
    new arrival only, never by a caretaker. `writes` are business writes made of the event, committed with
    every success. With a `lane`, events are accepted first and run later, in order of their lanes.
    `correlation` is where the event has the id of the journey it belongs to.
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
    # Whether there is nothing to call, and nothing else to do either; asked at every event.
    only_records: bool = field(init=False)

    def __post_init__(self) -> None:
        does_more = self.same_database or self.writes is not None or self.correlation is not None
        object.__setattr__(self, "only_records", self.handler is record and not does_more)

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


def takes_once(handler: Callable[..., Any]) -> bool:
    """Tells whether a handler takes (event, once) or only (event); refuses anything else."""
    parameters = inspect.signature(handler).parameters.values()
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in positional if p.default is p.empty]
    if len(required) not in (1, 2) or any(
        p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in parameters
    ):
        raise ConfigError(
            f"handler {getattr(handler, '__name__', handler)!r} must take (event) or (event, once)"
        )
    return len(required) == 2
