"""The embedded ledger on bad files, full disks, others' connections: one clear error, nothing lost."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sqlite3
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from oncegate import Gate
from oncegate.clock import SystemClock
from oncegate.errors import (
    ConfigError,
    SchemaMismatch,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreRejected,
    StoreUnavailable,
    StoreUnknown,
    UsageError,
)
from oncegate.model.keys import derive_key
from oncegate.model.states import Decision, State
from oncegate.store import (
    Durability,
    EntryFilter,
    Migration,
    Reservation,
    Reserved,
    Session,
    Settlement,
)
from oncegate.stores.sqlite import SqliteStore, files, schema
from oncegate.testing import Forked, ManualClock, run_forked, wait_until
from oncegate.testing.waiting import DEADLINE_SECONDS

PAGE_BYTES = 4096


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def key_of(name: str) -> bytes:
    return derive_key("", "orders", "{id}", (name,)).digest


def reserve(session: Session, name: str, body: bytes = b"{}") -> Reserved:
    wanted = Reservation(key_of(name), "", "orders", name, b"content", body, 1, 20_000, 8, 1)
    with session.unit():
        return session.reserve([wanted])[0]


def settlement(claim: Reserved) -> Settlement:
    return Settlement(*claim.claim, State.COMMITTED, 1, "test", b'"done"')


def fill(path: Path, entries: int = 200) -> None:
    """A closed ledger with enough entries for several pages."""
    session = SqliteStore(path).connect()
    for number in range(entries):
        reserve(session, f"e{number}", body=b"x" * 200)
    session.close()


def schema_of(connection: sqlite3.Connection) -> set[tuple[str, str, str]]:
    rows = connection.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL")
    return {(kind, name, sql) for kind, name, sql in rows}


# --- files that are no ledger ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "content", [b"this is a shopping list, not a database\n" * 200, os.urandom(8 * PAGE_BYTES)]
)
def test_file_that_is_no_database_is_refused_and_left_alone(path: Path, content: bytes) -> None:
    """Somebody else's file is named in the error, and not one byte of it changes."""
    path.write_bytes(content)
    store = SqliteStore(path)

    for attempt in (store.connect, store.migrate, store.pending_migrations):
        with pytest.raises(StoreCorrupt, match=r"ledger\.db"):
            attempt()

    assert path.read_bytes() == content
    (finding,) = store.examine()
    assert not finding.ok
    assert finding.next_step


def test_empty_file_becomes_a_ledger(path: Path) -> None:
    """A file of no bytes is a ledger that has not begun."""
    path.touch()

    session = SqliteStore(path).connect()

    assert reserve(session, "first").decision is Decision.RUN
    session.close()


def test_database_of_the_user_becomes_their_ledger_too(path: Path) -> None:
    """Tables that are already there stay as they are beside the ledger's own."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE booking (ref TEXT)")
        connection.execute("INSERT INTO booking VALUES ('b-1')")
        connection.commit()

    session = SqliteStore(path).connect()
    with session.unit():
        rows = session.execute("SELECT ref FROM booking", ())
    session.close()

    assert rows == [("b-1",)]


def test_damaged_page_is_told_and_nothing_is_run(path: Path) -> None:
    """An arrival that meets a damaged page gets StoreCorrupt, and its handler is not called."""
    fill(path)
    damage(path)
    gate, ran = Gate(f"sqlite:///{path}"), []
    gate.handler("orders", key="{id}")(lambda event, once: ran.append(event))

    with pytest.raises(StoreCorrupt, match="do not delete its keys"):
        gate.admit_sync("orders", {"id": "new"})
    gate.close()

    assert ran == []
    findings = SqliteStore(path).examine()
    assert not all(finding.ok for finding in findings)


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(lambda session: session.entries(EntryFilter(), None, 1000), id="entries"),
        pytest.param(lambda session: session.read([key_of("e1")]), id="read"),
        pytest.param(lambda session: session.stranded(1000), id="stranded"),
        pytest.param(lambda session: session.counts(), id="counts"),
        pytest.param(lambda session: session.read_log(0, 1000), id="log"),
    ],
)
def test_reading_a_damaged_page_is_an_error_of_ours(path: Path, read: Callable[[Session], Any]) -> None:
    """What people and workers look at fails as a StoreError, like everything else."""
    fill(path)
    damage(path, tables="%")

    with pytest.raises(StoreCorrupt), SqliteStore(path).look() as session:
        read(session)


def test_business_write_on_a_damaged_page_is_no_fault_of_the_event(path: Path) -> None:
    """A disk that fails under a business write is the store's trouble and uses up no attempt."""
    fill(path, entries=1)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE booking (ref TEXT)")
        connection.commit()
    damage(path, tables="booking")
    session = SqliteStore(path).connect()
    claim = reserve(session, "new")
    write = ("INSERT INTO booking VALUES (?)", ("b-1",))

    with contextlib.closing(session), pytest.raises(StoreCorrupt), session.unit():
        session.settle([msgspec.structs.replace(settlement(claim), writes=(write,))])


def damage(path: Path, *, tables: str = "oncegate_entry%") -> None:
    """Overwrites the first pages of the tables and indexes so called with noise."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        roots = connection.execute(
            "SELECT rootpage FROM sqlite_master"
            " WHERE rootpage > 0 AND name LIKE ? AND name <> 'oncegate_meta'",
            (tables,),
        )
        pages = [page for (page,) in roots]
    with path.open("r+b") as file:
        for page in pages:
            file.seek((page - 1) * PAGE_BYTES)
            file.write(b"\xde\xad\xbe\xef" * (PAGE_BYTES // 4))


def test_shortened_file_is_told(path: Path) -> None:
    """A file that lost its end is damaged, not smaller."""
    fill(path)
    with path.open("r+b") as file:
        file.truncate(3 * PAGE_BYTES)

    assert not all(finding.ok for finding in SqliteStore(path).examine())
    with pytest.raises(StoreError):
        fill(path)


# --- schema ----------------------------------------------------------------------------------------


def test_newer_schema_is_refused_and_left_alone(path: Path) -> None:
    """A ledger written by a newer version is not touched; the error says what to install."""
    fill(path, entries=3)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE oncegate_meta SET value = 999 WHERE name = 'schema_version'")
        connection.execute("CREATE TABLE oncegate_of_the_future (id INTEGER)")
        connection.commit()
        before = list(connection.iterdump())
    store = SqliteStore(path)

    for attempt in (store.connect, store.migrate, store.pending_migrations):
        with pytest.raises(SchemaMismatch, match=r"999.*newer oncegate"):
            attempt()

    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert list(connection.iterdump()) == before


def test_migrations_are_numbered_without_gaps() -> None:
    """The shipped migrations are 1, 2, 3 … and each has a name and statements."""
    migrations = schema.all_migrations()

    assert [migration.number for migration in migrations] == list(range(1, len(migrations) + 1))
    assert all(migration.name and schema.split_statements(migration.sql) for migration in migrations)


def test_applied_migrations_equal_the_shipped_files(path: Path) -> None:
    """A new ledger has exactly the schema that the files describe, statement by statement."""
    SqliteStore(path).connect().close()

    with (
        contextlib.closing(sqlite3.connect(":memory:")) as plain,
        contextlib.closing(sqlite3.connect(path)) as ledger,
    ):
        for migration in schema.all_migrations():
            plain.executescript(migration.sql)
        assert schema_of(ledger) == schema_of(plain)
        version = ledger.execute("SELECT value FROM oncegate_meta WHERE name = 'schema_version'").fetchone()
        assert version == (schema.all_migrations()[-1].number,)


def test_migration_that_fails_halfway_leaves_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All statements of a migration happen, or none: the ledger stays at the version it had."""
    fill(path, entries=1)
    broken = Migration(
        99, "broken", "CREATE TABLE half (id INTEGER);\nINSERT INTO nowhere VALUES (1);\n", ""
    )
    shipped = schema.all_migrations()
    monkeypatch.setattr(schema, "all_migrations", lambda: [*shipped, broken])

    with pytest.raises(StoreError):
        SqliteStore(path).migrate()

    monkeypatch.undo()
    store = SqliteStore(path)
    assert store.pending_migrations() == []
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert "half" not in {name for _, name, _ in schema_of(connection)}


def retried(action: Callable[[], Any]) -> Any:
    """Does what the error says: tries again in a moment."""
    done: list[Any] = []

    def attempt() -> bool:
        with contextlib.suppress(StoreBusy):
            done.append(action())
        return bool(done)

    wait_until(attempt, what="the end of another process's turn")
    return done[0]


def test_opening_waits_for_a_writer_in_another_journal_mode(path: Path) -> None:
    """A file that is being written while it first becomes a ledger is waited for, not refused at once."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("CREATE TABLE booking (ref TEXT)")
        other.execute("BEGIN IMMEDIATE")
        with ThreadPoolExecutor(1) as threads:
            opening = threads.submit(SqliteStore(path).connect)
            with contextlib.suppress(TimeoutError):
                opening.exception(timeout=0.3)  # long enough for a refusal at once, which is the fault
            other.execute("COMMIT")
            opening.result().close()


def test_opening_does_not_wait_for_ever_for_a_reader(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who keeps reading a file in another journal mode makes it busy, within the limit."""
    monkeypatch.setattr(files, "BUSY_WAIT_MS", 200)
    clock = SystemClock()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("CREATE TABLE booking (ref TEXT)")
        other.execute("BEGIN")
        other.execute("SELECT * FROM booking").fetchall()
        started = clock.ticks_ms()

        with pytest.raises(StoreBusy):
            SqliteStore(path).connect()

        assert clock.ticks_ms() - started < DEADLINE_SECONDS * 1000 / 2


@pytest.mark.slow
def test_processes_that_migrate_at_once_apply_everything_once(path: Path) -> None:
    """Six processes that open a new file together all succeed, and one of them made the ledger."""
    for turn in range(5):
        ledger = path.with_name(f"turn{turn}.db")
        reader, writer = os.pipe()

        def open_together(ledger: Path = ledger, reader: int = reader, writer: int = writer) -> int:
            os.close(writer)
            os.read(reader, 1)  # returns when the parent closes its end
            applied = retried(SqliteStore(ledger).migrate)
            retried(SqliteStore(ledger).connect).close()
            return len(applied)

        with contextlib.ExitStack() as stack:
            children = [stack.enter_context(Forked(open_together)) for _ in range(6)]
            os.close(reader)
            os.close(writer)
            answers = [child.answer() for child in children]

        assert sorted(answers) == [0, 0, 0, 0, 0, len(schema.all_migrations())]


# --- paths -----------------------------------------------------------------------------------------


def test_path_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    """A folder, a path below a file and a path below nothing are each refused with the path."""
    (tmp_path / "file").write_text("a file")
    for bad in (tmp_path, tmp_path / "file" / "ledger.db", tmp_path / "no" / "such" / "folder.db"):
        with pytest.raises(StoreUnavailable, match=str(bad)):
            SqliteStore(bad).connect()
        (finding,) = SqliteStore(bad).examine()
        assert not finding.ok


def on_a_small_disk(folder: Path, work: Callable[[], Any]) -> Any:
    """Runs in a process that alone sees a disk of one megabyte in `folder`; its end takes the disk away."""

    def mount_and_work() -> dict[str, Any]:
        new_namespace = 0x00020000  # CLONE_NEWNS
        if ctypes.CDLL(None).unshare(new_namespace):
            return {"skipped": True}
        for command in (["--make-rprivate", "/"], ["-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]):
            if subprocess.run(["mount", *command], capture_output=True, check=False).returncode:
                return {"skipped": True}
        return {"answer": work()}

    folder.mkdir()
    code, told = run_forked(mount_and_work)
    assert code == 0
    if "skipped" in told:
        pytest.skip("needs the right to mount a small tmpfs")
    return told["answer"]


@pytest.mark.slow
def test_read_only_disk_is_told(tmp_path: Path) -> None:
    """On a disk that cannot be written nothing is run, and what is there stays."""
    disk = tmp_path / "disk"
    ledger = disk / "ledger.db"

    def admit_on_a_read_only_disk() -> list[Any]:
        fill(ledger, entries=2)
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        gate, ran = Gate(f"sqlite:///{ledger}"), []
        gate.handler("orders", key="{id}")(lambda event, once: ran.append(event))
        with pytest.raises(StoreUnavailable, match=r"ledger\.db"):
            gate.admit_sync("orders", {"id": "new"})
        with pytest.raises(StoreUnavailable):
            SqliteStore(disk / "other.db").connect()
        return ran

    assert on_a_small_disk(disk, admit_on_a_read_only_disk) == []


@pytest.mark.slow
def test_full_disk_refuses_and_recovers(tmp_path: Path) -> None:
    """With no space left nothing is run and nothing is lost; with space again everything goes on."""
    disk = tmp_path / "disk"
    ledger, ballast = disk / "ledger.db", disk / "ballast"

    def fill_up_and_make_room() -> dict[str, Any]:
        gate, ran = Gate(f"sqlite:///{ledger}", replay_cache_max=1), []

        @gate.handler("orders", key="{id}")
        def take(event: dict[str, Any], once: Any) -> str:
            ran.append(event["id"])
            return "x" * 3_000

        def admit_many() -> None:
            for number in range(1, 1000):
                gate.admit_sync("orders", {"id": number})

        gate.admit_sync("orders", {"id": 0})
        used = sum(file.stat().st_size for file in disk.iterdir())
        ballast.write_bytes(b"\0" * ((1024 - 150) * 1024 - used))
        with pytest.raises(StoreFull):
            admit_many()
        at_the_limit = max(ran)
        with ballast.open("ab", buffering=0) as rest, contextlib.suppress(OSError):
            while rest.write(b"\0" * 4096) == 4096:
                pass
        for number in range(100):  # a small write may still fit where a large one did not
            before = len(ran)
            with contextlib.suppress(StoreUnavailable):
                gate.admit_sync("orders", {"id": f"last {number}"})
            if len(ran) == before:
                break
        with pytest.raises(StoreUnavailable):
            gate.admit_sync("orders", {"id": "while full"})
        ballast.unlink()
        after = gate.admit_sync("orders", {"id": "after"}).result()
        replays = [gate.admit_sync("orders", {"id": number}).replay for number in range(at_the_limit)]
        return {"ran": ran, "after": after, "replays": replays}

    told = on_a_small_disk(disk, fill_up_and_make_room)

    assert "while full" not in told["ran"]
    assert told["after"] == "x" * 3_000
    assert len(told["replays"]) > 3
    assert all(told["replays"])
    assert len(told["ran"]) == len(set(told["ran"]))


@pytest.mark.slow
def test_file_size_limit_leaves_no_half_commit(path: Path) -> None:
    """A write cut off by the operating system is undone or read back: what is told is what is there."""
    fill(path, entries=5)

    def admit_until_refused() -> dict[str, Any]:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        gate, ran = Gate(f"sqlite:///{path}"), []
        gate.handler("limited", key="{id}")(lambda event, once: ran.append(event["id"]))
        gate.admit_sync("limited", {"id": 0})
        size = path.with_name("ledger.db-wal").stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20_000, size + 20_000))
        done, refused = [0], []
        for number in range(1, 30):
            try:
                gate.admit_sync("limited", {"id": number})
                done.append(number)
            except (StoreUnavailable, StoreUnknown):
                refused.append(number)
        return {"done": done, "refused": refused, "ran": ran}

    code, told = run_forked(admit_until_refused)

    assert code == 0
    assert told["done"]
    assert told["refused"]
    assert len(told["ran"]) == len(set(told["ran"]))
    with SqliteStore(path).look() as session:
        committed = session.entries(EntryFilter(states=(State.COMMITTED,), surface="limited"), None, 100)
    assert {entry.label for entry in committed} >= {str(number) for number in told["done"]}
    assert len(committed) <= len(told["ran"])


# --- durability ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("level", "pragma", "durability"),
    [
        ("FULL", 2, Durability.POWER_LOSS),
        ("extra", 3, Durability.POWER_LOSS),
        ("Normal", 1, Durability.PROCESS_CRASH),
    ],
)
def test_durability_is_what_the_file_is_set_to(
    path: Path, level: str, pragma: int, durability: Durability
) -> None:
    """What is declared, what doctor says and what SQLite is set to are the same."""
    store = SqliteStore(path, synchronous=level)
    session = store.connect()

    assert store.capabilities.durability is durability
    assert session.read_pragma("synchronous") == [(pragma,)]
    assert session.read_pragma("journal_mode") == [("wal",)]
    session.close()
    (finding,) = [finding for finding in store.examine() if finding.what == "durability"]
    assert finding.ok is (durability is Durability.POWER_LOSS)
    assert finding.ok or "FULL" in finding.next_step


def test_default_is_the_safe_level(path: Path) -> None:
    """Without a word from the user a committed record survives power loss."""
    assert SqliteStore(path).capabilities.durability is Durability.POWER_LOSS


@pytest.mark.parametrize("level", ["OFF", "0", "", "FULL; DROP TABLE x"])
def test_unsafe_or_unknown_level_is_refused(path: Path, level: str) -> None:
    """A level that would lose records, or that nobody knows, is refused before anything is opened."""
    with pytest.raises(ConfigError):
        SqliteStore(path, synchronous=level)

    assert not path.exists()


def test_settling_doubt_really_commits_something(path: Path) -> None:
    """Frames of a doubtful commit are overwritten, so that what is not there now never appears later."""
    store = SqliteStore(path)
    session, other = store.connect(), store.connect()

    for _ in range(3):
        before = other.read_pragma("data_version")
        with session.unit():
            session.settle_doubt()
        assert other.read_pragma("data_version") != before

    session.close()
    other.close()


def test_ticks_are_carried_on_where_boots_have_no_name(path: Path) -> None:
    """Where the platform cannot name a boot, ticks that fell far behind are taken for a new one."""
    clock = ManualClock(ticks_ms=10**10)
    clock.reboot("", ticks_ms=10**10)
    session = SqliteStore(path, clock=clock).connect()
    claim = reserve(session, "stranded")
    session.close()
    clock.reboot("", ticks_ms=1_000)

    session = SqliteStore(path, clock=clock).connect()
    again = reserve(session, "stranded")
    session.close()

    assert again.decision is Decision.RECOVER
    assert again.now_ticks >= claim.now_ticks


# --- other people's connections --------------------------------------------------------------------


@pytest.fixture
def own(path: Path) -> Iterator[sqlite3.Connection]:
    """The user's own connection to the ledger's file, with a table of theirs."""
    SqliteStore(path).connect().close()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("CREATE TABLE booking (ref TEXT PRIMARY KEY)")
    yield connection
    connection.close()


def test_joining_without_a_transaction_is_refused(path: Path, own: sqlite3.Connection) -> None:
    """A connection on which nothing has begun would commit each statement by itself."""
    with pytest.raises(UsageError, match="BEGIN IMMEDIATE"):
        SqliteStore(path).join(own)


def test_joining_another_database_is_refused(path: Path, own: sqlite3.Connection, tmp_path: Path) -> None:
    """One transaction cannot span two files: another one, one in memory, one that attached the ledger."""
    for address in (str(tmp_path / "other.db"), ":memory:", ""):
        with contextlib.closing(sqlite3.connect(address, isolation_level=None)) as other:
            other.execute("ATTACH ? AS ledger", (str(path),))
            other.execute("BEGIN")
            with pytest.raises(UsageError, match="another database"):
                SqliteStore(path).join(other)
            other.execute("ROLLBACK")


def test_joining_something_else_is_refused(path: Path, own: sqlite3.Connection) -> None:
    """The error names what was given and what is needed."""
    with pytest.raises(UsageError, match=r"Cursor.*sqlite3\.Connection"):
        SqliteStore(path).join(own.cursor())


def test_file_is_recognised_under_another_name(path: Path, own: sqlite3.Connection) -> None:
    """The same file through a symbolic link is the same database."""
    link = path.with_name("link.db")
    link.symlink_to(path)
    own.execute("BEGIN IMMEDIATE")

    SqliteStore(link).join(own)

    own.execute("ROLLBACK")


def as_dictionary(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> dict[str, Any]:
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


@pytest.mark.parametrize("ending", ["COMMIT", "ROLLBACK"])
@pytest.mark.parametrize(
    "row_factory",
    [
        None,
        sqlite3.Row,
        as_dictionary,
    ],
)
def test_joined_settlement_shares_the_users_fate(
    path: Path, own: sqlite3.Connection, ending: str, row_factory: Any
) -> None:
    """What is settled in the user's own transaction is committed with it, or undone with it."""
    store = SqliteStore(path)
    session = store.connect()
    claim = reserve(session, "joined")
    session.close()
    own.row_factory = row_factory
    own.execute("BEGIN IMMEDIATE")
    own.execute("INSERT INTO booking VALUES ('b-1')")

    joined = store.join(own)
    with joined.unit():
        answers = joined.settle([settlement(claim)])
    joined.close()
    own.execute(ending)

    committed = ending == "COMMIT"
    with store.look() as reader:
        found = reader.detail(claim.entry_id)
    assert answers == [True]
    assert found is not None
    assert found.entry.state is (State.COMMITTED if committed else State.IN_FLIGHT)
    assert found.outcome == (b'"done"' if committed else None)
    assert len(found.records) == committed
    own.row_factory = None
    assert own.execute("SELECT count(*) FROM booking").fetchone() == (int(committed),)


def test_joined_settlement_with_an_old_fence_changes_nothing(path: Path, own: sqlite3.Connection) -> None:
    """A zombie that joins its own transaction is told, and only its own writes are in it."""
    clock = ManualClock()
    store = SqliteStore(path, clock=clock)
    session = store.connect()
    old = reserve(session, "taken")
    clock.advance(30)
    reserve(session, "taken")
    session.close()
    with store.look() as reader:
        before = reader.detail(old.entry_id)
    own.execute("BEGIN IMMEDIATE")

    joined = store.join(own)
    with joined.unit():
        answers = joined.settle([settlement(old)])
    own.execute("COMMIT")

    assert answers == [False]
    with store.look() as reader:
        assert reader.detail(old.entry_id) == before


def test_statement_that_ends_the_transaction_is_refused(path: Path, own: sqlite3.Connection) -> None:
    """A handler that commits by itself is told at once, before it builds on it."""
    session = SqliteStore(path).connect()

    with pytest.raises(UsageError, match="leave COMMIT and ROLLBACK to the gate"), session.unit():
        session.execute("ROLLBACK", ())

    with pytest.raises(StoreRejected), session.unit():
        session.execute("BEGIN", ())
    assert reserve(session, "still usable").decision is Decision.RUN
    session.close()


def test_another_process_that_writes_makes_it_busy(path: Path, own: sqlite3.Connection) -> None:
    """While somebody else holds the file, an impatient unit is refused and nothing is written."""
    session = SqliteStore(path).connect()
    own.execute("BEGIN IMMEDIATE")

    with pytest.raises(StoreBusy), session.unit(wait=False):
        raise AssertionError("the unit must not begin")

    own.execute("ROLLBACK")
    assert reserve(session, "afterwards").decision is Decision.RUN
    session.close()


@pytest.mark.parametrize(("size", "pages"), [(0, 1_000), (16_400_000, 4_000)])
def test_the_log_ahead_of_the_file_is_bounded_and_larger_only_where_the_file_is(
    path: Path, size: int, pages: int
) -> None:
    """Checkpoints do come; late enough to copy a page once, unless the log would be the larger of both."""
    with contextlib.closing(sqlite3.connect(path)) as ledger:
        ledger.execute("CREATE TABLE filler (body BLOB)")
        ledger.execute("INSERT INTO filler VALUES (zeroblob(?))", (size,))
        ledger.commit()
    session = SqliteStore(path, clock=ManualClock()).connect()
    try:
        for number in range(40):
            reserve(session, str(number), body=b"x" * 2**20)
        log = path.with_name(f"{path.name}-wal").stat().st_size
    finally:
        session.close()
    assert 0.8 * pages * PAGE_BYTES < log < 1.6 * pages * PAGE_BYTES


def test_a_relative_path_means_the_folder_it_was_given_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon that changes its folder, and opens another session then, stays on its ledger (I1)."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    monkeypatch.chdir(here)
    store = SqliteStore("oncegate.db")
    store.connect().close()
    monkeypatch.chdir(there)

    store.connect().close()

    assert store.exists()
    assert [store.migrate(), list(there.iterdir())] == [[], []]
    with store.look() as session:
        assert session.now_ticks() > 0


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode_of(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


@pytest.mark.parametrize("umask", [0, 0o022, 0o277, 0o777])
def test_a_new_ledger_and_its_side_files_are_its_owners_alone(
    path: Path, umask: int, no_umask: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ledger holds signing secrets; there is no moment at which others can open it (I14)."""
    os.umask(umask)
    connect: Any = sqlite3.connect
    modes: list[int] = []

    def noting(*arguments: Any, **options: Any) -> Any:
        modes.append(mode_of(path))
        return connect(*arguments, **options)

    monkeypatch.setattr(sqlite3, "connect", noting)
    session = SqliteStore(path).connect()
    with session.unit():
        session.sight(1)

    found = {file.name: mode_of(file) for file in path.parent.iterdir()}
    session.close()
    assert modes == [0o600]
    assert found == dict.fromkeys(["ledger.db", "ledger.db-shm", "ledger.db-wal"], 0o600)


def test_a_ledger_behind_a_link_is_created_for_its_owner_alone(path: Path, no_umask: None) -> None:
    link = path.with_name("link.db")
    link.symlink_to(path)
    SqliteStore(link).connect().close()
    assert mode_of(path) == 0o600


def test_a_mode_that_was_chosen_stays_and_the_doctor_names_it(path: Path) -> None:
    SqliteStore(path).connect().close()
    path.chmod(0o640)
    SqliteStore(path).connect().close()

    (finding,) = (one for one in SqliteStore(path).examine() if one.what == "permissions")

    assert mode_of(path) == 0o640
    assert finding.ok
    assert finding.next_step.startswith(f"run: chmod 600 {path}")
    path.chmod(0o600)
    (finding,) = (one for one in SqliteStore(path).examine() if one.what == "permissions")
    assert finding.next_step == ""


@pytest.mark.slow
def test_threads_that_open_a_new_ledger_at_once_all_get_a_session(tmp_path: Path) -> None:
    """Those who come while another one makes the ledger take it for neither damaged nor gone."""
    for number in range(40):
        store = SqliteStore(tmp_path / f"{number}.db")
        together = threading.Barrier(8)

        def open_one(store: SqliteStore = store, together: threading.Barrier = together) -> None:
            together.wait()
            store.connect().close()

        with ThreadPoolExecutor(8) as threads:
            for opened in [threads.submit(open_one) for _ in range(8)]:
                opened.result()
