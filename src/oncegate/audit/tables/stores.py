"""Calls to databases and key stores: reservations, checks, marks and writes."""

from __future__ import annotations

import ast
import re
from typing import Final

from oncegate.audit.flow.calls import CallInfo, bound_value, number_of, text_of, words_of
from oncegate.audit.flow.events import Event, KeyExpr, Kind
from oncegate.audit.project.scope import last_name, spelled
from oncegate.audit.tables.sql import Sql, SqlKind, holds_keys, read_sql

WINDOW_SECONDS_MIN: Final = 7 * 86_400
_SQL_METHODS: Final = frozenset(
    {
        "execute", "executemany", "fetch", "fetchrow", "fetchval", "fetch_one", "fetch_all", "fetch_val", "scalar", "scalars",
        "query", "exec", "exec_driver_sql", "raw", "execute_async", "run", "query_one", "query_row", "one", "scalar_one_or_none",
    }
)  # fmt: skip
_KEY_STORE: Final = re.compile(r"^(.*_)?(redis|r|rdb|cache|kv|valkey|memcache|mc|redis_client|conn_redis)$")
_ORM_SESSION: Final = re.compile(r"^(.*_)?(session|db|s|sess|tx|uow|orm|dbsession)$")


def make(kind: Kind, call: CallInfo, **facts: object) -> Event:
    """An event of a call."""
    return Event(kind, call.node, call.scope, what=call.text, **facts)  # type: ignore[arg-type]


def key_expr(node: ast.expr | None, call: CallInfo) -> KeyExpr | None:
    """An expression as the key of an event."""
    return KeyExpr(node, call.scope) if node is not None else None


def store_event(call: CallInfo) -> Event | None:
    """What a call to a store means, or None."""
    for judge in (_sql, _redis, _django, _sqlalchemy, _dynamo, _mongo, _memory):
        found = judge(call)
        if found is not None:
            return found
    return None


def _sql(call: CallInfo) -> Event | None:
    if call.method not in _SQL_METHODS or not call.node.args:
        return None
    first = call.node.args[0]
    statement = read_sql(text_of(first, call.scope))
    if statement is None:
        return _expression(call, first)
    values = call.node.args[1] if len(call.node.args) > 1 else call.keyword("parameters", "params", "args", "vars")
    return sql_event(call, statement, _key_value(values))


def _key_value(values: ast.expr | None) -> ast.expr | None:
    """The first bound value of a statement: where a key is inserted or asked for, it comes first."""
    if isinstance(values, ast.Tuple | ast.List) and values.elts:
        return values.elts[0]
    if isinstance(values, ast.Dict) and values.values:
        return values.values[0]
    return values


def sql_event(call: CallInfo, statement: Sql, key: ast.expr | None) -> Event | None:
    """The event of one SQL statement."""
    table, made = statement.table, key_expr(key, call)
    if statement.kind in (SqlKind.RESERVE, SqlKind.CAS):
        return make(Kind.RESERVE, call, subject=table, key=made if statement.kind is SqlKind.RESERVE else None, by_result=True,
                    is_relative=statement.relative, library="sql")  # fmt: skip
    if statement.kind is SqlKind.INSERT and statement.is_dedupe:
        return make(Kind.RESERVE, call, subject=table, key=made, library="sql")
    if statement.kind is SqlKind.SELECT:
        if statement.locks:
            return make(Kind.LOCK, call, subject=table, library="sql")
        return make(Kind.CHECK, call, subject=table, key=made, library="sql",
                    window="SQL compares with the current time" if statement.window else "")  # fmt: skip
    plain = {
        SqlKind.LOCK: Kind.LOCK, SqlKind.BEGIN: Kind.BEGIN, SqlKind.COMMIT: Kind.COMMIT, SqlKind.ROLLBACK: Kind.ROLLBACK,
    }  # fmt: skip
    if statement.kind in plain:
        return make(plain[statement.kind], call, library="sql")
    kind = Kind.MARK if statement.is_dedupe and statement.kind is not SqlKind.DELETE else Kind.WRITE
    flags = frozenset({"insert"}) if statement.kind is SqlKind.INSERT else frozenset()
    return make(kind, call, subject=table, is_relative=statement.relative, library="sql", flags=flags, key=made)


def _resolved(node: ast.expr, call: CallInfo) -> ast.expr:
    value = bound_value(node, call.scope) if isinstance(node, ast.Name) else None
    return value[0] if value else node


def _expression(call: CallInfo, first: ast.expr) -> Event | None:
    """A statement built by SQLAlchemy's functions."""
    node = _resolved(first, call)
    words = words_of(node)
    table = _table_in(node)
    if "select" in words or "exists" in words:
        if "with_for_update" in words:
            return make(Kind.LOCK, call, subject=table, library="sqlalchemy")
        return make(Kind.CHECK, call, subject=table, library="sqlalchemy", key=_compared(node, call),
                    window=_window_in(node, call))  # fmt: skip
    if {"insert", "pg_insert", "sqlite_insert", "Insert", "mysql_insert"} & words:
        if "on_conflict_do_nothing" in words or ("prefix_with" in words and "IGNORE" in ast.dump(node)):
            return make(Kind.RESERVE, call, subject=table, by_result=True, library="sqlalchemy", key=_inserted(node, call))
        if "on_conflict_do_update" in words:
            return make(Kind.WRITE, call, subject=table, library="sqlalchemy")
        kind = Kind.RESERVE if holds_keys(table) else Kind.WRITE
        return make(kind, call, subject=table, library="sqlalchemy", flags=frozenset({"insert"}), key=_inserted(node, call))
    if "update" in words:
        return make(Kind.WRITE, call, subject=table, library="sqlalchemy", is_relative=_is_relative(node))
    return make(Kind.WRITE, call, subject=table, library="sqlalchemy") if "delete" in words else None


def _table_in(node: ast.expr) -> str:
    for one in ast.walk(node):
        if isinstance(one, ast.Call) and last_name(one.func).lower().rsplit("_", 1)[-1] in ("insert", "update", "delete", "select"):
            if one.args:
                return spelled(one.args[0]).split(".")[0]
            if isinstance(one.func, ast.Attribute):
                return spelled(one.func.value).split(".")[0]
    return ""


def _inserted(node: ast.expr, call: CallInfo) -> KeyExpr | None:
    for one in ast.walk(node):
        if isinstance(one, ast.Call) and last_name(one.func) == "values" and one.keywords:
            return key_expr(one.keywords[0].value, call)
    return None


def _compared(node: ast.expr, call: CallInfo) -> KeyExpr | None:
    for one in ast.walk(node):
        if isinstance(one, ast.Compare) and isinstance(one.ops[0], ast.Eq):
            return key_expr(one.comparators[0], call)
    return None


def _is_relative(node: ast.expr) -> bool:
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
        and (last_name(one.func) in ("utcnow", "now", "today") or spelled(one.func) in ("time.time", "time.time_ns", "time"))
        for one in ast.walk(node)
    )


def clock_difference(node: ast.AST, call: CallInfo) -> bool:
    """Whether an expression subtracts from the current time, also by way of a name."""
    for one in ast.walk(node):
        if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Sub):
            left = _resolved(one.left, call)
            if is_clock(left):
                return True
        if isinstance(one, ast.Name):
            value = bound_value(one, call.scope)
            if value and isinstance(value[0], ast.BinOp) and isinstance(value[0].op, ast.Sub):
                if is_clock(_resolved(value[0].left, call)):
                    return True
    return False


def _window_in(node: ast.AST, call: CallInfo) -> str:
    return "the query compares with the current time" if clock_difference(node, call) else ""


def _ttl(call: CallInfo, node: ast.expr | None, unit: float = 1.0) -> str:
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


def _is_lock_key(node: ast.expr | None, call: CallInfo) -> bool:
    return node is not None and bool(re.search(r"lock|lease|mutex", text_of(node, call.scope) + spelled(node), re.I))


def _redis(call: CallInfo) -> Event | None:
    is_store = call.package in ("redis", "valkey", "aioredis", "pymemcache", "coredis", "fakeredis") or (
        not call.package and not call.has_project_owner and bool(_KEY_STORE.match(call.receiver_name))
    )
    is_django = call.full.startswith("django.core.cache")
    key = call.argument(0, "name", "key")
    made = key_expr(key, call)
    if call.method == "set" and (call.keyword("nx") is not None):
        if _is_lock_key(key, call):
            return make(Kind.LOCK, call, library="redis", by_result=True)
        ttl = call.keyword("ex")
        window = _ttl(call, ttl) if ttl is not None else _ttl(call, call.keyword("px"), 0.001)
        return make(Kind.RESERVE, call, subject="redis", key=made, by_result=True, window=window, library="redis")
    if call.method in ("setnx", "hsetnx") or (call.method == "execute_command" and "NX" in ast.dump(call.node)):
        return make(Kind.RESERVE, call, subject="redis", key=made, by_result=True, library="redis")
    if is_django or (call.receiver_name == "cache" and call.method == "add" and not call.has_project_owner):
        return _django_cache(call, made)
    if not is_store:
        return None
    if call.method in ("sadd", "incr", "zadd", "hincrby", "pfadd", "add", "getset"):
        member = call.argument(1) if call.method in ("sadd", "zadd") else key
        expires = call.keyword("expire", "time", "timeout") if call.method == "add" else None
        return make(Kind.RESERVE, call, subject="redis", key=key_expr(member, call), by_result=True, library="redis",
                    flags=frozenset({"or mark"}), window=_ttl(call, expires))  # fmt: skip
    if call.method in ("get", "exists", "sismember", "hexists", "hget", "zscore"):
        member = call.argument(1) if call.method in ("sismember", "hexists", "zscore") else key
        return make(Kind.CHECK, call, subject="redis", key=key_expr(member, call), library="redis")
    if call.method in ("set", "setex", "hset", "psetex", "expire"):
        ttl = call.argument(1, "time") if call.method in ("setex", "expire") else call.keyword("ex")
        return make(Kind.MARK, call, subject="redis", key=made, window=_ttl(call, ttl), library="redis")
    return make(Kind.LOCK, call, library="redis") if call.method == "lock" else None


def _django_cache(call: CallInfo, key: KeyExpr | None) -> Event | None:
    timeout = call.argument(2, "timeout", "ttl", "expire", "time")
    if call.method == "add":
        if _is_lock_key(call.argument(0, "key"), call):
            return make(Kind.LOCK, call, library="cache", by_result=True)
        default = "the key is forgotten after 5 minutes, the default" if timeout is None and call.package == "django" else ""
        return make(Kind.RESERVE, call, subject="cache", key=key, by_result=True, library="cache",
                    window=default or (_ttl(call, timeout) if timeout is not None else ""))  # fmt: skip
    if call.method in ("get", "has_key"):
        return make(Kind.CHECK, call, subject="cache", key=key, library="cache")
    if call.method in ("set", "touch"):
        default = "the key is forgotten after 5 minutes, the default" if timeout is None else ""
        return make(Kind.MARK, call, subject="cache", key=key, library="cache", window=default or _ttl(call, timeout))
    return None


def _manager(call: CallInfo) -> str:
    """The model of a Django manager call, `Order.objects.filter(...).first()`, or an empty text."""
    text = call.receiver
    return text.split(".objects")[0].rsplit(".", 1)[-1] if ".objects" in text else ""


def _django(call: CallInfo) -> Event | None:
    model = _manager(call)
    if not model:
        if call.method == "save" and not call.package and call.receiver not in ("self", "super()"):
            return make(Kind.WRITE, call, subject=call.receiver, library="orm")
        return None
    words = words_of(call.node.func)
    keyed = call.node.keywords[0].value if call.node.keywords else None
    made = key_expr(keyed, call)
    if call.method in ("get_or_create", "aget_or_create"):
        return make(Kind.RESERVE, call, subject=model, key=made, by_result=True, library="django")
    if call.method in ("create", "acreate", "bulk_create"):
        ignores = call.keyword("ignore_conflicts") is not None
        kind = Kind.RESERVE if holds_keys(model) or ignores else Kind.WRITE
        return make(kind, call, subject=model, key=made, by_result=ignores, library="django", flags=frozenset({"insert"}))
    if "select_for_update" in words or call.method == "select_for_update":
        return make(Kind.LOCK, call, subject=model, library="django")
    if call.method in ("update", "aupdate"):
        filtered = {one.arg or "" for part in ast.walk(call.node.func) if isinstance(part, ast.Call) for one in part.keywords}
        guarded = any(re.match(r"status|state|processed|claimed|version|handled|sent|paid", name) for name in filtered)
        kind = Kind.RESERVE if guarded else Kind.WRITE
        return make(kind, call, subject=model, by_result=guarded, library="django", is_relative=_is_relative(call.node))
    if call.method in ("exists", "first", "get", "aexists", "afirst", "aget", "count"):
        whole = _compared_keyword(call)
        return make(Kind.CHECK, call, subject=model, key=whole, library="django", window=_window_in(call.node, call))
    return make(Kind.WRITE, call, subject=model, library="django") if call.method in ("update_or_create", "delete") else None


def _compared_keyword(call: CallInfo) -> KeyExpr | None:
    for part in ast.walk(call.node):
        if isinstance(part, ast.Call) and last_name(part.func) in ("filter", "get") and part.keywords:
            return key_expr(part.keywords[0].value, call)
    return None


def _sqlalchemy(call: CallInfo) -> Event | None:
    words = words_of(call.node.func)
    is_session = call.package == "sqlalchemy" or bool(_ORM_SESSION.match(call.receiver_name)) or call.package == "sqlmodel"
    if "query" in words and call.method in ("first", "one_or_none", "one", "scalar", "count", "get", "all"):
        if "with_for_update" in words:
            return make(Kind.LOCK, call, library="sqlalchemy")
        return make(Kind.CHECK, call, subject=_queried(call), library="sqlalchemy", key=_compared(call.node, call),
                    window=_window_in(call.node, call))  # fmt: skip
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
    return ""


def _added(call: CallInfo) -> Event:
    node = _resolved(call.node.args[0], call)
    if isinstance(node, ast.List | ast.Tuple) and node.elts:
        node = node.elts[0]
    made = last_name(node.func) if isinstance(node, ast.Call) else spelled(node)
    keyed = node.keywords[0].value if isinstance(node, ast.Call) and node.keywords else None
    if holds_keys(made):
        return make(Kind.MARK, call, subject=made, library="orm", key=key_expr(keyed, call), flags=frozenset({"pending", "insert"}))
    flags = frozenset({"insert", "pending"}) if call.method != "merge" else frozenset({"pending"})
    return make(Kind.WRITE, call, subject=made, library="orm", flags=flags)


def _dynamo(call: CallInfo) -> Event | None:
    if call.method not in ("put_item", "update_item", "get_item", "transact_write_items", "delete_item"):
        return None
    condition = call.keyword("ConditionExpression", "condition_expression", "condition")
    item = call.keyword("Item", "Key", "item")
    keyed = item.values[0] if isinstance(item, ast.Dict) and item.values else None
    if isinstance(keyed, ast.Dict) and keyed.values:
        keyed = keyed.values[0]
    made, table = key_expr(keyed, call), call.literal(9, "TableName") or call.receiver_name
    if call.method == "transact_write_items":
        return make(Kind.RESERVE if "attribute_not_exists" in ast.dump(call.node) else Kind.WRITE, call, library="dynamodb")
    if condition is not None and call.method != "get_item":
        return make(Kind.RESERVE, call, subject=table, key=made, library="dynamodb", window=_item_ttl(item, call))
    if call.method == "get_item":
        return make(Kind.CHECK, call, subject=table, key=made, library="dynamodb")
    expression = call.literal(9, "UpdateExpression")
    relative = bool(re.search(r"\badd\b|(\S+)\s*=\s*\1\s*[-+]", expression, re.I))
    kind = Kind.MARK if holds_keys(table) and call.method == "put_item" else Kind.WRITE
    return make(kind, call, subject=table, key=made, library="dynamodb", is_relative=relative)


def _item_ttl(item: ast.expr | None, call: CallInfo) -> str:
    for name, value in zip(item.keys, item.values, strict=True) if isinstance(item, ast.Dict) else ():
        if isinstance(name, ast.Constant) and re.search(r"ttl|expir", str(name.value), re.I):
            for part in ast.walk(_resolved(value, call)):
                if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Add):
                    return _ttl(call, part.right)
    return ""


def _mongo(call: CallInfo) -> Event | None:
    first = call.node.args[0] if call.node.args else None
    keyed = first.values[0] if isinstance(first, ast.Dict) and first.values else None
    made, subject = key_expr(keyed, call), call.receiver_name
    if call.method == "insert_one":
        kind = Kind.RESERVE if holds_keys(subject) else Kind.WRITE
        return make(kind, call, subject=subject, key=made, library="mongo", flags=frozenset({"insert"}))
    if call.method in ("update_one", "find_one_and_update"):
        upsert = call.keyword("upsert") is not None or (first is not None and len(getattr(first, "keys", ())) > 1)
        relative = "$inc" in ast.dump(call.node)
        kind = Kind.RESERVE if upsert and ("$setOnInsert" in ast.dump(call.node) or not relative) else Kind.WRITE
        return make(kind, call, subject=subject, key=made, by_result=True, library="mongo", is_relative=relative)
    if call.method in ("find_one", "count_documents"):
        return make(Kind.CHECK, call, subject=subject, key=made, library="mongo")
    return None


_REMEMBERS: Final = re.compile(
    r"seen|process|dedup|handled|done|recent|known|already|consumed|deliver|sent|complet|ids?$|keys?$|last|cache|history|visited|idempot|past", re.I
)
FORGETTING: Final = frozenset({"TTLCache", "ExpiringDict", "TLRUCache"})
_MEMORY_MAKERS: Final = frozenset({"set", "dict", "OrderedDict", "defaultdict", "TTLCache", "LRUCache", "ExpiringDict", "list", "deque", "WeakValueDictionary"})


def memory_of(node: ast.expr, call_scope: CallInfo) -> str:
    """The kind of collection that a shared name is: `set`, `TTLCache`; empty for anything else."""
    scope = call_scope.scope
    if isinstance(node, ast.Name) and scope.is_local(node.id) and not (scope.function and scope.function.has_loop):
        return ""
    value = bound_value(node, scope)
    made = value[0] if value else None
    if isinstance(made, ast.Call) and last_name(made.func) in FORGETTING:
        return last_name(made.func)
    if not _REMEMBERS.search(last_name(node)):
        return ""
    if isinstance(made, ast.Call) and last_name(made.func) in _MEMORY_MAKERS:
        return last_name(made.func)
    return {ast.Dict: "dict", ast.Set: "set", ast.List: "list"}.get(type(made), "") if made is not None else ""


def _memory(call: CallInfo) -> Event | None:
    if call.method not in ("add", "append", "get", "setdefault") or not isinstance(call.node.func, ast.Attribute):
        return None
    made = memory_of(call.node.func.value, call)
    if not made:
        return None
    kind = Kind.CHECK if call.method == "get" else Kind.MARK
    window = "the collection forgets the key after a time" if made in FORGETTING else ""
    return make(kind, call, subject=call.receiver, key=key_expr(call.argument(0), call), in_memory=True, window=window)
