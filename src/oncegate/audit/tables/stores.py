"""Calls to databases and key stores: reservations, checks, marks and writes."""

from __future__ import annotations

import ast
from typing import Final

from oncegate.audit.flow.calls import CallInfo, text_of
from oncegate.audit.flow.events import CodeEvent, Kind
from oncegate.audit.tables.key_stores import dynamo_event, memory_event, mongo_event, redis_event
from oncegate.audit.tables.making import key_expr, make, window_in
from oncegate.audit.tables.orms import django_event, expression_event, sqlalchemy_event
from oncegate.audit.tables.sql import Sql, SqlKind, read_sql, surely_holds_keys

_SQL_METHODS: Final = frozenset(
    {
        "execute", "executemany", "fetch", "fetchrow", "fetchval", "fetch_one", "fetch_all", "fetch_val", "scalar", "scalars",
        "query", "exec", "exec_driver_sql", "raw", "execute_async", "run", "query_one", "query_row", "one", "scalar_one_or_none",
    }
)  # fmt: skip


def store_event(call: CallInfo) -> CodeEvent | None:
    """What a call to a store means, or None."""
    for judge in (
        _sql,
        redis_event,
        django_event,
        sqlalchemy_event,
        dynamo_event,
        mongo_event,
        memory_event,
    ):
        found = judge(call)
        if found is not None:
            return found
    return None


def _sql(call: CallInfo) -> CodeEvent | None:
    if call.method not in _SQL_METHODS or not call.node.args:
        return None
    first = call.node.args[0]
    statement = read_sql(text_of(first, call.scope))
    if statement is None:
        return expression_event(call, first)
    values = (
        call.node.args[1]
        if len(call.node.args) > 1
        else call.keyword("parameters", "params", "args", "vars")
    )
    return sql_event(call, statement, _key_value(values))


def _key_value(values: ast.expr | None) -> ast.expr | None:
    """The first bound value of a statement: where a key is inserted or asked for, it comes first."""
    if isinstance(values, ast.Tuple | ast.List) and values.elts:
        return values.elts[0]
    if isinstance(values, ast.Dict) and values.values:
        return values.values[0]
    return values


def sql_event(call: CallInfo, statement: Sql, key: ast.expr | None) -> CodeEvent | None:
    """The event of one SQL statement."""
    table, made = statement.table, key_expr(key, call)
    if statement.kind in (SqlKind.RESERVE, SqlKind.CAS):
        return make(Kind.RESERVE, call, subject=table, key=made if statement.kind is SqlKind.RESERVE else None, by_result=True,
                    is_relative=statement.relative, library="sql",
                    flags=frozenset({"keys"} if statement.is_key_alone else ()))  # fmt: skip
    if statement.kind is SqlKind.INSERT and statement.is_dedupe:
        return make(Kind.RESERVE, call, subject=table, key=made, library="sql")
    if statement.kind is SqlKind.SELECT:
        if statement.locks:
            return make(Kind.LOCK, call, subject=table, library="sql")
        return make(Kind.CHECK, call, subject=table, key=made, library="sql",
                    window="SQL compares with the current time" if statement.window else window_in(call.node, call))  # fmt: skip
    plain = {
        SqlKind.LOCK: Kind.LOCK, SqlKind.BEGIN: Kind.BEGIN, SqlKind.COMMIT: Kind.COMMIT, SqlKind.ROLLBACK: Kind.ROLLBACK,
    }  # fmt: skip
    if statement.kind in plain:
        return make(plain[statement.kind], call, library="sql")
    notes = surely_holds_keys(table) if statement.kind is SqlKind.UPDATE else statement.is_dedupe
    kind = Kind.MARK if notes and statement.kind is not SqlKind.DELETE else Kind.WRITE
    flags = frozenset({"insert"}) if statement.kind is SqlKind.INSERT else frozenset()
    return make(
        kind, call, subject=table, is_relative=statement.relative, library="sql", flags=flags, key=made
    )
