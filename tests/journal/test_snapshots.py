"""Snapshots: whole, signed, chained, or not there at all (E8)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from oncegate import Gate
from oncegate.crashpoints import HISTORY_CRASH_POINTS
from oncegate.errors import ConfigError, SnapshotError, SnapshotFork
from oncegate.journal.keys import PrivateKey
from oncegate.journal.snapshots.archive import Archive, ObjectChange
from oncegate.journal.snapshots.beliefs import LEDGER, Belief, id_of
from oncegate.journal.snapshots.folder import Folder
from oncegate.journal.snapshots.spool import Spool
from oncegate.journal.snapshots.suspicion import SnapshotFacts, suspicions
from oncegate.journal.snapshots.timeline import read_timeline
from oncegate.store import DocumentChange
from oncegate.testing import ArmedCrashPoints, CrashReached, ManualClock
from oncegate.wiring.history import history_of
from tests.support.care import Care


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'ledger.db'}"


@pytest.fixture
def care(url: str, tmp_path: Path) -> Iterator[Care]:
    made = Care(url, tmp_path, clock=ManualClock())
    yield made
    made.close()


def archive(care: Care) -> Archive:
    return history_of(care.gate).taker().archive


def test_snapshot_holds_every_object_and_what_the_ledger_believes(care: Care) -> None:
    """Read back whole, with the ledger's own counts, open entries and settings."""
    care.fill(30)
    taken = care.take()

    manifest = archive(care).manifest(1).manifest
    kept = dict(archive(care).objects(manifest.beliefs["routes"]))
    own = {str(id_of(one)) for one, _ in archive(care).objects(manifest.beliefs[LEDGER])}

    assert taken.counts["routes"] == len(kept) == 30
    assert sorted(map(id_of, kept)) == care.ids()
    assert kept['"r3"'] == b'{"carer":"carer3","day":"monday","id":"r3"}'
    assert {"count:visits:committed", "surface:visits"} <= own
    assert manifest.software.startswith("oncegate ")
    assert manifest.config


@pytest.mark.slow
def test_small_change_writes_few_parts(care: Care) -> None:
    """Unchanged parts are stored once."""
    rows = [{"id": number, "text": "x" * 50} for number in range(5_000)]
    care.gate.belief("rows")(lambda: rows)
    first = care.take()
    rows[7] = {"id": 7, "text": "changed"}
    second = care.take()

    found = archive(care)
    changes = [
        one
        for one in found.differences(found.manifest(1).manifest, found.manifest(2).manifest)
        if one.belief == "rows"
    ]
    assert first.counts["rows"] == second.counts["rows"] == 5_000
    assert first.parts_written >= 16
    assert second.parts_written == 1
    assert [(id_of(one.id), one.change) for one in changes] == [(7, ObjectChange.CHANGED)]


def test_difference_names_what_was_added_removed_and_changed(care: Care) -> None:
    """By id, with both values."""
    care.fill(3)
    care.take()
    care.sql("DELETE FROM route WHERE id = 'r0'")
    care.sql("UPDATE route SET carer = 'other' WHERE id = 'r1'")
    care.sql("INSERT INTO route (id, carer, day) VALUES ('r9', 'x', 'monday')")
    care.take()

    found = archive(care)
    pair = found.manifest(1).manifest, found.manifest(2).manifest
    changes = {
        id_of(one.id): one.change.value for one in found.differences(*pair) if one.belief == "routes"
    }
    assert changes == {"r0": "removed", "r1": "changed", "r9": "added"}


@pytest.mark.parametrize("point", [one for one in HISTORY_CRASH_POINTS if one.startswith("snapshot.")])
def test_crash_leaves_no_half_snapshot(point: str, url: str, tmp_path: Path) -> None:
    """At every point: the chain verifies, and the next run goes on with the next number."""
    dying = Care(url, tmp_path, crashpoints=ArmedCrashPoints.raising(point))
    dying.fill(5)
    with pytest.raises(CrashReached):
        dying.take()
    dying.close()
    stored = len(archive(dying).numbers())
    living = Care(url, tmp_path)

    assert stored == (1 if point == "snapshot.manifest.after" else 0)
    assert living.take().number == stored + 1
    assert [one.manifest.number for one in archive(living).verify()] == list(range(1, stored + 2))
    living.close()


def test_two_workers_take_one_snapshot(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The later one finds the other's manifest and adopts it; that is no fork."""
    first, second = Care(url, tmp_path), Care(url, tmp_path)
    first.fill(2)
    taker = history_of(second.gate).taker()
    seal = taker._seal

    def late(*arguments: Any) -> Any:
        first.take()
        return seal(*arguments)

    monkeypatch.setattr(taker, "_seal", late)
    taken = asyncio.run(taker.take())

    assert (taken.number, taken.is_new) == (1, False)
    assert archive(first).numbers() == [1]
    first.close()
    second.close()


def test_due_snapshot_is_taken_once_an_interval(care: Care) -> None:
    """Another worker's recent snapshot is enough."""
    clock = care.gate.engine.clock
    assert isinstance(clock, ManualClock)
    taker = history_of(care.gate).taker()
    runs = [asyncio.run(taker.run_once()).is_new]
    runs.append(asyncio.run(taker.run_once()).is_new)
    clock.advance(15 * 60)
    runs.append(asyncio.run(taker.run_once()).is_new)

    assert runs == [True, False, True]


def test_clock_that_went_back_is_recorded_and_order_stays(care: Care) -> None:
    """The order is that of the numbers."""
    clock = care.gate.engine.clock
    assert isinstance(clock, ManualClock)
    care.take()
    clock.step_wall(-7200)
    care.take()

    found = [one.manifest for one in archive(care).verify()]
    assert [one.number for one in found] == [1, 2]
    assert found[1].clock_back_ms == 7_200_000


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda: [{"id": "a"}, {"id": "b"}, {"id": "a"}], "two objects have the id 'a'"),
        (lambda: 1 / 0, "raised ZeroDivisionError"),
        (lambda: [{"name": "x"}], "an id is a text or a whole number, not None"),
        (lambda: [{"id": 1, "at": object()}], "cannot be kept"),
        (lambda: "text", "it returned a str, not objects"),
        (lambda: [17], "an object is a int, not a dict"),
        (lambda: (one for one in ({"id": 1}, 1 / 0)), "raised ZeroDivisionError"),
    ],
)
def test_belief_that_cannot_be_read_leaves_no_snapshot(care: Care, function: Any, told: str) -> None:
    """One line that names the belief; the timeline says that the snapshot failed."""
    care.gate.belief("wrong")(function)

    with pytest.raises(SnapshotError, match=r"belief wrong: .*") as refused:
        care.take()

    assert told in str(refused.value)
    assert archive(care).numbers() == []
    with care.gate.engine.store.look() as session:
        assert told in str(read_timeline(session).failure)


def test_beliefs_may_be_async_and_stream(care: Care) -> None:
    """An async generator, an async function, a mapping; ids 1 and "1" are two."""

    async def stream() -> AsyncIterator[dict[str, Any]]:
        for number in range(2_500):
            yield {"id": number}

    async def listed() -> list[dict[str, Any]]:
        return [{"id": 1}, {"id": "1"}]

    care.gate.belief("streamed")(stream)
    care.gate.belief("listed")(listed)
    care.gate.belief("mapped")(lambda: {"a": {"x": 1}})

    counts = care.take().counts
    assert (counts["streamed"], counts["listed"], counts["mapped"]) == (2_500, 2, 1)


def test_wrong_key_is_refused_in_one_line(care: Care, tmp_path: Path) -> None:
    """A manifest of another key counts as none."""
    care.take()
    other = PrivateKey("care", b"o" * 32).verifier

    with pytest.raises(SnapshotError, match=r"snapshot 1: no known key has signed"):
        Archive(Folder(str(tmp_path / "snapshots")), [other]).manifest(1)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["flip", "drop", "swap", "truncate", "part", "missing part", "last"])
def test_tampering_is_found(care: Care, tmp_path: Path, how: str) -> None:
    """Each change of a stored byte or file stops `verify`, or the next snapshot, with a line."""
    for number in range(3):
        care.fill(3, start=3 * number)
        care.take()
    folder = tmp_path / "snapshots"
    files = sorted((folder / "manifests").iterdir())
    parts = sorted(folder.glob("parts/*/*"))
    for path in (*files, *parts):
        path.chmod(0o600)
    if how == "flip":
        files[1].write_bytes(files[1].read_bytes().replace(b'"count":6', b'"count":7'))
    elif how == "drop":
        files[1].unlink()
    elif how == "swap":
        first, second = files[0].read_bytes(), files[1].read_bytes()
        files[0].write_bytes(second)
        files[1].write_bytes(first)
    elif how == "truncate":
        files[2].write_bytes(files[2].read_bytes()[:-40])
    elif how == "part":
        parts[0].write_bytes(parts[0].read_bytes()[:-9] + bytes(9))
    elif how == "missing part":
        parts[0].unlink()
    else:
        files[2].unlink()
        with pytest.raises(SnapshotError):
            care.take()
        return
    with pytest.raises(SnapshotError):
        list(archive(care).verify())


def test_exchanged_history_is_a_fork(care: Care, tmp_path: Path) -> None:
    """A validly signed manifest that is not the one the ledger knows stops the next snapshot."""
    care.fill(1)
    care.take()
    stored = archive(care).manifest(1).manifest
    path = tmp_path / "snapshots" / stored.name
    path.chmod(0o600)
    from msgspec.structs import replace

    path.write_bytes(replace(stored, wall_ms=1).signed([PrivateKey("care", b"k" * 32)]))

    with pytest.raises(SnapshotFork, match="is not the one this ledger knows"):
        care.take()


def test_vault_of_another_ledger_is_a_fork(care: Care, tmp_path: Path) -> None:
    """Two ledgers never share one folder."""
    care.take()
    other = Care(f"sqlite:///{tmp_path / 'other.db'}", tmp_path)

    with pytest.raises(SnapshotFork, match="give each ledger its own place"):
        other.take()
    other.close()


def test_file_under_a_name_is_whole_and_never_replaced(tmp_path: Path) -> None:
    """The same content again is our own retry; another one is a fork; a half file of a crash is removed."""
    folder = Folder(str(tmp_path))
    (tmp_path / ".half-1").write_bytes(b"x")
    folder.check()

    assert [folder.put("a/b", b"1"), folder.put("a/b", b"1")] == [True, False]
    with pytest.raises(SnapshotFork):
        folder.put("a/b", b"2")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o444


def test_first_snapshot_that_looks_wrong_is_named_with_the_last_good_one() -> None:
    """A slow rise of duplicates, and a jump; what a roll-back changes is neither."""

    def facts(number: int, count: int, same: int, cause: str = "") -> SnapshotFacts:
        return SnapshotFacts(number, "", 0, 0, {"routes": (count, same)}, cause)

    slow = [facts(1, 312, 0), facts(2, 312, 0), facts(3, 314, 2), facts(4, 316, 4)]
    found = suspicions(slow)
    assert [(one.number, one.last_good) for one in found] == [(4, 2)]
    assert suspicions([facts(1, 312, 0), facts(2, 624, 0)])[0].why == "a jump from 312 to 624 objects"
    assert suspicions([facts(1, 624, 0), facts(2, 312, 0, "roll-back x")]) == []
    assert suspicions([facts(1, 312, 5), facts(2, 320, 5), facts(3, 330, 7)]) == []


def test_spool_keeps_little_in_memory(tmp_path: Path) -> None:
    """Objects go to a temporary file, and come back in order of their place."""
    belief = Belief("x", list)
    with Spool() as spool:
        for start in range(0, 3_000, 500):
            spool.add(
                [belief.read({"id": number, "same": number % 3}) for number in range(start, start + 500)]
            )
        spool.check("x")
        parts = list(spool.parts())
        assert spool.content_duplicates() == 2_997
        assert [part.place for part in parts] == sorted(part.place for part in parts)
        assert sum(part.count for part in parts) == 3_000


def test_mutation_of_an_unknown_belief_and_two_places_are_refused(care: Care) -> None:
    """At the declaration, or before the first snapshot."""
    with pytest.raises(ConfigError, match="is declared twice"):
        care.gate.snapshots("file:///x", signed_by="env:X")
    with pytest.raises(ConfigError, match=r"belief 'routes' is declared twice"):
        care.gate.belief("routes")
    gate = Gate(care.url)
    gate.snapshots("http://x", signed_by="env:X")
    with pytest.raises(ConfigError, match="write file:///path or s3://bucket/prefix"):
        history_of(gate).taker()
    gate.close()


def test_snapshot_is_in_the_ledgers_log(care: Care) -> None:
    """With its number and hash, in the transaction of the timeline."""
    taken = care.take()
    with care.gate.engine.store.look() as session:
        notes = [record.note or "" for record in session.read_log(0, 100)]
    assert any(note.startswith(f"snapshot 1, {taken.hash[:16]}") for note in notes)


def test_manifest_has_the_newest_head_of_the_sealed_journal(care: Care) -> None:
    """So that one signature covers what is believed and how it came about."""
    care.take()
    with closing(care.gate.engine.store.connect()) as session, session.unit():
        session.change_document(
            DocumentChange(
                "journal", "state", 0, b'{"origin":"care","head":"a signed note"}', 1, "sealer", ""
            )
        )
    care.take()

    assert [one.manifest.head for one in archive(care).verify()] == [None, "a signed note"]


def test_worker_refuses_a_declared_place_that_cannot_be_used(tmp_path: Path) -> None:
    """Leaving the job out would be silent; a program that declares no place has no such job."""
    (tmp_path / "file").write_text("")
    with Gate(f"sqlite:///{tmp_path / 'l.db'}") as gate:
        assert "no snapshots are declared" in gate.worker().left_out["snapshots"]
        gate.snapshots(f"file://{tmp_path}/file/snapshots", signed_by="env:X")
        with pytest.raises(ConfigError, match="cannot be used: Not a directory"):
            gate.worker()
