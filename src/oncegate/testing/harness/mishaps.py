"""The mishaps of one plan, looked up where they strike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from oncegate.testing.harness.plans import Mishap, Trouble
from oncegate.testing.simulation.store import CommitFault


class Mishaps:
    """What goes wrong in one trial; nothing any more once `over` is set."""

    def __init__(self, mishaps: Iterable[Mishap]) -> None:
        self._mishaps = {(item.trouble, item.point, item.nth): item for item in mishaps}
        self._seen: Counter[str] = Counter()
        self.over = False

    def _strikes(self, trouble: Trouble, point: str, nth: int) -> bool:
        return not self.over and (trouble, point, nth) in self._mishaps

    def at_point(self, point: str) -> Trouble | None:
        """What happens to the worker that has just reached a crash point."""
        self._seen[point] += 1
        for trouble in (Trouble.CRASH, Trouble.STALL):
            if self._strikes(trouble, point, self._seen[point]):
                return trouble
        return None

    @property
    def seen(self) -> Counter[str]:
        """How often each crash point was reached; calls and commits have names of their own."""
        return self._seen

    def call(self) -> Trouble | None:
        """What happens to the next call of a downstream."""
        self._seen["call"] += 1
        for trouble in (Trouble.CALL_REPLY_LOST, Trouble.CALL_REQUEST_LOST):
            if self._strikes(trouble, "", self._seen["call"]):
                return trouble
        return None

    def commit(self) -> CommitFault:
        """What happens to the next commit."""
        self._seen["commit"] += 1
        if self._strikes(Trouble.COMMIT_DONE, "", self._seen["commit"]):
            return CommitFault.LOST_REPLY
        if self._strikes(Trouble.COMMIT_UNDONE, "", self._seen["commit"]):
            return CommitFault.UNDONE
        return CommitFault.NONE
