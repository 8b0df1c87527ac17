"""A subject that remembers nothing, so that the judges can be judged."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import lab.bench.peers

sys.path.insert(0, str(Path(lab.bench.peers.__file__).with_name("scripts")))

import stand  # type: ignore[import-not-found]


class RunsAgain(stand.Subject):  # type: ignore[misc]
    def open(self) -> dict[str, Any]:
        self.bookings = stand.bookings_at(self.settings)
        return {}

    def work(self, event: dict[str, Any]) -> dict[str, str]:
        slot = self.downstream.call(stand.key_of(event))
        self.bookings.add(event, slot)
        return {"slot": slot}

    def rows(self, key: str) -> int:
        return int(self.bookings.rows(key))


if __name__ == "__main__":
    stand.serve(RunsAgain)
