"""What a downstream handed out: its id, found in what a call returned, as text that any store can keep."""

from __future__ import annotations

from typing import Any, Final

from oncegate.gate.runtime.claim import Claim
from oncegate.model.declarations import OPAQUE_STEP
from oncegate.store import StepState

_DONE: Final = StepState.DONE
_BARE: Final = frozenset({str, bytes, int, float, bool, type(None)})  # nothing to look for inside


def readable(text: str) -> str:
    """Text that any store can keep: halves of surrogate pairs and NUL are replaced."""
    if text.isascii() and "\0" not in text:
        return text
    return text.encode("utf-8", "replace").decode().replace("\0", " ")


def resource_of(result: Any) -> str | None:
    """Finds the id of what a downstream handed out, where a result shows one plainly."""
    if type(result) in _BARE:
        return None
    for attribute in ("resource_id", "id"):
        found = result.get(attribute) if isinstance(result, dict) else getattr(result, attribute, None)
        if isinstance(found, (str, int)) and not isinstance(found, bool):
            return readable(str(found))[:200]
    return None


def brought_by(claim: Claim, value: Any = None) -> list[tuple[str, str, str]]:
    """Step, downstream and resource of each finished call of a claim; of an opaque one, by its value."""
    if not claim.surface.takes_once:
        resource = resource_of(value)
        return [] if resource is None else [(OPAQUE_STEP, claim.surface.opaque_at.name, resource)]
    return [
        (step.name, step.downstream, step.resource)
        for step in tuple(claim.steps.values())
        if step.state is _DONE and step.resource is not None
    ]
