"""OG014: oncegate itself, used in a way that takes its protection away."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from oncegate.audit.flow.events import Kind
from oncegate.audit.flow.special import error_names, is_broad, is_once
from oncegate.audit.project.scope import Scope, last_name, spelled
from oncegate.audit.project.units import FunctionUnit, walk_scope
from oncegate.audit.rules.view import Draft, View, short
from oncegate.audit.tables.making import is_clock

_FIELDS: Final = re.compile(r"\{(\w[\w.]*)")
_CLOCK_FIELD: Final = re.compile(
    r"^(now|current_time|received_at|processed_at|fetched_at|arrived_at|ingested_at|timestamp_now|today|read_at)$"
)
_TRANSPORT_FIELD: Final = re.compile(
    r"^(message_?id|receipt_?handle|delivery_?tag|offset|retry_?count|attempts?|redelivered|request_id|uuid|trace_id)$",
    re.IGNORECASE,
)
_AWAITED: Final = frozenset({"effect", "step", "write", "commit"})


def effects_outside(view: View) -> Iterator[Draft]:
    """An outside call beside `once`, in a handler that has it."""
    handler = view.handler
    if not handler.is_gated or "once" not in handler.unit.parameters:
        return
    done: set[int] = set()
    for _, _, event in view.occurrences(Kind.EFFECT):
        if "gated" not in event.flags and id(event.node) not in done:
            done.add(id(event.node))
            text = (
                f"effect outside once: {short(event)} is called directly; a second attempt calls it again"
            )
            yield Draft("OG014", event.node, event.scope, text, short(event), event.via)


def templates(view: View) -> Iterator[Draft]:
    """A key template with a clock (OG014) or with transport parts (OG002)."""
    node = view.handler.template
    if not view.handler.is_gated or node is None:
        return
    scope = Scope(view.index, view.handler.unit.module, view.handler.unit.parent)
    if isinstance(node, ast.JoinedStr | ast.BinOp | ast.Call) and is_clock(node):
        yield Draft(
            "OG014",
            node,
            scope,
            "wall clock in a key template: it is read once, when the program starts",
            "key",
        )
        return
    text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
    for field in _FIELDS.findall(text):
        last = field.rsplit(".", 1)[-1]
        if _CLOCK_FIELD.match(last):
            yield Draft(
                "OG014",
                node,
                scope,
                f"wall clock in a key template: {{{field}}} differs for each delivery",
                field,
            )
        elif _TRANSPORT_FIELD.match(last):
            yield Draft("OG002", node, scope, f"key made of transport parts: {{{field}}}", field)


def in_functions(view: View) -> Iterator[Draft]:
    """Forgotten awaits and swallowed ClaimLost, in every function that a handler reaches."""
    for unit in view.reached:
        scope = Scope(view.index, unit.module, unit)
        if unit.is_async:
            yield from _forgotten(unit, scope)
        yield from _swallowed(unit, scope)


def _forgotten(unit: FunctionUnit, scope: Scope) -> Iterator[Draft]:
    for node in unit.nodes:
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Call)
            and _is_coroutine(node.value, scope)
        ):
            text = f"forgotten await: {spelled(node.value.func)}(...) never runs"
            yield Draft("OG014", node.value, scope, text, spelled(node.value.func))
        elif (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Call)
            and _is_coroutine(node.value, scope)
        ):
            name = spelled(node.targets[0])
            awaited = any(
                isinstance(one, ast.Await | ast.Return | ast.Call) and one is not node.value
                and any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(one))
                for one in unit.nodes
            )  # fmt: skip
            if not awaited:
                text = f"forgotten await: {spelled(node.value.func)}(...) never runs"
                yield Draft("OG014", node.value, scope, text, spelled(node.value.func))


def _is_coroutine(node: ast.Call, scope: Scope) -> bool:
    if not isinstance(node.func, ast.Attribute):
        return False
    owner = last_name(node.func.value)
    if node.func.attr in _AWAITED and owner == "once":
        return node.func.attr != "commit" or any(one.arg == "tx" for one in node.keywords)
    if node.func.attr == "execute" and spelled(node.func.value).endswith("once.tx"):
        return True
    kind = str(scope.type_of(node.func.value) or "")
    return node.func.attr == "admit" and (owner == "gate" or kind.startswith("oncegate"))


def _swallowed(unit: FunctionUnit, scope: Scope) -> Iterator[Draft]:
    for node in unit.nodes:
        if not isinstance(node, ast.Try):
            continue
        uses_once = any(
            isinstance(one, ast.Call) and _uses_gate(one, scope)
            for part in node.body
            for one in walk_scope(part)
        )
        for handler in node.handlers:
            names = error_names(handler.type)
            explicit = bool({"ClaimLost", "OncegateError"} & set(names)) and "oncegate" in str(
                list(unit.module.imports.values())
            )
            wide = is_broad(handler.type) and uses_once
            if (explicit or wide) and _ends_quietly(handler):
                text = "ClaimLost is swallowed: another worker has the key, and this one goes on"
                yield Draft("OG014", handler, scope, text, "except")
            if explicit or wide:
                break


def _uses_gate(node: ast.Call, scope: Scope) -> bool:
    if is_once(node, scope):
        return True
    return (
        isinstance(node.func, ast.Attribute)
        and node.func.attr in _AWAITED
        and last_name(node.func.value) == "once"
    )


def _ends_quietly(handler: ast.ExceptHandler) -> bool:
    for statement in handler.body:
        for node in walk_scope(statement):
            if isinstance(node, ast.Raise):
                return False
            if isinstance(node, ast.Call) and last_name(node.func) in (
                "nack",
                "nak",
                "reject",
                "basic_nack",
                "retry",
                "requeue",
            ):
                return False
    return True
