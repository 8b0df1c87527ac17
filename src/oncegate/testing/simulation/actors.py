"""Actors: the processes of a simulation, which crash and stall as a whole.

Every callback of the virtual loop belongs to the actor of its context. Of a dead actor nothing runs any
more, not even its `finally` blocks; what a stalled one would do is put off until its stall ends. Messages
that are already under way belong to no actor and arrive all the same.
"""

from __future__ import annotations

from contextvars import Context, ContextVar, copy_context
from typing import Any, Final

ACTOR: Final[ContextVar[Actor | None]] = ContextVar("oncegate_actor", default=None)


class ActorCrashed(BaseException):
    """Raised where an actor dies, to leave its code; not an Exception, and never seen by others."""


class Actor:
    """One process: alive until it crashes; what starts after a crash is another actor."""

    __slots__ = ("dead", "name", "owner", "put_off", "stalled_until")

    def __init__(self, name: str, owner: object = None) -> None:
        self.name = name
        self.owner = owner
        self.dead = False
        self.stalled_until = 0.0
        self.put_off: list[Any] = []

    def context(self) -> Context:
        """A context for one task of this actor."""
        made = copy_context()
        made.run(ACTOR.set, self)
        return made


def current_actor() -> Actor:
    """The actor whose code is running."""
    actor = ACTOR.get()
    if actor is None:
        raise LookupError("no actor is running")
    return actor


def context_of_nobody() -> Context:
    """The present context without its actor: for what goes on elsewhere, whatever becomes of the actor."""
    made = copy_context()
    made.run(ACTOR.set, None)
    return made
