"""What a downstream can do for us, what can therefore be promised, and what may happen after a crash.

The gate asks `plan_second_call` before any call that may be a second one; the pages and the command line
show `promise`. Must never be bypassed: no other place decides whether an effect may be called again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum


class Promise(Enum):
    """What holds for an effect, by what its downstream can do."""

    SAME_DATABASE = "exactly once: the write and its record are one transaction"
    KEY_HONOURED = "exactly-once effect: the downstream recognises our key"
    ASKED = "exactly-once effect: the downstream is asked before it is called again"
    AT_MOST_ONCE = "at most once: what a crash leaves open is decided by a person"


class SecondCall(Enum):
    """What may be done about an effect that may already have happened."""

    CALL_AGAIN = "call again with the same key"
    ASK_FIRST = "ask what the key owns, then finish or call"
    WAIT = "wait until no earlier request can still be under way"
    PERSON = "leave it to a person"


@dataclass(frozen=True, slots=True)
class Capability:
    """What a downstream is declared to do.

    `honours_key_for` is how long it remembers an idempotency key; `can_be_asked` says that a probe exists;
    `request_life_max` bounds how long a request once sent may still take effect.
    """

    honours_key_for: timedelta | None = None
    can_be_asked: bool = False
    request_life_max: timedelta = timedelta(minutes=1)

    @property
    def promise(self) -> Promise:
        """The strongest promise that these abilities carry."""
        if self.honours_key_for is not None:
            return Promise.KEY_HONOURED
        return Promise.ASKED if self.can_be_asked else Promise.AT_MOST_ONCE


@dataclass(frozen=True, slots=True)
class Doubt:
    """How long ago an effect may first have been called, and how long ago at the latest.

    Both come from the store's own time; `first_call_age` is the larger of that and wall time, so that a
    wrong wall clock can only make us more careful. `may_have_begun` is False where an earlier attempt would
    have left a record before the call, and there is none.
    """

    first_call_age: timedelta
    last_call_age: timedelta
    may_have_begun: bool


def plan_second_call(capability: Capability, doubt: Doubt) -> SecondCall:
    """Decides what may be done about an effect that an earlier attempt may have started."""
    honoured_for = capability.honours_key_for
    if honoured_for is not None and doubt.first_call_age < honoured_for:
        return SecondCall.CALL_AGAIN
    if capability.can_be_asked:
        return SecondCall.ASK_FIRST
    if not doubt.may_have_begun:
        return SecondCall.CALL_AGAIN
    return SecondCall.PERSON


def plan_after_not_found(capability: Capability, doubt: Doubt) -> SecondCall:
    """Decides what may be done once the downstream has said that the key owns nothing."""
    if doubt.last_call_age < capability.request_life_max:
        return SecondCall.WAIT
    return SecondCall.CALL_AGAIN
