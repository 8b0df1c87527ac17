"""All handlers of a module, each once, and the settings that acknowledge early."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from fnmatch import fnmatch

from oncegate.audit.entries.decorated import decorated_handler, method_handler, plain_handler
from oncegate.audit.entries.loops import handed_over, loop_handlers
from oncegate.audit.entries.registered import CONSUMERS, EARLY, REGISTERING, early_settings, registered
from oncegate.audit.entries.values import Handler, Setting
from oncegate.audit.project.index import ProjectIndex
from oncegate.audit.project.scope import Scope, last_name
from oncegate.audit.project.units import FunctionUnit, ModuleUnit, walk_scope


class ModuleEntries:
    """What a module offers to frameworks."""

    def __init__(self, index: ProjectIndex, module: ModuleUnit, named: Sequence[str]) -> None:
        self.index, self.module = index, module
        self.top = top_level(module)
        self.calls = self._calls()
        self.handlers = self._find(named)
        self.settings: list[Setting] = list(
            early_settings([one for one in self.calls if _may_acknowledge(one[0])])
        )

    def _units(self) -> list[FunctionUnit]:
        return [self.top, *self.module.functions.values()]

    def _calls(self) -> list[tuple[ast.Call, Scope]]:
        found = []
        for unit in self._units():
            scope = Scope(self.index, self.module, unit if unit is not self.top else None)
            found += [(node, scope) for node in unit.nodes if isinstance(node, ast.Call)]
        for unit in self.module.functions.values():
            scope = Scope(self.index, self.module, unit.parent)
            found += [
                (node, scope)
                for one in unit.node.decorator_list
                for node in ast.walk(one)
                if isinstance(node, ast.Call)
            ]
        for owner in self.module.classes.values():
            scope = Scope(self.index, self.module, None)
            for statement in owner.node.body:
                if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    found += [(node, scope) for node in walk_scope(statement) if isinstance(node, ast.Call)]
        return found

    def _find(self, named: Sequence[str]) -> list[Handler]:
        found: dict[tuple[int, int], Handler] = {}
        for handler in self._all(named):
            key = (id(handler.unit), id(handler.node))
            known = found.get(key)
            if known is None:
                found[key] = handler
            else:
                known.settings += handler.settings
        return list(found.values())

    def _all(self, named: Sequence[str]) -> Iterable[Handler]:
        scope = Scope(self.index, self.module, None)
        firm: set[int] = set()
        plain: list[Handler] = []
        for unit in self.module.functions.values():
            outer = Scope(self.index, self.module, unit.parent)
            made = decorated_handler(unit, outer) or method_handler(unit, outer) or _by_setting(unit, named)
            if made is not None:
                firm.add(id(unit))
                yield made
        given = [one for one in self.calls if last_name(one[0].func) in REGISTERING]
        for made in (*registered(self.module, scope, given), *handed_over(self.calls)):
            if id(made.unit) not in firm:
                yield made
        for unit in self._units():
            if id(unit) in firm:
                continue
            inner = Scope(self.index, self.module, unit)
            loops = list(loop_handlers(unit, inner))
            yield from loops
            if not loops:
                by_shape = plain_handler(unit)
                plain += [by_shape] if by_shape is not None else []
        called = {last_name(node.func) for node, _ in self.calls} | self.index.called
        yield from (one for one in plain if one.framework != "by name" or one.unit.name not in called)


def _may_acknowledge(node: ast.Call) -> bool:
    return last_name(node.func) in CONSUMERS or any(one.arg in EARLY for one in node.keywords)


def _by_setting(unit: FunctionUnit, named: Sequence[str]) -> Handler | None:
    full = f"{unit.module.name}:{unit.qualname}"
    dotted = full.replace(":", ".")
    if any(
        fnmatch(full, pattern) or fnmatch(dotted, pattern) or fnmatch(unit.qualname, pattern)
        for pattern in named
    ):
        return Handler(unit, "settings", "message")
    return None


def top_level(module: ModuleUnit) -> FunctionUnit:
    """The module's own statements, as if they were a function."""
    node = ast.FunctionDef(
        name="<module>",
        args=ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[]),
        body=[
            one
            for one in module.tree.body
            if not isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        ],
        decorator_list=[],
        lineno=1,
        col_offset=0,
        end_lineno=1,
        end_col_offset=0,
    )
    return FunctionUnit(module, node, None, None)
