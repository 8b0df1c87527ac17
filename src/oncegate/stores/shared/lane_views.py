"""What both ledgers make of the rows that they read about lanes, and how far a pruning step goes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from oncegate.store import DestinationState, DestinationView, LanePruned, LanePruning, LaneState, LaneView

NO_LAG: Final = (0, 0, 0, 0, None, None)
_NOT_STEERED: Final = (DestinationState.ACTIVE.value, None, None, 0)

Row = tuple[Any, ...]
Text = Callable[[int], str]  # the text behind a name's number


def lane_view(row: Row, text: Text, now: int) -> LaneView:
    """One lane, its times counted from now."""
    lane, destination, tenant, key, state, seq, last, attempts, error, due_at, created, replay = row
    return LaneView(
        lane, text(destination), text(tenant), key, LaneState(state), seq, last, attempts, error,
        None if due_at is None else due_at - now, created, replay,
    )  # fmt: skip


class Destinations:
    """What was read of destinations, each by its number."""

    def __init__(self, lags: Iterable[Row], steered: Iterable[Row], dead: Iterable[Row]) -> None:
        self._lags = {number: rest for number, *rest in lags}
        self._steered = {number: rest for number, *rest in steered}
        self._dead: dict[int, int] = dict(dead)

    def numbers(self, named: Iterable[Row]) -> set[int]:
        """All that there are: those of lanes, and those with an operator's setting."""
        return {number for (number,) in named} | self._steered.keys()

    def views(self, numbers: Iterable[int], text: Text, now: int) -> list[DestinationView]:
        """They, by name."""
        views = [self._view(number, text(number), now) for number in numbers]
        return sorted(views, key=lambda view: view.name)

    def _view(self, number: int, name: str, now: int) -> DestinationView:
        state, reason, since, not_before = self._steered.get(number, _NOT_STEERED)
        waiting, leased, blocked, events, oldest, since_blocked = self._lags.get(number, NO_LAG)
        return DestinationView(
            name=name,
            state=DestinationState(state),
            reason=reason,
            since_ms=since,
            throttled_for_ms=max(0, not_before - now),
            waiting=waiting,
            leased=leased,
            blocked=blocked,
            events=events,
            oldest_created_at_ms=oldest,
            dead_letters=self._dead.get(number, 0),
            oldest_blocked_at_ms=since_blocked,
        )


def pruned_lanes(
    wanted: LanePruning, lanes: Sequence[Row], destination: int | None, prune: Callable[[int, int], int]
) -> LanePruned:
    """Goes through lanes, each with its destination, while there is room; `prune` tells how many went."""
    removed, last = 0, wanted.after_lane
    for lane, of in lanes:
        room = wanted.deliveries_max - removed
        gone = prune(lane, room) if wanted.destination is None or of == destination else 0
        removed += gone
        if gone == room:
            return LanePruned(removed, last, False)  # there may be more in this lane
        last = lane
    return LanePruned(removed, last, len(lanes) < wanted.limit)
