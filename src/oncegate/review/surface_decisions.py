"""What people decide about a surface while programs run: written once, against the version they saw."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from oncegate.clock import Clock
from oncegate.commit.group_commit import GroupCommit
from oncegate.commit.registry_operations import ChangeDocument
from oncegate.errors import ConfigError, UnknownSurface
from oncegate.model.decisions import check_actor, check_reason
from oncegate.model.identity import KIND as IDENTITY
from oncegate.model.surface_decisions import (
    KIND,
    NOTHING_DECIDED,
    SurfaceDecisions,
    SurfaceMode,
    read_decisions,
)
from oncegate.store import DocumentChange, Session


class DecidedView(Struct, frozen=True):
    """What is decided about a surface, as a person saw it; version 0 where nothing is."""

    surface: str
    version: int
    decided: SurfaceDecisions

    @property
    def is_not_on(self) -> bool:
        """Whether a person switched it, and the gate does not admit there."""
        return self.decided.mode not in (None, SurfaceMode.ON)


def decided_about(session: Session, surface: str) -> DecidedView:
    """What is decided about one surface."""
    found = session.document(KIND, surface)
    if found is None:
        return DecidedView(surface, 0, NOTHING_DECIDED)
    return DecidedView(surface, found.version, read_decisions(found.body))


def all_decided(session: Session) -> dict[str, DecidedView]:
    """What is decided, by surface."""
    found = session.documents(KIND)
    return {one.name: DecidedView(one.name, one.version, read_decisions(one.body)) for one in found}


def check_known(session: Session, surface: str) -> None:
    """Raises UnknownSurface for a name that no program has used on this ledger: it is a slip."""
    known = [one.name for one in session.documents(IDENTITY)]
    if surface not in known:
        names = ", ".join(known) or "none"
        raise UnknownSurface(f"no surface {surface[:120]!r} is registered in this ledger; known: {names}")


def switched_to(
    seen: SurfaceDecisions, mode: SurfaceMode, actor: str, reason: str, at_ms: int
) -> SurfaceDecisions:
    """The decisions with another mode; raises ConfigError where it is that already."""
    if seen.mode is mode:
        raise ConfigError(f"it is {mode.value} already, by {seen.by}: {seen.why}; nothing was changed")
    return replace(seen, mode=mode, why=reason, by=actor, at_ms=at_ms)


def decide(
    commits: GroupCommit,
    clock: Clock,
    seen: DecidedView,
    made: SurfaceDecisions,
    *,
    what: str,
    actor: str,
    reason: str,
) -> None:
    """Writes a decision, with one log record; raises ConfigError where another was made meanwhile."""
    actor, reason = check_actor(actor), check_reason(reason)
    note = f"surface {seen.surface}: {what}; {reason}"
    change = DocumentChange(KIND, seen.surface, seen.version, made.encoded(), clock.wall_ms(), actor, note)
    if not commits.submit(ChangeDocument(change)):
        raise ConfigError(
            f"surface {seen.surface} was changed meanwhile; nothing was done. Look at it and try again"
        )
