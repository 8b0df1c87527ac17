"""Room for events that wait for a person: a sender whose events cannot be run must not fill the disk (I18).

Asked before an event is quarantined or held, never on the way of one that runs. Must never refuse a repeat
of what waits already, and never drop an event without an error to its sender.
"""

from __future__ import annotations

from oncegate.errors import Backlogged
from oncegate.gate.context import GateContext
from oncegate.gate.requests import Flow
from oncegate.model.parking import RETRY_SECONDS
from oncegate.operations import CountParked, ReadEntry
from oncegate.store import Reservation


def room_flow(gate: GateContext, wanted: Reservation) -> Flow[None]:
    """Makes sure that there is room for an event that waits, or raises Backlogged."""
    pair, parking = (wanted.surface, wanted.tenant), gate.parking
    if parking.must_count(pair, now := gate.clock.ticks_ms()):
        parking.counted(pair, (yield CountParked(pair)), now)
    if parking.takes(pair, len(wanted.body)):
        return
    if (yield ReadEntry(wanted.key)) is not None:
        return
    raise Backlogged(
        f"{wanted.surface}: {parking.most.entries} events or {parking.most.bytes} bytes of one sender "
        "wait for a person already; this one was not stored. Decide about those: oncegate quarantine list",
        retry_after_seconds=RETRY_SECONDS,
    )
