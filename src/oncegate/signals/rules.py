"""Alert rules for Prometheus, made from the definitions: the same limits, the same words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from oncegate.signals.definition import Definition, Level, Unit
from oncegate.signals.definitions import DEFINITIONS, Thresholds

_HEAD: Final = """\
# Made by `oncegate signals rules`; make it again rather than editing it.
groups:
  - name: oncegate
    rules:
"""
_SHOWN: Final = {
    Unit.RATIO: "$value | humanizePercentage",
    Unit.SECONDS: "$value | humanizeDuration",
    Unit.COUNT: "$value | humanize",
}
# Nothing is scraped: every other alert would stay silent.
_ABSENT: Final = """\
      - alert: OncegateAbsentPage
        expr: "absent(oncegate_arrivals_total) or absent(oncegate_entries_waiting)"
        for: 5m
        labels:
          severity: page
          signal: absent
        annotations:
          summary: "No metrics of oncegate are scraped"
          description: "the service or its /metrics is down, or nothing scrapes it; no other alert can fire"
"""
# A process that was scraped within a day and does not answer: what it would tell is not known.
_DOWN: Final = """\
      - alert: OncegateDownPage
        expr: "(up == 0) and on (job, instance) max_over_time(oncegate_worker_absent_seconds[1d])"
        for: 2m
        labels:
          severity: page
          signal: down
        annotations:
          summary: "{{ $labels.instance }} does not answer"
          description: "a process that told its metrics does not; what it sees is not known"
"""
_SEVERITY: Final = {Level.PAGE: "page", Level.TICKET: "ticket"}


def alert_rules(thresholds: Thresholds | None = None) -> str:
    """Returns a rules file with one alert for each signal and level."""
    limits = thresholds or Thresholds()
    rules = [rule for definition in DEFINITIONS for rule in _rules(definition, limits)]
    return _HEAD + _ABSENT + _DOWN + "".join(rules)


def _rules(definition: Definition, thresholds: Thresholds) -> Iterator[str]:
    places = sorted(name for name, limits in thresholds.places.items() if definition.name in limits)
    for place in ("", *(places if definition.label else ())):
        ticket, page = thresholds.of(definition, place)
        for level, limit in ((Level.PAGE, page), (Level.TICKET, ticket)):
            if limit is not None:
                yield _rule(definition, level, limit, _where(definition, place, places))


def _where(definition: Definition, place: str, places: list[str]) -> str:
    """What narrows a rule to one place, or to all but those that have limits of their own."""
    if not places or not definition.label:
        return ""
    chosen = [place] if place else places
    named = " or ".join(
        f'label_replace(vector(1), "{definition.label}", {json.dumps(name)}, "", "")' for name in chosen
    )
    return f" {'and' if place else 'unless'} on ({definition.label}) ({named})"


def _rule(definition: Definition, level: Level, limit: float, narrowed: str = "") -> str:
    # A text in JSON is a text in YAML: nothing in it can be read as anything else.
    name = "".join(word.capitalize() for word in definition.name.split("_"))
    place = f"{{{{ $labels.{definition.label} }}}}"
    where = f" on {place}" if definition.label else ""
    value = f"{{{{ {_SHOWN[definition.unit]} }}}}"
    action = definition.action.replace(definition.label.upper() or "SURFACE", place)
    expression = f"({definition.query}) >= {limit:g}"
    expression = f"({expression}){narrowed}" if narrowed else expression
    lines = (
        f"      - alert: Oncegate{name}{_SEVERITY[level].capitalize()}",
        f"        expr: {json.dumps(expression)}",
        "        for: 1m",
        "        keep_firing_for: 5m",
        "        labels:",
        f"          severity: {_SEVERITY[level]}",
        f"          signal: {definition.name}",
        "        annotations:",
        f"          summary: {json.dumps(f'{definition.title}{where}: {value}')}",
        f"          description: {json.dumps(f'{definition.meaning}. {action}')}",
    )
    return "\n".join(lines) + "\n"
