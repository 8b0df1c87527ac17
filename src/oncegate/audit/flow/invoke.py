"""Paths through expressions: calls are followed into the project's functions, or classified.

The Tracer adds the paths of statements. A function is followed at most DEPTH_MAX calls deep.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from oncegate.audit.flow.arguments import arguments_of, left, passed
from oncegate.audit.flow.calls import CallInfo
from oncegate.audit.flow.classify import classify
from oncegate.audit.flow.events import CodeEvent, Ending, KeyExpr, Kind, Path
from oncegate.audit.flow.special import RUNNERS, is_dynamic, is_once, is_spawn, referenced, retry_decorator
from oncegate.audit.flow.state import added_to, is_state, set_state
from oncegate.audit.project.index import ProjectIndex
from oncegate.audit.project.scope import Scope, is_stub, last_name, spelled
from oncegate.audit.project.units import ClassUnit, FunctionUnit
from oncegate.audit.tables.key_stores import FORGETTING, memory_of
from oncegate.audit.tables.making import clock_difference, key_expr, make
from oncegate.audit.tables.names import CHECKS, DECORATES, RESERVES

DEPTH_MAX: Final = 7
_GUARDS: Final = frozenset({Kind.RESERVE, Kind.CHECK, Kind.MARK, Kind.LOCK})


class Invoker:
    """Follows calls. `block` and `joined` come from the Tracer."""

    def __init__(self, index: ProjectIndex) -> None:
        self.index = index
        self._depth: list[FunctionUnit] = []
        self._known: dict[FunctionUnit, list[Path]] = {}
        self._callees: dict[FunctionUnit, set[FunctionUnit]] = {}

    def block(self, body: list[ast.stmt], scope: Scope) -> list[Path]:
        """The paths through statements; the Tracer's."""
        raise NotImplementedError

    def expression(self, node: ast.expr, scope: Scope, *, is_discarded: bool = False) -> list[Path]:
        """The paths through an expression, in the order of evaluation."""
        from oncegate.audit.flow.tracer import joined

        if isinstance(node, ast.Constant | ast.Name | ast.Lambda):
            return [Path()]
        if isinstance(node, ast.Await):
            return self.expression(node.value, scope, is_discarded=is_discarded)
        if isinstance(node, ast.Call):
            return self._call(node, scope, is_discarded)
        paths = [Path()]
        for child in _parts(node):
            paths = joined(paths, self.expression(child, scope))
        if isinstance(node, ast.Compare):
            paths = joined(paths, _membership(node, scope))
        if isinstance(node, ast.Yield | ast.YieldFrom):
            paths = joined(paths, [Path((CodeEvent(Kind.OTHER, node, scope, what="yield"),))])
        return paths

    def stored(self, node: ast.stmt, scope: Scope) -> list[Path]:
        """What an assignment to an element of a shared collection means: `seen[key] = ...`."""
        if isinstance(node, ast.AugAssign):
            return added_to(node, scope)
        for target in node.targets if isinstance(node, ast.Assign) else []:
            if isinstance(target, ast.Attribute):
                return [Path((set_state(target, scope),))] if is_state(target.attr) else [Path()]
            if isinstance(target, ast.Subscript):
                call = CallInfo(ast.Call(func=target.value, args=[], keywords=[]), scope)
                made = memory_of(target.value, call)
                if made:
                    window = "the collection forgets the key after a time" if made in FORGETTING else ""
                    return [Path((CodeEvent(Kind.MARK, target, scope, what=spelled(target.value), subject=spelled(target.value),
                                        key=KeyExpr(target.slice, scope), in_memory=True, window=window),))]  # fmt: skip
        return [Path()]

    def _call(self, node: ast.Call, scope: Scope, is_discarded: bool) -> list[Path]:
        from oncegate.audit.flow.tracer import joined

        if is_once(node, scope):
            given = [path for one in referenced(node) for path in self._run(one, scope, node, "gated")]
            direct = self._arguments(node, scope)
            return joined(
                direct,
                joined([Path((CodeEvent(Kind.OTHER, node, scope, what="once"),))], given or [Path()]),
            )
        if is_spawn(node, is_discarded):
            spawned = CodeEvent(Kind.SPAWN, node, scope, what=spelled(node.func))
            ran = [path for one in referenced(node) for path in self._run(one, scope, node, "spawned")]
            return joined([Path((spawned,))], [Path(path.events) for path in ran] or [Path()])
        if last_name(node.func) == "on_commit":
            ran = [path for one in referenced(node) for path in self._run(one, scope, node, "after commit")]
            return [Path(path.events) for path in ran] or [Path()]
        before = self._arguments(node, scope)
        if last_name(node.func) in RUNNERS:
            ran = [
                path
                for one in referenced(node)
                if not isinstance(one, ast.Call)
                for path in self._run(one, scope, node, "")
            ]
            if ran:
                return joined(before, ran)
        return joined(before, self._target(node, scope))

    def _arguments(self, node: ast.Call, scope: Scope) -> list[Path]:
        from oncegate.audit.flow.tracer import joined

        paths = [Path()]
        parts = [
            *([node.func.value] if isinstance(node.func, ast.Attribute) else []),
            *node.args,
            *(one.value for one in node.keywords),
        ]
        for part in parts:
            paths = joined(paths, self.expression(part, scope))
        return paths

    def _run(self, node: ast.expr, scope: Scope, call: ast.Call, flag: str) -> list[Path]:
        """The paths of a function that is handed over: a name, a lambda, a coroutine."""
        if isinstance(node, ast.Lambda):
            return [self.flagged(path, flag) for path in self.expression(node.body, scope)]
        unit = scope.unit(node)
        if isinstance(unit, FunctionUnit):
            return [self.flagged(path, flag) for path in self.invoke(unit, call, scope)]
        if isinstance(node, ast.Call):
            return (
                [self.flagged(path, flag) for path in self.expression(node, scope)]
                if flag != "gated"
                else []
            )
        if isinstance(node, ast.Attribute) and unit is None:
            stand_in = ast.copy_location(
                ast.Call(func=node, args=call.args[1:], keywords=call.keywords), call
            )
            event = classify(CallInfo(stand_in, scope))
            return (
                [self.flagged(Path((replace(event, node=call),)), flag)]
                if event.kind is not Kind.OTHER
                else []
            )
        return []

    def _target(self, node: ast.Call, scope: Scope) -> list[Path]:
        unit = scope.unit(node.func)
        if isinstance(unit, ClassUnit):
            maker = unit.methods.get("__init__")
            return self.invoke(maker, node, scope) if maker is not None else [Path()]
        if unit is not None and not is_stub(unit):
            return self._followed(unit, node, scope)
        call = CallInfo(node, scope)
        if is_dynamic(node, scope):
            return [Path((make(Kind.DYNAMIC, call),))]
        return [Path((classify(call),))]

    def _followed(self, unit: FunctionUnit, node: ast.Call, scope: Scope) -> list[Path]:
        paths = self.invoke(unit, node, scope)
        guarded = any(event.kind in _GUARDS for path in paths for event in path.events)
        if not guarded and (RESERVES.match(unit.name) or CHECKS.match(unit.name)):
            named = classify(CallInfo(node, scope))
            if named.kind in _GUARDS:
                return [Path((*path.events, named), path.ending, path.node) for path in paths]
        return paths

    def invoke(self, unit: FunctionUnit, node: ast.Call, scope: Scope) -> list[Path]:
        """The paths of a call to a function of the project, with the caller's arguments in its keys."""
        if len(self._depth) >= DEPTH_MAX or unit in self._depth:
            return [Path()]
        if scope.function is not None:
            self._callees.setdefault(scope.function, set()).add(unit)
        arguments = arguments_of(unit, node, scope)
        found: dict[tuple[object, ...], Path] = {}
        for path in self.paths(unit):
            ended = (
                (left(path, unit, scope),) if path.ending is Ending.RETURN and path.node is not None else ()
            )
            events = tuple(passed(event, unit, node, scope, arguments) for event in (*path.events, *ended))
            ending = Ending.RAISE if path.ending is Ending.RAISE else Ending.NEXT
            kinds = tuple(
                (event.kind, id(event.node), event.polarity)
                for event in events
                if event.kind is not Kind.OTHER
            )
            found.setdefault((ending, kinds), Path(events, ending, path.node))
        return list(found.values())[:24] or [Path()]

    def paths(self, unit: FunctionUnit) -> list[Path]:
        """The paths of a function, with what its decorators add; kept while the audit runs."""
        if unit not in self._known:
            self._depth.append(unit)
            try:
                scope = Scope(self.index, unit.module, unit)
                found = self._decorated(unit, self.block(unit.node.body, scope), scope)
            finally:
                self._depth.pop()
            if self._depth and len(self._depth) + 1 >= DEPTH_MAX:
                return found
            self._known[unit] = found
        return self._known[unit]

    def _decorated(self, unit: FunctionUnit, paths: list[Path], scope: Scope) -> list[Path]:
        outer = Scope(self.index, unit.module, unit.parent)
        for node in reversed(unit.node.decorator_list):
            retried = retry_decorator(node)
            base = node.func if isinstance(node, ast.Call) else node
            wrapper = outer.unit(base)
            if retried:
                paths = [self.flagged(path, f"retried {retried}") for path in paths]
            elif last_name(base) in ("atomic", "atomic_requests", "db_session"):
                begin = CodeEvent(Kind.BEGIN, node, scope, what=spelled(base), flags=frozenset({"block"}))
                end = replace(begin, kind=Kind.END)
                paths = [Path((begin, *path.events, end), path.ending, path.node) for path in paths]
            elif isinstance(wrapper, FunctionUnit):
                paths = self._wrapped(wrapper, paths, node)
            elif (
                last_name(base) == "once"
                and isinstance(node, ast.Call)
                and any(one.arg == "key" for one in node.keywords)
            ):
                paths = [self.flagged(path, "gated") for path in paths]
            elif DECORATES.search(last_name(base)):
                reserve = CodeEvent(
                    Kind.RESERVE, node, scope, what=spelled(base), by_name=True, library="decorator"
                )
                paths = [Path((reserve, *path.events), path.ending, path.node) for path in paths]
        return paths

    def _wrapped(self, decorator: FunctionUnit, paths: list[Path], node: ast.expr) -> list[Path]:
        """The paths of a function inside a decorator of the project."""
        inner = _innermost(decorator)
        if inner is None or inner in self._depth:
            return paths
        spliced: list[Path] = []
        around = self.paths(inner)
        for path in around:
            at = next((n for n, event in enumerate(path.events) if _calls_wrapped(event, inner)), None)
            if at is None:
                spliced.append(path)
                continue
            before, after = path.events[:at], path.events[at + 1 :]
            spliced += [Path((*before, *one.events, *after), one.ending, one.node) for one in paths]
        is_calling = any(_calls_wrapped(event, inner) for path in around for event in path.events)
        return spliced[:96] if is_calling else paths

    def surrounding(
        self, node: ast.expr, scope: Scope
    ) -> list[tuple[tuple[CodeEvent, ...], tuple[CodeEvent, ...]]] | None:
        """What a context manager of the project does before and after its block."""
        unit = scope.unit(node.func) if isinstance(node, ast.Call) else None
        if isinstance(unit, FunctionUnit) and any(isinstance(one, ast.Yield) for one in unit.nodes):
            paths = self.invoke(unit, node, scope) if isinstance(node, ast.Call) else []
            found = []
            for path in paths:
                at = next((n for n, event in enumerate(path.events) if event.what == "yield"), None)
                if at is not None and not any(event.kind is Kind.CAUGHT for event in path.events[at:]):
                    found.append(_as_block(unit, node, scope, path.events[:at], path.events[at + 1 :]))
            return found[:4] or None
        owner = scope.type_of(node)
        if isinstance(owner, ClassUnit) and isinstance(node, ast.Call | ast.Name | ast.Attribute):
            call = (
                node
                if isinstance(node, ast.Call)
                else ast.copy_location(ast.Call(func=node, args=[], keywords=[]), node)
            )
            ends = [
                scope.method(owner, name) for name in ("__enter__", "__aenter__", "__exit__", "__aexit__")
            ]
            first, last = ends[0] or ends[1], ends[2] or ends[3]
            before = self.invoke(first, call, scope)[0].events if first else ()
            after = self.invoke(last, call, scope)[0].events if last else ()
            return [(before, after)]
        return None

    def reached_from(self, unit: FunctionUnit, paths: list[Path]) -> list[FunctionUnit]:
        """The functions of the project that a handler reaches, itself first."""
        if unit.name == "<module>":
            found = {
                event.scope.function: None
                for path in paths
                for event in path.events
                if event.scope.function is not unit
            }
            waiting = [one for one in found if one is not None]
        else:
            waiting = [unit]
        reached: dict[FunctionUnit, None] = {unit: None}
        while waiting:
            one = waiting.pop()
            reached.setdefault(one)
            waiting += [callee for callee in self._callees.get(one, ()) if callee not in reached]
        return list(reached)

    def flagged(self, path: Path, flag: str) -> Path:
        """A path whose events carry one more flag."""
        if not flag:
            return path
        return Path(
            tuple(replace(event, flags=event.flags | {flag}) for event in path.events),
            path.ending,
            path.node,
        )

    def with_names(self, path: Path, names: tuple[str, ...], scope: Scope) -> Path:
        """A path whose events are known to give their result to names."""
        held = tuple((scope.function, name) for name in names)
        return Path(
            tuple(replace(event, names=event.names + held) for event in path.events), path.ending, path.node
        )


def _parts(node: ast.expr) -> Iterator[ast.expr]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            yield child
        elif isinstance(child, ast.comprehension):
            yield child.iter
            yield from child.ifs


def _membership(node: ast.Compare, scope: Scope) -> list[Path]:
    """`key in seen` asks a shared collection; `now - seen[key] < limit` asks a clock."""
    right = node.comparators[0]
    call = CallInfo(ast.copy_location(ast.Call(func=right, args=[], keywords=[]), node), scope)
    if isinstance(node.ops[0], ast.In | ast.NotIn):
        made = memory_of(right, call)
        if made:
            window = "the collection forgets the key after a time" if made in FORGETTING else ""
            return [Path((CodeEvent(Kind.CHECK, node, scope, what=spelled(right), subject=spelled(right), window=window,
                                key=key_expr(node.left, call), in_memory=True),))]  # fmt: skip
    if isinstance(node.ops[0], ast.Lt | ast.Gt | ast.LtE | ast.GtE) and clock_difference(node, call):
        return [
            Path(
                (
                    CodeEvent(
                        Kind.OTHER,
                        node,
                        scope,
                        what="clock",
                        window="the code compares with the current time",
                    ),
                )
            )
        ]
    return [Path()]


def _calls_wrapped(event: CodeEvent, wrapper: FunctionUnit) -> bool:
    """Whether a call inside a decorator is the call of the function that it wraps."""
    if event.kind is not Kind.DYNAMIC or event.via or not isinstance(event.node, ast.Call):
        return False
    outer = wrapper.parent
    own = [name for name in outer.parameters if name not in ("self", "cls")] if outer is not None else []
    return isinstance(event.node.func, ast.Name) and event.node.func.id in own[:1]


def _innermost(unit: FunctionUnit) -> FunctionUnit | None:
    found = None
    while unit.inner:
        unit = found = list(unit.inner.values())[-1]
    return found


def _as_block(
    unit: FunctionUnit,
    node: ast.expr,
    scope: Scope,
    before: tuple[CodeEvent, ...],
    after: tuple[CodeEvent, ...],
) -> tuple[tuple[CodeEvent, ...], tuple[CodeEvent, ...]]:
    """A context manager that commits after its block and rolls back after an error is a transaction."""
    undoes = any(isinstance(one, ast.Call) and last_name(one.func) == "rollback" for one in unit.nodes)
    if not undoes or not any(event.kind is Kind.COMMIT for event in after):
        return before, after
    begin = CodeEvent(Kind.BEGIN, node, scope, what=spelled(node), flags=frozenset({"block"}))
    return (*before, begin), (*after, replace(begin, kind=Kind.END))
