"""Resources: what downstreams handed out, by key and by what an event is about (A9, F6).

A surface may declare a target, such as a container. The store keeps the latest resource of each target for
a while. A second resource for one target is a finding for a person, and so is one that a late worker brings
back for a key that another worker holds. Nothing that decides whether an event runs reads any of this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from oncegate.model.states import State


class ResourceSeen(Struct, frozen=True, gc=False):
    """A resource that an event brought for its target: one step at one downstream, `about` in a hash.

    Another resource for the same `about` before `until_ms` is a finding.
    """

    entry_id: int
    about: bytes
    target: str
    place: str
    resource: str
    at_ms: int
    until_ms: int
    actor: str = "gate"


class LateResource(Struct, frozen=True, gc=False):
    """A resource that a worker brought back after it had lost its claim."""

    entry_id: int
    about: bytes
    step: str
    place: str
    resource: str
    at_ms: int
    actor: str = "gate"


class SecondResource(Struct, frozen=True):
    """A finding that no person has decided on.

    Of a key (`target` is empty) or of a target. A late resource has no `other_resource`: what its key owns
    is in `outcome`, by the name of the `step`, once the entry is settled. `state` is the later entry's;
    None if it is forgotten. A person who acknowledged it left a `note`; it is open all the same.
    """

    number: int
    surface: str
    target: str
    step: str
    place: str
    entry_id: int
    resource: str
    other_id: int
    other_resource: str | None
    found_at_ms: int
    state: State | None = None
    outcome: bytes | None = None
    acknowledged_by: str = ""
    note: str = ""

    @property
    def is_of_key(self) -> bool:
        """Whether one key owns both, and not two keys with one target."""
        return not self.target

    @property
    def of(self) -> str:
        """What owns two resources: a key or a target."""
        return "key" if self.is_of_key else "target"


class SecondCount(Struct, frozen=True):
    """Open findings of a surface, of keys or of targets: how many, of how many keys or targets, since when.

    A finding of a key counts once its entry is settled.
    """

    surface: str
    is_of_key: bool
    findings: int
    subjects: int
    oldest_at_ms: int

    @property
    def of(self) -> str:
        """What owns two resources: a key or a target."""
        return "key" if self.is_of_key else "target"


class ResourceDismissal(Struct, frozen=True):
    """A person's word about a second resource: dealt with, or, if not `closes`, only acknowledged."""

    number: int
    at_ms: int
    actor: str
    note: str
    closes: bool = True


class Resources(Protocol):
    """Findings of second resources. `Tallies.observe` takes what was seen of targets."""

    def note_late(self, late: Sequence[LateResource]) -> list[bool]:
        """Records resources of workers that lost their claim, with one log record each at their entry.

        False and no record where this resource is known already, or the entry is forgotten.
        """

    def second_resources(self, after: int, limit: int) -> list[SecondResource]:
        """Returns findings that were not dismissed, oldest first, with numbers above `after`."""

    def second_counts(self) -> list[SecondCount]:
        """Counts findings that were not dismissed."""

    def dismiss_resource(self, dismissal: ResourceDismissal) -> bool:
        """Notes a person's word, with one log record; False if there was none to dismiss."""

    def trim_targets(self, before_ms: int, limit: int) -> int:
        """Forgets targets whose time was over before a moment, at most so many; tells how many."""
