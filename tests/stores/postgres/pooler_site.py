"""A PgBouncer in front of a server, as the tests start it: never as root, gone when the test ends."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import psycopg

from oncegate.testing.waiting import wait_until

PROGRAM = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")
STOP_SECONDS = 30


@contextmanager
def pooled(direct: str, mode: str, **settings: str) -> Iterator[str]:
    """Runs a pooler before a database and gives the address that leads through it."""
    assert PROGRAM is not None
    parts = urlsplit(direct)
    database, host = parts.path.lstrip("/"), parse_qs(parts.query)["host"][0]
    with tempfile.TemporaryDirectory(prefix="oncegate-pooler-") as name:
        folder = Path(name)
        _configure(folder, f"{database} = host={host} user={parts.username}", mode, settings)
        url = f"postgresql://{parts.username}@/{database}?host={quote(name, safe='')}&port=6432"
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [PROGRAM, "-q", str(folder / "pooler.ini")], stdout=log, stderr=log, user=_user()
            )
        try:
            wait_until(lambda: process.poll() is not None or _answers(url), what="the pooler's answer")
            assert process.poll() is None, (folder / "log").read_text()
            yield url
        finally:
            process.kill()  # it heeds no other signal that a shell in the background passes on
            process.wait(STOP_SECONDS)


def _configure(folder: Path, database: str, mode: str, settings: dict[str, str]) -> None:
    users = folder / "users.txt"
    users.write_text('"oncegate" ""\n')
    lines = {
        "listen_addr": "",
        "unix_socket_dir": str(folder),
        "listen_port": "6432",
        "auth_type": "any",
        "auth_file": str(users),
        "pool_mode": mode,
        "default_pool_size": "40",
        **settings,
    }
    text = "\n".join(f"{name} = {value}" for name, value in lines.items())
    (folder / "pooler.ini").write_text(f"[databases]\n{database}\n[pgbouncer]\n{text}\n")
    if (user := _user()) is not None:
        os.chown(folder, pwd.getpwnam(user).pw_uid, -1)


def _user() -> str | None:
    return "nobody" if os.geteuid() == 0 else None


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=5).close()
    except psycopg.OperationalError:
        return False
    return True
