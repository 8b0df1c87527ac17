"""OG002 keys of transport parts, OG009 keys not passed on, OG010 retries, OG012 new keys per attempt."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from oncegate.audit.flow.calls import CallInfo
from oncegate.audit.flow.events import CodeEvent, Keyed, Kind, Path
from oncegate.audit.project.scope import Scope, last_name
from oncegate.audit.rules.atoms import Atom, Part, describe, wrong_parts
from oncegate.audit.rules.view import Draft, View, branch_on, dedupe_test, short
from oncegate.audit.values import SourcePlace, TextEdit


def transport_keys(view: View) -> Iterator[Draft]:
    """OG002: a key that another delivery of the same event does not share."""
    done: set[int] = set()
    for path in view.paths:
        for position, event in enumerate(path.events):
            if event.key is None or event.kind not in (Kind.RESERVE, Kind.CHECK, Kind.MARK, Kind.EFFECT):
                continue
            if (
                event.kind is Kind.CHECK
                and dedupe_test(path, position) is None
                and branch_on(path, position) is None
            ):
                continue
            atoms = wrong_parts(event.key)
            if event.kind is Kind.EFFECT:
                atoms = [atom for atom in atoms if atom.part is Part.TRANSPORT]
            if atoms:
                node, scope, via = _where_made(event, atoms)
                if id(node) not in done:
                    done.add(id(node))
                    text = f"key made of transport parts: {describe(atoms)}"
                    yield Draft("OG002", node, scope, text, short(event), via)


def fresh_keys(view: View) -> Iterator[Draft]:
    """OG012: an idempotency key that is made for each attempt."""
    done: set[int] = set()
    for _, _, event in view.occurrences(Kind.EFFECT):
        if event.key is None:
            continue
        atoms = [atom for atom in wrong_parts(event.key) if atom.part is not Part.TRANSPORT]
        node, scope, via = _where_made(event, atoms)
        if atoms and id(node) not in done and not _is_stored(event, view):
            done.add(id(node))
            text = f"new idempotency key for each attempt: {describe(atoms)}"
            yield Draft("OG012", node, scope, text, short(event), via)


def _where_made(
    event: CodeEvent, atoms: list[Atom]
) -> tuple[ast.AST, Scope, tuple[tuple[Scope, ast.Call], ...]]:
    """The call that passes a wrong key: in the function that makes the key, not in a helper that all share."""
    functions = {atom.scope.function for atom in atoms}
    if event.scope.function not in functions:
        for position, (scope, call) in enumerate(event.via):
            if scope.function in functions:
                return call, scope, event.via[:position]
    return event.node, event.scope, event.via


def _is_stored(event: CodeEvent, view: View) -> bool:
    """Whether the name that holds a fresh key is written to a store before the call."""
    key = event.key.node if event.key is not None else None
    if not isinstance(key, ast.Name) or event.scope.function is None:
        return False
    for path in view.paths:
        for one in path.events:
            if one.node is event.node:
                break
            if (
                one.kind in (Kind.RESERVE, Kind.WRITE, Kind.MARK)
                and one.scope.function is event.scope.function
            ):
                if any(isinstance(part, ast.Name) and part.id == key.id for part in ast.walk(one.node)):
                    return True
    return False


def keys_not_passed(view: View) -> Iterator[Draft]:
    """OG009: an API takes a key, and the call passes none."""
    done: set[int] = set()
    for path, position, event in view.occurrences(Kind.EFFECT):
        if (
            not event.takes_key
            or event.keyed is not Keyed.NO
            or "gated" in event.flags
            or id(event.node) in done
        ):
            continue
        done.add(id(event.node))
        text = f"{event.takes_key} takes an idempotency key, and {short(event)} passes none"
        yield Draft(
            "OG009", event.node, event.scope, text, short(event), event.via, edits=_pass_on(path, position)
        )


def _pass_on(path: Path, position: int) -> list[TextEdit]:
    """Passes the key that the same function has reserved to a call that takes one by keyword."""
    event = path.events[position]
    node, unit = event.node, event.scope.function
    if unit is None or not isinstance(node, ast.Call) or not _takes_keyword(node, event):
        return []
    for one in path.events[:position]:
        key = one.key
        is_own = one.kind is Kind.RESERVE and one.scope.function is unit and not one.via
        if (
            not is_own
            or key is None
            or not isinstance(key.node, ast.Name | ast.JoinedStr)
            or wrong_parts(key)
        ):
            continue
        last = max(
            [*node.args, *(part.value for part in node.keywords)],
            key=lambda part: (part.end_lineno or 0, part.end_col_offset or 0),
        )
        line, column = last.end_lineno or 1, (last.end_col_offset or 0) + 1
        place = SourcePlace(unit.module.shown, line, column, line, column)
        written = ast.get_source_segment(unit.module.text, key.node) or ast.unparse(key.node)
        return [TextEdit(place, f", idempotency_key={written}", "pass the reserved key on")]
    return []


def _takes_keyword(node: ast.Call, event: CodeEvent) -> bool:
    is_class = isinstance(node.func, ast.Attribute) and last_name(node.func.value)[:1].isupper()
    has_arguments = bool(node.args or node.keywords) and not any(one.arg is None for one in node.keywords)
    return has_arguments and (event.library == "Square" or (event.library == "Stripe" and is_class))


def retried_calls(view: View) -> Iterator[Draft]:
    """OG010: a retry around a call that carries no key."""
    done: set[int] = set()
    for _, _, event in view.occurrences(Kind.EFFECT):
        if (
            "retried any" in event.flags
            and event.keyed is not Keyed.YES
            and "gated" not in event.flags
            and id(event.node) not in done
        ):
            done.add(id(event.node))
            text = f"retry around a call that is not idempotent: {short(event)}"
            yield Draft("OG010", event.node, event.scope, text, short(event), event.via)


def retry_settings(calls: list[tuple[ast.Call, Scope]]) -> Iterator[Draft]:
    """OG010: a transport that repeats POST by itself."""
    for node, scope in calls:
        call = CallInfo(node, scope)
        if last_name(node.func) != "Retry" or call.package not in ("urllib3", "requests", ""):
            continue
        given = call.keyword("allowed_methods", "method_whitelist")
        if given is None:
            continue
        is_all = isinstance(given, ast.Constant) and given.value in (None, False)
        text = ast.dump(given).upper()
        if is_all or "'POST'" in text or "'PATCH'" in text:
            yield Draft(
                "OG010",
                node,
                scope,
                "the transport repeats POST requests by itself: Retry(...)",
                "Retry(...)",
            )
