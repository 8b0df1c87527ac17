"""What an effect must know of the function it calls, found out once for each and kept in one place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from oncegate.errors import UsageError
from oncegate.gate.codec.introspection import (
    is_async,
    key_parameters,
    refuse_generator,
    remembered,
    step_name_of,
)
from oncegate.gate.codec.values import Codec, codec_of


class Callee(Struct, frozen=True):
    """A function as an effect sees it; `step_name` is empty for a lambda, which has no name of its own."""

    step_name: str
    is_async: bool
    key_parameters: dict[str, int | None]
    codec: Codec


@remembered
def callee_of(function: Callable[..., Any]) -> Callee:
    """Looks at a function; raises UsageError for one with `yield`: calling it runs nothing of it."""
    refuse_generator(function)
    try:
        step_name = step_name_of(function)
    except UsageError:
        step_name = ""
    return Callee(step_name, is_async(function), key_parameters(function), codec_of(function))
