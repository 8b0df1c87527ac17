"""The plugin's fixtures by name, so that these tests also run where the package is not installed anew."""

from __future__ import annotations

from oncegate.testing.plugin import (
    oncegate_chaos,
    oncegate_clock,
    oncegate_gate,
    oncegate_postgres,
    oncegate_replay,
    oncegate_store,
)

__all__ = [
    "oncegate_chaos",
    "oncegate_clock",
    "oncegate_gate",
    "oncegate_postgres",
    "oncegate_replay",
    "oncegate_store",
]
