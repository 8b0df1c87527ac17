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
    for name, size in (("h", 3600), ("min", 60)):
        if value >= 2 * size:
            return f"{value / size:.0f} {name}"
    return f"{value:.0f} s"
