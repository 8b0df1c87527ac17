"""Room for events that wait for a person: a sender whose events cannot be run must not fill the disk (I18).

Asked before an event is quarantined or held, and before a request runs that only its caller sends again.
Must never refuse a repeat of what waits already, and never drop an event without an error to its sender.
"""

from __future__ import annotations

from oncegate.commit.operations import ReadEntry
from oncegate.commit.review_operations import CountParked
from oncegate.errors import Backlogged, Quarantined
from oncegate.gate.driver.requests import Flow
from oncegate.gate.runtime.context import GateContext
from oncegate.gate.surface import Surface
from oncegate.model.parking import RETRY_SECONDS, TENANTS_SHARE, Pair, Parked
from oncegate.store import Facet, Reservation
from oncegate.store.facets import OPEN_STORES


def room_flow(gate: GateContext, surface: Surface, wanted: Reservation) -> Flow[None]:
    """Makes sure that there is room for an event that waits or may have to, or raises Backlogged."""
    if Facet.OPEN_ENTRIES not in gate.commits.store.capabilities.facets:
        yield from _unlisted_flow(wanted)
        return
    parking, size = gate.parking, len(wanted.body)
    pairs = _whose_room(gate, surface, wanted)
    now = gate.clock.ticks_ms()
    due = [pair for pair in pairs if parking.must_count(pair, now)]
    if due:
        found: list[Parked] = yield CountParked(due)
        for pair, parked in zip(due, found, strict=True):
            parking.counted(pair, parked, now)
    if all(parking.has_room(pair, size) for pair in pairs):
        if not wanted.runs:
            add(gate, wanted.surface, wanted.tenant, size)
        return
    if (yield ReadEntry(wanted.key)) is not None:
        return
    raise Backlogged(
        f"{wanted.surface}: {parking.most.entries} events or {parking.most.bytes} bytes of one sender, or "
        f"{TENANTS_SHARE} times as much of all, wait for a person already; this one was not stored. Decide "
        "about those: oncegate quarantine list",
        retry_after_seconds=RETRY_SECONDS,
    )


def _unlisted_flow(wanted: Reservation) -> Flow[None]:
    """Where no person can decide, an event that would wait is refused: its sender still has it."""
    if wanted.runs or (yield ReadEntry(wanted.key)) is not None:
        return
    raise Quarantined(
        f"{wanted.surface}: {wanted.quarantine or wanted.hold}; it was not stored: this ledger lists no"
        f" open entries, so that no person could let it through. Correct the event, or use {OPEN_STORES}"
    )


def _whose_room(gate: GateContext, surface: Surface, wanted: Reservation) -> list[Pair]:
    """Whose room is asked for: always for what waits, and for what runs where its caller alone retries.

    There each failed request may leave an entry in doubt, and callers choose their keys as they like. Only
    those are counted of which this process knows that something waits.
    """
    pairs = _pairs_of(wanted.surface, wanted.tenant)
    if not wanted.runs:
        return pairs
    return [pair for pair in pairs if gate.parking.has_any(pair)] if surface.caller_retries else []


def add(gate: GateContext, surface: str, tenant: str, size: int) -> None:
    """Counts an event that waits from now on."""
    for pair in _pairs_of(surface, tenant):
        gate.parking.add(pair, size)


def _pairs_of(surface: str, tenant: str) -> list[Pair]:
    return [(surface, tenant), (surface, None)]
