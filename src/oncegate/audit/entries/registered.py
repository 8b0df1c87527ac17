"""Handlers that are handed over in a call: callbacks, routes, worker settings; and early acknowledgement."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from oncegate.audit.entries.values import Handler, Setting
from oncegate.audit.flow.calls import CallInfo, bound_value
from oncegate.audit.project.scope import Scope, last_name
from oncegate.audit.project.units import ClassUnit, FunctionUnit, ModuleUnit

# Calls with other names register nothing and set nothing: they are not looked at closely.
REGISTERING: Final = frozenset(
    {
        "basic_consume", "consume", "subscribe", "queue_subscribe", "Consumer", "register_callback", "add_handler", "register_handler",
        "add_subscriber", "add_api_route", "add_route", "Route", "add_url_rule", "path", "re_path", "add_post", "add_put", "add_patch",
        "post", "put", "patch", "enqueue", "enqueue_call", "enqueue_in", "enqueue_at",
    }
)  # fmt: skip
CONSUMERS: Final = frozenset(
    {"AIOKafkaConsumer", "KafkaConsumer", "Consumer", "DeserializingConsumer", "AvroConsumer"}
)
EARLY: Final = frozenset(
    {"acks_late", "task_acks_late", "auto_ack", "no_ack", "noack", "ack_policy", "auto_commit"}
)
_ROUTES: Final = frozenset({"add_post", "add_put", "add_patch", "post", "put", "patch"})


def registered(module: ModuleUnit, scope: Scope, calls: list[tuple[ast.Call, Scope]]) -> Iterator[Handler]:
    """Handlers that a module registers by calling something with them."""
    for node, where in calls:
        call = CallInfo(node, where)
        yield from _callback(call)
        yield from _route(call)
        yield from _enqueued(call)
    for owner in module.classes.values():
        if "functions" in owner.attributes and owner.name.endswith("Settings"):
            yield from _arq(owner, scope)


def _unit(node: ast.expr | None, call: CallInfo) -> FunctionUnit | None:
    found = call.scope.unit(node) if node is not None else None
    if isinstance(found, ClassUnit):
        found = found.methods.get("__call__")
    return found if isinstance(found, FunctionUnit) else None


def _listed(node: ast.expr | None, call: CallInfo) -> Iterator[FunctionUnit]:
    """Functions in a literal list that a loop registers one by one."""
    if isinstance(node, ast.Call) and last_name(node.func) == "partial" and node.args:
        node = node.args[0]
    for binding in call.scope.bindings(node.id) or [] if isinstance(node, ast.Name) else []:
        for item in _elements(binding.value, call) if binding.is_element and binding.value else []:
            for part in item.elts if isinstance(item, ast.Tuple) else [item]:
                unit = _unit(part, call) if isinstance(part, ast.Name | ast.Attribute) else None
                if unit is not None:
                    yield unit


def _elements(node: ast.expr, call: CallInfo) -> list[ast.expr]:
    """The elements of a literal list or mapping, also by its name."""
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("items", "values")
    ):
        node = node.func.value
    if isinstance(node, ast.Name):
        value = bound_value(node, call.scope)
        node = value[0] if value else node
    return (
        node.values
        if isinstance(node, ast.Dict)
        else node.elts
        if isinstance(node, ast.Tuple | ast.List)
        else []
    )


def _made(
    unit: FunctionUnit | None, framework: str, kind: str, settings: list[Setting] | None = None
) -> Iterator[Handler]:
    if unit is not None:
        yield Handler(unit, framework, kind, settings=settings or [])


def is_true(node: ast.expr | None) -> bool:
    """Whether an argument is the constant True."""
    return isinstance(node, ast.Constant) and node.value is True


def _callback(call: CallInfo) -> Iterator[Handler]:
    name = call.method
    if name == "basic_consume":
        early = (
            [Setting(call.node, call.scope, "auto_ack=True acknowledges on delivery")]
            if is_true(call.keyword("auto_ack", "no_ack"))
            else []
        )
        unit = _unit(call.keyword("on_message_callback", "consumer_callback", "callback"), call)
        for node in call.node.args:
            unit = unit or _unit(node, call)
        yield from _made(unit, "pika", "message", early)
    elif name == "consume" and call.node.args:
        early = (
            [Setting(call.node, call.scope, "no_ack=True acknowledges on delivery")]
            if is_true(call.keyword("no_ack"))
            else []
        )
        given = call.argument(0, "callback")
        yield from _made(_unit(given, call), "aio-pika", "message", early)
        for unit in _listed(given, call):
            yield from _made(unit, "aio-pika", "message", early)
    elif name in ("subscribe", "queue_subscribe"):
        given = call.keyword("cb", "callback", "on_message", "handler")
        unit = _unit(given, call)
        for node in call.node.args[1:]:
            unit = unit or _unit(node, call)
        kind = "Pub/Sub" if call.keyword("callback") is not None else "nats"
        yield from _made(unit, kind, "message")
        for one in _listed(given, call):
            yield from _made(one, kind, "message")
    elif name == "Consumer" and call.keyword("callbacks") is not None:
        given = call.keyword("callbacks")
        for node in given.elts if isinstance(given, ast.List | ast.Tuple) else []:
            yield from _made(_unit(node, call), "kombu", "message")
    elif name in ("register_callback", "add_handler", "register_handler", "add_subscriber"):
        for node in call.node.args:
            yield from _made(_unit(node, call), "by registration", "message")


def _route(call: CallInfo) -> Iterator[Handler]:
    name = call.method
    if name in ("add_api_route", "add_route", "Route", "add_url_rule"):
        verbs = ast.dump(call.node).upper()
        if "'POST'" in verbs or "'PUT'" in verbs or "'PATCH'" in verbs:
            for node in [
                *call.node.args[1:],
                *(
                    one.value
                    for one in call.node.keywords
                    if one.arg in ("endpoint", "view_func", "handler")
                ),
            ]:
                yield from _made(_unit(node, call), "web", "http")
    elif name in ("path", "re_path") and len(call.node.args) > 1:
        unit = _unit(call.node.args[1], call)
        is_write = unit is not None and any(
            isinstance(one, ast.Constant) and one.value == "POST" for one in unit.nodes
        )
        if unit is not None and is_write and unit.owner is None:
            yield Handler(unit, "django", "http")
    elif name in _ROUTES and len(call.node.args) > 1 and call.literal(0).startswith("/"):
        if name.startswith("add_") or call.package == "aiohttp" or call.receiver_name == "web":
            yield from _made(_unit(call.node.args[1], call), "aiohttp", "http")


def _enqueued(call: CallInfo) -> Iterator[Handler]:
    is_queue = (
        call.package == "rq"
        or call.receiver_name in ("q", "queue")
        or call.receiver_name.endswith("_queue")
    )
    if (
        call.method in ("enqueue", "enqueue_call", "enqueue_in", "enqueue_at")
        and call.node.args
        and is_queue
    ):
        for node in call.node.args[:2]:  # enqueue_in and enqueue_at name the time first
            yield from _made(_unit(node, call), "rq", "task")


def _arq(owner: ClassUnit, scope: Scope) -> Iterator[Handler]:
    for binding in owner.attributes["functions"]:
        for node in binding.value.elts if isinstance(binding.value, ast.List | ast.Tuple) else []:
            inner = (
                node.args[0]
                if isinstance(node, ast.Call) and node.args and last_name(node.func) == "func"
                else node
            )
            unit = Scope(scope.index, owner.module, None).unit(inner)
            if isinstance(unit, FunctionUnit):
                yield Handler(unit, "arq", "task")


def early_settings(calls: list[tuple[ast.Call, Scope]]) -> Iterator[Setting]:
    """Settings that acknowledge before the work is done, wherever a module makes a consumer."""
    for node, scope in calls:
        call = CallInfo(node, scope)
        text = _kafka(call) or _celery(call) or _other(call)
        if text:
            yield Setting(node, scope, text)


def _kafka(call: CallInfo) -> str:
    name = call.method
    if name in ("AIOKafkaConsumer", "KafkaConsumer") and call.package in ("aiokafka", "kafka", ""):
        given = call.keyword("enable_auto_commit")
        if is_true(given):
            return "enable_auto_commit=True commits offsets by a timer"
        is_group = call.keyword("group_id") is not None
        if given is None and is_group and not call.has_unpacking:
            return "enable_auto_commit is on by default and commits offsets by a timer"
        return ""
    if name in ("Consumer", "DeserializingConsumer", "AvroConsumer") and call.package == "confluent_kafka":
        return _confluent(call)
    return ""


def _confluent(call: CallInfo) -> str:
    node = call.argument(0, "config")
    if isinstance(node, ast.Name | ast.Attribute):
        found = bound_value(node, call.scope)
        node = found[0] if found else None
    if not isinstance(node, ast.Dict) or None in node.keys:
        return ""
    for name, value in zip(node.keys, node.values, strict=True):
        if isinstance(name, ast.Constant) and name.value in (
            "enable.auto.commit",
            "enable.auto.offset.store",
        ):
            text = str(value.value).lower() if isinstance(value, ast.Constant) else "false"
            return "enable.auto.commit commits offsets by a timer" if text == "true" else ""
    return "enable.auto.commit is on by default and commits offsets by a timer"


def _celery(call: CallInfo) -> str:
    given = call.keyword("acks_late", "task_acks_late")
    if isinstance(given, ast.Constant) and given.value is False:
        return "acks_late=False acknowledges before the task runs"
    return ""


_REPLIES: Final = re.compile(r"reply|callback_queue|\brpc", re.IGNORECASE)


def _other(call: CallInfo) -> str:
    if any(one.arg in ("no_ack", "auto_ack") for one in call.node.keywords) and _REPLIES.search(
        ast.unparse(call.node)
    ):
        return ""  # the answers of a remote call belong to the caller that waits for them
    if is_true(call.keyword("auto_ack")) and call.method in ("basic_consume", "consume", "basic_get"):
        return "auto_ack=True acknowledges on delivery"
    if is_true(call.keyword("no_ack")) and call.method in (
        "consume",
        "iterator",
        "get",
        "subscriber",
        "RabbitQueue",
        "Consumer",
        "basic_consume",
    ):
        return "no_ack=True acknowledges on delivery"
    if is_true(call.keyword("noack")) and call.method == "xreadgroup":
        return "noack=True acknowledges on delivery"
    policy = call.keyword("ack_policy")
    if policy is not None and last_name(policy) == "ACK_FIRST":
        return "AckPolicy.ACK_FIRST acknowledges before the handler runs"
    if call.method == "subscriber" and is_true(call.keyword("auto_commit")):
        return "auto_commit=True commits before the work is durable"
    return ""
