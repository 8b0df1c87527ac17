"""Virtual environments for peers, made at their first use from exact versions; says what it installs.

A peer that cannot be installed is a line in the table, so failing is a value here: NotInstalled.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Final

from lab.bench.peers.roster import Peer

INSTALL_SECONDS_MAX: Final = 300
COMPLETE: Final = "complete"
FOLDER_SETTING: Final = "ONCEGATE_BENCH_PEERS"
Talk = Callable[[str], None]


class NotInstalled(Exception):
    """A peer cannot be measured here; the text says why."""


def folder_of_environments() -> Path:
    """Where environments are kept: ONCEGATE_BENCH_PEERS, else the user's cache."""
    chosen = os.environ.get(FOLDER_SETTING)
    if chosen:
        return Path(chosen).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "oncegate" / "bench"


def interpreter_of(peer: Peer, talk: Talk = lambda line: None, *, install: bool = True) -> Path:
    """The interpreter that has a peer's packages; raises NotInstalled."""
    if not peer.packages:
        return Path(sys.executable)
    folder = _folder_of(peer)
    python = folder / "bin" / "python"
    if _installed(folder) == list(peer.installs):
        return python
    if not install:
        raise NotInstalled("not installed, and installing was not asked for")
    talk(f"installing {peer.name} into an environment of its own: {', '.join(peer.installs)}")
    try:
        _install(peer, folder, python)
    except (OSError, subprocess.SubprocessError) as error:
        raise NotInstalled(f"could not be installed: {reason_of(error)}") from None
    (folder / COMPLETE).write_text("\n".join(peer.installs), "utf-8")
    return python


def _installed(folder: Path) -> list[str]:
    """What a finished installation wrote down; nothing for one that was broken off."""
    complete = folder / COMPLETE
    return complete.read_text("utf-8").splitlines() if complete.exists() else []


def program_of(peer: Peer, name: str) -> Path:
    """A program that came with a peer's node packages."""
    return _folder_of(peer) / "node" / "node_modules" / ".bin" / name


def _folder_of(peer: Peer) -> Path:
    return folder_of_environments() / "-".join([peer.name, peer.version])


def _install(peer: Peer, folder: Path, python: Path) -> None:
    venv.create(folder, with_pip=True, clear=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*pip, *peer.packages])
    if peer.node_packages:
        npm = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"]
        _run([*npm, "--prefix", str(folder / "node"), *peer.node_packages])


def _run(words: list[str]) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS_MAX)


def reason_of(error: Exception) -> str:
    """The last line of what a program said, short enough for a table."""
    said = getattr(error, "stderr", None) or str(error)
    return (str(said).strip().splitlines() or ["no reason given"])[-1][:200]
