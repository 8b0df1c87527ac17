"""I23: a SQLite ledger that is replaced by an older copy under a living process."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from oncegate import Gate, Once
from oncegate.crashpoints import CrashPoints
from oncegate.errors import ClaimLost, StoreUnavailable
from oncegate.gate.admission import Verdict
from oncegate.model.states import State
from oncegate.store import LogKind
from oncegate.store.incarnations import WENT_BACK
from oncegate.stores.sqlite import SqliteStore

Replace = Callable[[Path, Path], None]


def moved(copy: Path, ledger: Path) -> None:
    """The copy takes the ledger's place as another file."""
    for end in ("-wal", "-shm"):
        ledger.with_name(ledger.name + end).unlink(missing_ok=True)
    shutil.copy(copy, copy.with_suffix(".new"))
    copy.with_suffix(".new").replace(ledger)


def restored_in_place(copy: Path, ledger: Path) -> None:
    """The copy's contents take the place of the ledger's, in the same file, as `.restore` does it."""
    with closing(sqlite3.connect(copy)) as source, closing(sqlite3.connect(ledger)) as target:
        source.backup(target)


def copied(ledger: Path) -> Path:
    copy = ledger.with_name("copy.db")
    with closing(sqlite3.connect(ledger)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    return copy


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def admitted(gate: Gate, surface: str, number: int) -> Any:
    """Admits an event; a replaced file is said once, and the next try finds the new one."""
    for _ in range(2):
        try:
            return gate.admit_sync(surface, {"id": f"N-{number}"})
        except StoreUnavailable:
            continue
    raise AssertionError("the ledger was not found again")


@pytest.mark.parametrize("replace", [moved, restored_in_place])
def test_event_that_the_copy_does_not_have_waits_for_a_person_and_is_not_run_again(
    path: Path, replace: Replace
) -> None:
    calls: list[str] = []
    with Gate(store=SqliteStore(path)) as gate:

        @gate.handler("mail", key="{id}")
        def send(event: dict[str, str]) -> str:
            calls.append(event["id"])
            return "sent"

        gate.admit_sync("mail", {"id": "N-1"})
        copy = copied(path)
        gate.admit_sync("mail", {"id": "N-2"})
        replace(copy, path)

        new = admitted(gate, "mail", 3)
        again, known = gate.admit_sync("mail", {"id": "N-2"}), gate.admit_sync("mail", {"id": "N-1"})

    assert (new.verdict, again.verdict, known.verdict) == (Verdict.RUN, Verdict.HOLD, Verdict.REPLAY)
    assert calls == ["N-1", "N-2", "N-3"]
    with SqliteStore(path).look() as session:
        (incident,) = session.documents(WENT_BACK)
        told = json.loads(incident.body)
        (record,) = [one for one in session.read_log(0, 100) if one.kind is LogKind.WENT_BACK]
    assert [one["label"] for one in told["held"]] == [again_label(path, State.HELD)]
    assert record.note is not None
    assert record.note.startswith("the ledger went back; effects since ")


def test_nothing_runs_while_the_file_is_gone(path: Path) -> None:
    """What is written into a removed file is lost with it: each unit looks before it writes."""
    calls: list[str] = []
    with Gate(store=SqliteStore(path)) as gate:

        @gate.handler("mail", key="{id}")
        def send(event: dict[str, str]) -> None:
            calls.append(event["id"])

        gate.admit_sync("mail", {"id": "N-1"})
        gone = path.rename(path.with_name("gone.db"))
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                gate.admit_sync("mail", {"id": "N-2"})
        gone.rename(path)
        gate.admit_sync("mail", {"id": "N-2"})

    assert calls == ["N-1", "N-2"]


def again_label(path: Path, state: State) -> str:
    with closing(sqlite3.connect(path)) as connection:
        ((label,),) = connection.execute(
            "SELECT label FROM oncegate_entry WHERE state = ?", (state.value,)
        ).fetchall()
    return str(label)


def test_claim_of_the_file_that_was_replaced_calls_nothing_more_and_settles_nothing(path: Path) -> None:
    """The worker's number and fence belong to another event in the copy: that one is not touched."""
    calls: list[str] = []
    with Gate(store=SqliteStore(path)) as gate:
        post = gate.downstream("post")

        @gate.handler("mail", key="{id}")
        def send(event: dict[str, str], once: Once) -> str:
            once.effect(post, calls.append, f"{event['id']} first", name="first")
            if event["id"] == "N-2":
                moved(copy, path)
                with Gate(store=SqliteStore(path)) as other:
                    other.handler("mail", key="{id}")(lambda event: "another's")
                    other.admit_sync("mail", {"id": "N-9"})  # takes the number that N-2 had
            once.effect(post, calls.append, f"{event['id']} second", name="second")
            return "sent"

        gate.admit_sync("mail", {"id": "N-1"})
        copy = copied(path)
        with pytest.raises((ClaimLost, StoreUnavailable)):
            gate.admit_sync("mail", {"id": "N-2"})
        found = admitted(gate, "mail", 2)
        other_event = gate.admit_sync("mail", {"id": "N-9"})

    assert calls == ["N-1 first", "N-1 second", "N-2 first"]
    assert found.verdict is Verdict.HOLD
    assert (other_event.verdict, other_event.value) == (Verdict.REPLAY, "another's")


def test_unchanged_ledger_is_not_taken_for_another_one(path: Path) -> None:
    """New sessions, undone units and a pruned tail are no sign."""
    store = SqliteStore(path)
    with Gate(store=store) as gate:
        gate.handler("mail", key="{id}")(lambda event: "sent")
        for number in range(5):
            gate.admit_sync("mail", {"id": f"N-{number}"})
            store.connect().close()

        assert store.incarnations.generation == 0
        assert gate.admit_sync("mail", {"id": "N-1"}).verdict is Verdict.REPLAY


class FailsOnce(CrashPoints):
    """The first try to write down what was lost ends here."""

    def __init__(self) -> None:
        self.reached: list[str] = []

    def hit(self, name: str) -> None:
        if name.startswith("restore."):
            self.reached.append(name)
            if self.reached == ["restore.before"]:
                raise StoreUnavailable("the disk is away")


def test_list_that_could_not_be_written_is_written_over_the_next_connection(path: Path) -> None:
    """Until it is written nothing of the process uses the ledger."""
    points = FailsOnce()
    with Gate(store=SqliteStore(path), crashpoints=points) as gate:
        gate.handler("mail", key="{id}")(lambda event: "sent")
        gate.admit_sync("mail", {"id": "N-1"})
        copy = copied(path)
        gate.admit_sync("mail", {"id": "N-2"})
        moved(copy, path)
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                gate.admit_sync("mail", {"id": "N-3"})

        assert gate.admit_sync("mail", {"id": "N-2"}).verdict is Verdict.HOLD
    assert points.reached == ["restore.before", "restore.before", "restore.after"]


def test_value_that_follows_a_lost_commit_makes_no_other_event_wait(path: Path) -> None:
    """In the copy its number belongs to another event, which has ended without a value."""
    seen: list[Verdict] = []

    def end_without_value(event: dict[str, str], once: Once) -> str:
        with once.commit():
            pass
        raise RuntimeError("no luck")

    with Gate(store=SqliteStore(path)) as gate:

        @gate.handler("mail", key="{id}")
        def send(event: dict[str, str], once: Once) -> str:
            if event["id"] == "N-1":
                return "sent"
            with once.commit():
                pass
            moved(copy, path)
            with Gate(store=SqliteStore(path)) as another:
                another.handler("mail", key="{id}")(end_without_value)
                with pytest.raises(RuntimeError):
                    another.admit_sync("mail", {"id": "N-3"})
            seen.append(admitted(gate, "mail", 3).verdict)
            return "sent"

        gate.admit_sync("mail", {"id": "N-1"})
        copy = copied(path)
        with suppress(ClaimLost, StoreUnavailable):  # its own commit is lost with the file
            gate.admit_sync("mail", {"id": "N-2"})
    assert seen == [Verdict.REPLAY]
