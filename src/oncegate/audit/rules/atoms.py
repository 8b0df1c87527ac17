"""What a key is made of: the names and calls in its expression, through variables and parameters."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from enum import Enum
from typing import Final

from oncegate.audit.flow.arguments import arguments_of
from oncegate.audit.flow.events import KeyExpr
from oncegate.audit.project.scope import Scope, last_name, spelled
from oncegate.audit.project.units import Binding, FunctionUnit

DEPTH_MAX: Final = 12
_MESSAGE_ID: Final = re.compile(r"^(message_?id|messageid)$", re.IGNORECASE)
_TRANSPORT: Final = re.compile(
    r"^(receipt_?handle|delivery_?tag|redelivered|delivery_?count|delivery_?attempt"
    r"|approximate_?receive_?count|x-request-id"
    r"|x-amzn-requestid|x-amzn-trace-id|x-correlation-attempt|aws_request_id|num_delivered|publish_time"
    r"|sent_?timestamp|offset|ack_?id"
    r"|job_?try|x-retry-count|retry_?count|approximatefirstreceivetimestamp|x-delivery-count"
    r"|num_pending)$", re.IGNORECASE
)  # fmt: skip
_RETRIES: Final = re.compile(
    r"^(retries|attempts?|attempt_number|attempt_no|retry|try_number|retry_state|tries)$", re.IGNORECASE
)
_RECEIVED: Final = re.compile(
    r"^(received_at|received_time|receive_time|arrived_at|processed_at|ingested_at|fetched_at)$",
    re.IGNORECASE,
)
_FRESH: Final = frozenset({"uuid4", "uuid1", "uuid7", "token_hex", "token_urlsafe", "urandom", "getrandbits", "randint", "random", "ULID",
                           "token_bytes", "nanoid", "ksuid", "cuid", "randbytes", "choices"})  # fmt: skip
_PARSED: Final = frozenset({"loads", "json", "get_json", "model_validate", "model_validate_json", "parse_raw", "parse_obj", "decode",
                            "construct_event", "unmarshal", "deserialize", "load", "FromString", "from_json", "parse"})  # fmt: skip


class Part(Enum):
    """Why a part of a key is wrong."""

    TRANSPORT = "part of the transport"
    ATTEMPT = "number of the attempt"
    FRESH = "new each time"
    CLOCK = "time of receipt"


class Atom:
    """One wrong part of a key."""

    __slots__ = ("node", "part", "scope", "text")

    def __init__(self, part: Part, text: str, node: ast.AST, scope: Scope) -> None:
        self.part, self.text, self.node, self.scope = part, text, node, scope


def wrong_parts(key: KeyExpr, depth: int = 0) -> list[Atom]:
    """The parts of a key that another delivery of the same event does not share."""
    return list(_parts(key.node, key, depth)) if depth < DEPTH_MAX else []


def _parts(node: ast.expr, key: KeyExpr, depth: int) -> Iterator[Atom]:
    scope = key.scope
    if depth > DEPTH_MAX or isinstance(node, ast.Constant):
        return
    if isinstance(node, ast.Name):
        yield from _name(node, key, depth)
    elif isinstance(node, ast.Attribute):
        yield from _member(node, node.attr, node.value, key)
        if not _is_member(node.attr):
            yield from _of_attribute(node, key, depth)
    elif isinstance(node, ast.Subscript):
        name = node.slice.value if isinstance(node.slice, ast.Constant) else ""
        found = list(_member(node, str(name), node.value, key))
        yield from found
        if not found and not isinstance(node.slice, ast.Constant):
            yield from _parts(node.slice, key, depth + 1)
    elif isinstance(node, ast.Call):
        yield from _call(node, key, depth)
    else:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                yield from _parts(child, KeyExpr(child, scope, key.arguments), depth + 1)


def _is_member(name: str) -> bool:
    return bool(_MESSAGE_ID.match(name) or _TRANSPORT.match(name))


def _of_attribute(node: ast.Attribute, key: KeyExpr, depth: int) -> Iterator[Atom]:
    """`uuid4().hex` is as fresh as `uuid4()`."""
    if isinstance(node.value, ast.Call):
        yield from _parts(node.value, key, depth + 1)


def _name(node: ast.Name, key: KeyExpr, depth: int) -> Iterator[Atom]:
    scope = key.scope
    function = scope.function
    is_parameter = function is not None and node.id in function.parameters
    if is_parameter and key.arguments is not None:
        given = key.arguments.get(node.id)
        if given is not None:
            yield from wrong_parts(given, depth + 1)
        return
    found = scope.bindings(node.id) or []
    if any(_is_attempt(one) for one in found) and _RETRIES.match(node.id):
        yield Atom(Part.ATTEMPT, node.id, node, scope)
        return
    if is_parameter:
        return
    for binding in found[-1:]:
        if binding.value is not None and not binding.is_element and not binding.is_context:
            where = scope if scope.is_local(node.id) else Scope(scope.index, scope.module, None)
            if scope.is_local(node.id):
                yield from _parts(binding.value, KeyExpr(binding.value, where, key.arguments), depth + 1)


def _is_attempt(binding: Binding) -> bool:
    return (
        binding.is_element
        and isinstance(binding.value, ast.Call)
        and last_name(binding.value.func) in ("range", "count", "enumerate")
    )


def _member(node: ast.expr, name: str, base: ast.expr, key: KeyExpr) -> Iterator[Atom]:
    scope, text = key.scope, _origin(base, key.scope)
    if (_MESSAGE_ID.match(name) and not is_payload(base, key)) or (
        _TRANSPORT.match(name) and (name.lower() != "offset" or not is_payload(base, key))
    ):
        yield Atom(Part.TRANSPORT, name, node, scope)
    elif text.endswith("metadata.sequence") or (name in ("sequence", "seq") and text.endswith("metadata")):
        yield Atom(Part.TRANSPORT, f"sequence.{name}", node, scope)
    elif _RECEIVED.match(name) and not is_payload(base, key):
        yield Atom(Part.CLOCK, name, node, scope)
    elif _RETRIES.match(name) and re.search(r"request|state|retry|ctx|context|job|statistics", text):
        yield Atom(Part.ATTEMPT, name, node, scope)
    elif name in ("id", "task_id", "root_id") and re.search(
        r"(^|\.)(self|task|current_task)\.request$", text
    ):
        yield Atom(Part.TRANSPORT, f"{text}.{name}", node, scope)
    elif name == "id" and re.search(r"get_current_job\(\)$|(^|\.)job$", text):
        yield Atom(Part.TRANSPORT, f"{text}.id", node, scope)
    elif name in ("job_id", "request_id") and re.search(r"(^|\.)(ctx|context)$", text):
        yield Atom(Part.TRANSPORT, name, node, scope)


def _origin(base: ast.expr, scope: Scope) -> str:
    """How a base is written, or what made it where it is a name for a current job."""
    text = spelled(base)
    for binding in scope.bindings(base.id) or [] if isinstance(base, ast.Name) else []:
        if isinstance(binding.value, ast.Call) and last_name(binding.value.func).startswith("get_current"):
            return spelled(binding.value)
    return text


def _call(node: ast.Call, key: KeyExpr, depth: int) -> Iterator[Atom]:
    scope, name = key.scope, last_name(node.func)
    text = spelled(node.func)
    if name in _FRESH or text in (
        "ulid.new",
        "uuid.uuid4",
        "nanoid.generate",
        "generate_key",
        "random.random",
    ):
        yield Atom(Part.FRESH, f"{name}()", node, scope)
        return
    if text.endswith(("time.time", "time.time_ns", "time.monotonic")) or name in (
        "utcnow",
        "now",
        "today",
        "time_ns",
    ):
        yield Atom(Part.CLOCK, f"{text}()", node, scope)
        return
    if (
        name == "get"
        and node.args
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.func, ast.Attribute)
    ):
        yield from _member(node, str(node.args[0].value), node.func.value, key)
        return
    if name in ("offset", "delivery_count") and isinstance(node.func, ast.Attribute) and not node.args:
        yield Atom(Part.TRANSPORT, f"{name}()", node, scope)
        return
    unit = scope.unit(node.func)
    if isinstance(unit, FunctionUnit) and depth < 6:
        yield from _returned(unit, node, key, depth)
        return
    for one in _inner(node, name):
        yield from _parts(one, KeyExpr(one, scope, key.arguments), depth + 1)


def _inner(node: ast.Call, name: str) -> list[ast.expr]:
    """The parts of a call that its result is made of."""
    inner = [*node.args, *(one.value for one in node.keywords)]
    if isinstance(node.func, ast.Attribute):
        is_chain = isinstance(node.func.value, ast.Call | ast.JoinedStr)
        if is_chain or name in ("encode", "hexdigest", "strip", "lower", "join"):
            inner.append(node.func.value)
    return inner


def _returned(unit: FunctionUnit, node: ast.Call, key: KeyExpr, depth: int) -> Iterator[Atom]:
    arguments = {
        name: KeyExpr(one.node, one.scope, key.arguments)
        for name, one in arguments_of(unit, node, key.scope).items()
    }
    scope = key.scope.within(unit)
    if unit.node.args.vararg is not None:
        for rest in node.args[len(arguments) :]:
            yield from _parts(rest, KeyExpr(rest, key.scope, key.arguments), depth + 2)
    for one in unit.nodes:
        if isinstance(one, ast.Return) and one.value is not None:
            yield from _parts(one.value, KeyExpr(one.value, scope, arguments), depth + 2)


def is_payload(node: ast.expr, key: KeyExpr, depth: int = 0) -> bool:
    """Whether an object is the parsed content of an event, not its envelope."""
    if depth > 6:
        return False
    if isinstance(node, ast.Await):
        return is_payload(node.value, key, depth + 1)
    if isinstance(node, ast.Call):
        name = last_name(node.func)
        if name == "get" and isinstance(node.func, ast.Attribute):
            return is_payload(node.func.value, key, depth + 1)
        return name in _PARSED or isinstance(key.scope.unit(node.func), FunctionUnit)
    if isinstance(node, ast.Subscript | ast.Attribute):
        return is_payload(node.value, key, depth + 1)
    if isinstance(node, ast.Name):
        function = key.scope.function
        if function is not None and node.id in function.parameters:
            if key.arguments is not None and node.id in key.arguments:
                given = key.arguments[node.id]
                return is_payload(given.node, given, depth + 1)
            return _has_parsed_parameters(function)
        found = key.scope.bindings(node.id) or []
        return any(
            one.value is not None and (not one.is_element or isinstance(one.value, ast.Name | ast.Subscript | ast.Attribute))
            and is_payload(one.value, key, depth + 1)
            for one in found
        )  # fmt: skip
    return False


def _has_parsed_parameters(function: FunctionUnit) -> bool:
    """Whether a framework parses the content before it calls: tasks, routes, tools."""
    for node in function.node.decorator_list:
        name = last_name(node)
        if name in (
            "task",
            "shared_task",
            "actor",
            "job",
            "subscriber",
            "tool",
            "post",
            "put",
            "patch",
            "handler",
            "once",
            "db_task",
        ):
            return True
    names = function.parameters
    return bool(names) and names[0] == "ctx"


def describe(atoms: list[Atom]) -> str:
    """The wrong parts in words."""
    return ", ".join(dict.fromkeys(f"{atom.text} ({atom.part.value})" for atom in atoms))
