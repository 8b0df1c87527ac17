"""The storm from start to end: the same Monday once without the gate and once with it.

Who calls it: `oncegate demo` and the tests. Must never leave a process behind or wait without a limit, and
must never touch the outcome: it starts things, waits for them, and lets `evidence.py` count.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Final
from urllib.parse import quote

from oncegate import open_store
from oncegate.clock import SystemClock
from oncegate.demo.storm.deadline import Deadline, StormBroken
from oncegate.demo.storm.play import Play
from oncegate.demo.storm.progress import StormProgress
from oncegate.demo.storm.report import StormResult, find_problems
from oncegate.demo.storm.scene import Scene
from oncegate.demo.storm.sides import GatedSide, UngatedSide
from oncegate.demo.storm.story import tell
from oncegate.errors import ConfigError

__all__ = ["DEFAULT_SEED", "DEFAULT_WORKERS", "StormBroken", "StormResult", "run_storm"]

DEFAULT_SEED: Final = 39
DEFAULT_WORKERS: Final = 4
DEADLINE_SECONDS: Final = (
    240.0  # a machine with ten others on each core needs 70: past this, something hangs
)
RECORD_NAME: Final = "terminal.jsonl"


def run_storm(
    folder: Path,
    *,
    seed: int = DEFAULT_SEED,
    workers: int = DEFAULT_WORKERS,
    url: str | None = None,
    progress: StormProgress | None = None,
    deadline_seconds: float = DEADLINE_SECONDS,
) -> StormResult:
    """Play the storm twice and return what was counted; records, bookings and ledger stay in `folder`."""
    clock = SystemClock()
    started_at = clock.ticks_ms()
    talk = progress or StormProgress(io.StringIO(), clock)
    scene = Scene(tell(seed), workers, clock, Deadline(clock, deadline_seconds), talk)
    ungated_folder, gated_folder = _make_folders(folder)
    ledger_url = url or f"sqlite:///{quote(str(gated_folder / 'oncegate.db'))}"
    store = open_store(ledger_url)
    ungated, gated = UngatedSide(ungated_folder / "bookings.db"), GatedSide(ledger_url, store)
    gated.prepare()  # first: what is wrong with an address should not show after half the demo
    ungated.prepare()
    without_gate = Play(scene, ungated, ungated_folder / RECORD_NAME).run()
    with_gate = Play(scene, gated, gated_folder / RECORD_NAME).run()
    return StormResult(
        seed=seed,
        workers=workers,
        seconds=(clock.ticks_ms() - started_at) / 1000,
        ledger=ledger_url if url is None else store.address,
        without_gate=without_gate,
        with_gate=with_gate,
        problems=tuple(find_problems(scene.story, without_gate, with_gate)),
    )


def _make_folders(folder: Path) -> tuple[Path, Path]:
    """One folder for each run; an earlier demo's records are neither mixed in nor overwritten."""
    ungated, gated = folder.absolute() / "without-gate", folder.absolute() / "with-gate"
    try:
        for path in (ungated, gated):
            path.mkdir(parents=True, exist_ok=True)
            if any(path.iterdir()):
                raise ConfigError(f"{folder} already holds a demo run; choose another folder")
    except OSError as error:
        raise ConfigError(f"{folder} cannot be used for the demo: {error.strerror}") from None
    return ungated, gated
