"""Raised signals as facts: what a person reads in the verdict and in the list of causes. Pure."""

from __future__ import annotations

from typing import Final

from oncegate.dashboard.rendering import counted
from oncegate.dashboard.units import shown
from oncegate.signals.definition import Definition, Unit

# {value} is the value with its unit, {count:noun} the number with its noun, {at} the place where not last.
_FACTS: Final = {
    "repeat_ratio_high": "{value} of arrivals{at} are repeats",
    "repeat_ratio_zero": "no repeat came where {value} were due",
    "in_flight_age": "an event has been in flight for {value}",
    "retried_for": "an event has been tried again for {value}",
    "failed": "{count:event} failed within an hour",
    "sent_without_key": "{count:call} went out without the key",
    "late_replays": "{count:repeat} came late",
    "sender_bugs": "{count:repeat} point at a fault of the sender",
    "reservation_p99": "a reservation takes up to {value}",
    "reconciliations": "{count:event} recovered after a crash or a failure",
    "overdue": "a decision has been waiting for {value}",
    "deadline_missed": "a decision is {value} past its limit",
    "reserved_not_settled": "{count:claim} stranded by workers that died",
    "clock_offset": "this machine's clock differs from the ledger's by {value}",
    "content_scan_behind": "the content scan is {value} behind",
    "ledger_went_back": "the ledger went back and lost records",
    "sightings_lost": "{count:arrival} could not be counted",
    "lane_blocked_age": "a key has been blocked for {value}",
    "delivery_age": "an event has not been delivered for {value}",
    "circuit_open": "calls have failed for {value}",
    "feed_lag": "a reader is {value} behind",
    "arrivals_stopped": "nothing arrives{at}, usual are {value}",
    "worker_absent": "no worker has reported for {value}",
    "drift": "{count:window} differ from their confirmation",
    "watch_absent": "no process has watched the signals for {value}",
    "snapshot_overdue": "a snapshot is overdue by {value}",
    "seal_overdue": "the seal of the journal is overdue by {value}",
}


class _Count(int):
    """A number that is formatted with its noun: `{count:event}`."""

    def __format__(self, noun: str) -> str:
        return counted(int(self), noun)


def fact(definition: Definition, value: float, at: str = "") -> str:
    """A signal's value as a sentence without its capital and its full stop; `at` as in " at orders"."""
    title = f"{definition.title[:1].lower()}{definition.title[1:]}: {{value}}"
    text = _FACTS.get(definition.name, title)
    count = _Count(round(value) if definition.unit is Unit.COUNT else 0)
    told = text.format(value=shown(value, definition.unit), count=count, at=at)
    return told if "{at}" in text else f"{told}{at}"
