"""Lets an observer, such as a recorder, note every arrival at a gate and its answer.

Must never change what an arrival gets: whatever an observer raises is its own fault and is dropped here.
"""

from __future__ import annotations

import logging
from typing import Final, Protocol

from oncegate.gate.admission import Admission
from oncegate.gate.driver.requests import Flow
from oncegate.model.surface import Arrival, SurfaceRule

_log: Final = logging.getLogger("oncegate.gate")


class ArrivalObserver(Protocol):
    """Gets every arrival, in the thread or task in which it comes."""

    def arrived(self, rule: SurfaceRule, arrival: Arrival, at_ms: int) -> int:
        """An event has arrived; returns a number for the answer."""

    def answered(self, number: int, verdict: str | None, error: str | None) -> None:
        """The arrival of that number got a verdict, or raised an error of that class."""

    def close(self) -> None:
        """The gate is closed; nothing arrives any more."""


def observed_flow(
    observer: ArrivalObserver, rule: SurfaceRule, arrival: Arrival, at_ms: int, flow: Flow[Admission]
) -> Flow[Admission]:
    """The same flow, told to the observer before it begins and when it has ended."""
    try:
        number = observer.arrived(rule, arrival, at_ms)
    except Exception as error:  # noqa: BLE001  whatever it is, the arrival goes on
        _log.error("an arrival could not be noted: %s", type(error).__name__)
        return (yield from flow)
    try:
        admission = yield from flow
    except BaseException as error:
        _tell(observer, number, None, type(error).__name__)
        raise
    _tell(observer, number, admission.verdict.value, None)
    return admission


def _tell(observer: ArrivalObserver, number: int, verdict: str | None, error: str | None) -> None:
    try:
        observer.answered(number, verdict, error)
    except Exception as failed:  # noqa: BLE001  whatever it is, the answer stands
        _log.error("an answer could not be noted: %s", type(failed).__name__)
