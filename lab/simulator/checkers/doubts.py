"""What a failover that lost commits makes impossible to know, and what it does not.

Nothing can be reconstructed without a worker that began the event's handler and lives on. Where there is
one, the event must be in front of a person: in the list of an incident.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from lab.simulator.evidence import Evidence, Intent
from oncegate.store.incarnations import WENT_BACK


def is_excused(evidence: Evidence, intent: Intent) -> bool:
    """Whether commits of an event were lost, and a person is told or none who knew lives."""
    knowers = evidence.lost.get(intent)
    if knowers is None:
        return False
    return not knowers & evidence.alive or intent in set(_told(evidence))


def _told(evidence: Evidence) -> Iterator[Intent]:
    """The events that incidents name."""
    for (kind, _), (_, body, _) in evidence.tables.documents.items():
        if kind != WENT_BACK or body is None:
            continue
        incident = json.loads(body)
        for shown in (*incident["held"], *incident["recovering"], *incident["ran_again"]):
            first, _, second = shown["label"].partition(":")
            yield Intent(shown["surface"], shown["tenant"], (first, second))
