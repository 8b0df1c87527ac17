"""Idempotency keys on outgoing calls: which names carry one, and which APIs take one."""

from __future__ import annotations

import ast
import re
from typing import Final

from oncegate.audit.flow.calls import CallInfo, bound_value
from oncegate.audit.flow.events import Keyed
from oncegate.audit.project.scope import Scope, last_name

_KEY: Final = re.compile(
    r"idempoten|paypal.request.id|nats.msg.id|dedup|^client_?(request_?)?token$|^unique_request_id$"
    r"|^external_id$"
    r"|^client_reference|^x-once", re.IGNORECASE
)  # fmt: skip
_CARRIERS: Final = ("headers", "extra_headers", "options", "request_options", "opts", "json", "data", "params", "body",
                    "metadata", "request", "content", "extra_query")  # fmt: skip
# Part of a URL or of the full name of a function -> the API that takes a key.
KNOWN_APIS: Final = {
    "api.stripe.com": "Stripe", "connect.squareup.com": "Square", "api.paypal.com": "PayPal", "api-m.paypal.com": "PayPal",
    "api.mollie.com": "Mollie", "api.adyen.com": "Adyen", "checkout-test.adyen.com": "Adyen", "api.resend.com": "Resend",
    "api.lob.com": "Lob", "api.dwolla.com": "Dwolla", "api.gocardless.com": "GoCardless", "api.checkout.com": "Checkout.com",
    "api-m.sandbox.paypal.com": "PayPal", "api.sandbox.paypal.com": "PayPal", "api.plaid.com": "Plaid",
}  # fmt: skip


def key_of(call: CallInfo) -> tuple[Keyed, ast.expr | None]:
    """Whether a call passes a key on, and the expression that makes it."""
    for one in call.node.keywords:
        if one.arg and _KEY.search(one.arg):
            is_none = isinstance(one.value, ast.Constant) and one.value.value is None
            return (Keyed.NO, None) if is_none else (Keyed.YES, one.value)
    unknown = call.has_unpacking
    for carrier in [*(one.value for one in call.node.keywords if one.arg in _CARRIERS), *call.node.args]:
        found = _in_mapping(carrier, call.scope)
        if isinstance(found, ast.expr):
            return Keyed.YES, found
        unknown = unknown or (found is None and _is_header(call, carrier))
    if unknown and call.has_unpacking:
        found = _in_unpacked(call)
        if found is not None:
            return Keyed.YES, found
    return (Keyed.UNKNOWN if unknown else Keyed.NO), None


def _is_header(call: CallInfo, carrier: ast.expr) -> bool:
    return any(
        one.value is carrier
        for one in call.node.keywords
        if one.arg in ("headers", "extra_headers", "options", "request_options")
    )


def _in_unpacked(call: CallInfo) -> ast.expr | None:
    for one in call.node.keywords:
        found = _in_mapping(one.value, call.scope) if one.arg is None else None
        if isinstance(found, ast.expr):
            return found
    return None


def _in_mapping(node: ast.expr, scope: Scope, depth: int = 0) -> ast.expr | bool | None:
    """The value under a key's name in a mapping; False where there is none, None where it is unknown."""
    if depth > 4:
        return None
    if isinstance(node, ast.Dict):
        return _in_dict(node, scope, depth)
    if isinstance(node, ast.Call):
        found = next((one.value for one in node.keywords if one.arg and _KEY.search(one.arg)), None)
        if found is not None:
            return found
        for inner in node.args:
            below = _in_mapping(inner, scope, depth + 1)
            if isinstance(below, ast.expr):
                return below
        return None if last_name(node.func) not in ("dict", "dumps") else False
    if isinstance(node, ast.BinOp):
        sides = [_in_mapping(side, scope, depth + 1) for side in (node.left, node.right)]
        return next(
            (side for side in sides if isinstance(side, ast.expr)), None if None in sides else False
        )
    if isinstance(node, ast.IfExp):
        sides = [_in_mapping(side, scope, depth + 1) for side in (node.body, node.orelse)]
        return next(
            (side for side in sides if isinstance(side, ast.expr)), None if None in sides else False
        )
    if isinstance(node, ast.Name):
        stored = _stored(node.id, scope)
        if stored is not None:
            return stored
    if isinstance(node, ast.Name | ast.Attribute):
        value = bound_value(node, scope)
        return _in_mapping(value[0], value[1], depth + 1) if value else None
    return False if isinstance(node, ast.Constant | ast.JoinedStr) else None


def _in_dict(node: ast.Dict, scope: Scope, depth: int) -> ast.expr | bool | None:
    unknown = False
    for name, value in zip(node.keys, node.values, strict=True):
        if name is None:
            below = _in_mapping(value, scope, depth + 1)
            if isinstance(below, ast.expr):
                return below
            unknown = unknown or below is None
        elif (
            isinstance(name, ast.Constant) and isinstance(name.value, str) and _KEY.search(name.value)
        ) or (
            isinstance(name, ast.Name | ast.Attribute)
            and re.search("idempoten", last_name(name), re.IGNORECASE)
        ):
            return value
    return None if unknown else False


def _stored(name: str, scope: Scope) -> ast.expr | None:
    """What the function stores under a key's name in a mapping: `headers["Idempotency-Key"] = key`."""
    for node in scope.function.nodes if scope.function else ():
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            target = node.targets[0]
            text = target.slice.value if isinstance(target.slice, ast.Constant) else ""
            if (
                isinstance(target.value, ast.Name)
                and target.value.id == name
                and isinstance(text, str)
                and _KEY.search(text)
            ):
                return node.value
    return None


def api_by_url(url: str) -> str:
    """The API behind a URL, if it is known to take a key."""
    return next((name for host, name in KNOWN_APIS.items() if host in url), "")
