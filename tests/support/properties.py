"""How many examples a property is tried with: the same few in every `make test`, many others in a soak.

`make soak` runs every property again with the profile `soak`, which tests/conftest.py registers.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings

CI, SOAK = "ci", "soak"
EXAMPLES, TIMES_AS_MANY = 60, 20


def register_profiles() -> None:
    """Makes both profiles known, and loads the one of `make test`.

    How long an example takes says something about the machine, not about the code. In CI a property that
    holds today holds tomorrow: its examples depend on nothing but its code.
    """
    patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None)
    settings.register_profile(CI, patient, derandomize=True, max_examples=EXAMPLES)
    settings.register_profile(SOAK, patient, derandomize=False, max_examples=EXAMPLES * TIMES_AS_MANY)
    settings.load_profile(CI)


def tried(examples: int, **options: Any) -> settings:
    """The settings of a property that needs more or fewer examples than most."""
    is_soak = settings.get_current_profile_name() == SOAK
    return settings(max_examples=examples * TIMES_AS_MANY if is_soak else examples, **options)
