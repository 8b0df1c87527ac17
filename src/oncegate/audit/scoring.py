"""The score card: four questions about a handler, answered from its paths and findings."""

from __future__ import annotations

from oncegate.audit.flow.events import CodeEvent, Keyed, Kind
from oncegate.audit.rules.view import Draft, Guard, View, guard_before
from oncegate.audit.values import ScoreCard, SourcePlace, Verdict3


def card_of(view: View, found: list[Draft]) -> ScoreCard:
    """Answers the four questions; a question that the code does not answer stays open."""
    rules = {draft.rule for draft in found}
    handler = view.handler
    node = handler.scope_node
    where = SourcePlace(
        handler.unit.module.shown, getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1
    )
    return ScoreCard(
        handler.name,
        handler.framework,
        where,
        _reserves(view, rules),
        _business_key(view, rules),
        _durable(view, rules),
        _visible(view, rules),
    )


def _events(view: View, *kinds: Kind) -> list[CodeEvent]:
    return [event for path in view.paths for event in path.events if event.kind in kinds]


def _reserves(view: View, rules: set[str]) -> Verdict3:
    if {"OG001", "OG005", "OG014"} & rules:
        return Verdict3.NO
    if view.handler.is_gated:
        return Verdict3.YES
    effects = [(path, at, event) for path, at, event in view.occurrences(Kind.EFFECT)]
    if effects and all(
        event.keyed is Keyed.YES or guard_before(path, at) is Guard.RESERVED for path, at, event in effects
    ):
        return Verdict3.YES
    return Verdict3.CANNOT_TELL


def _business_key(view: View, rules: set[str]) -> Verdict3:
    if {"OG002", "OG012"} & rules:
        return Verdict3.NO
    keyed = [
        event for event in _events(view, Kind.RESERVE, Kind.CHECK, Kind.EFFECT) if event.key is not None
    ]
    return Verdict3.YES if keyed or view.handler.template is not None else Verdict3.CANNOT_TELL


def _durable(view: View, rules: set[str]) -> Verdict3:
    if {"OG007", "OG008", "OG013", "OG004"} & rules:
        return Verdict3.NO
    if view.handler.is_gated or _events(view, Kind.ACK):
        return Verdict3.YES
    return Verdict3.CANNOT_TELL


def _visible(view: View, rules: set[str]) -> Verdict3:
    if "OG006" in rules:
        return Verdict3.NO
    if view.handler.is_gated:
        return Verdict3.YES
    has_guard = bool(_events(view, Kind.RESERVE, Kind.CHECK))
    return Verdict3.YES if has_guard and _events(view, Kind.LOG) else Verdict3.CANNOT_TELL
