"""Modules, classes and functions of the audited project, each with what its own source binds."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import Final

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
_SCOPES: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


class Binding:
    """How a name gets its value: an expression, an annotation, or an element of an expression."""

    __slots__ = ("annotation", "is_context", "is_element", "value")

    def __init__(
        self,
        value: ast.expr | None,
        annotation: ast.expr | None = None,
        *,
        is_element: bool = False,
        is_context: bool = False,
    ) -> None:
        self.value, self.annotation = value, annotation
        self.is_element, self.is_context = is_element, is_context


class ModuleUnit:
    """One parsed file."""

    def __init__(self, name: str, path: str, shown: str, text: str, tree: ast.Module) -> None:
        self.name, self.path, self.shown, self.text, self.tree = name, path, shown, text, tree
        self.functions: dict[str, FunctionUnit] = {}
        self.classes: dict[str, ClassUnit] = {}
        self.imports: dict[str, str] = {}
        self._collect(tree.body, None, None)

    @cached_property
    def lines(self) -> list[str]:
        """The source by line."""
        return self.text.split("\n")

    @cached_property
    def bindings(self) -> dict[str, list[Binding]]:
        """Names that the module binds at its top level."""
        return bindings_of(self.tree.body)

    @cached_property
    def kept(self) -> dict[str, tuple[ast.expr, FunctionUnit]]:
        """What functions store for others: `app["http"] = ...`, `app.state.http = ...`, by the last name."""
        found: dict[str, tuple[ast.expr, FunctionUnit]] = {}
        for unit in self.functions.values():
            for node in unit.nodes:
                for target in node.targets if isinstance(node, ast.Assign) else ():
                    name = kept_name(target)
                    if name and isinstance(node, ast.Assign):
                        found.setdefault(name, (node.value, unit))
        return found

    def _collect(self, body: list[ast.stmt], owner: ClassUnit | None, parent: FunctionUnit | None) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                unit = FunctionUnit(self, node, owner, parent)
                self.functions.setdefault(unit.qualname, unit)
                if owner is not None:
                    owner.methods.setdefault(node.name, unit)
                elif parent is not None:
                    parent.inner[node.name] = unit
                self._collect(node.body, None, unit)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                self._import(node)
            elif isinstance(node, ast.ClassDef):
                found = ClassUnit(self, node, owner)
                self.classes.setdefault(found.qualname, found)
                self._collect(node.body, found, parent)
            else:
                for block in blocks_of(node):
                    self._collect(block, owner, parent)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                local = alias.asname or alias.name.split(".")[0]
                self.imports[local] = alias.name if alias.asname else local
            return
        base = self._base_of(node)
        for alias in node.names:
            self.imports[alias.asname or alias.name] = f"{base}.{alias.name}" if base else alias.name

    def _base_of(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self.name.split(".")
        is_package = self.path.endswith("__init__.py")
        kept = parts[: len(parts) - node.level + (1 if is_package else 0)]
        return ".".join([*kept, node.module] if node.module else kept)


class ClassUnit:
    """One class of the project."""

    def __init__(self, module: ModuleUnit, node: ast.ClassDef, owner: ClassUnit | None) -> None:
        self.module, self.node = module, node
        self.name = node.name
        self.qualname: str = f"{owner.qualname}.{node.name}" if owner else node.name
        self.methods: dict[str, FunctionUnit] = {}

    @cached_property
    def attributes(self) -> dict[str, list[Binding]]:
        """What `self.name` and class attributes are bound to, in all methods."""
        found = bindings_of(self.node.body)
        for method in self.methods.values():
            first = method.parameters[0] if method.parameters else "self"
            for node in method.nodes:
                for target, binding in _targets(node) if type(node) in _BINDING else ():
                    if (
                        isinstance(target, ast.Attribute)
                        and isinstance(target.value, ast.Name)
                        and target.value.id == first
                    ):
                        value = binding.value
                        if isinstance(value, ast.Name) and value.id in method.bindings:
                            found.setdefault(target.attr, []).extend(method.bindings[value.id])
                        found.setdefault(target.attr, []).append(binding)
        return found


class FunctionUnit:
    """One function or method of the project."""

    def __init__(
        self, module: ModuleUnit, node: FunctionNode, owner: ClassUnit | None, parent: FunctionUnit | None
    ) -> None:
        self.module, self.node, self.owner, self.parent = module, node, owner, parent
        self.name = node.name
        above = owner.qualname if owner else parent.qualname if parent else ""
        self.qualname: str = f"{above}.{node.name}" if above else node.name
        self.inner: dict[str, FunctionUnit] = {}
        self.has_loop = False

    @property
    def is_async(self) -> bool:
        """Whether it is a coroutine function."""
        return isinstance(self.node, ast.AsyncFunctionDef)

    @cached_property
    def parameters(self) -> list[str]:
        """The names of its parameters, in order."""
        given = self.node.args
        return [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]

    @cached_property
    def optional(self) -> frozenset[str]:
        """The parameters that are None unless a caller gives them."""
        first = {name: self.bindings[name][0].value for name in self.parameters}
        return frozenset(
            name for name, value in first.items() if isinstance(value, ast.Constant) and value.value is None
        )

    @cached_property
    def enclosing_class(self) -> ClassUnit | None:
        """The class that `self` is an instance of, also for functions inside methods."""
        unit: FunctionUnit | None = self
        while unit is not None:
            if unit.owner is not None:
                return unit.owner
            unit = unit.parent
        return None

    @cached_property
    def bindings(self) -> dict[str, list[Binding]]:
        """Names that the function binds: parameters and assignments."""
        found = bindings_of(self.node.body)
        given = self.node.args
        named = [*given.posonlyargs, *given.args]
        defaults: list[ast.expr | None] = [None] * (len(named) - len(given.defaults))
        defaults += given.defaults
        for one, default in [
            *zip(named, defaults, strict=True),
            *zip(given.kwonlyargs, given.kw_defaults, strict=True),
        ]:
            found.setdefault(one.arg, []).insert(0, Binding(default, one.annotation))
        return found

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Every node of its own body, without those of functions inside it."""
        return [inner for statement in self.node.body for inner in walk_scope(statement)]


def kept_name(node: ast.expr) -> str:
    """The name under which an application or a context keeps a thing; empty for other expressions."""
    if isinstance(node, ast.Subscript):
        part = node.slice
        is_text = isinstance(part, ast.Constant) and isinstance(part.value, str)
        return str(part.value) if is_text and isinstance(part, ast.Constant) else ""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute):
        return node.attr if node.value.attr == "state" else ""
    return ""


def walk_scope(node: ast.AST) -> Iterator[ast.AST]:
    """A node and those below it, without entering functions and classes inside it."""
    waiting = [node]
    while waiting:
        current = waiting.pop()
        yield current
        kind = type(current)
        if kind in _LEAVES or (kind in _SCOPES and current is not node):
            continue
        fields = _FIELDS.get(kind)
        if fields is None:
            fields = _FIELDS[kind] = tuple(name for name in reversed(kind._fields) if name not in _TEXTS)
        for name in fields:
            part = getattr(current, name, None)
            if type(part) is list:
                waiting += [one for one in reversed(part) if one is not None]
            elif part is not None:
                waiting.append(part)


# Fields that hold no nodes, or nodes without anything below them: contexts and operators.
_TEXTS: Final = frozenset(
    {"ctx", "op", "ops", "type_comment", "kind", "id", "attr", "arg", "name", "names", "module", "level", "asname", "simple",
     "is_async", "conversion", "rest", "kwd_attrs", "tag"}
)  # fmt: skip
_LEAVES: Final = frozenset({ast.Constant, ast.Name, ast.Pass, ast.Break, ast.Continue, ast.MatchSingleton})
_FIELDS: Final[dict[type[ast.AST], tuple[str, ...]]] = {}
_BINDING: Final = frozenset(
    {ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.For, ast.AsyncFor, ast.comprehension, ast.withitem}
)


def blocks_of(node: ast.stmt) -> list[list[ast.stmt]]:
    """The statement lists inside a compound statement."""
    found = []
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list):
            found.append(block)
    found += [handler.body for handler in getattr(node, "handlers", ())]
    found += [case.body for case in getattr(node, "cases", ())]
    return found


def bindings_of(body: list[ast.stmt]) -> dict[str, list[Binding]]:
    """The names that statements bind, in order, without those inside functions and classes."""
    found: dict[str, list[Binding]] = {}
    for statement in body:
        if isinstance(statement, _SCOPES):
            continue
        for node in walk_scope(statement):
            for target, binding in _targets(node) if type(node) in _BINDING else ():
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, []).append(binding)
    return found


def _targets(node: ast.AST) -> Iterator[tuple[ast.expr, Binding]]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _unpacked(target, node.value)
    elif isinstance(node, ast.AnnAssign):
        yield node.target, Binding(node.value, node.annotation)
    elif isinstance(node, ast.NamedExpr):
        yield node.target, Binding(node.value)
    elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
        for target, _ in _unpacked(node.target, node.iter):
            yield target, Binding(node.iter, is_element=True)
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield node.optional_vars, Binding(node.context_expr, is_context=True)


def _unpacked(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, Binding]]:
    if not isinstance(target, ast.Tuple | ast.List):
        yield target, Binding(value)
        return
    parts = (
        value.elts
        if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts)
        else None
    )
    for position, part in enumerate(target.elts):
        yield part, Binding(parts[position]) if parts else Binding(value, is_element=True)
