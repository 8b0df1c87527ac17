"""Judges one module: finds its handlers, makes their paths, runs the rules, fills the score cards."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from oncegate.audit.catalogue import RULES
from oncegate.audit.entries.find import ModuleEntries
from oncegate.audit.entries.values import Handler
from oncegate.audit.flow.events import Kind, Path
from oncegate.audit.flow.tracer import Tracer
from oncegate.audit.project.index import ProjectIndex
from oncegate.audit.project.scope import Scope, spelled
from oncegate.audit.project.units import ModuleUnit
from oncegate.audit.rules.acknowledging import early_settings_of
from oncegate.audit.rules.all import HANDLER_RULES
from oncegate.audit.rules.keys import retry_settings
from oncegate.audit.rules.reservations import window_settings
from oncegate.audit.rules.view import Draft, OpenQuestion, View
from oncegate.audit.scoring import card_of
from oncegate.audit.values import AuditFinding, NotJudged, ScoreCard, SourcePlace

DOUBTS_MAX: Final = 20  # of one handler
ALSO_MAX: Final = 20
_OF_HANDLERS: Final = frozenset({"OG001", "OG004", "OG005", "OG013"})
_MIDDLEWARE: Final = re.compile(
    r"add_middleware\(\s*\w*Idempoten|IdempotencyKey\(|Idempotency\w*Middleware"
)


class ModuleResult(Struct):
    """What was found in one module, and which files it depends on."""

    findings: list[AuditFinding]
    not_judged: list[NotJudged]
    cards: list[ScoreCard]


def judge_module(
    index: ProjectIndex, module: ModuleUnit, named: Sequence[str], rules: frozenset[str]
) -> ModuleResult:
    """Everything that is found in the handlers of a module."""
    entries = ModuleEntries(index, module, named)
    tracer = Tracer(index)
    result = ModuleResult([], [], [])
    drafts: list[tuple[Draft, Handler | None]] = []
    acts = False
    is_protected = bool(_MIDDLEWARE.search(module.text))
    for handler in entries.handlers:
        view = _view(index, tracer, handler, is_protected)
        acts = acts or any(
            event.kind in (Kind.EFFECT, Kind.WRITE, Kind.DYNAMIC)
            for path in view.paths
            for event in path.events
        )
        found = [draft for rule in HANDLER_RULES for draft in rule(view) if draft.rule in rules]
        drafts += [(draft, handler) for draft in found]
        _doubt(view)
        result.not_judged += _not_judged(view)
        result.cards.append(card_of(view, found))
    if entries.handlers or entries.settings:
        first = entries.handlers[0] if entries.handlers else None
        extra = [
            *early_settings_of(entries, acts),
            *retry_settings(entries.calls),
            *window_settings(entries.calls),
        ]
        drafts += [(draft, first) for draft in extra if draft.rule in rules]
    result.findings = _findings(drafts)
    return result


def _view(index: ProjectIndex, tracer: Tracer, handler: Handler, is_protected: bool) -> View:
    if handler.body is not None:
        scope = Scope(index, handler.unit.module, handler.unit)
        paths = tracer.block(handler.body, scope)
    else:
        paths = tracer.paths(handler.unit)
    return View(index, handler, paths, tracer.reached_from(handler.unit, paths), is_protected)


def _doubt(view: View) -> None:
    """Notes the calls that could not be followed."""
    for path in view.paths:
        for event in path.events:
            if event.kind is Kind.DYNAMIC:
                reason = f"{event.what} is not followed: its target is only known when it runs"
                view.doubts.append(OpenQuestion(event.node, event.scope, reason))
            elif (
                event.kind is Kind.WRITE
                and "insert" in event.flags
                and not view.handler.is_gated
                and view.handler.kind != "http"
            ):
                if not _has_guard(path):
                    reason = f"{event.what} inserts a row; whether a unique index refuses the second one is not visible"
                    view.doubts.append(OpenQuestion(event.node, event.scope, reason))


def _has_guard(path: Path) -> bool:
    return any(event.kind in (Kind.RESERVE, Kind.CHECK, Kind.LOCK) for event in path.events)


def _not_judged(view: View) -> list[NotJudged]:
    found: dict[tuple[SourcePlace, str], NotJudged] = {}
    for doubt in view.doubts:
        where = place(doubt.node, doubt.scope.module)
        found.setdefault((where, doubt.reason), NotJudged(where, view.handler.name, doubt.reason))
    return list(found.values())[:DOUBTS_MAX]


def place(node: ast.AST, module: ModuleUnit) -> SourcePlace:
    """Where a node is."""
    return SourcePlace(
        module.shown,
        getattr(node, "lineno", 1),
        getattr(node, "col_offset", 0) + 1,
        getattr(node, "end_lineno", 0) or 0,
        (getattr(node, "end_col_offset", 0) or 0) + 1,
    )


def _findings(drafts: Iterable[tuple[Draft, Handler | None]]) -> list[AuditFinding]:
    found: dict[tuple[str, str, int, int], AuditFinding] = {}
    for draft, handler in drafts:
        made = _finding(draft, handler)
        key = (draft.rule, made.place.path, made.place.line, made.place.column)
        found[key] = merged(found[key], made) if key in found else made
    return [found[key] for key in sorted(found, key=lambda key: (key[1], key[2], key[3], key[0]))]


def merged(one: AuditFinding, other: AuditFinding) -> AuditFinding:
    """A finding that several handlers reach names them all."""
    names = dict.fromkeys((one.handler, *one.also, other.handler, *other.also))
    return replace(one, also=tuple(name for name in names if name and name != one.handler)[:ALSO_MAX])


def _finding(draft: Draft, handler: Handler | None) -> AuditFinding:
    rule = RULES[draft.rule]
    node, scope, message = _shown_at(draft, handler)
    module = scope.module
    where = place(node, module)
    function = scope.function.qualname if scope.function else "<module>"
    line = module.lines[where.line - 1].rstrip() if where.line <= len(module.lines) else ""
    head_line = scope.function.node.lineno if scope.function else 0
    flow = tuple(place(call, one.module) for one, call in draft.via)
    end = place(draft.node, draft.scope.module)
    return AuditFinding(
        draft.rule, where, message, handler.name if handler else module.name, f"{module.name}.{function}", draft.subject, rule.why,
        draft.fix or rule.fix, source=line[:200], head=module.lines[head_line - 1].rstrip()[:200] if head_line else "",
        head_line=head_line, flow=(*flow, end) if flow else (), edits=tuple(draft.edits),
        fingerprint=fingerprint(draft.rule, where.path, function, draft.subject),
    )  # fmt: skip


def _shown_at(draft: Draft, handler: Handler | None) -> tuple[ast.AST, Scope, str]:
    """Where a fault of a handler is shown: in the handler's own module, also when a client in another one makes the call."""
    home = handler.unit.module if handler is not None else draft.scope.module
    if draft.rule in _OF_HANDLERS and draft.scope.module is not home:
        for scope, call in reversed(draft.via):
            if scope.module is home:
                inside = f"{draft.scope.module.shown}:{getattr(draft.node, 'lineno', 1)}"
                return call, scope, f"{draft.message} (called by {spelled(call.func)}(...), in {inside})"
    return draft.node, draft.scope, draft.message


def fingerprint(rule: str, path: str, function: str, subject: str) -> str:
    """A name for a finding that stays when lines move."""
    text = "\0".join((rule, path, function, subject))
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=10).hexdigest()
