"""Paths through statements: branches, loops, errors, contexts. Bounded in number and depth."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final

from msgspec.structs import replace

from oncegate.audit.flow.calls import CallInfo
from oncegate.audit.flow.classify import is_transaction
from oncegate.audit.flow.events import CodeEvent, Ending, Kind, Path
from oncegate.audit.flow.invoke import Invoker
from oncegate.audit.flow.special import error_names, is_broad, retry_loop
from oncegate.audit.flow.state import asked_state
from oncegate.audit.project.scope import Scope, last_name, spelled
from oncegate.audit.project.units import FunctionUnit
from oncegate.audit.tables.names import DUPLICATE_ERRORS

PATHS_MAX: Final = 48
EVENTS_MAX: Final = 400
_DULL: Final = frozenset({Kind.OTHER, Kind.LOG, Kind.TEST, Kind.FETCH, Kind.LEFT})
_RAISING: Final = frozenset(
    {Kind.EFFECT, Kind.RESERVE, Kind.WRITE, Kind.CHECK, Kind.FLUSH, Kind.COMMIT, Kind.MARK, Kind.DYNAMIC}
)


def joined(first: Sequence[Path], second: Sequence[Path]) -> list[Path]:
    """Every path of the first that goes on, followed by every path of the second."""
    done = [path for path in first if path.ending is not Ending.NEXT]
    going = [path for path in first if path.ending is Ending.NEXT and len(path.events) < EVENTS_MAX]
    return limited(
        chain(
            done, (left.then(right) for left in going for right in second if not _contradicts(left, right))
        )
    )


def _contradicts(left: Path, right: Path) -> bool:
    """Whether a branch is taken that the constant which a function has just returned rules out."""
    if not left.events or not right.events or right.events[0].kind is not Kind.TEST:
        return False
    test = right.events[0]
    node, is_true = test.node, test.polarity
    while isinstance(node, ast.UnaryOp | ast.Await | ast.NamedExpr):
        if isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.Not):
            return False
        is_true = not is_true if isinstance(node, ast.UnaryOp) else is_true
        node = node.operand if isinstance(node, ast.UnaryOp) else node.value
    for event in reversed(left.events):
        if event.kind is not Kind.LEFT or len(event.via) != 1 or not isinstance(event.node, ast.Return):
            continue
        is_same = event.via[0][1] is node or (
            isinstance(node, ast.Name) and (test.scope.function, node.id) in event.names
        )
        if is_same:
            value = event.node.value
            return (value is None or isinstance(value, ast.Constant)) and bool(
                getattr(value, "value", None)
            ) != is_true
    return False


def limited(paths: Iterable[Path]) -> list[Path]:
    """Paths without repetitions, as many as are allowed."""
    seen: dict[tuple[object, ...], Path] = {}
    for path in paths:
        interesting = tuple(map(id, path.events)) if path.events else ()
        seen.setdefault(
            (path.ending, id(path.node) if path.ending is not Ending.NEXT else 0, interesting), path
        )
        if len(seen) >= PATHS_MAX:
            break
    return list(seen.values())


class Tracer(Invoker):
    """Makes the paths of blocks; calls are followed by the Invoker."""

    def block(self, body: Sequence[ast.stmt], scope: Scope) -> list[Path]:
        """The paths through a list of statements."""
        paths = [Path()]
        for statement in body:
            if not any(path.ending is Ending.NEXT for path in paths):
                break
            paths = joined(paths, self.statement(statement, scope))
        return paths

    def statement(self, node: ast.stmt, scope: Scope) -> list[Path]:
        """The paths through one statement."""
        if isinstance(node, ast.If):
            return self._branch(node, scope)
        if isinstance(node, ast.For | ast.AsyncFor | ast.While):
            return self._loop(node, scope)
        if isinstance(node, ast.Try | ast.TryStar):
            return self._attempt(node, scope)
        if isinstance(node, ast.With | ast.AsyncWith):
            return self._context(list(node.items), node, scope)
        if isinstance(node, ast.Match):
            cases = [path for case in node.cases for path in self.block(case.body, scope)]
            return joined(self.expression(node.subject, scope), limited([*cases, Path()]))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return [Path()]
        return self._simple(node, scope)

    def _simple(self, node: ast.stmt, scope: Scope) -> list[Path]:
        if isinstance(node, ast.Return):
            inner = self.expression(node.value, scope) if node.value is not None else [Path()]
            return joined(inner, [Path((), Ending.RETURN, node)])
        if isinstance(node, ast.Raise):
            inner = self.expression(node.exc, scope) if node.exc is not None else [Path()]
            return joined(inner, [Path((), Ending.RAISE, node)])
        if isinstance(node, ast.Continue):
            return [Path((), Ending.CONTINUE, node)]
        if isinstance(node, ast.Break):
            return [Path((), Ending.BREAK, node)]
        if isinstance(node, ast.Expr):
            return self.expression(node.value, scope, is_discarded=True)
        if isinstance(node, ast.Assert):
            test = CodeEvent(Kind.TEST, node.test, scope, polarity=True)
            return joined(self.expression(node.test, scope), [Path((test,))])
        paths = [Path()]
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr) and child not in getattr(node, "targets", ()):
                paths = joined(paths, self.expression(child, scope))
        paths = self._named(node, paths, scope)
        return joined(paths, self.stored(node, scope))

    def _named(self, node: ast.stmt, paths: list[Path], scope: Scope) -> list[Path]:
        """Notes on events which names hold their result."""
        targets = (
            node.targets
            if isinstance(node, ast.Assign)
            else [node.target]
            if isinstance(node, ast.AnnAssign)
            else []
        )
        names = tuple(one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name))
        return [self.with_names(path, names, scope) for path in paths] if names else paths

    def _branch(self, node: ast.If, scope: Scope) -> list[Path]:
        test = self.expression(node.test, scope)
        test = joined(self._named_in_test(node.test, test, scope), asked_state(node.test, scope))
        yes, no = self.block(node.body, scope), self.block(node.orelse, scope)
        if all(_is_dull(path) for path in (*yes, *no)):
            logs = [
                _inside(node, path)
                for path in (*yes, *no)
                if any(one.kind is Kind.LOG for one in path.events)
            ]
            return joined(test, logs[:1] or yes[:1])
        sides = [
            *joined([Path((CodeEvent(Kind.TEST, node.test, scope, polarity=True, origin=node),))], yes),
            *joined([Path((CodeEvent(Kind.TEST, node.test, scope, polarity=False, origin=node),))], no),
        ]
        return joined(test, limited(sides))

    def _named_in_test(self, node: ast.expr, paths: list[Path], scope: Scope) -> list[Path]:
        names = tuple(
            one.target.id
            for one in ast.walk(node)
            if isinstance(one, ast.NamedExpr) and isinstance(one.target, ast.Name)
        )
        return [self.with_names(path, names, scope) for path in paths] if names else paths

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While, scope: Scope) -> list[Path]:
        head = self.expression(node.test if isinstance(node, ast.While) else node.iter, scope)
        body = self.block(node.body, scope)
        retried = retry_loop(node)
        if retried:
            body = [self.flagged(path, f"retried {retried}") for path in body]
        ended = [_after_loop(path, scope) for path in body]
        return joined(
            joined(head, limited(ended)), self.block(node.orelse, scope) if node.orelse else [Path()]
        )

    def _attempt(self, node: ast.Try | ast.TryStar, scope: Scope) -> list[Path]:
        body = self.block(node.body, scope)
        if any(_catches_duplicates(one) for one in node.handlers):
            body = [_proven(path) for path in body]
        quiet = (
            joined([path for path in body if path.ending is Ending.NEXT], self.block(node.orelse, scope))
            if node.orelse
            else []
        )
        done = [
            path
            for path in body
            if path.ending is not Ending.RAISE and (path.ending is not Ending.NEXT or not node.orelse)
        ]
        caught: list[Path] = []
        for handler in node.handlers:
            entered = CodeEvent(
                Kind.CAUGHT, handler, scope, what=",".join(error_names(handler.type)), origin=node
            )
            entries = limited(self._entries(body, handler, entered))
            caught += joined(entries, self.block(handler.body, scope))
        escaped = (
            [path for path in body if path.ending is Ending.RAISE]
            if not any(is_broad(one.type) for one in node.handlers)
            else []
        )
        paths = limited([*quiet, *done, *caught, *escaped])
        return (
            [after for path in paths for after in self._finally(path, node, scope)]
            if node.finalbody
            else paths
        )

    def _entries(self, body: list[Path], handler: ast.ExceptHandler, entered: CodeEvent) -> Iterable[Path]:
        """How an except block is reached: after each event of the body that may raise what it catches."""
        names = error_names(handler.type)
        is_duplicate = _catches_duplicates(handler)
        found = False
        for path in body[:12]:
            if path.ending is Ending.RAISE:
                yield Path((*path.events, entered))
                found = True
            for position, event in enumerate(path.events):
                if event.kind not in _RAISING or (is_duplicate and not _may_collide(event)):
                    continue
                raised = CodeEvent(Kind.RAISED, event.node, event.scope, of=event, what=",".join(names))
                yield Path((*path.events[: position + 1], raised, entered))
                found = True
        if not found:
            yield Path((entered,))

    def _finally(self, path: Path, node: ast.Try | ast.TryStar, scope: Scope) -> list[Path]:
        last = self.block(node.finalbody, scope)
        if path.ending is Ending.NEXT:
            return joined([path], last)
        return [Path(path.events + end.events, path.ending, path.node) for end in last[:4]]

    def _context(
        self, items: list[ast.withitem], node: ast.With | ast.AsyncWith, scope: Scope
    ) -> list[Path]:
        if not items:
            return self.block(node.body, scope)
        item, rest = items[0], items[1:]
        expression = item.context_expr
        inner = self._context(rest, node, scope)
        call = CallInfo(expression, scope) if isinstance(expression, ast.Call) else None
        if call is not None and call.method == "suppress":
            return self._attempt(_as_try(call, rest, node), scope)
        kind = is_transaction(expression, call)
        if kind and (call is None or scope.unit(call.node.func) is None):
            begin = CodeEvent(
                Kind.BEGIN, expression, scope, what=spelled(expression), flags=frozenset({kind})
            )
            end = CodeEvent(Kind.END, expression, scope, what=spelled(expression), flags=frozenset({kind}))
            head = self.expression(expression, scope) if kind == "soft" else [Path()]
            return joined(
                head, [Path((begin, *path.events, end), path.ending, path.node) for path in inner]
            )
        if last_name(expression).lower().endswith("lock"):
            begin = CodeEvent(Kind.LOCK, expression, scope, what=spelled(expression))
            return joined([Path((begin,))], inner)
        around = self.surrounding(expression, scope)
        if around is not None:
            return limited(
                Path((*before, *path.events, *after), path.ending, path.node)
                for before, after in around
                for path in inner
            )
        return joined(self._named_context(item, self.expression(expression, scope), scope), inner)

    def _named_context(self, item: ast.withitem, paths: list[Path], scope: Scope) -> list[Path]:
        """A reservation in a `with` raises or skips by itself."""
        name = item.optional_vars.id if isinstance(item.optional_vars, ast.Name) else ""
        return [
            Path(
                tuple(
                    replace(event, by_result=False, names=((scope.function, name),))
                    if event.kind is Kind.RESERVE
                    else event
                    for event in path.events
                ),
                path.ending,
                path.node,
            )
            for path in paths
        ]

    def body_of(self, unit: FunctionUnit) -> list[Path]:
        """The paths through a function's own body."""
        return self.block(unit.node.body, Scope(self.index, unit.module, unit))


def _as_try(call: CallInfo, rest: list[ast.withitem], node: ast.With | ast.AsyncWith) -> ast.Try:
    """`with suppress(Error):` as the try statement that it stands for."""
    caught = call.node.args
    kind = caught[0] if len(caught) == 1 else ast.Tuple(elts=list(caught), ctx=ast.Load())
    passed = ast.copy_location(ast.Pass(), call.node)
    handler = ast.copy_location(ast.ExceptHandler(type=kind, name=None, body=[passed]), call.node)
    body: list[ast.stmt] = (
        [ast.copy_location(type(node)(items=rest, body=node.body), node)] if rest else node.body
    )
    return ast.copy_location(ast.Try(body=body, handlers=[handler], orelse=[], finalbody=[]), node)


def _inside(node: ast.If, path: Path) -> Path:
    """A path whose log lines know the branch that they are in."""
    events = tuple(replace(one, origin=node) if one.kind is Kind.LOG else one for one in path.events)
    return Path(events, path.ending, path.node)


def _after_loop(path: Path, scope: Scope) -> Path:
    if path.ending is Ending.CONTINUE and path.node is not None:
        return Path((*path.events, CodeEvent(Kind.LEFT, path.node, scope)))
    return Path(path.events) if path.ending is Ending.BREAK else path


def _catches_duplicates(handler: ast.ExceptHandler) -> bool:
    return not is_broad(handler.type) and any(
        DUPLICATE_ERRORS.search(name) for name in error_names(handler.type)
    )


def _proven(path: Path) -> Path:
    """Inserts whose collision is caught: a unique index refuses the second one, so they reserve."""
    return Path(tuple(_as_reservation(event) for event in path.events), path.ending, path.node)


def _as_reservation(event: CodeEvent) -> CodeEvent:
    if event.kind is not Kind.WRITE or "insert" not in event.flags:
        return event
    return replace(event, kind=Kind.MARK if "pending" in event.flags else Kind.RESERVE)


def _is_dull(path: Path) -> bool:
    return path.ending is Ending.NEXT and all(
        event.kind in _DULL and not event.flags for event in path.events
    )


def _may_collide(event: CodeEvent) -> bool:
    return event.kind in (Kind.RESERVE, Kind.WRITE, Kind.MARK, Kind.FLUSH, Kind.COMMIT, Kind.DYNAMIC)
