"""The published tally: a JSON file that campaigns add to, so that a long proof can be interrupted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lab.simulator.tally import Tally
from oncegate.clock import from_wall_ms
from oncegate.errors import ConfigError


class TallyFile:
    """One file: totals, the next seed, and a line for each campaign."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._document = self._read()

    def _read(self) -> dict[str, Any]:
        if not self._path.exists():
            return {"schedules": 0, "failed": 0, "next_seed": 1, "counts": {}, "campaigns": []}
        try:
            document: dict[str, Any] = json.loads(self._path.read_text("utf-8"))
            int(document["next_seed"])
        except (ValueError, KeyError, TypeError):
            raise ConfigError(f"{self._path} is not a tally; name a file that does not exist yet") from None
        return document

    @property
    def next_seed(self) -> int:
        """The first seed that no campaign has played."""
        return int(self._document["next_seed"])

    def add(self, first: int, tally: Tally, seconds: float, wall_ms: int) -> None:
        """Adds a campaign and writes the file anew, whole or not at all."""
        document = self._document
        document["schedules"] += tally.schedules
        document["traffic"] = document.get("traffic", 0) + tally.traffic
        document["failed"] += tally.failed
        document["next_seed"] = max(self.next_seed, first + tally.schedules)
        for name, count in tally.counts.items():
            document["counts"][name] = document["counts"].get(name, 0) + count
        document["counts"] = dict(sorted(document["counts"].items()))
        document["campaigns"].append(
            {
                "day": from_wall_ms(wall_ms).date().isoformat(),
                "first_seed": first,
                "schedules": tally.schedules,
                "traffic": tally.traffic,
                "seconds": round(seconds, 1),
                "failed": sorted(tally.failures),
            }
        )
        draft = self._path.with_suffix(".new")
        draft.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
        draft.replace(self._path)
