"""What happened at the downstreams: never twice, never unreserved, never with another content."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from lab.simulator.checkers.doubts import is_excused
from lab.simulator.evidence import Evidence, Intent

CALLS_MAX: Final = 40  # deliveries, attempts after failures, and recoveries of a schedule are fewer


def no_double_effect(evidence: Evidence) -> Iterator[str]:
    """I1: an intent has at most one effect at each downstream, whatever the downstream can do."""
    counts = Counter((effect.intent, effect.service) for effect in evidence.effects)
    for (intent, service), count in counts.items():
        if count > 1 and not is_excused(evidence, intent):
            yield f"{count} effects at {service} for {named(intent)}"


def no_call_without_reservation(evidence: Evidence) -> Iterator[str]:
    """I5, I19: no request leaves before the event's key is on record."""
    for call in evidence.calls:
        if not call.was_reserved and call.intent not in evidence.lost:
            yield f"{call.worker} called {call.service} for {named(call.intent)} without a reservation"


def calls_have_an_end(evidence: Evidence) -> Iterator[str]:
    """I26: what waits for something else does not call a downstream again and again."""
    counts = Counter((call.intent, call.service) for call in evidence.calls)
    for (intent, service), count in counts.items():
        if count > CALLS_MAX:
            yield f"{service} was called {count} times for {named(intent)}"


def one_content_for_a_key(evidence: Evidence) -> Iterator[str]:
    """I7: of two contents under one key only one ever has an effect."""
    amounts: dict[Intent, set[int]] = {}
    for effect in evidence.effects:
        amounts.setdefault(effect.intent, set()).add(effect.amount)
    for intent, found in amounts.items():
        if len(found) > 1 and not is_excused(evidence, intent):
            yield f"effects with contents {sorted(found)} for {named(intent)}"


def named(intent: Intent) -> str:
    """An intent for people."""
    return f"{intent.surface} {intent.tenant}/{':'.join(intent.ident)}"
