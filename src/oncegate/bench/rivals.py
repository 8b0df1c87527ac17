"""Rivals of the sender's measurement: installed into an environment of their own, run as processes."""

from __future__ import annotations

import json
import os
import subprocess
import venv
from pathlib import Path
from typing import Any, Final

PACKAGES: Final = ("procrastinate==3.5.3", "aiohttp==3.13.2", "psycopg[binary]==3.3.8")
INSTALL_SECONDS_MAX: Final = 300
RUN_SECONDS_MAX: Final = 180
_SCRIPT: Final = Path(__file__).with_name("procrastinate_rival.py")


class NotInstalled(Exception):
    """A rival cannot be measured here; the text says why."""


def environment() -> Path:
    """The interpreter that has the rivals, made at the first use; raises NotInstalled."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "oncegate" / "bench" / "-".join(PACKAGES).replace("==", "-")
    python = folder / "bin" / "python"
    if (folder / "complete").exists():
        return python
    try:
        venv.create(folder, with_pip=True, clear=True)
        words = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES]
        subprocess.run(words, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS_MAX)
    except (OSError, subprocess.SubprocessError) as error:
        raise NotInstalled(f"could not be installed: {_reason(error)}") from None
    (folder / "complete").touch()
    return python


def _reason(error: Exception) -> str:
    said = getattr(error, "stderr", None) or str(error)
    return (said.strip().splitlines() or ["no reason given"])[-1][:200]


def run_procrastinate(database: str, hook: str, keys: int, events: int, at_once: int) -> dict[str, Any]:
    """Lets procrastinate do the same POSTs; raises NotInstalled where it cannot."""
    # Isolated: our own modules beside the script must not stand in for those of the standard library.
    words = [str(environment()), "-I", str(_SCRIPT), database, hook, *map(str, (keys, events, at_once))]
    try:
        done = subprocess.run(words, check=True, capture_output=True, text=True, timeout=RUN_SECONDS_MAX)
    except (OSError, subprocess.SubprocessError) as error:
        raise NotInstalled(f"could not be run: {_reason(error)}") from None
    found: dict[str, Any] = json.loads(done.stdout)
    return found
