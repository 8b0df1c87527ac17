"""Events of calls to stores, and the questions that all stores share."""

from __future__ import annotations

import ast
import re
from typing import Final

from oncegate.audit.flow.calls import CallInfo, bound_value, number_of, text_of, words_of
from oncegate.audit.flow.events import CodeEvent, KeyExpr, Kind
from oncegate.audit.project.scope import last_name, spelled
from oncegate.audit.project.units import ClassUnit

WINDOW_SECONDS_MIN: Final = 7 * 86_400


def make(kind: Kind, call: CallInfo, **facts: object) -> CodeEvent:
    """An event of a call."""
    return CodeEvent(kind, call.node, call.scope, what=call.text, **facts)  # type: ignore[arg-type]


def key_expr(node: ast.expr | None, call: CallInfo) -> KeyExpr | None:
    """An expression as the key of an event."""
    return KeyExpr(node, call.scope) if node is not None else None


_UNIQUE_NAME: Final = re.compile(
    r"^((event|message|delivery|webhook|notification|msg|idempotency|dedup\w*|provider_event|source_event)_?(id|key|uid|uuid)"
    r"|key|idempotency\w*|dedup\w*)$"
)


def is_key_model(node: ast.expr, call: CallInfo) -> bool:
    """Whether a model of the project has a unique column for the id of an event."""
    model = call.scope.unit(node)
    for statement in model.node.body if isinstance(model, ClassUnit) else ():
        if not isinstance(statement, ast.Assign | ast.AnnAssign) or not isinstance(
            statement.value, ast.Call
        ):
            continue
        target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
        is_unique = any(
            one.arg in ("unique", "primary_key") and getattr(one.value, "value", None) is True
            for one in statement.value.keywords
        )
        if is_unique and _UNIQUE_NAME.match(last_name(target)):
            return True
    return False


def resolved(node: ast.expr, call: CallInfo) -> ast.expr:
    """The expression that a name stands for, or the expression itself."""
    value = bound_value(node, call.scope) if isinstance(node, ast.Name) else None
    return value[0] if value else node


def table_in(node: ast.expr) -> str:
    """The table or model that a statement built by functions is about."""
    for one in ast.walk(node):
        if isinstance(one, ast.Call) and last_name(one.func).lower().rsplit("_", 1)[-1] in (
            "insert",
            "update",
            "delete",
            "select",
        ):
            if one.args:
                return spelled(one.args[0]).split(".")[0]
            if isinstance(one.func, ast.Attribute):
                return spelled(one.func.value).split(".")[0]
    return ""


def inserted(node: ast.expr, call: CallInfo) -> KeyExpr | None:
    """The first value of an insert: its key."""
    for one in ast.walk(node):
        if isinstance(one, ast.Call) and last_name(one.func) == "values" and one.keywords:
            return key_expr(one.keywords[0].value, call)
    return None


def compared(node: ast.expr, call: CallInfo) -> KeyExpr | None:
    """What a query compares a column with: its key."""
    for one in ast.walk(node):
        if isinstance(one, ast.Compare) and isinstance(one.ops[0], ast.Eq):
            return key_expr(one.comparators[0], call)
    return None


def is_relative(node: ast.expr) -> bool:
    """Whether an update adds to the value that is there: `values(total=T.total + 1)`, `F("n") - 1`."""
    for one in ast.walk(node):
        if isinstance(one, ast.keyword) and one.arg and isinstance(one.value, ast.BinOp):
            if one.arg in words_of(one.value) or "F" in words_of(one.value):
                return True
    return False


def is_clock(node: ast.AST) -> bool:
    """Whether an expression reads the wall clock."""
    return any(
        isinstance(one, ast.Call)
        and (
            last_name(one.func) in ("utcnow", "now", "today")
            or spelled(one.func) in ("time.time", "time.time_ns", "time")
        )
        for one in ast.walk(node)
    )


def clock_difference(node: ast.AST, call: CallInfo) -> bool:
    """Whether an expression subtracts from the current time, also by way of a name."""
    for one in ast.walk(node):
        if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Sub):
            left = resolved(one.left, call)
            if is_clock(left):
                return True
        if isinstance(one, ast.Name):
            value = bound_value(one, call.scope)
            if value and isinstance(value[0], ast.BinOp) and isinstance(value[0].op, ast.Sub):
                if is_clock(resolved(value[0].left, call)):
                    return True
    return False


def window_in(node: ast.AST, call: CallInfo) -> str:
    """The words for a query that compares with the current time; empty for others."""
    return "the query compares with the current time" if clock_difference(node, call) else ""


def ttl(call: CallInfo, node: ast.expr | None, unit: float = 1.0) -> str:
    """The words for a time to live that is too short; empty for others."""
    seconds = number_of(node, call.scope)
    if seconds is None or seconds * unit >= WINDOW_SECONDS_MIN:
        return ""
    return f"the key is forgotten after {_duration(seconds * unit)}"


def _duration(seconds: float) -> str:
    for size, name in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= size and seconds % size == 0:
            count = int(seconds // size)
            return f"{count} {name}{'s' if count > 1 else ''}"
    return f"{seconds:g} seconds"


def is_lock_key(node: ast.expr | None, call: CallInfo) -> bool:
    """Whether a key names a lock, which is not a record."""
    return node is not None and bool(
        re.search(r"lock|lease|mutex", text_of(node, call.scope) + spelled(node), re.IGNORECASE)
    )
