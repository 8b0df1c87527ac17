"""A dashboard for Grafana, made from the definitions: one panel a signal, its limits drawn in."""

from __future__ import annotations

import json
from typing import Any, Final

from oncegate.signals.definition import Definition, Unit
from oncegate.signals.definitions import DEFINITIONS, Thresholds

_UNITS: Final = {Unit.RATIO: "percentunit", Unit.SECONDS: "s", Unit.COUNT: "short"}
_WIDTH, _HEIGHT, _COLUMNS = 12, 8, 2
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


def dashboard(thresholds: Thresholds | None = None) -> str:
    """Returns a dashboard as JSON."""
    limits = thresholds or Thresholds()
    panels = [_panel(number, definition, limits) for number, definition in enumerate(DEFINITIONS)]
    document = {
        "title": "oncegate",
        "uid": "oncegate",
        "tags": ["oncegate"],
        "timezone": "utc",
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-24h", "to": "now"},
        "templating": {
            "list": [{"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Source"}]
        },
        "panels": panels,
    }
    return json.dumps(document, indent=2) + "\n"


def _panel(number: int, definition: Definition, thresholds: Thresholds) -> dict[str, Any]:
    legend = f"{{{{{definition.label}}}}}" if definition.label else definition.title
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": definition.title,
        "description": f"{definition.meaning}. {definition.action}",
        "datasource": _SOURCE,
        "gridPos": {
            "x": number % _COLUMNS * _WIDTH,
            "y": number // _COLUMNS * _HEIGHT,
            "w": _WIDTH,
            "h": _HEIGHT,
        },
        "targets": [
            {"refId": "A", "expr": definition.query, "legendFormat": legend, "datasource": _SOURCE}
        ],
        "fieldConfig": {
            "defaults": {
                "unit": _UNITS[definition.unit],
                "min": 0,
                "custom": {"thresholdsStyle": {"mode": "line"}},
                "thresholds": {"mode": "absolute", "steps": _steps(definition, thresholds)},
            },
            "overrides": [],
        },
    }


def _steps(definition: Definition, thresholds: Thresholds) -> list[dict[str, Any]]:
    ticket, page = thresholds.of(definition)
    coloured = (("yellow", ticket), ("red", page))
    limits = [{"color": colour, "value": limit} for colour, limit in coloured if limit is not None]
    return [{"color": "green", "value": None}, *limits]
