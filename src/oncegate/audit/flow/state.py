"""State that a row carries: `if order.status == "paid": return` asks, `order.status = "paid"` notes."""

from __future__ import annotations

import ast
import re
from typing import Final

from oncegate.audit.flow.calls import CallInfo
from oncegate.audit.flow.events import CodeEvent, Kind, Path
from oncegate.audit.project.scope import Scope, last_name, spelled
from oncegate.audit.project.units import FunctionUnit
from oncegate.audit.tables.stores import store_event

_STATE: Final = re.compile(
    r"^(status|state|processed\w*|paid\w*|sent\w*|charged\w*|done|handled\w*|notified\w*|shipped\w*"
    r"|refunded\w*|completed\w*|booked\w*"
    r"|captured\w*|fulfilled\w*|settled\w*|is_(paid|sent|done|processed|charged|shipped|notified"
    r"|complete)|\w+_sent|\w+_sent_at|\w+_processed"
    r"|(charge|payment|refund|shipment|booking|label|transfer|payout|message|invoice)_(id|ref|reference))$"
)  # fmt: skip
_LOADS: Final = re.compile(
    r"^(a?get|load|find|fetch|first|one|scalar|query|select|read|lookup|refresh)(_|$)"
)


def is_state(name: str) -> bool:
    """Whether an attribute's name says that it holds the state of some work."""
    return bool(_STATE.match(name))


def set_state(target: ast.Attribute, scope: Scope) -> CodeEvent:
    """The note that an assignment makes."""
    return CodeEvent(
        Kind.MARK, target, scope, what=spelled(target), subject=target.attr, library="attribute"
    )


def asked_state(test: ast.expr, scope: Scope) -> list[Path]:
    """The question that a condition asks of a row's state, if it asks one."""
    for node in ast.walk(test):
        base, name = _member(node)
        if base is not None and is_state(name) and _is_loaded(base, scope):
            event = CodeEvent(
                Kind.CHECK, test, scope, what=f"{spelled(base)}.{name}", subject=name, library="attribute"
            )
            return [Path((event,))]
    return [Path()]


def added_to(node: ast.AugAssign, scope: Scope) -> list[Path]:
    """`account.balance -= amount` on a row: an update that adds, and adds again for a repeat."""
    target = node.target
    if not isinstance(target, ast.Attribute) or not _is_loaded(target.value, scope):
        return [Path()]
    event = CodeEvent(Kind.WRITE, node, scope, what=f"{spelled(target)} {'+' if isinstance(node.op, ast.Add) else '-'}= ...",
                  subject=spelled(target.value), library="orm", is_relative=True)  # fmt: skip
    return [Path((event,))] if isinstance(node.op, ast.Add | ast.Sub) else [Path()]


def _member(node: ast.AST) -> tuple[ast.expr | None, str]:
    if isinstance(node, ast.Attribute):
        return node.value, node.attr
    if (
        isinstance(node, ast.Subscript)
        and isinstance(node.slice, ast.Constant)
        and isinstance(node.slice.value, str)
    ):
        return node.value, node.slice.value
    return None, ""


def _is_loaded(node: ast.expr, scope: Scope) -> bool:
    """Whether an object comes from a store, not from the event."""
    if not isinstance(node, ast.Name):
        return False
    for binding in scope.bindings(node.id) or []:
        value = binding.value.value if isinstance(binding.value, ast.Await) else binding.value
        if not isinstance(value, ast.Call):
            continue
        call = CallInfo(value, scope)
        stored = store_event(call)
        if stored is not None and stored.kind in (Kind.CHECK, Kind.LOCK):
            return True
        if call.method in (
            "fetchone",
            "first",
            "one",
            "one_or_none",
            "scalar_one_or_none",
            "scalar_one",
            "mappings",
        ):
            return True
        is_own = isinstance(scope.unit(value.func), FunctionUnit) or call.has_project_owner
        if _LOADS.match(call.method) and (is_own or _is_repository(call)):
            return True
    return False


def _is_repository(call: CallInfo) -> bool:
    return bool(
        re.search(
            r"(repo|repository|store|session|db|orders|payments|dao|table|objects)$", call.receiver_name
        )
    ) and bool(last_name(call.node.func))
