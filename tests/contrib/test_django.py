"""A real Django project: `manage.py test`, `migrate`, `check` and `oncegate`, on SQLite and PostgreSQL."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from oncegate.testing.postgres import GivenServer, PostgresServer
from tests.support.guides import ROOT

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
AUDIT = """
DATABASES["audit"] = {**DATABASES["default"], "NAME": BASE / "audit.sqlite3"}
if "SHOP_POSTGRES" in os.environ:
    DATABASES["audit"]["NAME"] = os.environ["SHOP_POSTGRES_NAME"] + "_audit"
elif "SHOP_TEST_FILES" in os.environ:
    for _name, _one in DATABASES.items():
        _one["TEST"] = {"NAME": BASE / f"test_{_name}.sqlite3"}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the example with more tests and a second database."""
    folder = tmp_path / "project"
    shutil.copytree(ROOT / "examples" / "django_app", folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "shop" / "test_more.py").write_text((HERE / "shop_more.py").read_text("utf-8"), "utf-8")
    settings = folder / "project" / "settings.py"
    settings.write_text(settings.read_text("utf-8") + AUDIT, "utf-8")
    return folder


def manage(project: Path, *words: str, **variables: str) -> str:
    """Runs manage.py and returns everything it printed."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("ONCEGATE", "SHOP"))}
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "manage.py", *words],
        cwd=project, env={**clean, **variables}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def postgres_variables(url: str) -> dict[str, str]:
    parts = urlsplit(url)
    host = parse_qs(parts.query).get("host", [parts.hostname or ""])[0]
    name, user = parts.path.removeprefix("/"), parts.username or "postgres"
    return {"SHOP_POSTGRES": host, "SHOP_POSTGRES_NAME": name, "SHOP_POSTGRES_USER": user}


def test_a_projects_tests_never_touch_the_development_database(project: Path) -> None:
    """In memory, which is what Django does with SQLite unless it is told otherwise."""
    assert "OK" in manage(project, "test", "shop.tests")
    assert not list(project.glob("*.sqlite3*"))


def test_a_projects_tests_run_on_sqlite_files(project: Path) -> None:
    assert "OK" in manage(project, "test", SHOP_TEST_FILES="1")
    assert not list(project.glob("shop.sqlite3*"))
    assert not list(project.glob("audit.sqlite3*"))


def test_a_projects_tests_run_on_postgresql(project: Path, postgres: PostgresServer | GivenServer) -> None:
    url = postgres.new_database()
    assert "OK" in manage(project, "test", "--noinput", **postgres_variables(url))
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT to_regclass('oncegate_meta')").fetchone() == (None,)


COMMANDS = """
import asyncio, contextlib, io, os
os.environ["DJANGO_SETTINGS_MODULE"] = "project.settings"
import django
django.setup()
from django.core.management import CommandError, call_command
from django.core.management.base import SystemCheckError
from django.db import connections
from oncegate.contrib.django import gate
from shop.models import Booking

def said(*words):
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            call_command(*words)
        except (CommandError, SystemCheckError) as error:
            print(error)
    return out.getvalue()

def has(expected, *words):
    assert expected in said(*words), said(*words)

has("manage.py migrate --database default", "check", "--database", "default")
has("Applying oncegate ledger 0001", "migrate")
assert "E006" not in said("check", "--database", "default")
for _ in range(2):
    gate.admit_sync("bookings", {"container": "C", "slot": "S"})
listed = said("oncegate", "entries", "list", "--json")
assert listed.count('"surface":"bookings"') == 1, listed
has("DATABASES['default']", "oncegate", "doctor")
has("no ledger", "oncegate", "--database", "audit", "entries", "list")
has("DATABASES has no 'nowhere'", "oncegate", "--database", "nowhere", "doctor")
has("nothing is stranded", "oncegate", "reconcile")
has("usage: oncegate reconcile", "oncegate", "reconcile", "--help")

seen = []  # the connection of the thread that a task's call runs in: closed after it, as after a request
@gate.handler("calls", key="{id}")
def call(event):
    seen.append((connections["default"], Booking.objects.count()))
type(gate).renews_connections = False  # as in a server
asyncio.run(gate.admit("calls", {"id": "1"}))
assert seen[0][0].connection is None and seen[0][1] == 1, seen
print("all said")
"""


def run_script(project: Path, script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=project, capture_output=True, text=True, timeout=90, check=False
    )
    assert not done.returncode, done.stderr
    return done.stdout


def test_migrate_makes_the_ledger_and_the_commands_use_it(project: Path) -> None:
    """From a fresh clone to a ledger with an entry; `--app` is given to commands that run handlers."""
    assert run_script(project, COMMANDS).endswith("all said\n")


CHECKS = """
import django, os
os.environ["DJANGO_SETTINGS_MODULE"] = "project.settings"
from django.conf import settings
from pathlib import Path
django.setup()
from django.core.checks import run_checks
from django.db import connections
from oncegate.contrib.django import checks

def ids(**changes):
    kept = dict(connections["default"].settings_dict)
    connections["default"].settings_dict.update(changes)
    try:
        return sorted(one.id for one in run_checks() if one.id.startswith("oncegate"))
    finally:
        connections["default"].settings_dict.update(kept)

checks.filesystem_of = lambda path: "ext4"
checks._CONTAINER_FILES = ()
assert ids() == [], ids()
assert ids(ATOMIC_REQUESTS=True) == ["oncegate.W001"]
assert ids(OPTIONS={}) == ["oncegate.W002"]
assert ids(AUTOCOMMIT=False) == ["oncegate.E003"]
checks.filesystem_of = lambda path: "overlay"
assert ids() == ["oncegate.W003"]
checks.filesystem_of, checks._CONTAINER_FILES = (lambda path: None), (Path("/"),)
assert ids() == ["oncegate.W003"]
settings.ONCEGATE = {"DATABASE": "elsewhere"}
assert ids() == ["oncegate.E001"]
settings.ONCEGATE = {"DATABASE": "pg"}
from django.db.backends.postgresql.base import DatabaseWrapper
from psycopg import IsolationLevel
base = {**connections["default"].settings_dict, "NAME": "x", "ENGINE": "django.db.backends.postgresql"}
connections.settings["pg"] = base
def on_postgres(**options):
    connections["pg"] = DatabaseWrapper({**base, "OPTIONS": options}, "pg")
    return sorted(one.id for one in run_checks() if one.id.startswith("oncegate"))
assert on_postgres() == []
assert on_postgres(isolation_level=IsolationLevel.SERIALIZABLE) == ["oncegate.E004"]
assert on_postgres(isolation_level=IsolationLevel.READ_COMMITTED) == []
assert on_postgres(options="-c default_transaction_isolation=serializable") == ["oncegate.E004"]

from oncegate.contrib.django.addresses import address_of
connections["pg"] = DatabaseWrapper({
    **base, "NAME": "shop db", "USER": "us@er", "PASSWORD": "p:/@w", "HOST": "db.example", "PORT": "5433",
    "OPTIONS": {"sslmode": "require", "assume_role": "writer", "pool": True, "isolation_level": 1},
}, "pg")
assert address_of(connections["pg"]) == (
    "postgresql://us%40er:p%3A%2F%40w@db.example:5433/shop%20db?sslmode=require&options=-c%20role%3Dwriter"
), address_of(connections["pg"])
print("all found")
"""


def test_checks_name_what_would_break_exactly_once(project: Path) -> None:
    """Each wrong setting has its own id; a right one has none."""
    assert run_script(project, CHECKS) == "all found\n"
