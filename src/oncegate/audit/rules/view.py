"""A handler as the rules see it: its paths, and questions about the order of events on them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Final

from oncegate.audit.entries.values import Handler
from oncegate.audit.flow.events import CodeEvent, Kind, Path, reads_result, refers
from oncegate.audit.project.index import ProjectIndex
from oncegate.audit.project.scope import Scope
from oncegate.audit.project.units import FunctionUnit
from oncegate.audit.values import TextEdit

_DUPLICATE: Final = re.compile(
    r"integrity|unique|duplicate|already|conflict|conditionalcheck|keyexists", re.IGNORECASE
)


@dataclass(slots=True, eq=False)
class Draft:
    """A finding before it has a place in the report."""

    rule: str
    node: ast.AST
    scope: Scope
    message: str
    subject: str = ""
    via: tuple[tuple[Scope, ast.Call], ...] = ()
    fix: str = ""
    edits: list[TextEdit] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class OpenQuestion:
    """Something that cannot be judged, and why."""

    node: ast.AST
    scope: Scope
    reason: str


class Guard(Enum):
    """What stands before an event on one path."""

    RESERVED = "a key is reserved"
    CHECKED = "a key is asked for"
    LOCKED = "a lock is held"
    NONE = "nothing"


@dataclass(eq=False)
class View:
    """A handler, its paths, the functions it reaches, and what is true of the whole project."""

    index: ProjectIndex
    handler: Handler
    paths: list[Path]
    reached: list[FunctionUnit]
    is_behind_middleware: bool = False
    doubts: list[OpenQuestion] = field(default_factory=list)

    @cached_property
    def has_lock(self) -> bool:
        """Whether any path holds a lock."""
        return any(event.kind is Kind.LOCK for path in self.paths for event in path.events)

    def occurrences(self, kind: Kind) -> Iterator[tuple[Path, int, CodeEvent]]:
        """Every event of a kind, with its path and position."""
        for path in self.paths:
            for position, event in enumerate(path.events):
                if event.kind is kind:
                    yield path, position, event

    def grouped(self, kind: Kind) -> list[list[tuple[Path, int, CodeEvent]]]:
        """Events of a kind by the call they come from."""
        found: dict[tuple[int, tuple[int, ...]], list[tuple[Path, int, CodeEvent]]] = {}
        for path, position, event in self.occurrences(kind):
            key = (id(event.node), tuple(id(call) for _, call in event.via))
            found.setdefault(key, []).append((path, position, event))
        return list(found.values())


def branch_on(path: Path, position: int, before: int | None = None) -> int | None:
    """Where a path branches on the result of an event, the last such place before another event."""
    event = path.events[position]
    fetched: list[CodeEvent] = []
    last = None
    for at in range(position + 1, len(path.events) if before is None else before):
        one = path.events[at]
        if one.kind is Kind.FETCH or (one.kind is Kind.OTHER and one.names):
            fetched.append(one)
        if one.kind is Kind.TEST and (
            refers(one, event)
            or (event.library in ("sql", "sqlalchemy", "mongo") and reads_result(one.node))
            or any(refers(one, other) for other in fetched if other.kind is Kind.FETCH)
        ):
            last = at
    return last


def first_test(path: Path, position: int, last: int) -> int:
    """The first branch on the result of an event: a helper may branch, log and return before its caller does."""
    for at in range(position + 1, last):
        if path.events[at].kind is Kind.TEST and branch_on(path, position, at + 1) == at:
            return at
    return last


def failed(path: Path, position: int, before: int) -> str:
    """The names of the errors by which an event failed on this path; empty where it did not."""
    event = path.events[position]
    for one in path.events[position + 1 : before]:
        if one.kind is Kind.RAISED and one.of is not None and one.of.node is event.node:
            return one.what or "error"
    return ""


def is_known_duplicate(path: Path, before: int) -> CodeEvent | None:
    """The reservation that failed because its key is known, while the path goes on."""
    for position, event in enumerate(path.events[:before]):
        if event.kind in (Kind.RESERVE, Kind.FLUSH, Kind.COMMIT) and _DUPLICATE.search(
            failed(path, position, before)
        ):
            return event
    return None


def guard_before(path: Path, before: int) -> Guard:
    """The strongest guard that stands before an event on a path."""
    pending, found = False, Guard.NONE
    is_locked = False
    for position in range(before):
        event = path.events[position]
        if event.kind is Kind.RESERVE and not event.in_memory and not failed(path, position, before):
            if is_enforced(path, position, before):
                return Guard.RESERVED
        elif event.kind is Kind.MARK and "pending" in event.flags:
            pending = True
        elif (
            event.kind in (Kind.FLUSH, Kind.COMMIT, Kind.END)
            and pending
            and not failed(path, position, before)
        ):
            return Guard.RESERVED
        elif event.kind is Kind.LOCK:
            is_locked = True
        elif event.kind is Kind.CHECK and dedupe_test(path, position, before) is not None:
            if (
                event.in_memory
                and not event.window
                and any(one.kind is Kind.MARK and one.in_memory for one in path.events[position:before])
            ):
                continue
            found = Guard.RESERVED if is_locked and event.library != "attribute" else Guard.CHECKED
            if is_locked:
                return Guard.LOCKED
    if is_locked and found is Guard.NONE and _asks_under_lock(path, before):
        return Guard.LOCKED
    return found


def _asks_under_lock(path: Path, before: int) -> bool:
    """Whether anything is asked once a lock is held; a lock alone lets the next delivery pass."""
    start = next((at for at, event in enumerate(path.events) if event.kind is Kind.LOCK), before)
    first = path.events[start] if start < before else None
    if first is not None and first.library in ("sql", "sqlalchemy", "django", "orm"):
        return True
    return any(event.kind is Kind.TEST for event in path.events[start:before])


def is_enforced(path: Path, position: int, before: int) -> bool:
    """Whether a reservation keeps a repeat away: it raises, or its result is looked at."""
    event = path.events[position]
    if not event.by_result or event.by_name:
        return True
    return branch_on(path, position, before) is not None


class Meaning(Enum):
    """What a condition says about the value it tests."""

    PRESENT = "there is one"
    ABSENT = "there is none"
    STATE = "it is in a state"
    UNKNOWN = "something else"

    def flipped(self) -> Meaning:
        """The opposite."""
        return {Meaning.PRESENT: Meaning.ABSENT, Meaning.ABSENT: Meaning.PRESENT}.get(self, self)


def meaning_of(node: ast.AST) -> Meaning:
    """What a condition says when it is true."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return meaning_of(node.operand).flipped()
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return _compared(node)
    if isinstance(node, ast.BoolOp):
        meanings = {meaning_of(one) for one in node.values}
        return (
            Meaning.STATE
            if Meaning.STATE in meanings
            else Meaning.UNKNOWN
            if len(meanings) > 1
            else meanings.pop()
        )
    if isinstance(node, ast.NamedExpr | ast.Await):
        return meaning_of(node.value)
    if isinstance(node, ast.Name | ast.Call | ast.Attribute | ast.Subscript):
        return Meaning.PRESENT
    return Meaning.UNKNOWN


def _compared(node: ast.Compare) -> Meaning:
    right, operator = node.comparators[0], node.ops[0]
    value = right.value if isinstance(right, ast.Constant) else ...
    if value is None:
        return Meaning.ABSENT if isinstance(operator, ast.Is | ast.Eq) else Meaning.PRESENT
    if value == 0 and value is not False:
        return Meaning.ABSENT if isinstance(operator, ast.Eq) else Meaning.PRESENT
    if isinstance(operator, ast.In):
        return Meaning.PRESENT
    if isinstance(operator, ast.NotIn):
        return Meaning.ABSENT
    if value == 1 and isinstance(operator, ast.GtE):
        return Meaning.PRESENT
    return Meaning.STATE


def dedupe_test(path: Path, position: int, before: int | None = None) -> int | None:
    """Where a path asks whether a key is known and goes on because it is not."""
    event = path.events[position]
    at = branch_on(path, position, before)
    if at is None:
        return None
    if event.by_name or event.in_memory or event.library == "attribute":
        return at
    test = path.events[at]
    meaning = meaning_of(test.node)
    meaning = meaning if test.polarity else meaning.flipped()
    return None if meaning is Meaning.PRESENT else at


def is_after_error(path: Path, position: int) -> bool:
    """Whether an event happens while an error is handled."""
    for at in range(position - 1, -1, -1):
        event = path.events[at]
        if event.kind is Kind.CAUGHT:
            node = event.node
            end = getattr(node, "end_lineno", 0) or 0
            subject = path.events[position]
            lines = [getattr(one, "lineno", 0) for one in subject.places()]
            return any(getattr(node, "lineno", 0) <= line <= end for line in lines)
    return False


def short(event: CodeEvent) -> str:
    """An event's call as a message shows it."""
    return event.what or "the call"
