"""ORMs: Django's managers, SQLAlchemy's sessions and statements."""

from __future__ import annotations

import ast
import re
from typing import Final

from oncegate.audit.flow.calls import CallInfo, words_of
from oncegate.audit.flow.events import CodeEvent, KeyExpr, Kind
from oncegate.audit.project.scope import last_name, spelled
from oncegate.audit.tables.making import (
    compared,
    inserted,
    is_key_model,
    is_relative,
    key_expr,
    make,
    resolved,
    table_in,
    window_in,
)
from oncegate.audit.tables.sql import holds_keys

_ORM_SESSION: Final = re.compile(r"^(.*_)?(session|db|s|sess|tx|uow|orm|dbsession)$")


def expression_event(call: CallInfo, first: ast.expr) -> CodeEvent | None:
    """A statement built by SQLAlchemy's functions."""
    node = resolved(first, call)
    words = words_of(node)
    table = table_in(node)
    if "select" in words or "exists" in words:
        if "with_for_update" in words:
            return make(Kind.LOCK, call, subject=table, library="sqlalchemy")
        return make(Kind.CHECK, call, subject=table, library="sqlalchemy", key=compared(node, call),
                    window=window_in(node, call))  # fmt: skip
    if {"insert", "pg_insert", "sqlite_insert", "Insert", "mysql_insert"} & words:
        if "on_conflict_do_nothing" in words or ("prefix_with" in words and "IGNORE" in ast.dump(node)):
            return make(
                Kind.RESERVE,
                call,
                subject=table,
                by_result=True,
                library="sqlalchemy",
                key=inserted(node, call),
            )
        if "on_conflict_do_update" in words:
            return make(Kind.WRITE, call, subject=table, library="sqlalchemy")
        kind = Kind.RESERVE if holds_keys(table) else Kind.WRITE
        return make(
            kind,
            call,
            subject=table,
            library="sqlalchemy",
            flags=frozenset({"insert"}),
            key=inserted(node, call),
        )
    if "update" in words:
        return make(Kind.WRITE, call, subject=table, library="sqlalchemy", is_relative=is_relative(node))
    return make(Kind.WRITE, call, subject=table, library="sqlalchemy") if "delete" in words else None


def _manager(call: CallInfo) -> str:
    """The model of a Django manager call, `Order.objects.filter(...).first()`, or an empty text."""
    text = call.receiver
    return text.split(".objects")[0].rsplit(".", 1)[-1] if ".objects" in text else ""


def _model_node(call: CallInfo) -> ast.expr:
    node: ast.expr = call.node.func
    while isinstance(node, ast.Attribute | ast.Call):
        below = node.value if isinstance(node, ast.Attribute) else node.func
        if isinstance(node, ast.Attribute) and node.attr == "objects":
            return below
        node = below
    return node


def django_event(call: CallInfo) -> CodeEvent | None:
    """A call to a manager or a row of Django."""
    model = _manager(call)
    if not model:
        is_row = call.method == "save" and not call.package and call.receiver not in ("self", "super()")
        return make(Kind.WRITE, call, subject=call.receiver, library="orm") if is_row else None
    made = key_expr(call.node.keywords[0].value, call) if call.node.keywords else None
    if call.method in ("get_or_create", "aget_or_create"):
        return make(Kind.RESERVE, call, subject=model, key=made, by_result=True, library="django")
    if call.method in ("create", "acreate", "bulk_create"):
        ignores = call.keyword("ignore_conflicts") is not None
        keeps = is_key_model(_model_node(call), call)
        kind = Kind.RESERVE if holds_keys(model) or keeps or ignores else Kind.WRITE
        flags = frozenset({"insert", "keys"} if keeps else {"insert"})
        return make(kind, call, subject=model, key=made, by_result=ignores, library="django", flags=flags)
    if "select_for_update" in words_of(call.node.func) or call.method == "select_for_update":
        return make(Kind.LOCK, call, subject=model, library="django")
    if call.method in ("update", "aupdate"):
        return _django_update(call, model)
    if call.method in ("exists", "first", "get", "aexists", "afirst", "aget", "count"):
        window = window_in(call.node, call)
        return make(
            Kind.CHECK, call, subject=model, key=_compared_keyword(call), library="django", window=window
        )
    is_write = call.method in ("update_or_create", "delete")
    return make(Kind.WRITE, call, subject=model, library="django") if is_write else None


def _django_update(call: CallInfo, model: str) -> CodeEvent:
    """An update; one that is filtered by a state applies once, and its result says whether it did."""
    parts = [part for part in ast.walk(call.node.func) if isinstance(part, ast.Call)]
    names = {one.arg or "" for part in parts for one in part.keywords}
    guarded = any(
        re.match(r"status|state|processed|claimed|version|handled|sent|paid", name) for name in names
    )
    kind = Kind.RESERVE if guarded else Kind.WRITE
    relative = is_relative(call.node)
    return make(kind, call, subject=model, by_result=guarded, library="django", is_relative=relative)


def _compared_keyword(call: CallInfo) -> KeyExpr | None:
    for part in ast.walk(call.node):
        if isinstance(part, ast.Call) and last_name(part.func) in ("filter", "get") and part.keywords:
            return key_expr(part.keywords[0].value, call)
    return None


def sqlalchemy_event(call: CallInfo) -> CodeEvent | None:
    """A call to a session of SQLAlchemy."""
    words = words_of(call.node.func)
    is_session = (
        call.package == "sqlalchemy"
        or bool(_ORM_SESSION.match(call.receiver_name))
        or call.package == "sqlmodel"
    )
    if "query" in words and call.method in ("first", "one_or_none", "one", "scalar", "count", "get", "all"):
        if "with_for_update" in words:
            return make(Kind.LOCK, call, library="sqlalchemy")
        return make(Kind.CHECK, call, subject=_queried(call), library="sqlalchemy", key=compared(call.node, call),
                    window=window_in(call.node, call))  # fmt: skip
    if not is_session or call.has_project_owner:
        return None
    if call.method == "get" and len(call.node.args) >= 2:
        locks = call.keyword("with_for_update") is not None
        return make(Kind.LOCK if locks else Kind.CHECK, call, subject=spelled(call.node.args[0]), library="sqlalchemy",
                    key=key_expr(call.node.args[1], call))  # fmt: skip
    if call.method in ("add", "merge", "add_all") and call.node.args:
        return _added(call)
    if call.method in ("flush", "commit", "rollback"):
        return make({"flush": Kind.FLUSH, "commit": Kind.COMMIT}.get(call.method, Kind.ROLLBACK), call)
    return None


def _queried(call: CallInfo) -> str:
    for one in ast.walk(call.node):
        if isinstance(one, ast.Call) and last_name(one.func) == "query" and one.args:
            return spelled(one.args[0]).split(".")[0]
        if isinstance(one, ast.Attribute) and one.attr == "query" and isinstance(one.value, ast.Name):
            return one.value.id
    return ""


def _added(call: CallInfo) -> CodeEvent:
    node = resolved(call.node.args[0], call)
    if isinstance(node, ast.List | ast.Tuple) and node.elts:
        node = node.elts[0]
    made = last_name(node.func) if isinstance(node, ast.Call) else spelled(node)
    keyed = node.keywords[0].value if isinstance(node, ast.Call) and node.keywords else None
    keeps = isinstance(node, ast.Call) and is_key_model(node.func, call)
    if holds_keys(made) or keeps:
        return make(
            Kind.MARK,
            call,
            subject=made,
            library="orm",
            key=key_expr(keyed, call),
            flags=frozenset({"pending", "insert", "keys"} if keeps else {"pending", "insert"}),
        )
    flags = frozenset({"insert", "pending"}) if call.method != "merge" else frozenset({"pending"})
    return make(Kind.WRITE, call, subject=made, library="orm", flags=flags)
