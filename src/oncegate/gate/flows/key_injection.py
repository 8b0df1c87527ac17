"""How a call gets the key that its downstream honours, and how people learn that it did not."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextvars import ContextVar, Token
from typing import Any, Final, TypeVar

from oncegate.gate.codec.introspection import key_parameters, name_of
from oncegate.gate.declared import Declaring
from oncegate.gate.runtime.claim import Claim
from oncegate.gate.runtime.context import GateContext
from oncegate.gate.surface import Downstream

KEY_HEADER: Final = "Idempotency-Key"

current_step_key: ContextVar[str | None] = ContextVar("oncegate_step_key", default=None)

V = TypeVar("V")


def put_back(variable: ContextVar[V], token: Token[V]) -> None:
    """Sets a variable back to what it was.

    A task that is destroyed is closed wherever its last reference goes, be it in the midst of another
    one's call: the variable there is not its own.
    """
    try:
        variable.reset(token)
    except ValueError:
        return


class KeyNotPassedWarning(UserWarning):
    """A downstream was declared to honour the key, but the call did not take it."""


class StepNameWarning(UserWarning):
    """A step is named after its function: renaming the function changes the step."""


def warn_if_named_after_function(declaring: Declaring, step_name: str) -> None:
    """Warns, once for each step of a surface, that a step has no name of its own."""
    if step_name in declaring.named_after_functions:
        return
    declaring.named_after_functions.add(step_name)
    warnings.warn(
        f"step {step_name} is named after its function: if that is renamed, what is open goes to a person; "
        f'give the effect a name of its own: name="{step_name}"',
        StepNameWarning,
        stacklevel=4,
    )


def with_key(
    parameters: dict[str, int | None], arguments: tuple[Any, ...], keywords: dict[str, Any], key: str
) -> tuple[bool, tuple[Any, ...], dict[str, Any]]:
    """Adds the key to a call whose function has parameters for it; says first whether it has."""
    if not parameters:
        return False, arguments, keywords
    place = parameters.get("idempotency_key", -1)
    is_free = place is None or place >= len(arguments)
    if is_free and len(parameters) == 1 and not keywords:  # nearly every call
        return True, arguments, {"idempotency_key": key}
    return True, *_with_key_in(parameters, list(arguments), dict(keywords), key)


def _with_key_in(
    parameters: dict[str, int | None], arguments: list[Any], keywords: dict[str, Any], key: str
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    for name, place in parameters.items():
        by_place = place is not None and place < len(arguments)
        if name == "idempotency_key" and not by_place:
            keywords.setdefault(name, key)
        elif name == "headers" and by_place and place is not None:
            arguments[place] = {**(arguments[place] or {}), KEY_HEADER: key}
        elif name == "headers":
            keywords[name] = {**(keywords.get(name) or {}), KEY_HEADER: key}
    return tuple(arguments), keywords


def warn_if_keyless(function: Callable[..., Any], downstream: Downstream) -> None:
    """Warns, when it is registered, about an opaque function that cannot take the key it should pass on."""
    if downstream.capability.honours_key_for is None or key_parameters(function):
        return
    warnings.warn(
        f"{name_of(function)} cannot take the key that {downstream.name} is declared to honour; "
        "give it a parameter idempotency_key or headers",
        KeyNotPassedWarning,
        stacklevel=3,
    )


def count_if_not_passed(gate: GateContext, claim: Claim, step_name: str, downstream: Downstream) -> bool:
    """Counts a call whose downstream was not given the key that it is said to honour (F7)."""
    if downstream.capability.honours_key_for is None:
        return False
    gate.sightings.sent_without_key(claim.surface.rule, step_name, downstream.name)
    return True


def tell_if_not_passed(gate: GateContext, claim: Claim, step_name: str, downstream: Downstream) -> None:
    """Warns besides, once the call is on record."""
    if not count_if_not_passed(gate, claim, step_name, downstream):
        return
    warnings.warn(
        f"{step_name} did not take the key that {downstream.name} is declared to honour; "
        "give it a parameter idempotency_key or headers, or use once.headers",
        KeyNotPassedWarning,
        stacklevel=2,
    )
