"""Starting the simulated terminal, and talking to it as a booking system would.

Who calls it: the demo and the crash tests. `TerminalClient` stands for the user's own downstream
client, so its errors are outside the tree of `oncegate.errors`.

What it must never do: send a claim twice. A claim whose answer was lost may have sold a slot, and
only the caller can know what may follow; it raises `TerminalAnswerLost`.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import subprocess
import sys
import threading
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, cast

from oncegate.demo.slot_book import KeyMode, Slot, parse_record

__all__ = [
    "KeyMode",
    "Slot",
    "TerminalAnswerLost",
    "TerminalClient",
    "TerminalError",
    "TerminalNotReady",
    "TerminalProcess",
    "TerminalUnreachable",
    "read_record",
]

# Not ValueError: that is also how a header which cannot be sent is refused, before anything is.
_NO_WHOLE_ANSWER = (
    OSError,
    http.client.HTTPException,
    json.JSONDecodeError,
    UnicodeDecodeError,
)


class TerminalError(Exception):
    """The terminal answered, and the answer is not a 2xx."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message


class TerminalUnreachable(ConnectionError):
    """No connection could be opened: nothing was sent, so nothing was sold."""


class TerminalAnswerLost(ConnectionError):
    """The request may have been sent and no whole answer came: a slot may or may not be sold."""


class TerminalNotReady(Exception):
    """The terminal's process ended, or stayed silent, before it was ready."""


def read_record(path: Path) -> list[dict[str, Any]]:
    """Return every sale and cancellation on the terminal's record, without a torn last line."""
    return parse_record(path.read_bytes())[0]


class TerminalProcess:
    """A terminal in a process of its own; a context manager that starts and stops it.

    A process forked while it runs holds its stdin open too: it ends with the last of them.
    """

    def __init__(
        self,
        record: Path,
        *,
        key_mode: KeyMode = KeyMode.HONOUR,
        port: int = 0,
        deadline_seconds: float = 60.0,
    ) -> None:
        self.record = record
        self._key_mode = key_mode
        self._port = port
        self._deadline_seconds = deadline_seconds
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Return where the terminal answers; a `restart` keeps it unless a new port is asked."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """Return the process id of the running terminal."""
        if self._child is None:
            raise TerminalNotReady("the terminal is not running")
        return self._child.pid

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the process and return when it serves; `TerminalNotReady` after the deadline."""
        if self._child is not None:
            raise TerminalNotReady("the terminal is already running")
        child = subprocess.Popen(self._command(), bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._child = child
        try:
            self._port = self._read_port(cast("IO[bytes]", child.stdout))
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """End the process with SIGKILL, as a crash would; no effect when it is not running."""
        if self._child is not None:
            self._child.kill()
            self._forget(self._child)

    def stop(self) -> None:
        """End the process with SIGTERM, or with SIGKILL when it does not end by the deadline."""
        if self._child is None:
            return
        self._child.terminate()
        try:
            self._child.wait(self._deadline_seconds)
        except subprocess.TimeoutExpired:
            self._child.kill()
        self._forget(self._child)

    def close_stdin(self) -> int:
        """Close the terminal's stdin, wait until it has ended by itself, return its exit code."""
        if self._child is None or self._child.stdin is None:
            raise TerminalNotReady("the terminal is not running")
        self._child.stdin.close()
        code = self._child.wait(self._deadline_seconds)
        self._forget(self._child)
        return code

    def restart(self, *, new_port: bool = False) -> None:
        """Stop the process if it still runs and start it on the same record."""
        self.stop()
        if new_port:
            self._port = 0
        self.start()

    def _command(self) -> list[str]:
        options = ["--record", str(self.record), "--port", str(self._port)]
        module = [sys.executable, "-m", "oncegate.demo.terminal"]
        return [*module, *options, "--key-mode", str(self._key_mode)]

    def _read_port(self, output: IO[bytes]) -> int:
        """Wait for the ready line; it is short enough for a pipe to deliver it in one piece."""
        if not _readable(output.fileno(), self._deadline_seconds):
            raise TerminalNotReady(f"not ready after {self._deadline_seconds} s")
        line = os.read(output.fileno(), select.PIPE_BUF)
        if not line:
            raise TerminalNotReady("it ended before it was ready; its stderr says why")
        port: int = json.loads(line)["port"]
        return port

    def _forget(self, child: subprocess.Popen[bytes]) -> None:
        child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()
        self._child = None


class _Connection(http.client.HTTPConnection):
    """A connection that closes itself when its thread, or its client, is gone."""

    auto_open = 0

    def __del__(self) -> None:
        self.close()


class TerminalClient:
    """The terminal's API; each thread has its own connection, kept open between calls.

    Every call raises `TerminalError` for an answer that is not a 2xx, `TerminalUnreachable` when
    nothing was sent, and `TerminalAnswerLost` when that cannot be known.
    """

    def __init__(self, url: str, timeout_seconds: float = 30.0) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme != "http" or parts.hostname is None or parts.port is None:
            raise ValueError(f"not the address of a terminal: {url}")
        self._address = (parts.hostname, parts.port)
        self._timeout_seconds = timeout_seconds
        self._own = threading.local()

    def claim(self, equipment: str, window: str, idempotency_key: str | None) -> Slot:
        """Buy a slot; without a key every call buys another one."""
        headers = {"Content-Type": "application/json"}
        if idempotency_key is not None:
            headers["Idempotency-Key"] = idempotency_key
        body = json.dumps({"equipment": equipment, "window": window}).encode()
        return Slot.from_json(self._call("POST", "/slots", body, headers))

    def owned_by(self, key: str) -> list[Slot]:
        """Return every slot the terminal sold to the key, cancelled ones included."""
        return self._list("/slots?" + urllib.parse.urlencode({"key": key}))

    def all_slots(self) -> list[Slot]:
        """Return every slot the terminal ever sold, in the order of sale."""
        return self._list("/slots")

    def cancel(self, slot_id: str) -> Slot:
        """Cancel a slot; cancelling it again changes nothing."""
        target = "/slots/" + urllib.parse.quote(slot_id, safe="")
        return Slot.from_json(self._call("DELETE", target))

    def close(self) -> None:
        """Close this thread's connection; those of other threads close when they end."""
        connection: _Connection | None = getattr(self._own, "connection", None)
        self._own.connection = None
        if connection is not None:
            connection.close()

    def _list(self, target: str) -> list[Slot]:
        return [Slot.from_json(slot) for slot in self._call("GET", target)["slots"]]

    def _call(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> dict[str, Any]:
        connection = self._connection()
        with self._answer_lost_on_error():
            connection.request(method, target, body, headers or {})
            response = connection.getresponse()
            answer: dict[str, Any] = json.loads(response.read())
        if not 200 <= response.status < 300:
            raise TerminalError(response.status, str(answer.get("error")))
        return answer

    @contextlib.contextmanager
    def _answer_lost_on_error(self) -> Iterator[None]:
        """Whatever goes wrong between request and answer, the connection is not used again."""
        try:
            yield
        except _NO_WHOLE_ANSWER as error:
            self.close()
            raise TerminalAnswerLost(f"{type(error).__name__}: {error}") from error
        except BaseException:
            self.close()
            raise

    def _connection(self) -> _Connection:
        """Return this thread's open connection, replacing one that is already closed.

        That is no second try: not a byte of the request has been written yet.
        """
        # A forked process inherits the connection of its parent, and must not talk into it.
        owner = os.getpid()
        connection: _Connection | None = getattr(self._own, "connection", None)
        if connection is not None and self._own.process_id == owner and _idle(connection):
            return connection
        self.close()
        self._own.connection, self._own.process_id = self._open(), owner
        fresh: _Connection = self._own.connection
        return fresh

    def _open(self) -> _Connection:
        connection = _Connection(*self._address, timeout=self._timeout_seconds)
        try:
            connection.connect()
        except OSError as error:
            raise TerminalUnreachable(f"{self._address[0]}:{self._address[1]}: {error}") from error
        return connection


def _idle(connection: _Connection) -> bool:
    """Whether the connection is open and silent; unasked input means its end, or a broken peer."""
    return connection.sock is not None and not _readable(connection.sock.fileno(), 0)


def _readable(file: int, timeout_seconds: float) -> bool:
    poller = select.poll()
    poller.register(file, select.POLLIN)
    return bool(poller.poll(max(0.0, timeout_seconds) * 1000))
