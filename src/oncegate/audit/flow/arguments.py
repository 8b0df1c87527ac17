"""What a function's parameters stand for in one call of it, and its events as the caller sees them."""

from __future__ import annotations

import ast

from msgspec.structs import replace

from oncegate.audit.flow.events import CodeEvent, Keyed, KeyExpr, Kind, Path
from oncegate.audit.project.scope import Scope
from oncegate.audit.project.units import FunctionUnit


def arguments_of(unit: FunctionUnit, node: ast.Call, scope: Scope) -> dict[str, KeyExpr]:
    """What each parameter of a function stands for in one call of it."""
    names = unit.parameters
    if unit.owner is not None and names and names[0] in ("self", "cls"):
        names = names[1:]
    found = {
        name: KeyExpr(value, scope)
        for name, value in zip(names, node.args, strict=False)
        if not isinstance(value, ast.Starred)
    }
    found |= {one.arg: KeyExpr(one.value, scope) for one in node.keywords if one.arg}
    return found


def left(path: Path, unit: FunctionUnit, scope: Scope) -> CodeEvent:
    """The event that a function of the project returns."""
    return CodeEvent(Kind.LEFT, path.node or unit.node, scope.within(unit))


def passed(
    event: CodeEvent, unit: FunctionUnit, node: ast.Call, scope: Scope, arguments: dict[str, KeyExpr]
) -> CodeEvent:
    """An event of a called function as its caller sees it, with the caller's arguments in its key."""
    key = event.key.bound(unit, arguments) if event.key is not None else None
    if event.keyed is Keyed.YES and event.key is not None and _is_left_out(event.key, unit, arguments):
        event, key = replace(event, keyed=Keyed.NO), None
    of = passed(event.of, unit, node, scope, arguments) if event.of is not None else None
    return replace(event, key=key, via=((scope, node), *event.via), of=of)


def _is_left_out(key: KeyExpr, unit: FunctionUnit, arguments: dict[str, KeyExpr]) -> bool:
    """Whether the key is an optional parameter that this call does not give, or gives as None."""
    if not isinstance(key.node, ast.Name) or key.scope.function is not unit or key.arguments is not None:
        return False
    given = arguments.get(key.node.id)
    if given is not None:
        return isinstance(given.node, ast.Constant) and given.node.value is None
    return key.node.id in unit.optional
