"""What a person may decide about an entry that waits or has failed, and what each decision leads to.

The stores take from here which states a verb starts from and ends in; pages and commands take the words.
Must stay free of I/O: who decided what, and when, comes in from outside.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from msgspec import Struct

from oncegate.errors import ConfigError
from oncegate.model.states import State
from oncegate.model.surface import Reason, check_name

REASON_LENGTH_MAX: Final = 500  # a sentence or two; it stands in the log and on pages


class Verb(Enum):
    """What a person says about an entry."""

    APPROVE = "approve"
    REJECT = "reject"
    RELEASE = "release"
    DISCARD = "discard"
    RETRY = "retry"

    @property
    def past(self) -> str:
        """The word for what was done."""
        return _PAST[self]

    @property
    def starts_from(self) -> frozenset[State]:
        """The states in which an entry takes this word."""
        return _COURSES[self].starts_from

    @property
    def leads_to(self) -> State:
        """The state that it brings an entry to."""
        return _COURSES[self].leads_to

    @property
    def runs(self) -> bool:
        """Whether the entry is run afterwards."""
        return self.leads_to is State.RETRYABLE


class Course(Struct, frozen=True):
    """From where to where a verb takes an entry."""

    starts_from: frozenset[State]
    leads_to: State


_WAITING: Final = frozenset({State.HELD, State.UNKNOWN})
_QUARANTINED: Final = frozenset({State.QUARANTINED})
_FAILED: Final = frozenset({State.FAILED})
_PAST: Final = {
    Verb.APPROVE: "approved",
    Verb.REJECT: "rejected",
    Verb.RELEASE: "released",
    Verb.DISCARD: "discarded",
    Verb.RETRY: "set to run again",
}
_COURSES: Final = {
    Verb.APPROVE: Course(_WAITING, State.RETRYABLE),
    Verb.REJECT: Course(_WAITING, State.FAILED),
    Verb.RELEASE: Course(_QUARANTINED, State.RETRYABLE),
    Verb.DISCARD: Course(_QUARANTINED, State.FAILED),
    Verb.RETRY: Course(_FAILED, State.RETRYABLE),
}


def verbs_for(state: State) -> tuple[Verb, ...]:
    """The verbs that an entry in this state can be given."""
    return tuple(verb for verb in Verb if state in verb.starts_from)


def check_reason(reason: str) -> str:
    """Returns the reason a person gave, on one line; raises ConfigError if there is none."""
    if not isinstance(reason, str):
        raise ConfigError("a reason is text")
    try:
        text = " ".join(reason.encode().decode().split())
    except UnicodeEncodeError:
        raise ConfigError("the reason is not UTF-8") from None
    if not text:
        raise ConfigError("say why: a reason is needed, and it is kept in the log")
    if len(text) > REASON_LENGTH_MAX:
        raise ConfigError(f"the reason has {len(text)} characters; {REASON_LENGTH_MAX} are kept at most")
    if not text.isprintable():
        raise ConfigError("the reason holds characters that do not show; write it in plain text")
    return text


def check_actor(name: str) -> str:
    """Returns the name of the person who decides; raises ConfigError if it cannot stand in the log."""
    return check_name("person's", name)


def has_own_key(reason: str | None) -> bool:
    """Tells whether a quarantined event is known by a key of its own, not only by its content."""
    return not (reason or "").startswith(_NO_KEY)


def has_owner(reason: str | None) -> bool:
    """Tells whether it is known whose event a quarantined one is."""
    return not (reason or "").startswith(f"{Reason.TENANT_INPUT.value}:")


_NO_KEY: Final = (f"{Reason.KEY_INPUT.value}:", f"{Reason.TENANT_INPUT.value}:")
