"""What events brought for their targets, worked out beside the events by the thread for sightings (F6)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Struct

from oncegate.errors import InputRefused
from oncegate.model.surface import SurfaceRule
from oncegate.model.targets import about_target
from oncegate.store import ResourceSeen

Brought = Sequence[tuple[str, str, str]]  # step, downstream, resource


class Bringing(Struct, frozen=True):
    """An event that ran, with what its downstreams gave it."""

    entry_id: int
    tenant: str
    body: bytes
    brought: Brought
    at_ms: int


def resources_seen(rule: SurfaceRule, one: Bringing) -> Iterator[ResourceSeen]:
    """The resources of an event by what it is about; none where its target cannot be read."""
    if rule.target is None:
        return
    try:
        parts = rule.target.template.derive(msgspec.json.decode(one.body))
    except (InputRefused, msgspec.DecodeError):
        return
    for step, downstream, resource in one.brought:
        about = about_target(one.tenant, parts.parts, step, downstream)
        yield ResourceSeen(
            one.entry_id, about, parts.label, downstream, resource, one.at_ms,
            one.at_ms + rule.target.within_ms,
        )  # fmt: skip
