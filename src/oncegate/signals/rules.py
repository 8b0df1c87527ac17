"""Alert rules for Prometheus, made from the definitions: the same limits, the same words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from oncegate.signals.definitions import DEFINITIONS, Definition, Level, Thresholds

_HEAD: Final = """\
# Made by `oncegate signals rules`; make it again rather than editing it.
groups:
  - name: oncegate
    rules:
"""
_SEVERITY: Final = {Level.PAGE: "page", Level.TICKET: "ticket"}


def alert_rules(thresholds: Thresholds | None = None) -> str:
    """Returns a rules file with one alert for each signal and level."""
    limits = thresholds or Thresholds()
    rules = [rule for definition in DEFINITIONS for rule in _rules(definition, limits)]
    return _HEAD + "".join(rules)


def _rules(definition: Definition, thresholds: Thresholds) -> Iterator[str]:
    ticket, page = thresholds.of(definition)
    for level, limit in ((Level.PAGE, page), (Level.TICKET, ticket)):
        if limit is not None:
            yield _rule(definition, level, limit)


def _rule(definition: Definition, level: Level, limit: float) -> str:
    # A text in JSON is a text in YAML: nothing in it can be read as anything else.
    name = "".join(word.capitalize() for word in definition.name.split("_"))
    place = f"{{{{ $labels.{definition.label} }}}}"
    where = f" on {place}" if definition.label else ""
    action = definition.action.replace(definition.label.upper() or "SURFACE", place)
    lines = (
        f"      - alert: Oncegate{name}{_SEVERITY[level].capitalize()}",
        f"        expr: {json.dumps(f'({definition.query}) >= {limit:g}')}",
        "        for: 1m",
        "        keep_firing_for: 5m",
        "        labels:",
        f"          severity: {_SEVERITY[level]}",
        f"          signal: {definition.name}",
        "        annotations:",
        f"          summary: {json.dumps(f'{definition.title}{where}: {{{{ $value }}}}')}",
        f"          description: {json.dumps(f'{definition.meaning}. {action}')}",
    )
    return "\n".join(lines) + "\n"
