"""Our end of the line to a peer's process: one JSON object a line, with a deadline for every answer."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

from lab import ROOT
from lab.bench.peers.environments import interpreter_of, reason_of
from lab.bench.peers.roster import Peer

ANSWER_SECONDS_MAX: Final = 90.0
CLOSE_SECONDS_MAX: Final = 5.0


class PeerFailed(Exception):
    """A peer did not do what was asked; the text is what it said."""


class NoAnswer(PeerFailed):
    """A peer is still busy with what was asked."""


class PeerProcess:
    """A peer's script, running. Anything but an answer in time is PeerFailed."""

    def __init__(self, peer: Peer) -> None:
        self.name = peer.name
        self._asked = 0
        self._said: queue.Queue[str] = queue.Queue()
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [str(interpreter_of(peer, install=False)), str(peer.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=_environment(peer),
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ask(self, do: str, within: float = ANSWER_SECONDS_MAX, **words: Any) -> dict[str, Any]:
        """Sends a request and waits for its answer."""
        self._asked += 1
        self.send({"do": do, "number": self._asked, **words})
        return self.answer(within)

    def send(self, request: dict[str, Any]) -> None:
        """Sends one object without waiting."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise PeerFailed(f"{self.name} is gone: {error}; {self._last_words()}") from None

    def answer(self, within: float = ANSWER_SECONDS_MAX) -> dict[str, Any]:
        """Waits for one object; an answer that came too late for an earlier request is passed over."""
        while True:
            try:
                line = self._said.get(timeout=within)
            except queue.Empty:
                raise NoAnswer(f"no answer within {within:g} s") from None
            if not line:
                raise PeerFailed(f"{self.name} ended: {self._last_words()}")
            found: dict[str, Any] = json.loads(line)
            number = found.pop("number", None)
            if number is not None and number != self._asked:
                continue
            if "error" in found:
                raise PeerFailed(found["error"])
            return found

    def wait_for_end(self, within: float = ANSWER_SECONDS_MAX) -> int:
        """Waits until the process has ended, as one that kills itself does."""
        try:
            return self._process.wait(within)
        except subprocess.TimeoutExpired:
            raise PeerFailed(f"{self.name} was to be killed and lives on") from None

    def stop(self) -> None:
        """Stops the process where it stands."""
        os.kill(self._process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Lets a stopped process go on."""
        os.kill(self._process.pid, signal.SIGCONT)

    def close(self) -> None:
        """Ends the process and whatever it started, by hanging up first."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
            self._process.wait(CLOSE_SECONDS_MAX)
        except (OSError, subprocess.TimeoutExpired):
            pass
        finally:
            _end_group(self._process.pid)
            self._process.wait()
            self._reader.join()
            self._errors.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as said:
            for line in said:
                self._said.put(line)
        self._said.put("")

    def _last_words(self) -> str:
        self._errors.seek(0)
        return reason_of(RuntimeError(self._errors.read()))


def _end_group(leader: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def _environment(peer: Peer) -> dict[str, str]:
    """A peer does not see our modules; we do, from this clone."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if peer.packages:
        return kept
    return {**kept, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
