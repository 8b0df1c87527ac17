"""The checkers: one small function for each invariant, over the evidence of one run.

They know the truth of the downstreams, of the ledger's rows and of the queue, and nothing of how the gate
works.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from lab.simulator.checkers.deliveries import (
    all_settles,
    answers_agree,
    committed_means_done,
    nothing_is_lost,
    recorded_before_acknowledged,
)
from lab.simulator.checkers.effects import (
    calls_have_an_end,
    no_call_without_reservation,
    no_double_effect,
    one_content_for_a_key,
)
from lab.simulator.checkers.ledgers import (
    fences_grow,
    final_is_final,
    leases_follow_no_wall_clock,
    neighbours_are_not_touched,
    old_fences_write_nothing,
    one_booking_for_a_commit,
    one_record_for_a_change,
    passing_failures_are_not_final,
    retries_end_by_time,
    waits_are_obeyed,
    writes_are_their_own,
)
from lab.simulator.checkers.violation import Violation
from lab.simulator.evidence import Evidence

Checker = Callable[[Evidence], Iterator[str]]

CHECKERS: Final[tuple[tuple[str, Checker], ...]] = (
    ("I1", no_double_effect),
    ("I2", nothing_is_lost),
    ("I2", committed_means_done),
    ("I2", all_settles),
    ("I3", recorded_before_acknowledged),
    ("I4", old_fences_write_nothing),
    ("I4", fences_grow),
    ("I5", no_call_without_reservation),
    ("I7", one_content_for_a_key),
    ("I7", answers_agree),
    ("I9", final_is_final),
    ("I9", passing_failures_are_not_final),
    ("I26", waits_are_obeyed),
    ("I26", retries_end_by_time),
    ("I15", leases_follow_no_wall_clock),
    ("I16", one_record_for_a_change),
    ("I16", one_booking_for_a_commit),
    ("I22", writes_are_their_own),
    ("I25", neighbours_are_not_touched),
    ("I26", calls_have_an_end),
)


def check(evidence: Evidence) -> list[Violation]:
    """Everything that is wrong with a run."""
    return [
        Violation(invariant, checker.__name__, text)
        for invariant, checker in CHECKERS
        for text in checker(evidence)
    ]
