"""The service as a process of its own, whose memory can be measured."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from oncegate.testing.waiting import DEADLINE_SECONDS, wait_until
from tests.service.site import SECRET, Site

HOOKS = """
[surfaces.hooks]
key = "{id}"
signature = "bearer"
secrets = ["$HOOKS"]
tenant = "acme"
"""


class Process(Site):
    """A service that was started with `oncegate serve`."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process, self._log = process, log
        self.port = self.port_of("listening on ")

    def port_of(self, words: str) -> int:
        """The port behind these words, once the process has told it."""
        wait_until(lambda: self._line(words) or self.process.poll() is not None, what=words)
        return int(self._line(words).rsplit(":", 1)[1])

    def _line(self, words: str) -> str:
        """A whole line that begins with these words; a log that nobody reads must not be a pipe."""
        lines = self._log.read_text("utf-8").splitlines(keepends=True)
        return next((line for line in lines if line.startswith(words) and line.endswith("\n")), "")

    def memory_bytes(self) -> int:
        """What the process holds in memory now."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text("ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


@contextlib.contextmanager
def served(
    folder: Path, server: str = "", more: str = HOOKS, url: str = "sqlite:///ledger.db"
) -> Iterator[Process]:
    """Serves in a folder until the block ends; `server` are lines of `[server]`."""
    text = f'url = "{url}"\n[server]\nport = 0\n{server}\n{more}'
    (folder / "oncegate.toml").write_text(text, "utf-8")
    log = folder / "service.log"
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "oncegate", "serve"],
            cwd=folder,
            env={**os.environ, "HOOKS": SECRET},
            stderr=errors,
        ) as process,
    ):
        try:
            yield Process(process, log)
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(DEADLINE_SECONDS)
            process.kill()
