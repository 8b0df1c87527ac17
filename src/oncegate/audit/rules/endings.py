"""OG006 silent drops, OG008 swallowed failures and paths without acknowledgement."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from oncegate.audit.flow.events import ROW_COUNTS, CodeEvent, Ending, Kind, Path, refers
from oncegate.audit.flow.special import is_broad
from oncegate.audit.flow.state import is_state
from oncegate.audit.project.scope import Scope
from oncegate.audit.rules.view import Draft, Meaning, View, branch_on, failed, first_test, meaning_of, short

_QUIET: Final = frozenset(
    {
        Kind.ACK,
        Kind.FETCH,
        Kind.END,
        Kind.COMMIT,
        Kind.ROLLBACK,
        Kind.TEST,
        Kind.RAISED,
        Kind.CAUGHT,
        Kind.LEFT,
        Kind.FLUSH,
    }
)
_HARMLESS: Final = re.compile(
    r"^(str|repr|len|int|float|sleep|format|join|get|dict|list|print_exc|format_exc|isinstance|type|time"
    r"|now|monotonic|Response|JSONResponse"
    r"|HttpResponse|jsonify|json_response|JsonResponse|PlainTextResponse|dumps|decode|loads|json|encode"
    r"|close|yield)$"
)
_TELLS: Final = re.compile(
    r"duplicat|already|repeat|replay|seen|exists|conflict|409|208|cached|previous|stored", re.IGNORECASE
)


def silent_drops(view: View) -> Iterator[Draft]:
    """OG006: a repeat ends without a log line, a metric or a record."""
    done: set[int] = set()
    for path in view.paths:
        drop = _drop_of(path)
        if drop is None:
            continue
        guard, start, node = drop
        if id(node) in done or not _is_quiet(path, start) or not _works_elsewhere(view, guard):
            continue
        if _answers(node) or _has_told(path, guard, start):
            continue
        done.add(id(node))
        scope = next(
            (one.scope for one in reversed(path.events) if one.kind is Kind.LEFT and one.node is node), None
        )
        where = scope or (guard.via[0][0] if guard.via else guard.scope)
        yield Draft(
            "OG006",
            node,
            where,
            f"repeat is dropped silently after {short(guard)}",
            short(guard),
            guard.via,
        )


def _drop_of(path: Path) -> tuple[CodeEvent, int, ast.AST] | None:
    """The guard that a path ends by, where the branch begins, and the statement that leaves."""
    for position in range(len(path.events) - 1, -1, -1):
        event = path.events[position]
        if event.kind not in (Kind.RESERVE, Kind.CHECK, Kind.FLUSH, Kind.COMMIT):
            continue
        names = failed(path, position, len(path.events))
        if names:
            start = (
                next(at for at in range(position, len(path.events)) if path.events[at].kind is Kind.CAUGHT)
                if any(one.kind is Kind.CAUGHT for one in path.events[position:])
                else None
            )
            if start is None or not re.search(
                r"integrity|unique|duplicate|already|conflict|conditionalcheck|exists", names, re.IGNORECASE
            ):
                return None
            handler = path.events[start].node
            asked = branch_on(path, position)
            leaving = _leaving(path, asked if asked is not None and asked > start else start)
            return (
                event,
                start,
                leaving or (handler.body[-1] if isinstance(handler, ast.ExceptHandler) else handler),
            )
        if event.kind in (Kind.FLUSH, Kind.COMMIT):
            continue
        at = branch_on(path, position)
        if at is None or not _is_repeat(event, path.events[at]):
            return None
        if any(one.kind in (Kind.EFFECT, Kind.WRITE, Kind.CAUGHT) for one in path.events[at:]):
            return None
        leaving = _leaving(path, at)
        return (event, first_test(path, position, at), leaving) if leaving is not None else None
    return None


def _is_repeat(guard: CodeEvent, test: CodeEvent) -> bool:
    """Whether this side of the branch is the one for repeats."""
    meaning = meaning_of(test.node)
    meaning = meaning if test.polarity else meaning.flipped()
    if guard.kind is Kind.RESERVE:
        return True
    if guard.by_name:
        is_new = "new" in guard.what or "first" in guard.what
        return meaning is (Meaning.ABSENT if is_new else Meaning.PRESENT)
    if guard.library in ("redis", "cache"):
        return meaning is Meaning.PRESENT
    return meaning in (Meaning.PRESENT, Meaning.STATE) and not _asks_other_field(test.node, guard)


def _asks_other_field(test: ast.AST, guard: CodeEvent) -> bool:
    """Whether a branch asks for a field of a row that says nothing about work that was done: `if order.template:`."""
    held = {name for _, name in guard.names}
    fields = [
        one.attr
        for one in ast.walk(test)
        if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.value.id in held
    ]
    return bool(fields) and not any(is_state(name) or name in ROW_COUNTS for name in fields)


def _leaving(path: Path, start: int) -> ast.AST | None:
    """The return or continue that ends a path right after a branch."""
    left = [one.node for one in path.events[start + 1 :] if one.kind is Kind.LEFT]
    if left:
        return left[0]
    if path.ending in (Ending.RETURN, Ending.CONTINUE) and path.node is not None:
        branch = path.events[start].origin or path.events[start].node
        first, last = getattr(branch, "lineno", 0), getattr(branch, "end_lineno", 0) or 0
        return path.node if first <= getattr(path.node, "lineno", 0) <= last else None
    return None


def _is_quiet(path: Path, start: int) -> bool:
    for event in path.events[start + 1 :]:
        if event.kind is Kind.OTHER:
            if event.what != "clock" and not _HARMLESS.match(_called(event)):
                return False
        elif event.kind not in _QUIET:
            return False
    return True


def _has_told(path: Path, guard: CodeEvent, start: int) -> bool:
    """Whether a helper has logged in a branch on the guard's result, before its caller branches again."""
    return any(
        event.kind is Kind.LOG
        and isinstance(event.origin, ast.If)
        and refers(CodeEvent(Kind.TEST, event.origin.test, event.scope), guard)
        for event in path.events[:start]
    )


def _called(event: CodeEvent) -> str:
    return event.what.removesuffix("(...)").rsplit(".", 1)[-1]


def _works_elsewhere(view: View, guard: CodeEvent) -> bool:
    for path in view.paths:
        for position, event in enumerate(path.events):
            if event.node is guard.node and any(
                one.kind in (Kind.EFFECT, Kind.WRITE, Kind.DYNAMIC, Kind.SPAWN)
                or (one.kind is Kind.OTHER and not _HARMLESS.match(_called(one)))
                for one in path.events[position + 1 :]
            ):
                return True
    return False


def _answers(node: ast.AST) -> bool:
    """Whether a return says that it is a repeat, or gives a stored result."""
    value = node.value if isinstance(node, ast.Return) else None
    if value is None or isinstance(value, ast.Constant):
        return isinstance(value, ast.Constant) and bool(_TELLS.search(str(value.value)))
    if _TELLS.search(ast.unparse(value)):
        return True
    return isinstance(value, ast.Name | ast.Attribute | ast.Subscript) and not isinstance(
        value, ast.Constant
    )


def swallowed_failures(view: View) -> Iterator[Draft]:
    """OG008: an error after an effect counts as done, or a path never acknowledges."""
    done: set[int] = set()
    for path in view.paths:
        for position, event in enumerate(path.events):
            if (
                event.kind is Kind.CAUGHT
                and id(event.node) not in done
                and _is_swallowed(view, path, position)
            ):
                done.add(id(event.node))
                text = f"the error is swallowed after {short(_effect_before(path, position) or event)}, and the event counts as done"
                yield Draft("OG008", event.node, event.scope, text, "except", event.via)
    yield from _unacknowledged(view)


def _effect_before(path: Path, position: int) -> CodeEvent | None:
    raised = path.events[position - 1] if position else None
    if raised is None or raised.kind is not Kind.RAISED:
        return None
    start = getattr(path.events[position].origin, "lineno", 0)
    for event in reversed(path.events[:position]):
        inside = any(getattr(one, "lineno", 0) >= start for one in event.places())
        if event.kind is Kind.EFFECT and inside and not {"gated"} & event.flags:
            return event
    return None


def _is_swallowed(view: View, path: Path, position: int) -> bool:
    handler = path.events[position].node
    effect = _effect_before(path, position)
    if not isinstance(handler, ast.ExceptHandler) or effect is None or not is_broad(handler.type):
        return False
    if any(flag.startswith("retried") for flag in effect.flags) or path.ending is Ending.RAISE:
        return False
    rest = path.events[position + 1 :]
    if any(one.kind not in _QUIET | {Kind.LOG, Kind.OTHER} for one in rest):
        return False
    if any(one.kind is Kind.OTHER and not _HARMLESS.match(_called(one)) for one in rest):
        return False
    if view.handler.kind in ("http", "tool"):
        return path.ending is not Ending.RETURN or not _tells_failure(path.node)
    if isinstance(path.node, ast.Return) and path.node.value is not None and _tells_failure(path.node):
        return False
    return not _comes_again(view, rest)


def _tells_failure(node: ast.AST | None) -> bool:
    if not isinstance(node, ast.Return) or node.value is None:
        return False
    text = ast.unparse(node.value)
    return bool(
        re.search(r"[45]\d\d|error|fail|abort|retry|false|itemfailures", text, re.IGNORECASE)
    ) or isinstance(node.value, ast.Name)


def _comes_again(view: View, rest: tuple[CodeEvent, ...]) -> bool:
    """Whether the broker delivers again what this path does not acknowledge."""
    if any(one.kind is Kind.ACK for one in rest):
        return False
    brokers = {event.library for _, _, event in view.occurrences(Kind.ACK)}
    return bool(brokers & {"SQS", "Pub/Sub", "NATS", "Redis stream", "message"})


def _unacknowledged(view: View) -> Iterator[Draft]:
    """A repeat that is neither acknowledged nor given back comes again for ever."""
    brokers = {event.library for _, _, event in view.occurrences(Kind.ACK)}
    if not brokers & {"RabbitMQ", "SQS", "Pub/Sub", "NATS", "message"}:
        return
    done: set[int] = set()
    for path in view.paths:
        drop = _drop_of(path)
        if drop is None and brokers == {"RabbitMQ"}:
            yield from _stuck(view, path, done)
        if drop is None or id(drop[2]) in done:
            continue
        if any(one.kind in (Kind.ACK, Kind.NACK) for one in path.events) or path.ending is Ending.RAISE:
            continue
        if not _works_elsewhere(view, drop[0]):
            continue
        done.add(id(drop[2]))
        guard = drop[0]
        where = guard.via[0][0] if guard.via and drop[2] is path.node else guard.scope
        yield Draft(
            "OG008",
            drop[2],
            where,
            "a repeat is dropped without acknowledging it, and comes again for ever",
            short(guard),
            guard.via,
        )


def _has_no_message(path: Path) -> bool:
    """Whether a path ends because nothing came: `if method is None: continue`."""
    if any(one.kind not in _QUIET | {Kind.LOG, Kind.OTHER} for one in path.events):
        return False
    tests = [one for one in path.events if one.kind is Kind.TEST]
    return any(
        (meaning_of(one.node) if one.polarity else meaning_of(one.node).flipped()) is Meaning.ABSENT
        for one in tests
    )


def _stuck(view: View, path: Path, done: set[int]) -> Iterator[Draft]:
    """RabbitMQ keeps a message that is neither acknowledged nor given back until the channel closes."""
    if path.ending is Ending.RAISE or any(
        one.kind in (Kind.ACK, Kind.NACK, Kind.DYNAMIC, Kind.SPAWN) for one in path.events
    ):
        return
    if _has_no_message(path):
        return
    caught = next((one for one in reversed(path.events) if one.kind is Kind.CAUGHT), None)
    node = caught.node if caught is not None else path.node
    if node is None or id(node) in done or view.handler.settings:
        return
    scope = (
        caught.scope
        if caught is not None
        else Scope(view.index, view.handler.unit.module, view.handler.unit)
    )
    if (
        caught is not None
        and is_broad(getattr(node, "type", None))
        and _effect_before(path, path.events.index(caught)) is not None
    ):
        return
    done.add(id(node))
    text = "this path neither acknowledges the message nor gives it back"
    yield Draft("OG008", node, scope, text, "unacknowledged", caught.via if caught is not None else ())
