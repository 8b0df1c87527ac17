"""Values of signals for people."""

from __future__ import annotations

from oncegate.signals.definition import Unit


def shown(value: float, unit: Unit) -> str:
    """A signal's value for people."""
    if unit is Unit.RATIO:
        return f"{value:.1%}" if value < 0.1 else f"{value:.0%}"
    if unit is Unit.COUNT:
        return str(round(value))
    if value < 1:
        return f"{value * 1000:.3g} ms"
    if value < 60:
        return f"{value:.0f} s"
    return f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.0f} h"
