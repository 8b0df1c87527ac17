"""A ledger that is not there, cannot be used or is none: one line, the documented code, no change."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import subprocess
from pathlib import Path

import pytest

from oncegate import open_store
from oncegate.errors import SchemaMismatch
from oncegate.store import Migration
from oncegate.stores.sqlite import files, schema
from oncegate.testing.waiting import DEADLINE_SECONDS
from tests.cli.conftest import SCRIPT, contents

COMMANDS = (
    ("entries", "list"),
    ("entries", "show", "1"),
    ("migrate",),
    ("migrate", "--check"),
    ("migrate", "--print"),
)
FOR_REAL = COMMANDS[1:3]  # through the installed script; the rest, which take the same way, in this process
UNSHARE = ("unshare", "--map-root-user", "--mount", "sh", "-c")


def _refuses(run, folder: Path, url: str, code: int, said: str, *, commands=COMMANDS) -> None:
    """Every command ends with the code and one line, and the folder is as it was."""
    before = contents(folder)
    for words in commands:
        ended = run(*words, "--url", url)
        assert ended.code == code, words
        assert said in ended.complaint
    assert contents(folder) == before


def _doctor_fails(run, url: str, said: str) -> None:
    ended = run("doctor", "--url", url)
    assert ended.code == 1
    assert "fail" in ended.out
    assert said in ended.out


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("oncegate.db", "for a file write sqlite:///oncegate.db"),
        ("mysql://user:hunter2@host/db", "must begin with one of sqlite://"),
        ("sqlite://oncegate.db", "names no file"),
        ("sqlite:///", "names no file"),
        ("sqlite:///oncegate.db?mode=ro", "unknown option 'mode'"),
        ("sqlite:///oncegate.db?synchronous=OFF", "choose one of NORMAL, FULL, EXTRA"),
        ("sqlite:///a%00b", "NUL character"),
    ],
)
def test_bad_address_is_refused_with_code_two(call, tmp_path, url, said):
    """An address that cannot be used is named, with what would do, and without its secrets."""
    _refuses(call, tmp_path, url, 2, said)
    ended = call("doctor", "--url", url)
    assert ended.code == 2
    assert "hunter2" not in ended.err


@pytest.mark.slow
def test_bad_address_in_the_environment_is_refused_by_the_script(script):
    """ONCEGATE_URL is read, and judged like --url."""
    ended = script("entries", "list", ONCEGATE_URL="mysql://there")
    assert ended.code == 2
    assert "mysql://there is not a store address" in ended.complaint


@pytest.mark.slow
def test_missing_ledger_is_named_and_not_created(call, script, tmp_path):
    """Looking at a ledger that is not there says how to make one, and does not."""
    looking = [("entries", "list"), ("entries", "show", "1")]
    _refuses(
        script, tmp_path, "sqlite:///none.db", 3, "create it with: oncegate migrate --url", commands=looking
    )
    _doctor_fails(call, "sqlite:///none.db", "create it with: oncegate migrate --url sqlite:///none.db")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (".", "is a folder; name a file in it"),
        ("nowhere/oncegate.db", "there is no folder"),
        ("a_file/oncegate.db", "there is no folder"),
        (f"{'x' * 300}.db", "File name too long"),
    ],
)
def test_place_that_can_hold_no_file_is_refused_with_code_three(call, tmp_path, place, said):
    """A folder, a missing folder and an impossible name are told apart."""
    (tmp_path / "a_file").write_text("not a folder")
    _refuses(call, tmp_path, f"sqlite:///{tmp_path}/{place}", 3, said)
    _doctor_fails(call, f"sqlite:///{tmp_path}/{place}", said)


@pytest.mark.slow
def test_folder_as_path_is_refused_by_the_script(script, tmp_path):
    """The installed command gives the same line and code."""
    _refuses(script, tmp_path, f"sqlite:///{tmp_path}", 3, "is a folder", commands=FOR_REAL)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self").exists(), reason="this platform has no /proc")
def test_unwritable_path_is_refused_by_the_script(script, tmp_path):
    """Where no file can be made, no ledger is."""
    url = "sqlite:////proc/oncegate.db"
    _refuses(
        script, tmp_path, url, 3, "check that its folder exists and is writable", commands=[("migrate",)]
    )


@pytest.mark.slow
def test_text_file_is_not_taken_for_a_ledger(call, script, tmp_path):
    """A file that is no database is left alone by every command."""
    (tmp_path / "notes.db").write_text("Dear diary, " * 100)
    _refuses(
        script, tmp_path, "sqlite:///notes.db", 4, "damaged or is not a SQLite file", commands=FOR_REAL
    )
    _refuses(call, tmp_path, "sqlite:///notes.db", 4, "damaged or is not a SQLite file")
    _doctor_fails(call, "sqlite:///notes.db", "damaged or is not a SQLite file")


@pytest.mark.slow
def test_damaged_ledger_is_recognised(call, script, ledger, tmp_path):
    """A ledger with overwritten pages ends in code four and is not touched any further."""
    pages = bytearray(ledger.read_bytes())
    for start in range(4096, len(pages), 4096):
        pages[start : start + 300] = b"\xde\xad\xbe" * 100
    ledger.write_bytes(pages)
    _refuses(
        script, tmp_path, "sqlite:///oncegate.db", 4, "damaged or is not a SQLite file", commands=FOR_REAL
    )
    _refuses(call, tmp_path, "sqlite:///oncegate.db", 4, "damaged or is not a SQLite file")
    _doctor_fails(call, "sqlite:///oncegate.db", "restore it from a copy")


def test_damage_beyond_the_first_pages_is_found_by_doctor(call, ledger):
    """Damage that a list would not meet shows in the integrity line."""
    pages = bytearray(ledger.read_bytes())
    with sqlite3.connect(ledger) as connection:
        query = "SELECT rootpage FROM sqlite_master WHERE name = 'oncegate_payload'"
        (page,) = connection.execute(query).fetchone()
    connection.close()
    start = (page - 1) * 4096
    pages[start : start + 300] = b"\xde\xad\xbe" * 100
    ledger.write_bytes(pages)
    ended = call("doctor")
    assert ended.code == 1
    assert "fail" in ended.out


@pytest.mark.slow
def test_ledger_of_a_newer_version_is_refused_with_code_five(call, script, ledger, tmp_path):
    """A schema from the future is named by its number and left alone."""
    _set_schema(ledger, 99)
    _refuses(script, tmp_path, "sqlite:///oncegate.db", 5, "the ledger has schema 99", commands=FOR_REAL)
    _refuses(call, tmp_path, "sqlite:///oncegate.db", 5, "the ledger has schema 99")
    _doctor_fails(call, "sqlite:///oncegate.db", "the ledger has schema 99")


@pytest.mark.parametrize("number", [1, 2, 27])
def test_ledger_of_a_development_version_is_refused_with_code_five(call, ledger, tmp_path, number):
    """Its numbers are of other migrations: it is never taken for an empty ledger, nor for an older one."""
    _break(
        ledger, f"UPDATE oncegate_meta SET name = 'schema', value = {number} WHERE name = 'schema_version'"
    )
    _refuses(call, tmp_path, "sqlite:///oncegate.db", 5, "made by a development version before 0.1.0; ")
    _doctor_fails(call, "sqlite:///oncegate.db", "made by a development version before 0.1.0; ")
    with pytest.raises(SchemaMismatch, match="a development version"):
        open_store(f"sqlite:///{ledger}").connect()


def _break(ledger: Path, sql: str) -> None:
    with contextlib.closing(sqlite3.connect(ledger)) as connection, connection:
        connection.execute(sql)


META, ENTRY = "UPDATE oncegate_meta SET value = 'abc' WHERE name =", "UPDATE oncegate_entry SET state ="


@pytest.mark.parametrize(
    ("sql", "said", "commands"),
    [
        (f"{META} 'ticks_offset'", "its ticks_offset is 'abc'", COMMANDS[:2]),
        (f"{ENTRY} 42", "'42' stands in it as a State", COMMANDS[:2]),
    ],
    ids=["ticks", "state"],
)
def test_damaged_rows_are_told_with_code_four(call, ledger, sql, said, commands):
    """What a ledger notes about itself, or an entry's state, that nobody can have written there."""
    _break(ledger, sql)
    _refuses(call, ledger.parent, "sqlite:///oncegate.db", 4, said, commands=commands)
    _refuses(call, ledger.parent, "sqlite:///oncegate.db", 4, "restore it from a copy", commands=commands)
    _doctor_fails(call, "sqlite:///oncegate.db", said)


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        (f"{META} 'schema_version'", "records 'abc' as the schema, which is no number"),
        ("DELETE FROM oncegate_meta", "has no record of its schema"),
    ],
    ids=["no number", "no record"],
)
def test_schema_number_that_is_damaged_or_lost_is_told_with_code_five(call, ledger, sql, said):
    """Its tables are there: to create them, as an empty ledger is told to, could only fail."""
    _break(ledger, sql)
    _refuses(call, ledger.parent, "sqlite:///oncegate.db", 5, said)
    _refuses(call, ledger.parent, "sqlite:///oncegate.db", 5, "restore oncegate_meta from a backup")
    _doctor_fails(call, "sqlite:///oncegate.db", said)


def _set_schema(ledger: Path, number: int) -> None:
    connection = sqlite3.connect(ledger)
    with connection:
        connection.execute("UPDATE oncegate_meta SET value = ? WHERE name = 'schema_version'", (number,))
    connection.close()


def test_ledger_of_an_older_version_is_read_only_after_migrating(call, ledger, monkeypatch, tmp_path):
    """Looking does not migrate; it says how to."""
    shipped = schema.all_migrations()
    number = shipped[-1].number + 1
    newer = Migration(
        number,
        "more",
        "CREATE TABLE oncegate_more (id INTEGER PRIMARY KEY);\n",
        f"INSERT OR REPLACE INTO oncegate_meta (name, value) VALUES ('schema_version', {number});",
    )
    monkeypatch.setattr(schema, "all_migrations", lambda: [*shipped, newer])
    looking = [("entries", "list"), ("entries", "show", "1")]
    _refuses(call, tmp_path, "sqlite:///oncegate.db", 5, "has an older schema", commands=looking)
    _doctor_fails(call, "sqlite:///oncegate.db", f"lacks {number:04} more")
    assert call("migrate").out == f"applied {number:04} more\n"
    assert call("entries", "list").code == 0


def test_other_database_is_not_changed_by_looking(call, tmp_path):
    """A database of somebody else's keeps its tables and its journal mode."""
    connection = sqlite3.connect(tmp_path / "theirs.db")
    with connection:
        connection.execute("CREATE TABLE theirs (id INTEGER PRIMARY KEY)")
    connection.close()
    before = contents(tmp_path)
    for words in (("entries", "list"), ("entries", "show", "1"), ("doctor",), ("migrate", "--check")):
        assert call(*words, "--url", "sqlite:///theirs.db").code in (1, 5)
    assert call("migrate", "--print", "--url", "sqlite:///theirs.db").code == 0
    assert contents(tmp_path) == before


def test_ledger_that_stays_locked_is_refused_with_code_three(call, tmp_path, monkeypatch):
    """A migration that cannot get the lock says that somebody else has it."""
    monkeypatch.setattr(files, "BUSY_WAIT_MS", 1)
    connection = sqlite3.connect(tmp_path / "oncegate.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("BEGIN IMMEDIATE")
    ended = call("migrate")
    connection.close()
    assert ended.code == 3
    assert "being written by another process" in ended.complaint


def _in_small_world(tmp_path: Path, setup: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs the script with mounts of its own, or skips where that is not allowed."""
    if (
        shutil.which("unshare") is None
        or subprocess.run([*UNSHARE, "true"], check=False, capture_output=True).returncode
    ):
        pytest.skip("this machine does not allow mount namespaces")
    line = f"{setup} && cd {tmp_path} && exec {SCRIPT} {' '.join(words)}"
    return subprocess.run(
        [*UNSHARE, line], capture_output=True, text=True, check=False, timeout=DEADLINE_SECONDS
    )


@pytest.mark.slow
def test_full_disk_is_refused_with_code_three(tmp_path):
    """On a disk without room the ledger is not made, and the line says why."""
    mount = f"mount -t tmpfs -o size=40k none {tmp_path}"
    done = _in_small_world(tmp_path, mount, "migrate")
    assert done.returncode == 3
    assert done.stderr == "oncegate: oncegate.db: no space left on its disk; free some and try again\n"


@pytest.mark.slow
def test_full_database_is_refused_with_code_three(script, tmp_path):
    """SQLite's own word for a full disk is translated wherever the tests run."""
    limit = "import sqlite3\nmake = sqlite3.connect\n\ndef connect(*a, **k):\n    it = make(*a, **k)\n"
    limit += "    it.execute('PRAGMA max_page_count = 3')\n    return it\n\nsqlite3.connect = connect\n"
    (tmp_path / "sitecustomize.py").write_text(limit)
    ended = script("migrate", PYTHONPATH=str(tmp_path))
    assert ended.code == 3
    assert "no space left on its disk" in ended.complaint


@pytest.mark.slow
def test_disk_that_may_not_be_written_is_refused_with_code_three(ledger, tmp_path):
    """A read-only disk is told from a missing ledger."""
    mount = f"mount --bind {tmp_path} {tmp_path} && mount -o remount,ro,bind {tmp_path}"
    for words in (("entries", "list"), ("migrate",)):
        done = _in_small_world(tmp_path, mount, *words)
        assert done.returncode == 3
        assert "check its permissions" in done.stderr
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (
            "UPDATE oncegate_meta SET value = 0 WHERE name = 'schema_version'",
            "has oncegate_name of migration 0001",
        ),
        ("DELETE FROM oncegate_meta WHERE name = 'schema_version'", "no record of its schema"),
        ("UPDATE oncegate_meta SET value = 'x' WHERE name = 'schema_version'", "'x' as the schema"),
    ],
)
def test_wrong_record_of_the_schema_is_told_with_what_to_do(call, ledger, tmp_path, damage, named):
    """Doctor and migrate do not send people to each other, and nothing is applied twice."""
    _damage(ledger, damage)
    _refuses(call, tmp_path, "sqlite:///oncegate.db", 5, named)
    _doctor_fails(call, "sqlite:///oncegate.db", named)
    with pytest.raises(SchemaMismatch, match="restore oncegate_meta from a backup"):
        open_store(f"sqlite:///{ledger}").connect()


def test_lost_index_is_named_by_doctor(call, ledger):
    """What a migration made and somebody removed is not found out by whoever needs it."""
    _damage(ledger, "DROP INDEX oncegate_log_entry")
    _doctor_fails(call, "sqlite:///oncegate.db", "without index oncegate_log_entry")


def _damage(ledger: Path, sql: str) -> None:
    connection = sqlite3.connect(ledger)
    with connection:
        connection.execute(sql)
    connection.close()
