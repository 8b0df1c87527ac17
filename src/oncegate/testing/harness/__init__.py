"""Chaos for users' own handlers: their event delivered again, changed, at once, with crashes at every step.

Used through the pytest fixture `oncegate_chaos`, or directly: `Chaos(handler,
event).assert_effects(charge=1)`.
"""

from oncegate.testing.harness.chaos import Chaos

__all__ = ["Chaos"]
