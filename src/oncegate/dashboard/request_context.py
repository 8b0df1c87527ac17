"""A request and its answer as plain values, and the tools that every page works with.

Pages are functions of (Desk, Visit) that return an Answer: they know neither the web framework nor cookies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Final

from oncegate.clock import Clock
from oncegate.commit.group_commit import GroupCommit
from oncegate.dashboard.auth import ANYBODY, Visitor
from oncegate.dashboard.buckets import ChartMemory
from oncegate.dashboard.operators import Role
from oncegate.errors import OncegateError
from oncegate.gate.surface import Downstream, Surface
from oncegate.review.decisions import Decisions
from oncegate.sender.operator_actions import OperatorActions as LaneDesk
from oncegate.signals.measures import Memory
from oncegate.store import LogKind, Note, Session

ROW_NUMBER_MAX: Final = 2**63 - 1


class NotHere(OncegateError):
    """There is no such thing, or not for this visitor: the same answer for both."""


class NotAllowed(OncegateError):
    """The visitor's role does not allow this."""


@dataclass(frozen=True, slots=True)
class RequestContext:
    """One request. Values are the last given under a name; `parts` come from the path."""

    path: str
    root: str = ""
    parts: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    form: Mapping[str, str] = field(default_factory=dict)
    visitor: Visitor = ANYBODY

    def number(self, name: str) -> int:
        """A row's number from the path; raises NotHere for what cannot be one."""
        return _row_number(self.parts.get(name, ""))

    def cursor(self, name: str, most: int = ROW_NUMBER_MAX) -> int | None:
        """A position from the query; None where there is none, NotHere for what no ledger can hold."""
        text = self.query.get(name, "")
        if not text:
            return None
        if not (text.isascii() and text.isdigit() and len(text) <= 40 and int(text) <= most):
            raise NotHere("there is no such page")
        return int(text)

    @property
    def tenant(self) -> str | None:
        """The tenant that everything shown must belong to; None for all."""
        return self.visitor.tenant


def _row_number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and 0 < int(text) <= ROW_NUMBER_MAX):
        raise NotHere("there is no such page")
    return int(text)


@dataclass(frozen=True, slots=True)
class PageResponse:
    """What a page comes to: a template with its values, plain text or a file of it, or somewhere to go."""

    template: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200
    go_to: str | None = None
    text: str | None = None
    file: str | None = None


@dataclass(frozen=True, slots=True)
class Tools:
    """The ledger and the use cases behind the page; `surfaces` and `downstreams` of the gate, if known."""

    commits: GroupCommit
    clock: Clock
    surfaces: Callable[[], Sequence[Surface]]
    url: str | None = None
    memory: Memory = field(default_factory=Memory)
    chart: ChartMemory = field(default_factory=ChartMemory)
    downstreams: Callable[[], Sequence[Downstream]] = tuple

    def look(self) -> AbstractContextManager[Session]:
        """One moment of the ledger; others follow with every visit."""
        return self.commits.store.look(again=True)

    @property
    def rulings(self) -> Decisions:
        """Decisions about entries."""
        return Decisions(self.commits, self.clock)

    @property
    def lanes(self) -> LaneDesk:
        """Orders to lanes."""
        return LaneDesk(self.commits, self.clock)

    def note(self, visit: RequestContext, kind: LogKind, note: str, entry_id: int = 0) -> bool:
        """Puts on record what a visitor did that changes nothing."""
        wanted = Note(entry_id, kind, self.clock.wall_ms(), visit.visitor.name or "page", note[:300])
        with self.commits.transaction() as session:
            return session.add_notes([wanted])[0]


View = Callable[[Tools, Session, RequestContext], PageResponse]
Act = Callable[[Tools, RequestContext], PageResponse]


def need_destination(tools: Tools, visit: RequestContext, name: str, what: str) -> None:
    """Lets operators who see all tenants go on, if there is such a destination."""
    if visit.tenant is not None:
        raise NotHere("there is no such action")
    need(tools, visit, Role.OPERATOR, what)
    with tools.look() as session:
        if name not in {one.name for one in session.destinations()}:
            raise NotHere("there is no such destination")


def need(tools: Tools, visit: RequestContext, role: Role, what: str) -> None:
    """Raises NotAllowed, with a record, unless the visitor has the role."""
    if visit.visitor.may(role):
        return
    if visit.visitor.form_token:
        tools.note(visit, LogKind.REFUSED, f"{what}: needs the role {role.label}")
    raise NotAllowed(f"{what} needs the role {role.label}; yours is {visit.visitor.role.label}")
