"""Events: what a call or a branch means for repeats, in the order in which a path meets them."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from enum import Enum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from oncegate.audit.project.scope import Scope
from oncegate.audit.project.units import FunctionUnit


class Kind(Enum):
    """What an event is."""

    EFFECT = "a call that leaves the process and acts"
    RESERVE = "an atomic reservation of a key"
    CHECK = "a question whether a key is known"
    MARK = "a note that a key is known, which is not atomic"
    WRITE = "a write to the application's own database"
    ACK = "an acknowledgement"
    NACK = "a message given back, or a failure recorded for a retry"
    LOG = "a log line, a metric, a record"
    FLUSH = "pending rows are sent"
    COMMIT = "the open transaction is committed"
    ROLLBACK = "the open transaction is rolled back"
    BEGIN = "a transaction block begins"
    END = "a transaction block ends"
    LOCK = "a lock is held from here on"
    FETCH = "the result of a statement is read"
    TEST = "a branch"
    RAISED = "an earlier event raised"
    CAUGHT = "an except block begins"
    LEFT = "a function of the project returns"
    SPAWN = "work is left to run later"
    DYNAMIC = "a call that cannot be followed"
    OTHER = "any other call"


ROW_COUNTS: Final = frozenset(
    {"rowcount", "upserted_id", "modified_count", "matched_count", "inserted_id", "statusmessage", "affected_rows", "row_count"}
)  # fmt: skip


class Keyed(Enum):
    """Whether a call carries an idempotency key."""

    NO = "no"
    YES = "yes"
    UNKNOWN = "unknown"


class KeyExpr(Struct, frozen=True, eq=False):
    """An expression that makes a key, with the scope it is read in and what its parameters stand for."""

    node: ast.expr
    scope: Scope
    arguments: Mapping[str, KeyExpr] | None = None

    def bound(self, callee: FunctionUnit, arguments: Mapping[str, KeyExpr]) -> KeyExpr:
        """The same expression, once a caller's arguments are known."""
        if self.arguments is not None:
            inner = {name: one.bound(callee, arguments) for name, one in self.arguments.items()}
            return replace(self, arguments=inner)
        return replace(self, arguments=arguments) if self.scope.function is callee else self


class CodeEvent(Struct, frozen=True, eq=False):
    """One thing that happens on a path."""

    kind: Kind
    node: ast.AST
    scope: Scope
    what: str = ""
    library: str = ""
    subject: str = ""
    key: KeyExpr | None = None
    keyed: Keyed = Keyed.NO
    takes_key: str = ""
    window: str = ""
    by_result: bool = False
    in_memory: bool = False
    is_relative: bool = False
    by_name: bool = False
    polarity: bool = True
    names: tuple[tuple[FunctionUnit | None, str], ...] = ()
    via: tuple[tuple[Scope, ast.Call], ...] = ()
    flags: frozenset[str] = frozenset()
    of: CodeEvent | None = None
    origin: ast.AST | None = None

    def places(self) -> list[ast.AST]:
        """The nodes that stand for this event, in its own function and in the callers."""
        return [self.node, *(call for _, call in self.via)]


class Ending(Enum):
    """How a path ends."""

    NEXT = "goes on"
    RETURN = "returns"
    RAISE = "raises"
    CONTINUE = "continues a loop"
    BREAK = "breaks a loop"


class Path(Struct, frozen=True, eq=False):
    """A sequence of events through a block, and how it ends."""

    events: tuple[CodeEvent, ...] = ()
    ending: Ending = Ending.NEXT
    node: ast.AST | None = None

    def then(self, other: Path) -> Path:
        """This path, followed by another one."""
        if not other.events and other.ending is Ending.NEXT:
            return self
        return Path(self.events + other.events, other.ending, other.node)


def refers(test: CodeEvent, event: CodeEvent) -> bool:
    """Whether a branch depends on the result of an event."""
    nodes = set(map(id, event.places()))
    for node in ast.walk(test.node):
        if id(node) in nodes:
            return True
        if isinstance(node, ast.Name) and (test.scope.function, node.id) in event.names:
            return True
    return False


def reads_result(node: ast.AST) -> bool:
    """Whether an expression reads the number of changed rows."""
    return any(isinstance(one, ast.Attribute) and one.attr in ROW_COUNTS for one in ast.walk(node))
