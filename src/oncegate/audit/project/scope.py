"""What names and objects mean at a place in the code: dotted names, project units, inferred types.

A type is a class of the project, or text: the dotted name of what made an object outside the project
(`httpx.AsyncClient`, `boto3:sqs`, `kafka.KafkaConsumer[]` for its elements). None means unknown.
"""

from __future__ import annotations

import ast
from typing import Final

from oncegate.audit.project.index import ProjectIndex
from oncegate.audit.project.units import Binding, ClassUnit, FunctionUnit, ModuleUnit, kept_name

Type = ClassUnit | str | None
DEPTH_MAX: Final = 10
_WRAPPERS: Final = frozenset({"Annotated", "Optional", "Final", "ClassVar", "AsyncIterator", "Iterator", "Generator",
                              "AsyncGenerator", "Awaitable", "Mapped"})  # fmt: skip
_KEEPERS: Final = frozenset({"app", "ctx", "context", "state", "application", "resources", "deps"})
_SAME: Final = frozenset({"pipeline", "__enter__", "__aenter__", "with_options"})


class Scope:
    """A function of the project, or a module's top level, as the place where names are looked up."""

    def __init__(self, index: ProjectIndex, module: ModuleUnit, function: FunctionUnit | None) -> None:
        self.index, self.module, self.function = index, module, function

    def within(self, function: FunctionUnit) -> Scope:
        """The scope of another function."""
        return Scope(self.index, function.module, function)

    def bindings(self, name: str) -> list[Binding] | None:
        """How the nearest scope binds a name, or None where none of the project's does."""
        function = self.function
        while function is not None:
            if name in function.bindings:
                return function.bindings[name]
            function = function.parent
        return self.module.bindings.get(name)

    def is_local(self, name: str) -> bool:
        """Whether a function around this place binds the name."""
        function = self.function
        while function is not None:
            if name in function.bindings:
                return True
            function = function.parent
        return False

    def dotted(self, node: ast.expr) -> str | None:
        """The dotted name of an expression, through imports; None for anything that is not one."""
        if isinstance(node, ast.Name):
            if self.is_local(node.id):
                return None
            if node.id in self.module.imports:
                return self.module.imports[node.id]
            return None if node.id in self.module.bindings else node.id
        if isinstance(node, ast.Attribute):
            base = self.dotted(node.value)
            return f"{base}.{node.attr}" if base else None
        return None

    def unit(self, node: ast.expr) -> FunctionUnit | ClassUnit | None:
        """The function or class of the project that an expression names."""
        key, known = (id(self.function or self.module), id(node)), self.index.units
        if key not in known:
            known[key] = (node, None)  # while it is looked up: an expression that leads back to itself
            known[key] = (node, self._unit(node))
        found = known[key][1]
        return found if isinstance(found, FunctionUnit | ClassUnit) else None

    def _unit(self, node: ast.expr) -> FunctionUnit | ClassUnit | None:
        if isinstance(node, ast.Name):
            return self._named(node.id)
        if isinstance(node, ast.Attribute):
            found = self._attribute(node)
            if found is not None:
                return found
        if (
            isinstance(node, ast.Call)
            and _last(node.func) in ("partial", "sync_to_async", "async_to_sync")
            and node.args
        ):
            return self.unit(node.args[0])
        return None

    def _named(self, name: str) -> FunctionUnit | ClassUnit | None:
        function = self.function
        while function is not None:
            if name in function.inner:
                return function.inner[name]
            if name in function.bindings:
                return None
            function = function.parent
        found = self.index.member(self.module, [name])
        return found if isinstance(found, FunctionUnit | ClassUnit) else None

    def _attribute(self, node: ast.Attribute) -> FunctionUnit | ClassUnit | None:
        dotted = self.dotted(node)
        if dotted is not None:
            found = self.index.find(dotted, self.module.path)
            if isinstance(found, FunctionUnit | ClassUnit):
                return found
        if isinstance(node.value, ast.Call) and _last(node.value.func) == "super":
            owner = self.function.enclosing_class if self.function else None
            return self._from_bases(owner, node.attr) if owner else None
        owner_type = self.type_of(node.value)
        return self.method(owner_type, node.attr) if isinstance(owner_type, ClassUnit) else None

    def method(self, owner: ClassUnit, name: str, depth: int = 0) -> FunctionUnit | None:
        """A method of a class, its bases', or of the one class that fulfils an abstract one."""
        found = owner.methods.get(name) or self._from_bases(owner, name, depth)
        if (found is None or is_stub(found)) and depth == 0:
            concrete = [
                one.methods[name]
                for module in {*self.index.with_subclasses(owner.name), self.module, owner.module}
                for one in module.classes.values()
                if one is not owner and name in one.methods and not is_stub(one.methods[name])
                and (self._has_base(one, owner) or _is_protocol(owner))
            ]  # fmt: skip
            return concrete[0] if len(concrete) == 1 else found
        return found

    def _has_base(self, one: ClassUnit, base: ClassUnit) -> bool:
        scope = Scope(self.index, one.module, None)
        return any(scope.unit(node) is base for node in one.node.bases)

    def _from_bases(self, owner: ClassUnit, name: str, depth: int = 0) -> FunctionUnit | None:
        if depth > 6:
            return None
        scope = Scope(self.index, owner.module, None)
        for node in owner.node.bases:
            base = scope.unit(node)
            if isinstance(base, ClassUnit) and base is not owner:
                found = scope.method(base, name, depth + 1)
                if found is not None:
                    return found
        return None

    def type_of(self, node: ast.expr, depth: int = 0) -> Type:
        """The type of an expression, as far as the source shows it."""
        key = (id(self.function or self.module), id(node))
        if key in self.index.types:
            found = self.index.types[key][1]
            return found if isinstance(found, ClassUnit | str) else None
        if depth > DEPTH_MAX or key in self.index.active:
            return None
        self.index.active.add(key)
        try:
            made = self._type_of(node, depth)
        finally:
            self.index.active.discard(key)
        if not self.index.active:
            self.index.types[key] = (node, made)
        return made

    def _type_of(self, node: ast.expr, depth: int) -> Type:
        if isinstance(node, ast.Await | ast.Starred):
            return self.type_of(node.value, depth + 1)
        if isinstance(node, ast.Call):
            return self._made_by(node, depth + 1)
        if isinstance(node, ast.Name):
            return self._type_of_name(node.id, depth + 1)
        if isinstance(node, ast.Attribute):
            return self._type_of_attribute(node, depth + 1)
        if isinstance(node, ast.Subscript):
            kept = self._type_of_kept(node, depth + 1)
            inner = self.type_of(node.value, depth + 1) if kept is None else None
            return f"{inner}[]" if isinstance(inner, str) else kept
        if isinstance(node, ast.BoolOp):
            found = (self.type_of(value, depth + 1) for value in node.values)
            return next((one for one in found if one is not None), None)
        if isinstance(node, ast.IfExp):
            return self.type_of(node.body, depth + 1) or self.type_of(node.orelse, depth + 1)
        return None

    def _type_of_kept(self, node: ast.expr, depth: int) -> Type:
        """The type of what an application or a context keeps: `ctx["http"]`, `app[HTTP]`, `app.state.http`."""
        base = node.value if isinstance(node, ast.Subscript | ast.Attribute) else None
        if base is None or last_name(base) not in _KEEPERS:
            return None
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Name):
            found = self.index.find(self.module.imports.get(node.slice.id, ""), self.module.path)
            module, name = found if isinstance(found, tuple) else (self.module, node.slice.id)
            value = next((one.value for one in module.bindings.get(name, ())), None)
            if isinstance(value, ast.Call) and last_name(value.func) == "AppKey" and len(value.args) > 1:
                return Scope(self.index, module, None).annotated(value.args[1], depth + 1)
            return None
        stored = self.module.kept.get(kept_name(node))
        return self.within(stored[1]).type_of(stored[0], depth + 1) if stored else None

    def _type_of_name(self, name: str, depth: int) -> Type:
        if name in ("self", "cls") and self.function is not None and self.function.enclosing_class:
            return self.function.enclosing_class
        found = self.bindings(name)
        if found is None:
            target = self.module.imports.get(name)
            return self._imported(target, depth) if target else None
        scope = self if self.is_local(name) else Scope(self.index, self.module, None)
        return scope.type_of_bindings(found, depth)

    def _imported(self, dotted: str, depth: int) -> Type:
        found = self.index.find(dotted, self.module.path)
        if isinstance(found, tuple):
            module, variable = found
            return Scope(self.index, module, None).type_of_bindings(module.bindings[variable], depth)
        if found is not None:
            return None
        return None if self.index.has(dotted.split(".", maxsplit=1)[0]) else f"{dotted}"

    def type_of_bindings(self, found: list[Binding], depth: int) -> Type:
        """The first type that any of several bindings shows."""
        for binding in found:
            kind = self.annotated(binding.annotation, depth + 1) if binding.annotation is not None else None
            if kind is None and binding.value is not None:
                kind = self.type_of(binding.value, depth + 1)
                if binding.is_element:
                    kind = f"{kind}[]" if isinstance(kind, str) else None
            if kind is not None:
                return kind
        return None

    def _type_of_attribute(self, node: ast.Attribute, depth: int) -> Type:
        dotted = self.dotted(node)
        if dotted is not None:
            found = self.index.find(dotted, self.module.path)
            if isinstance(found, tuple):
                module, variable = found
                return Scope(self.index, module, None).type_of_bindings(module.bindings[variable], depth)
            if found is None:
                return dotted
        owner = self.type_of(node.value, depth + 1)
        if isinstance(owner, ClassUnit):
            return self._member_type(owner, node.attr, depth + 1)
        if owner is None:
            return self._type_of_kept(node, depth + 1)
        return f"{owner}.{node.attr}"

    def _member_type(self, owner: ClassUnit, name: str, depth: int) -> Type:
        if depth > DEPTH_MAX:
            return None
        if name in owner.attributes:
            maker = owner.methods.get("__init__")
            scope = Scope(self.index, owner.module, maker)
            return scope.type_of_bindings(owner.attributes[name], depth + 1)
        method = owner.methods.get(name)
        if method is not None:
            is_property = any("property" in (_last(one) or "") for one in method.node.decorator_list)
            return self.returned(method, depth + 1) if is_property else None
        scope = Scope(self.index, owner.module, None)
        for node in owner.node.bases:
            base = scope.unit(node)
            if isinstance(base, ClassUnit) and base is not owner:
                kind = scope._member_type(base, name, depth + 1)
                if kind is not None:
                    return kind
        return None

    def _made_by(self, node: ast.Call, depth: int) -> Type:
        if _last(node.func) in ("Depends", "Provide", "Inject") and node.args:
            maker = self.unit(node.args[0])
            return self.returned(maker, depth) if isinstance(maker, FunctionUnit) else maker
        unit = self.unit(node.func)
        if isinstance(unit, ClassUnit):
            return unit
        if unit is not None:
            return self.returned(unit, depth + 1)
        dotted = self.dotted(node.func)
        if dotted is None and isinstance(node.func, ast.Attribute):
            owner = self.type_of(node.func.value, depth + 1)
            if isinstance(owner, ClassUnit):
                return None
            dotted = f"{owner}.{node.func.attr}" if owner else None
        if dotted is None:
            return None
        last = dotted.rsplit(".", 1)[-1]
        if (
            last in ("client", "resource", "create_client")
            and node.args
            and isinstance(node.args[0], ast.Constant)
        ):
            return "boto3:" + str(node.args[0].value)
        return dotted.rsplit(".", 1)[0] if last in _SAME else dotted

    def returned(self, unit: FunctionUnit, depth: int) -> Type:
        """The type of what a function of the project returns or yields."""
        if depth > DEPTH_MAX:
            return None
        scope = self.within(unit)
        if unit.node.returns is not None:
            kind = scope.annotated(unit.node.returns, depth + 1)
            if kind is not None:
                return kind
        for node in unit.nodes:
            if isinstance(node, ast.Return | ast.Yield) and node.value is not None:
                kind = scope.type_of(node.value, depth + 1)
                if kind is not None:
                    return kind
        return None

    def annotated(self, node: ast.expr, depth: int = 0) -> Type:
        """The type that an annotation names."""
        if depth > DEPTH_MAX:
            return None
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                node = ast.parse(node.value, mode="eval").body
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                return None
        if isinstance(node, ast.BinOp):
            return self.annotated(node.left, depth + 1) or self.annotated(node.right, depth + 1)
        if isinstance(node, ast.Subscript):
            if _last(node.value) not in _WRAPPERS:
                return self.annotated(node.value, depth + 1)
            parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            return self._annotated_parts(parts, depth + 1)
        if not isinstance(node, ast.Name | ast.Attribute):
            return None
        unit = self.unit(node)
        if isinstance(unit, ClassUnit):
            return unit
        alias = self._alias(node)
        if alias is not None:
            return Scope(self.index, alias[0], None).annotated(alias[1], depth + 1)
        dotted = self.dotted(node)
        return dotted if dotted and "." in dotted and unit is None else None

    def _alias(self, node: ast.expr) -> tuple[ModuleUnit, ast.expr] | None:
        """The annotation that a module gives a name: `Db = Annotated[Session, Depends(get_db)]`."""
        module, name = self.module, node.id if isinstance(node, ast.Name) else ""
        if name in module.imports:
            found = self.index.find(module.imports[name], module.path)
            module, name = found if isinstance(found, tuple) else (module, "")
        values = [
            one.value
            for one in module.bindings.get(name, [])
            if isinstance(one.value, ast.Subscript | ast.BinOp)
        ]
        return (module, values[0]) if len(values) == 1 and values[0] is not None else None

    def _annotated_parts(self, parts: list[ast.expr], depth: int) -> Type:
        for part in parts:
            kind = self._made_by(part, depth) if isinstance(part, ast.Call) else self.annotated(part, depth)
            if kind is not None:
                return kind
        return None


def is_stub(unit: FunctionUnit) -> bool:
    """Whether a method has no body of its own: a protocol's, or an abstract one."""
    body = [
        one for one in unit.node.body
        if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)) and not isinstance(one, ast.Pass)
    ]  # fmt: skip
    return not body or (
        len(body) == 1 and isinstance(body[0], ast.Raise) and "NotImplemented" in ast.dump(body[0])
    )


def _is_protocol(owner: ClassUnit) -> bool:
    return any(_last(base) == "Protocol" for base in owner.node.bases)


def _last(node: ast.expr) -> str | None:
    if isinstance(node, ast.Call):
        return _last(node.func)
    if isinstance(node, ast.Subscript):
        return _last(node.value)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else None


def last_name(node: ast.expr) -> str:
    """The last part of a dotted expression, or an empty text."""
    return _last(node) or ""


def spelled(node: ast.expr) -> str:
    """An expression of names as it is written, `self.bank.charge`; parts that are no names as `…`."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{spelled(node.value)}.{node.attr}"
    if isinstance(node, ast.Call):
        return f"{spelled(node.func)}()"
    if isinstance(node, ast.Await):
        return spelled(node.value)
    return "…"
