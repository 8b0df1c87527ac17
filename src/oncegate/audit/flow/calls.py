"""One call in the code, with everything the tables ask about it."""

from __future__ import annotations

import ast
from functools import cached_property
from typing import Final

from oncegate.audit.project.scope import Scope, last_name, spelled
from oncegate.audit.project.units import ClassUnit, walk_scope

TEXT_MAX: Final = 20_000


class CallInfo:
    """A call: its full name outside the project, its receiver, its arguments."""

    def __init__(self, node: ast.Call, scope: Scope) -> None:
        self.node, self.scope = node, scope
        self.method = last_name(node.func)

    @cached_property
    def owner_type(self) -> str:
        """The outside type of the receiver, or an empty text."""
        if not isinstance(self.node.func, ast.Attribute):
            return ""
        kind = self.scope.type_of(self.node.func.value)
        return kind if isinstance(kind, str) else ""

    @cached_property
    def has_project_owner(self) -> bool:
        """Whether the receiver is an object of a class of the project."""
        if not isinstance(self.node.func, ast.Attribute):
            return False
        return isinstance(self.scope.type_of(self.node.func.value), ClassUnit)

    @cached_property
    def full(self) -> str:
        """The dotted name outside the project: `requests.post`, `httpx.AsyncClient.post`; or empty."""
        dotted = self.scope.dotted(self.node.func)
        if dotted is not None and "." in dotted and not self.owner_type.startswith("boto3:"):
            return dotted
        if self.owner_type:
            return f"{self.owner_type}.{self.method}"
        return dotted or ""

    @cached_property
    def package(self) -> str:
        """The top package of the full name."""
        return self.full.split(".")[0].split(":")[0] if "." in self.full else ""

    @cached_property
    def receiver(self) -> str:
        """The receiver as it is written."""
        return spelled(self.node.func.value) if isinstance(self.node.func, ast.Attribute) else ""

    @cached_property
    def receiver_name(self) -> str:
        """The last name of the receiver, in lower case, without leading underscores."""
        base = self.node.func.value if isinstance(self.node.func, ast.Attribute) else None
        if isinstance(base, ast.Subscript):
            part = base.slice
            text = part.value if isinstance(part, ast.Constant) else getattr(part, "id", "")
            return text.lower().strip("_") if isinstance(text, str) else ""
        return self.receiver.rsplit(".", 1)[-1].lower().strip("_").removesuffix("()")

    @property
    def text(self) -> str:
        """The call as the report shows it."""
        return f"{spelled(self.node.func)}(...)"

    def keyword(self, *names: str) -> ast.expr | None:
        """The first keyword argument of one of these names."""
        return next((one.value for one in self.node.keywords if one.arg in names), None)

    @property
    def has_unpacking(self) -> bool:
        """Whether a mapping is unpacked into the arguments, so that not all names are known."""
        return any(one.arg is None for one in self.node.keywords)

    def argument(self, position: int, *names: str) -> ast.expr | None:
        """An argument by position or by name."""
        given = self.node.args
        if position < len(given) and not any(isinstance(one, ast.Starred) for one in given[: position + 1]):
            return given[position]
        return self.keyword(*names)

    def literal(self, position: int, *names: str) -> str:
        """The text of an argument, as far as the source shows it."""
        node = self.argument(position, *names)
        return text_of(node, self.scope) if node is not None else ""


def text_of(node: ast.expr, scope: Scope, depth: int = 0) -> str:
    """The literal text in an expression: constants, f-strings, sums, and names bound to them."""
    if depth > 5:
        return ""
    if isinstance(node, ast.Constant):
        return node.value[:TEXT_MAX] if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(
            text_of(part, scope, depth + 1) if isinstance(part, ast.Constant) else "{}"
            for part in node.values
        )
    if isinstance(node, ast.BinOp):
        return text_of(node.left, scope, depth + 1) + text_of(node.right, scope, depth + 1)
    if isinstance(node, ast.Call):
        if last_name(node.func) in ("text", "SQL", "dedent", "format", "strip", "sql"):
            inner = (
                node.args[0]
                if node.args
                else node.func.value
                if isinstance(node.func, ast.Attribute)
                else None
            )
            if isinstance(node.func, ast.Attribute) and last_name(node.func) in ("format", "strip"):
                inner = node.func.value
            return text_of(inner, scope, depth + 1) if inner is not None else ""
        return ""
    if isinstance(node, ast.Name | ast.Attribute):
        value = bound_value(node, scope)
        return text_of(value[0], value[1], depth + 1) if value else ""
    return ""


def bound_value(node: ast.expr, scope: Scope) -> tuple[ast.expr, Scope] | None:
    """The one expression that a name is bound to, in the function, the module or another module."""
    if isinstance(node, ast.Name):
        found = scope.bindings(node.id)
        if found is not None:
            values = [one for one in found if one.value is not None]
            if len(found) != 1 or not values or values[0].is_element or values[0].is_context:
                return None
            value = values[0].value
            where = scope if scope.is_local(node.id) else Scope(scope.index, scope.module, None)
            return (value, where) if value is not None else None
    if (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in ("self", "cls")
    ):
        owner = scope.function.enclosing_class if scope.function else None
        bindings = owner.attributes.get(node.attr) if owner else None
        if owner and bindings and bindings[-1].value is not None and not bindings[-1].is_element:
            return bindings[-1].value, Scope(scope.index, owner.module, owner.methods.get("__init__"))
        return None
    dotted = scope.dotted(node)
    target = scope.index.find(dotted, scope.module.path) if dotted else None
    if isinstance(target, tuple):
        module, name = target
        values = [one for one in module.bindings[name] if one.value is not None]
        if len(values) == 1 and values[0].value is not None:
            return values[0].value, Scope(scope.index, module, None)
    return None


def words_of(node: ast.AST) -> set[str]:
    """All attribute names, names and keyword names inside an expression."""
    found: set[str] = set()
    for one in walk_scope(node):
        if isinstance(one, ast.Attribute):
            found.add(one.attr)
        elif isinstance(one, ast.Name):
            found.add(one.id)
        elif isinstance(one, ast.keyword) and one.arg:
            found.add(one.arg)
    return found


def number_of(node: ast.expr | None, scope: Scope, depth: int = 0) -> float | None:
    """A number of seconds that an expression makes: constants, products, timedelta, named constants."""
    if node is None or depth > 6:
        return None
    if isinstance(node, ast.Constant):
        return (
            float(node.value)
            if isinstance(node.value, int | float) and not isinstance(node.value, bool)
            else None
        )
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Add):
        left, right = number_of(node.left, scope, depth + 1), number_of(node.right, scope, depth + 1)
        if left is None or right is None:
            return None
        return left * right if isinstance(node.op, ast.Mult) else left + right
    if isinstance(node, ast.Call):
        return _seconds(node, scope, depth)
    if isinstance(node, ast.Name | ast.Attribute):
        value = bound_value(node, scope)
        return number_of(value[0], value[1], depth + 1) if value else None
    return None


_UNITS: Final = {
    "seconds": 1.0,
    "minutes": 60.0,
    "hours": 3600.0,
    "days": 86400.0,
    "weeks": 604800.0,
    "milliseconds": 0.001,
}


def _seconds(node: ast.Call, scope: Scope, depth: int) -> float | None:
    name = last_name(node.func)
    if name == "timedelta":
        total = 0.0
        for word, value in [
            *zip(("days", "seconds"), node.args, strict=False),
            *((one.arg, one.value) for one in node.keywords),
        ]:
            number = number_of(value, scope, depth + 1)
            if number is None or word not in _UNITS:
                return None
            total += number * _UNITS[word]
        return total
    if name in ("int", "float", "round") and node.args:
        return number_of(node.args[0], scope, depth + 1)
    if name == "total_seconds" and isinstance(node.func, ast.Attribute):
        return number_of(node.func.value, scope, depth + 1)
    return None
