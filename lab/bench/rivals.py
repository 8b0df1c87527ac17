"""The sender's rival: procrastinate with a lock per key, in an environment of its own, run as a process."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Final

from lab.bench.peers.environments import NotInstalled, interpreter_of, reason_of
from lab.bench.peers.roster import PROCRASTINATE

RUN_SECONDS_MAX: Final = 180
_SCRIPT: Final = Path(__file__).with_name("procrastinate_rival.py")


def run_procrastinate(
    database: str, hook: str, keys: int, events: int, at_once: int, *, install: bool = True
) -> dict[str, Any]:
    """Lets procrastinate do the same POSTs; raises NotInstalled where it cannot."""
    python = interpreter_of(PROCRASTINATE, install=install)
    # Isolated: our own modules beside the script must not stand in for those of the standard library.
    words = [str(python), "-I", str(_SCRIPT), database, hook, *map(str, (keys, events, at_once))]
    try:
        done = subprocess.run(words, check=True, capture_output=True, text=True, timeout=RUN_SECONDS_MAX)
    except (OSError, subprocess.SubprocessError) as error:
        raise NotInstalled(f"could not be run: {reason_of(error)}") from None
    found: dict[str, Any] = json.loads(done.stdout)
    return found
