"""What a program declares about a surface, kept with each claim, and what a later program makes of it.

A new version of a program recovers what the old one left. It must not believe of the old one's calls what
only it declares: the more careful of both counts (I24). Stores keep a declaration as a text and never look
into it. Must stay free of I/O.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from enum import Enum
from typing import Any, Final

import msgspec
from msgspec import Struct

from oncegate.model.downstream import Capability, Promise

OPAQUE_STEP: Final = "call"  # the step that a handler is which knows nothing of the gate
TEXT_LENGTH_MAX: Final = 1_800  # it is interned under an index, which has room for 2,700 bytes
_MILLISECOND: Final = timedelta(milliseconds=1)
_NUMBER: Final = re.compile(r"[0-9]+")
_ANY_NUMBER: Final = "#"  # no step's name may have it


class HandlerKind(Enum):
    """How a surface's handler acts outside the ledger."""

    ONCE = "once"  # each call is a step of its own
    OPAQUE = "opaque"  # the handler is one call
    DATABASE = "database"  # not at all: it writes in the transaction that reserves


class DeclaredDownstream(Struct, frozen=True):
    """What a downstream is declared to do, and the steps that are called there."""

    capability: Capability
    steps: tuple[str, ...]


class Declaration(Struct, frozen=True):
    """A surface's kind, and the places where its steps are called.

    A claim under a declaration may have called each of its steps at a repeatable downstream without a
    record of it. Steps that it does not name leave a record before they are called.
    """

    kind: HandlerKind
    places: Mapping[str, DeclaredDownstream] = {}

    def place_of(self, step: str) -> tuple[str, DeclaredDownstream] | None:
        """The downstream at which a step is declared, and what that does."""
        wanted = pattern_of(step)
        for name, place in self.places.items():
            if wanted in place.steps:
                return name, place
        return None


class StartedStep(Struct, frozen=True):
    """A step that an earlier attempt may have called, or has."""

    name: str
    downstream: str

    @property
    def is_many(self) -> bool:
        """Whether the name stands for any number of steps that differ in a number only."""
        return _ANY_NUMBER in self.name


def pattern_of(step: str) -> str:
    """The name of a step in a declaration: `line-7` and `line-12` are one, `line-#`."""
    return _NUMBER.sub(_ANY_NUMBER, step)


def encode(declaration: Declaration) -> str:
    """A declaration as it is kept; the same text whatever the order in which it was learnt."""
    places = {
        name: [text_of(place.capability), sorted(place.steps)]
        for name, place in sorted(declaration.places.items())
    }
    return msgspec.json.encode([declaration.kind.value, places]).decode()


def decode(text: str | None) -> Declaration | None:
    """Reads a declaration; None where there is none, or one that only a newer program can read."""
    if text is None:
        return None
    try:
        kind, places = msgspec.json.decode(text)
        return Declaration(HandlerKind(kind), {name: _place(kept) for name, kept in places.items()})
    except (ValueError, TypeError, AttributeError, msgspec.MsgspecError):
        return None


def _place(kept: Any) -> DeclaredDownstream:
    capability, steps = kept
    found = capability_of(capability)
    if found is None:
        raise ValueError("a capability that cannot be read")
    return DeclaredDownstream(found, tuple(steps))


def text_of(capability: Capability) -> str:
    """What a downstream can do, as it is kept with a step: `86400000/ask/60000`."""
    honoured = capability.honours_key_for
    remembers = "-" if honoured is None else str(honoured // _MILLISECOND)
    asks = "ask" if capability.can_be_asked else "-"
    return f"{remembers}/{asks}/{-(-capability.request_life_max // _MILLISECOND)}"


def capability_of(text: str | None) -> Capability | None:
    """Reads what a downstream could do; None where nothing was kept, or it cannot be read."""
    if text is None:
        return None
    try:
        remembers, asks, life = text.split("/")
        return Capability(
            honours_key_for=None if remembers == "-" else int(remembers) * _MILLISECOND,
            can_be_asked=asks == "ask",
            request_life_max=int(life) * _MILLISECOND,
        )
    except (ValueError, OverflowError):
        return None


def more_careful(then: Capability | None, now: Capability) -> Capability:
    """What may be relied on for a call that was made under `then`, by a program that declares `now`.

    A probe counts only if the call was made for one: a downstream that was not given the key knows nothing
    of it. Where the declaration was not kept, nothing is relied on.
    """
    if then is None:
        return Capability(request_life_max=now.request_life_max)
    both = (then.honours_key_for, now.honours_key_for)
    return Capability(
        honours_key_for=None if both[0] is None or both[1] is None else min(both[0], both[1]),
        can_be_asked=then.can_be_asked and now.can_be_asked,
        request_life_max=max(then.request_life_max, now.request_life_max),
    )


def untold(declaration: Declaration) -> list[StartedStep]:
    """The steps that a claim under this declaration may have called without a record of it."""
    return [
        StartedStep(step, name)
        for name, place in declaration.places.items()
        if place.capability.promise is not Promise.AT_MOST_ONCE
        for step in place.steps
    ]


def find_unnamed(
    begun: Iterable[StartedStep], named: Collection[str], at: str, declared: Collection[str]
) -> StartedStep | None:
    """A step that may have been called where a step of another name is about to be, and was not named yet.

    `named` are the steps that this attempt has come to, `declared` the downstreams that the program knows:
    one that it no longer knows may go by another name now, and so may a step at none that was declared.
    """
    for one in begun:
        is_there = one.downstream == at or at not in declared or one.downstream not in declared
        if is_there and (one.is_many or one.name not in named):
            return one
    return None
