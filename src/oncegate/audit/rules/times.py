"""OG011: naive or local time in a function that a handler reaches."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from oncegate.audit.flow.calls import bound_value, text_of
from oncegate.audit.project.scope import Scope, last_name, spelled
from oncegate.audit.project.units import FunctionUnit
from oncegate.audit.rules.view import Draft, View
from oncegate.audit.values import SourcePlace, TextEdit

_AWARE = (
    "tzinfo",
    "utcoffset",
    "astimezone",
    "localize",
    "is_aware",
    "make_aware",
    "ensure_utc",
    "is_naive",
    "default_timezone",
    "fold",
)


def naive_times(view: View) -> Iterator[Draft]:
    """Times that mean another moment elsewhere."""
    units = view.reached
    inside = view.handler.body
    for unit in units:
        nodes = unit.nodes
        if unit is view.handler.unit and inside is not None:
            nodes = [node for statement in inside for node in ast.walk(statement)]
        yield from _in_function(unit, nodes, view)


def _in_function(unit: FunctionUnit, nodes: list[ast.AST], view: View) -> Iterator[Draft]:
    scope = Scope(view.index, unit.module, unit)
    used = _used_elsewhere(nodes)
    for node in nodes:
        if isinstance(node, ast.Call) and id(node) not in used:
            text, edit = _fault(node, scope, nodes, unit)
            if text:
                yield Draft("OG011", node, scope, text, spelled(node.func), edits=edit)


def _used_elsewhere(nodes: list[ast.AST]) -> set[int]:
    """Clock reads that other rules judge: in time windows and in keys."""
    found: set[int] = set()
    for node in nodes:
        is_window = (
            isinstance(node, ast.BinOp)
            and isinstance(node.op, ast.Sub | ast.Add)
            and "timedelta" in ast.dump(node)
        )
        if is_window or isinstance(node, ast.JoinedStr):
            found |= {id(one) for one in ast.walk(node)}
        if isinstance(node, ast.Call) and last_name(node.func) in (
            "info",
            "debug",
            "warning",
            "error",
            "exception",
            "print",
        ):
            found |= {id(one) for one in ast.walk(node) if one is not node}
        if isinstance(node, ast.keyword) and node.arg and "key" in node.arg:
            found |= {id(one) for one in ast.walk(node)}
    return found


def _fault(
    node: ast.Call, scope: Scope, nodes: list[ast.AST], unit: FunctionUnit
) -> tuple[str, list[TextEdit]]:
    name, dotted = last_name(node.func), scope.dotted(node.func) or ""
    is_datetime = "datetime" in dotted or dotted.startswith("dt.")
    if not is_datetime and name not in ("parse", "mktime", "isoparse", "parse_datetime"):
        return "", []
    if name in ("utcnow", "utcfromtimestamp"):
        return f"datetime.{name}() has no offset", _aware_edit(node, unit, name)
    if name == "today" and "datetime.datetime" in dotted:
        return "datetime.today() is local time without an offset", []
    if name == "now" and not node.args and not node.keywords and _is_mixed(node, nodes):
        return "datetime.now() is local time without an offset", []
    if (
        name == "fromtimestamp"
        and len(node.args) < 2
        and not node.keywords
        and "datetime.date." not in dotted
        and not _is_made_aware(node, nodes, scope)
    ):
        return "fromtimestamp() gives local time without an offset", _zone_edit(node, unit)
    if (
        name in ("fromisoformat", "strptime", "parse")
        and "datetime" in dotted + "datetime"
        and _is_ambiguous(node, nodes, scope)
    ):
        return "local wall time is given a zone, where an hour exists twice a year; nothing sets fold", []
    if name == "strptime" and "datetime.datetime" in dotted and not _is_made_aware(node, nodes, scope):
        pattern = text_of(node.args[1], scope) if len(node.args) > 1 else "%z"
        return (
            ("strptime() without %z gives a time without an offset", [])
            if "%z" not in pattern and pattern
            else ("", [])
        )
    if _reads_text(name, dotted) and not _is_made_aware(node, nodes, scope):
        return f"{name}() accepts a time without an offset, and nothing checks it", []
    if dotted == "time.mktime":
        return "mktime() reads local time, where an hour exists twice a year", []
    return "", []


def _reads_text(name: str, dotted: str) -> bool:
    """Whether a call reads a time from a text that may have no offset."""
    return (
        (name == "fromisoformat" and "datetime.datetime" in dotted)
        or (name == "parse_datetime" and "dateparse" in dotted)
        or (name in ("parse", "isoparse") and "dateutil" in dotted)
    )


def _is_made_aware(node: ast.Call, nodes: list[ast.AST], scope: Scope) -> bool:
    """Whether the function looks at the offset of what it read, or sets one."""
    names: set[str] = set()
    for one in nodes:
        if (
            isinstance(one, ast.Assign | ast.AnnAssign)
            and one.value is not None
            and any(part is node for part in ast.walk(one.value))
        ):
            targets = one.targets if isinstance(one, ast.Assign) else [one.target]
            names |= {spelled(target) for target in targets}
        if (
            isinstance(one, ast.Attribute)
            and one.attr in (*_AWARE, "replace")
            and any(part is node for part in ast.walk(one.value))
        ):
            if one.attr != "replace" or _sets_zone(one, nodes):
                return True
    for one in nodes:
        if isinstance(one, ast.Attribute) and one.attr in _AWARE and spelled(one.value) in names:
            return True
        if isinstance(one, ast.Call):
            takes = any(
                isinstance(part, ast.Name | ast.Attribute) and spelled(part) in names for part in one.args
            )
            direct = any(part is node for part in one.args)
            if (takes or direct) and any(
                word in last_name(one.func).lower()
                for word in ("aware", "naive", "utc", "offset", "zone", "tz")
            ):
                return True
            if (
                last_name(one.func) == "replace"
                and _names_zone(one)
                and spelled(one.func).rsplit(".", 1)[0] in names
            ):
                return True
            if last_name(one.func) in ("localize", "make_aware") and (takes or direct):
                return True
    return _argument_has_zone(node, scope)


def _is_ambiguous(node: ast.Call, nodes: list[ast.AST], scope: Scope) -> bool:
    """Whether a parsed wall time gets a zone with a changing offset, without a decision about the doubled hour."""
    if any(
        isinstance(one, ast.Attribute | ast.keyword)
        and getattr(one, "attr", getattr(one, "arg", "")) in ("fold", "is_dst")
        for one in nodes
    ):
        return False
    names = _held_by(node, nodes)
    for one in nodes:
        if not isinstance(one, ast.Call):
            continue
        zone = None
        if last_name(one.func) == "replace" and (
            any(part is node for part in ast.walk(one.func)) or spelled(one.func).rsplit(".", 1)[0] in names
        ):
            zone = next((key.value for key in one.keywords if key.arg == "tzinfo"), None)
        elif last_name(one.func) == "localize" and one.args and isinstance(one.func, ast.Attribute):
            if one.args[0] is node or spelled(one.args[0]) in names:
                zone = one.func.value
        if zone is not None and _changes(zone, scope):
            return True
    return False


def _held_by(node: ast.Call, nodes: list[ast.AST]) -> set[str]:
    """The names that hold what a call gives."""
    return {
        spelled(target)
        for one in nodes
        if isinstance(one, ast.Assign) and one.value is node
        for target in one.targets
    }


def _changes(zone: ast.expr, scope: Scope) -> bool:
    """Whether the offset of a zone changes in the course of a year."""
    value = bound_value(zone, scope) if isinstance(zone, ast.Name | ast.Attribute) else None
    made = value[0] if value else zone
    if not isinstance(made, ast.Call) or last_name(made.func) not in ("ZoneInfo", "gettz", "timezone"):
        return False
    text = text_of(made.args[0], scope) if made.args else ""
    return bool(text) and "UTC" not in text.upper() and text.upper() not in ("GMT", "ETC/GMT")


def _argument_has_zone(node: ast.Call, scope: Scope) -> bool:
    """`fromisoformat(text.replace("Z", "+00:00"))` says nothing about texts without Z; `text + "+00:00"` does."""
    first = node.args[0] if node.args else None
    if isinstance(first, ast.BinOp):
        return text_of(first.right, scope).startswith(("+", "Z"))
    return isinstance(first, ast.JoinedStr) and text_of(first, scope).endswith(("+00:00", "Z"))


def _sets_zone(attribute: ast.Attribute, nodes: list[ast.AST]) -> bool:
    return any(isinstance(one, ast.Call) and one.func is attribute and _names_zone(one) for one in nodes)


def _names_zone(node: ast.Call) -> bool:
    return any(one.arg == "tzinfo" for one in node.keywords)


def _is_mixed(node: ast.Call, nodes: list[ast.AST]) -> bool:
    """Whether the local time is compared with, or subtracted from, another time."""
    for one in nodes:
        parts = (
            [one.left, *one.comparators]
            if isinstance(one, ast.Compare)
            else [one.left, one.right]
            if isinstance(one, ast.BinOp)
            else []
        )
        if any(part is node for part in parts):
            return True
    return False


def _aware_edit(node: ast.Call, unit: FunctionUnit, name: str) -> list[TextEdit]:
    """`datetime.utcnow()` becomes `datetime.now(timezone.utc)`: the same moment, with its offset."""
    if name != "utcnow" or not isinstance(node.func, ast.Attribute):
        return []
    base = ast.unparse(node.func.value)
    zone = "datetime.timezone.utc" if base == "datetime.datetime" else "timezone.utc"
    line = (
        ""
        if zone.startswith("datetime.") or "timezone" in unit.module.imports
        else "from datetime import timezone"
    )
    return [TextEdit(place_of(node, unit), f"{base}.now({zone})", "give the time its offset", line)]


def _zone_edit(node: ast.Call, unit: FunctionUnit) -> list[TextEdit]:
    if not isinstance(node.func, ast.Attribute) or not node.args or "timezone" not in unit.module.imports:
        return []
    text = f"{ast.unparse(node.func)}({ast.unparse(node.args[0])}, timezone.utc)"
    return [TextEdit(place_of(node, unit), text, "give the time its offset")]


def place_of(node: ast.AST, unit: FunctionUnit) -> SourcePlace:
    """Where a node is, as the report counts."""
    return SourcePlace(
        unit.module.shown,
        getattr(node, "lineno", 1),
        getattr(node, "col_offset", 0) + 1,
        getattr(node, "end_lineno", 0) or 0,
        (getattr(node, "end_col_offset", 0) or 0) + 1,
    )
