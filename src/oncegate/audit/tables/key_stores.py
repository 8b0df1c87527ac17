"""Key stores and document stores: Redis, caches, DynamoDB, MongoDB, collections in memory."""

from __future__ import annotations

import ast
import re
from typing import Final

from oncegate.audit.flow.calls import CallInfo, bound_value
from oncegate.audit.flow.events import CodeEvent, KeyExpr, Kind
from oncegate.audit.project.scope import last_name
from oncegate.audit.tables.making import is_lock_key, key_expr, make, resolved, ttl
from oncegate.audit.tables.sql import holds_keys

_KEY_STORE: Final = re.compile(r"^(.*_)?(redis|r|rdb|cache|kv|valkey|memcache|mc|redis_client|conn_redis)$")


def redis_event(call: CallInfo) -> CodeEvent | None:
    """A call to Redis, Memcached or a cache."""
    is_store = call.package in ("redis", "valkey", "aioredis", "pymemcache", "coredis", "fakeredis") or (
        not call.package and not call.has_project_owner and bool(_KEY_STORE.match(call.receiver_name))
    )
    is_django = call.full.startswith("django.core.cache")
    key = call.argument(0, "name", "key")
    made = key_expr(key, call)
    if call.method == "set" and (call.keyword("nx") is not None):
        if is_lock_key(key, call):
            return make(Kind.LOCK, call, library="redis", by_result=True)
        expiry = call.keyword("ex")
        window = ttl(call, expiry) if expiry is not None else ttl(call, call.keyword("px"), 0.001)
        return make(
            Kind.RESERVE, call, subject="redis", key=made, by_result=True, window=window, library="redis"
        )
    if call.method in ("setnx", "hsetnx") or (
        call.method == "execute_command" and "NX" in ast.dump(call.node)
    ):
        return make(Kind.RESERVE, call, subject="redis", key=made, by_result=True, library="redis")
    if is_django or (call.receiver_name == "cache" and call.method == "add" and not call.has_project_owner):
        return _django_cache(call, made)
    if not is_store:
        return None
    if call.method in ("sadd", "incr", "zadd", "hincrby", "pfadd", "add", "getset"):
        member = call.argument(1) if call.method in ("sadd", "zadd") else key
        expires = call.keyword("expire", "time", "timeout") if call.method == "add" else None
        return make(Kind.RESERVE, call, subject="redis", key=key_expr(member, call), by_result=True, library="redis",
                    flags=frozenset({"or mark"}), window=ttl(call, expires))  # fmt: skip
    if call.method in ("get", "exists", "sismember", "hexists", "hget", "zscore"):
        member = call.argument(1) if call.method in ("sismember", "hexists", "zscore") else key
        return make(Kind.CHECK, call, subject="redis", key=key_expr(member, call), library="redis")
    if call.method in ("set", "setex", "hset", "psetex", "expire"):
        expiry = call.argument(1, "time") if call.method in ("setex", "expire") else call.keyword("ex")
        return make(Kind.MARK, call, subject="redis", key=made, window=ttl(call, expiry), library="redis")
    return make(Kind.LOCK, call, library="redis") if call.method == "lock" else None


def _django_cache(call: CallInfo, key: KeyExpr | None) -> CodeEvent | None:
    timeout = call.argument(2, "timeout", "ttl", "expire", "time")
    if call.method == "add":
        if is_lock_key(call.argument(0, "key"), call):
            return make(Kind.LOCK, call, library="cache", by_result=True)
        default = (
            "the key is forgotten after 5 minutes, the default"
            if timeout is None and call.package == "django"
            else ""
        )
        return make(Kind.RESERVE, call, subject="cache", key=key, by_result=True, library="cache",
                    window=default or (ttl(call, timeout) if timeout is not None else ""))  # fmt: skip
    if call.method in ("get", "has_key"):
        return make(Kind.CHECK, call, subject="cache", key=key, library="cache")
    if call.method in ("set", "touch"):
        default = "the key is forgotten after 5 minutes, the default" if timeout is None else ""
        return make(
            Kind.MARK, call, subject="cache", key=key, library="cache", window=default or ttl(call, timeout)
        )
    return None


def dynamo_event(call: CallInfo) -> CodeEvent | None:
    """A call to DynamoDB."""
    if call.method not in ("put_item", "update_item", "get_item", "transact_write_items", "delete_item"):
        return None
    condition = call.keyword("ConditionExpression", "condition_expression", "condition")
    item = call.keyword("Item", "Key", "item")
    keyed = item.values[0] if isinstance(item, ast.Dict) and item.values else None
    if isinstance(keyed, ast.Dict) and keyed.values:
        keyed = keyed.values[0]
    made, table = key_expr(keyed, call), call.literal(9, "TableName") or call.receiver_name
    if call.method == "transact_write_items":
        return make(
            Kind.RESERVE if "attribute_not_exists" in ast.dump(call.node) else Kind.WRITE,
            call,
            library="dynamodb",
        )
    if condition is not None and call.method != "get_item":
        return make(
            Kind.RESERVE, call, subject=table, key=made, library="dynamodb", window=_item_ttl(item, call)
        )
    if call.method == "get_item":
        return make(Kind.CHECK, call, subject=table, key=made, library="dynamodb")
    expression = call.literal(9, "UpdateExpression")
    relative = bool(re.search(r"\badd\b|(\S+)\s*=\s*\1\s*[-+]", expression, re.IGNORECASE))
    kind = Kind.MARK if holds_keys(table) and call.method == "put_item" else Kind.WRITE
    return make(kind, call, subject=table, key=made, library="dynamodb", is_relative=relative)


def _item_ttl(item: ast.expr | None, call: CallInfo) -> str:
    for name, value in zip(item.keys, item.values, strict=True) if isinstance(item, ast.Dict) else ():
        if isinstance(name, ast.Constant) and re.search(r"ttl|expir", str(name.value), re.IGNORECASE):
            for part in ast.walk(resolved(value, call)):
                if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Add):
                    return ttl(call, part.right)
    return ""


def mongo_event(call: CallInfo) -> CodeEvent | None:
    """A call to MongoDB."""
    first = call.node.args[0] if call.node.args else None
    keyed = first.values[0] if isinstance(first, ast.Dict) and first.values else None
    made, subject = key_expr(keyed, call), call.receiver_name
    if call.method == "insert_one":
        kind = Kind.RESERVE if holds_keys(subject) else Kind.WRITE
        return make(kind, call, subject=subject, key=made, library="mongo", flags=frozenset({"insert"}))
    if call.method in ("update_one", "find_one_and_update"):
        upsert = call.keyword("upsert") is not None or (
            first is not None and len(getattr(first, "keys", ())) > 1
        )
        relative = "$inc" in ast.dump(call.node)
        kind = (
            Kind.RESERVE
            if upsert and ("$setOnInsert" in ast.dump(call.node) or not relative)
            else Kind.WRITE
        )
        return make(
            kind, call, subject=subject, key=made, by_result=True, library="mongo", is_relative=relative
        )
    if call.method in ("find_one", "count_documents"):
        return make(Kind.CHECK, call, subject=subject, key=made, library="mongo")
    return None


_REMEMBERS: Final = re.compile(
    r"seen|process|dedup|handled|done|recent|known|already|consumed|deliver|sent|complet|ids?$"
    r"|keys?$|last|cache|history|visited|idempot|past",
    re.IGNORECASE,
)
FORGETTING: Final = frozenset({"TTLCache", "ExpiringDict", "TLRUCache"})
_MEMORY_MAKERS: Final = frozenset(
    {
        "set",
        "dict",
        "OrderedDict",
        "defaultdict",
        "TTLCache",
        "LRUCache",
        "ExpiringDict",
        "list",
        "deque",
        "WeakValueDictionary",
    }
)


def memory_of(node: ast.expr, call_scope: CallInfo) -> str:
    """The kind of collection that a shared name is: `set`, `TTLCache`; empty for anything else."""
    scope = call_scope.scope
    if (
        isinstance(node, ast.Name)
        and scope.is_local(node.id)
        and not (scope.function and scope.function.has_loop)
    ):
        return ""
    value = bound_value(node, scope)
    made = value[0] if value else None
    if isinstance(made, ast.Call) and last_name(made.func) in FORGETTING:
        return last_name(made.func)
    if not _REMEMBERS.search(last_name(node)):
        return ""
    if isinstance(made, ast.Call) and last_name(made.func) in _MEMORY_MAKERS:
        return last_name(made.func)
    return (
        {ast.Dict: "dict", ast.Set: "set", ast.List: "list"}.get(type(made), "") if made is not None else ""
    )


def memory_event(call: CallInfo) -> CodeEvent | None:
    """A call to a collection that the process shares."""
    if call.method not in ("add", "append", "get", "setdefault") or not isinstance(
        call.node.func, ast.Attribute
    ):
        return None
    made = memory_of(call.node.func.value, call)
    if not made:
        return None
    kind = Kind.CHECK if call.method == "get" else Kind.MARK
    window = "the collection forgets the key after a time" if made in FORGETTING else ""
    return make(
        kind,
        call,
        subject=call.receiver,
        key=key_expr(call.argument(0), call),
        in_memory=True,
        window=window,
    )
