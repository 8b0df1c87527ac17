"""Handlers that are loops: a consumer is polled, and the body of the loop handles what came."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from oncegate.audit.entries.values import Handler
from oncegate.audit.flow.calls import CallInfo
from oncegate.audit.project.scope import Scope, last_name, spelled
from oncegate.audit.project.units import ClassUnit, FunctionUnit, walk_scope

_RECEIVES: Final = {
    "receive_message": "SQS", "receive_messages": "SQS", "getone": "aiokafka", "getmany": "aiokafka", "xreadgroup": "Redis stream",
    "next_msg": "nats", "basic_get": "pika", "receive_messages_batch": "Service Bus",
}  # fmt: skip
_POLLED: Final = re.compile(r"(consumer|psub|sub|subscription|subscriber|c|pull_sub|kafka)$")
_ITERATED: Final = re.compile(
    r"(^|\.|_)(consumer|queue_iter|queue_iterator|subscription|kafka_consumer|messages_iter)$"
)
_BROKERS: Final = frozenset({"kafka", "aiokafka", "confluent_kafka", "aio_pika", "nats", "pika"})
_TYPES: Final = (("KafkaConsumer", "kafka"), ("aiokafka", "aiokafka"), ("confluent_kafka", "confluent-kafka"), ("aio_pika", "aio-pika"),
                 ("nats.", "nats"), ("kafka.", "kafka"))  # fmt: skip


_FETCHES: Final = re.compile(r"receive|poll|fetch|read|next|pull|messages?$|batch", re.IGNORECASE)
_LOOPS: Final = frozenset({ast.While, ast.For, ast.AsyncFor})
_RUNS: Final = re.compile(r"consum|run|work|listen|subscri|loop|poll|start|serve|process", re.IGNORECASE)


def received_by(node: ast.Call, scope: Scope, *, is_outer: bool = True) -> str:
    """The broker that a call takes messages from, or an empty text."""
    name = last_name(node.func)
    if name in _RECEIVES:
        return _RECEIVES[name]
    if not isinstance(node.func, ast.Attribute):
        return ""
    call = CallInfo(node, scope)
    if name == "poll" and (
        "afka" in call.full or (not call.package and re.search(r"(consumer|c|kafka)$", call.receiver_name))
    ):
        return "confluent-kafka" if "confluent" in call.full else "kafka"
    if name == "consume" and ("confluent" in call.full or call.keyword("num_messages") is not None):
        return "confluent-kafka"
    if name in ("fetch", "pull") and not call.has_project_owner:
        is_sub = call.package in ("nats", "google") or (
            not call.package and _POLLED.search(call.receiver_name)
        )
        return ("Pub/Sub" if name == "pull" else "nats") if is_sub else ""
    return _received_inside(node, scope) if is_outer and _FETCHES.search(name) else ""


def _received_inside(node: ast.Call, scope: Scope) -> str:
    """The broker that a method of the project takes messages from, where a loop calls it."""
    unit = scope.unit(node.func)
    if not isinstance(unit, FunctionUnit):
        return ""
    calls = [one for one in unit.nodes if isinstance(one, ast.Call)]
    return next(filter(None, (received_by(one, scope.within(unit), is_outer=False) for one in calls)), "")


def iterated(node: ast.For | ast.AsyncFor, scope: Scope) -> str:
    """The broker whose messages a loop goes over, or an empty text."""
    target = node.iter
    if (
        isinstance(target, ast.Call)
        and last_name(target.func) == "consume"
        and isinstance(target.func, ast.Attribute)
    ):
        if re.search(r"channel|ch$", spelled(target.func.value).lower()):
            return "pika"
    kind = (
        str(scope.type_of(target) or "")
        if _BROKERS & {name.split(".")[0] for name in scope.module.imports.values()}
        else ""
    )
    for part, name in _TYPES:
        if part in kind and (not isinstance(target, ast.Call) or "iterator" in kind or "consume" in kind):
            return name
    text = spelled(target)
    if isinstance(node, ast.AsyncFor) and re.search(r"\.messages$|(queue_iter|iterator)$", text):
        return "nats" if text.endswith("messages") else "aio-pika"
    return "kafka" if _ITERATED.search(text) else ""


def loop_handlers(unit: FunctionUnit, scope: Scope) -> Iterator[Handler]:
    """The consuming loops of a function; the outermost one that receives counts."""
    found = _loops(unit, scope)
    if found:
        unit.has_loop = True
        yield from found
        return
    for node in unit.nodes:
        if isinstance(node, ast.Call) and last_name(node.func) in (
            "receive_message",
            "receive_messages",
            "xreadgroup",
        ):
            yield Handler(unit, received_by(node, scope), "message")
            return


def _loops(unit: FunctionUnit, scope: Scope) -> list[Handler]:
    found: list[Handler] = []
    for node in unit.nodes:
        if type(node) not in _LOOPS or any(_is_inside(node, one) for one in found):
            continue
        broker = _broker_of(node, scope)
        if broker and isinstance(node, ast.While | ast.For | ast.AsyncFor):
            found.append(Handler(unit, broker, "message", body=node.body, node=node))
    return found


def _broker_of(node: ast.AST, scope: Scope) -> str:
    if isinstance(node, ast.While):
        calls = (one for one in walk_scope(node) if isinstance(one, ast.Call))
        return next(filter(None, (received_by(one, scope) for one in calls)), "")
    if not isinstance(node, ast.For | ast.AsyncFor):
        return ""
    broker = iterated(node, scope)
    inner = node.iter.value if isinstance(node.iter, ast.Await) else node.iter
    return broker or (received_by(inner, scope) if isinstance(inner, ast.Call) else "")


def _is_inside(node: ast.AST, handler: Handler) -> bool:
    outer = handler.node
    start, end = getattr(outer, "lineno", 0), getattr(outer, "end_lineno", 0) or 0
    return outer is not node and start <= getattr(node, "lineno", -1) <= end


def handed_over(calls: list[tuple[ast.Call, Scope]]) -> Iterator[Handler]:
    """Functions that are given to a consuming loop of the project: `Runner(topic, on_order)`, `consume(topic, handler=f)`."""
    for node, scope in calls:
        if not _RUNS.search(last_name(node.func)):
            continue
        given = [*node.args, *(one.value for one in node.keywords)]
        functions = [scope.unit(one) for one in given if isinstance(one, ast.Name | ast.Attribute)]
        found = [one for one in functions if isinstance(one, FunctionUnit)]
        target = scope.unit(node.func) if found else None
        units = list(target.methods.values()) if isinstance(target, ClassUnit) else [target]
        for unit in units:
            loop = next(iter(loop_handlers(unit, scope.within(unit))), None) if unit is not None else None
            if loop is not None:
                yield from (Handler(one, loop.framework, "message") for one in found)
                break
