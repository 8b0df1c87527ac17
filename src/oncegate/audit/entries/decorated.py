"""Handlers by decorator, by class and by signature."""

from __future__ import annotations

import ast
import re
from typing import Final

from oncegate.audit.entries.values import Handler
from oncegate.audit.flow.calls import CallInfo
from oncegate.audit.project.scope import Scope, last_name, spelled
from oncegate.audit.project.units import FunctionUnit

_WRITES: Final = frozenset({"post", "put", "patch", "delete"})
_WEB_OWNER: Final = re.compile(
    r"(^|_)(app|router|api|bp|blueprint|routes|web|server|application|views|route|webhooks?|service)$"
)
_TASK_OWNER: Final = re.compile(
    r"(app|celery|huey|broker|tasks?|queue|taskiq|worker|proj)\w*$", re.IGNORECASE
)
_WEB: Final = (
    "fastapi",
    "flask",
    "starlette",
    "aiohttp",
    "quart",
    "sanic",
    "litestar",
    "ninja",
    "django",
    "bottle",
    "blacksheep",
)


def decorated_handler(unit: FunctionUnit, scope: Scope) -> Handler | None:
    """The handler that a function's decorators make of it."""
    for node in unit.node.decorator_list:
        found = _by_decorator(unit, node, scope)
        if found is not None:
            return found
    return None


def _by_decorator(unit: FunctionUnit, node: ast.expr, scope: Scope) -> Handler | None:
    given = (
        node
        if isinstance(node, ast.Call)
        else ast.copy_location(ast.Call(func=node, args=[], keywords=[]), node)
    )
    call = CallInfo(given, scope)
    name, owner = call.method, call.receiver_name
    framework = call.package
    if (call.package == "oncegate" or owner == "gate" or owner.endswith("_gate")) and name in (
        "handler",
        "once",
        "step",
    ):
        key = call.keyword("key")
        return Handler(unit, "oncegate", "gate", is_gated=True, template=key) if name != "step" else None
    if name in _WRITES and owner and (framework in _WEB or (not framework and _WEB_OWNER.search(owner))):
        return Handler(unit, framework or "web", "http")
    if name in (
        "route",
        "api_route",
        "api_view",
        "require_http_methods",
        "action",
        "require_POST",
        "csrf_exempt",
    ):
        return _routed(unit, call, framework)
    return _task(unit, call) or _message(unit, call)


def _message(unit: FunctionUnit, call: CallInfo) -> Handler | None:
    name, owner, framework = call.method, call.receiver_name, call.package
    if name == "subscriber" and owner:
        return Handler(unit, "faststream", "message")
    if name in ("tool", "call_tool") and (
        framework in ("mcp", "fastmcp") or re.search(r"mcp|server", owner)
    ):
        return Handler(unit, "MCP", "tool")
    if (
        name in ("cloud_event", "on_message_published")
        or name.startswith(("on_sqs", "on_sns", "on_kinesis"))
        or name.endswith(("queue_trigger", "topic_trigger", "_message_trigger"))
    ):
        return Handler(unit, "function", "message")
    if name == "agent" and framework in ("faust", "") and owner in ("app", "application"):
        return Handler(unit, "faust", "message")
    return None


def _routed(unit: FunctionUnit, call: CallInfo, framework: str) -> Handler | None:
    if call.method == "require_POST" or (
        call.method == "csrf_exempt" and unit.parameters[:1] == ["request"]
    ):
        return Handler(unit, "django", "http")
    given = call.keyword("methods") or (
        call.node.args[0]
        if call.method in ("api_view", "require_http_methods") and call.node.args
        else None
    )
    text = ast.dump(given).upper() if given is not None else ""
    if any(f"'{verb.upper()}'" in text for verb in _WRITES):
        return Handler(unit, framework or ("django" if call.method != "route" else "flask"), "http")
    return None


def _task(unit: FunctionUnit, call: CallInfo) -> Handler | None:
    owner = call.receiver_name
    name = call.method if call.receiver else call.full.rsplit(".", 1)[-1] or call.method
    if call.full == "dramatiq.actor" or (name == "actor" and call.package in ("dramatiq", "")):
        return Handler(unit, "dramatiq", "task")
    if name == "shared_task":
        return Handler(unit, "celery", "task")
    if (
        name in ("task", "db_task")
        and owner
        and (call.package in ("celery", "huey", "taskiq") or _TASK_OWNER.search(owner))
    ):
        is_huey = call.package == "huey" or "huey" in owner
        return Handler(unit, "huey" if is_huey else call.package or "celery", "task")
    if name in ("task", "db_task") and call.package == "huey":
        return Handler(unit, "huey", "task")
    if name == "job" and call.package in ("rq", "django_rq"):
        return Handler(unit, "rq", "task")
    return None


_CLASS_METHODS: Final = frozenset({"post", "put", "patch", "create", "on_post"})
_VIEW_BASES: Final = re.compile(
    r"(View|ViewSet|APIView|HTTPEndpoint|MethodView|Resource|HTTPMethodView|RequestHandler|Controller)$"
)
_CONSUMER_BASES: Final = re.compile(
    r"(ConsumerMixin|Consumer|Worker|MessageHandler|ConsumerProducerMixin)$"
)
_TASK_BASES: Final = re.compile(r"(^|\.)(Task|MyTask|BaseTask|GenericActor)$")
PLAIN: Final = re.compile(
    r"^(handle|on|process|consume|receive|dispatch)_(event|message|msg|webhook|notification|delivery"
    r"|record|sqs_record|sqs_message|kafka_message"
    r"|callback|payment_event|order_event|incoming|queue_message|stream_record|envelope|order_created"
    r"|payment_received|order_placed)$"
    r"|^(lambda_handler|message_handler|event_handler|webhook_handler|handle_webhook_event|consume)$"
)
_LOOSE: Final = re.compile(
    r"^(handle|on|process|consume)_(?!click|key|mouse|close|resize|press|release|focus|draw|paint|enter|leave|motion|scroll)\w+$"
)
_MESSAGE_NAMES: Final = frozenset(
    {"msg", "message", "event", "delivery", "record", "envelope", "notification"}
)
_EVENT_NAMES: Final = frozenset(
    {
        "msg",
        "message",
        "event",
        "body",
        "record",
        "payload",
        "delivery",
        "notification",
        "data",
        "raw",
        "envelope",
        "incoming",
        "request",
    }
)


def method_handler(unit: FunctionUnit, scope: Scope) -> Handler | None:
    """Methods that a framework calls because of the class they are in."""
    if unit.owner is None:
        return None
    bases = [last_name(base) for base in unit.owner.node.bases]
    if unit.name in _CLASS_METHODS and any(_VIEW_BASES.search(base) for base in bases):
        return Handler(unit, "web", "http")
    if unit.name in ("on_message", "handle_message", "process_message") and any(
        _CONSUMER_BASES.search(base) for base in bases
    ):
        return Handler(unit, "kombu", "message")
    named = any(_TASK_BASES.search(spelled(base)) for base in unit.owner.node.bases)
    if unit.name in ("run", "perform") and named:
        return Handler(unit, "celery", "task")
    return None


def plain_handler(unit: FunctionUnit) -> Handler | None:
    """Functions that are handlers by their signature or by a name that only handlers have."""
    if (
        unit.owner is None
        and unit.parent is None
        and unit.parameters[:2] in (["event", "context"], ["event", "_context"], ["event", "ctx"])
    ):
        return Handler(unit, "lambda", "message")
    if unit.owner is None and unit.parent is None and unit.parameters == ["event", "_"]:
        return Handler(unit, "lambda", "message")
    if unit.parameters[:4] == ["ch", "method", "properties", "body"] or unit.parameters[:4] == [
        "channel",
        "method",
        "properties",
        "body",
    ]:
        return Handler(unit, "pika", "message")
    own = [name for name in unit.parameters if name not in ("self", "cls")]
    if _LOOSE.match(unit.name) and own and own[0] in _MESSAGE_NAMES:
        return Handler(unit, "by name", "message")
    if (
        PLAIN.match(unit.name)
        and own
        and (set(own) & _EVENT_NAMES or any(name.endswith(("_event", "_message", "_msg")) for name in own))
    ):
        return Handler(unit, "by name", "message")
    return None
