"""Calls that run other functions: in a thread, later, after the commit, inside the gate."""

from __future__ import annotations

import ast
from typing import Final

from oncegate.audit.project.scope import Scope, last_name, spelled

RUNNERS: Final = frozenset({"to_thread", "run_in_executor", "run_sync", "run_in_threadpool", "retry_call", "wait_for", "run_until_complete",
                            "call_soon", "sync_to_async", "async_to_sync", "run_with_retry", "with_retry", "call_with_retry", "map"})  # fmt: skip
SPAWNERS: Final = frozenset({"create_task", "ensure_future", "add_task", "Thread", "submit", "run_coroutine_threadsafe", "spawn",
                             "apply_async", "Timer", "start_soon"})  # fmt: skip
RETRIES: Final = frozenset({"retry", "on_exception", "on_predicate", "retrying", "stamina", "retry_with_backoff", "with_retries", "retries",
                            "Retrying", "AsyncRetrying"})  # fmt: skip
SAFE_ERRORS: Final = frozenset({"ConnectError", "ConnectTimeout", "ConnectionRefusedError", "NewConnectionError", "PoolTimeout", "gaierror",
                                "ConnectionError", "ConnectTimeoutError", "ClientConnectorError", "NotApplied"})  # fmt: skip


def is_once(node: ast.Call, scope: Scope) -> bool:
    """Whether a call is `once.effect(...)` or `once.step(...)` of oncegate."""
    if not isinstance(node.func, ast.Attribute) or node.func.attr not in ("effect", "step"):
        return False
    return last_name(node.func.value) == "once" or str(scope.type_of(node.func.value)).startswith(
        "oncegate"
    )


def is_spawn(node: ast.Call, is_discarded: bool) -> bool:
    """Whether a call leaves work to run later, without anything that waits for it."""
    name = last_name(node.func)
    if name not in SPAWNERS:
        return False
    owner = (
        spelled(node.func.value).rsplit(".", 1)[-1].lower() if isinstance(node.func, ast.Attribute) else ""
    )
    if name == "add_task":
        return "background" in owner or owner in ("tasks", "bg", "bg_tasks")
    if name in ("create_task", "start_soon"):
        return is_discarded and owner not in ("tg", "group", "task_group", "taskgroup", "nursery", "scope")
    if name == "submit":
        return is_discarded and bool(
            {"executor", "pool", "threadpool"} & set(owner.replace("_", " ").split())
        )
    if name in ("apply_async", "spawn"):
        return False
    return name == "Thread" or is_discarded


def referenced(node: ast.Call) -> list[ast.expr]:
    """The arguments of a call that may be functions it runs."""
    found: list[ast.expr] = [one for one in node.args if not isinstance(one, ast.Constant)]
    found += [
        one.value for one in node.keywords if one.arg in ("target", "func", "fn", "function", "callback")
    ]
    return found


def retry_decorator(node: ast.expr) -> str:
    """Whether a decorator retries: `any`, `safe` (errors before sending only), or empty."""
    base = node.func if isinstance(node, ast.Call) else node
    text = spelled(base)
    is_retry = last_name(base) in RETRIES or text.split(".")[0] in (
        "tenacity",
        "backoff",
        "stamina",
        "retrying",
    )
    if not is_retry:
        return ""
    return "safe" if isinstance(node, ast.Call) and _has_only_safe_errors(node) else "any"


def _has_only_safe_errors(node: ast.Call) -> bool:
    names: set[str] = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Call) and last_name(part.func) == "retry_if_exception_type":
            names |= {last for one in part.args for last in error_names(one)}
        if isinstance(part, ast.keyword) and part.arg in ("on", "exceptions", "exception"):
            names |= set(error_names(part.value))
    if last_name(node.func) == "on_exception" and len(node.args) > 1:
        names |= set(error_names(node.args[1]))
    return bool(names) and names <= SAFE_ERRORS


def error_names(node: ast.expr | None) -> list[str]:
    """The last names of the exceptions in an `except` clause or a tuple of classes."""
    if node is None:
        return ["BaseException"]
    parts = node.elts if isinstance(node, ast.Tuple | ast.List) else [node]
    return [last_name(part) for part in parts]


def is_broad(node: ast.expr | None) -> bool:
    """Whether an `except` clause catches everything."""
    return bool({"Exception", "BaseException"} & set(error_names(node)))


def retry_loop(node: ast.stmt) -> str:
    """Whether a loop repeats the same work after an error: `any`, `safe`, or empty."""
    if isinstance(node, ast.For):
        made = last_name(node.iter.func) if isinstance(node.iter, ast.Call) else ""
        if made in ("Retrying", "AsyncRetrying", "stamina", "retry_context", "AttemptGenerator"):
            return "any"
        if made not in ("range", "count"):
            return ""
    elif isinstance(node, ast.AsyncFor):
        return (
            "any"
            if isinstance(node.iter, ast.Call)
            and last_name(node.iter.func) in ("AsyncRetrying", "retry_context")
            else ""
        )
    elif not isinstance(node, ast.While):
        return ""
    for inner in node.body:
        if isinstance(inner, ast.Try):
            caught = [one for one in inner.handlers if _goes_round(one)]
            if caught and (_leaves(node.body) or _is_flagged(node)):
                names = {name for one in caught for name in error_names(one.type)}
                return "safe" if names <= SAFE_ERRORS else "any"
    return "any" if isinstance(node, ast.For) and _asks_status(node.body) else ""


def _is_flagged(node: ast.stmt) -> bool:
    """Whether a loop ends by a variable that its body sets: `while not done`, `while tries < 3`."""
    if not isinstance(node, ast.While):
        return False
    names = {one.id for one in ast.walk(node.test) if isinstance(one, ast.Name)}
    stored = (
        one
        for part in node.body
        for one in ast.walk(part)
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
    )
    return any(one.id in names for one in stored)


def _asks_status(body: list[ast.stmt]) -> bool:
    """Whether a loop over attempts ends when an answer is good."""
    for inner in body:
        if isinstance(inner, ast.With | ast.AsyncWith) and _asks_status(inner.body):
            return True
        if isinstance(inner, ast.If) and _leaves(inner.body):
            words = {one.attr for one in ast.walk(inner.test) if isinstance(one, ast.Attribute)}
            if words & {"ok", "status_code", "status", "is_success", "is_error"}:
                return True
    return False


def _goes_round(handler: ast.ExceptHandler) -> bool:
    last = handler.body[-1]
    return not isinstance(last, ast.Raise | ast.Return | ast.Break)


def _leaves(body: list[ast.stmt]) -> bool:
    return any(isinstance(node, ast.Return | ast.Break) for one in body for node in ast.walk(one))


def is_dynamic(node: ast.Call, scope: Scope) -> bool:
    """Whether the target of a call is only known when it runs."""
    function = node.func
    if isinstance(function, ast.Subscript):
        return True
    if isinstance(function, ast.Call):
        return last_name(function.func) in ("getattr", "get", "import_string", "import_module", "resolve")
    if isinstance(function, ast.Name) and scope.is_local(function.id):
        found = scope.bindings(function.id) or []
        return all(not isinstance(one.value, ast.Lambda) for one in found)
    return False
