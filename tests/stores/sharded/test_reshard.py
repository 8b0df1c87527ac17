"""Re-sharding: no key is forgotten or run twice, wherever it is killed, whatever list programs have."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from oncegate import Failed, Gate, open_store
from oncegate.cli.main import main
from oncegate.clock import SystemClock
from oncegate.crashpoints import RESHARD_CRASH_POINTS
from oncegate.errors import (
    ConfigError,
    OncegateError,
    SchemaMismatch,
    StoreBusy,
    StoreError,
    StoreUnavailable,
)
from oncegate.gate.admission import Verdict
from oncegate.maintenance.reconciler import Reconciler
from oncegate.model.keys import Key
from oncegate.model.states import Decision, State
from oncegate.store import EntryFilter, Reservation, StepRecord, StepRecords, StepState, Store
from oncegate.stores.sharded import ShardedStore, reshard
from oncegate.stores.sharded.engines import PostgresSide
from oncegate.stores.sharded.reshard import Resharding
from oncegate.stores.sharded.shard_map import rendezvous, virtual_of
from oncegate.stores.shared.homes import GONE, HERE, REFUSAL
from oncegate.testing import ArmedCrashPoints, CrashReached
from oncegate.testing.postgres import GivenServer, PostgresServer
from oncegate.testing.waiting import DEADLINE_SECONDS, wait_until
from oncegate.wiring.ledgers import open_parts
from tests.support.ledgers import new_ledger

COUNT = 30


def shards(addresses: list[str]) -> str:
    return addresses[0] if len(addresses) == 1 else "shards: " + " ".join(addresses)


def program(url: str, ran: Counter[str]) -> Gate:
    gate = Gate(url)

    @gate.handler("orders", key="{id}")
    def take(event: Any) -> str:
        ran[str(event["id"])] += 1
        if event["id"] == "fails":
            raise Failed("never")
        return f"took {event['id']}"

    gate.handler("big", key="{id}", approve_first=True)(lambda event: ran.update([f"big {event['id']}"]))
    return gate


def filled(url: str) -> Counter[str]:
    """A ledger with committed, failed, held and quarantined entries, and a claim whose worker died."""
    ran: Counter[str] = Counter()
    with program(url, ran) as gate:
        for number in range(COUNT):
            gate.admit_sync("orders", {"id": str(number)})
        with pytest.raises(Failed):
            gate.admit_sync("orders", {"id": "fails"})
        for number in range(6):
            gate.admit_sync("big", {"id": str(number)})
        gate.admit_sync("orders", {"no": "id"})
        session = gate.engine.store.connect()
        key = bytes(range(24, 48))
        asked = Reservation(
            key=key, tenant="", surface="orders", label="died", fingerprint=b"f" * 32, body=b"{}",
            received_at_ms=1, lease_ms=1, attempts_max=3, token=7,
        )  # fmt: skip
        with session.unit():
            (claim,) = session.reserve([asked])
        with session.unit():
            step = StepRecord("pay", StepState.STARTED, "bank", first_call_ticks=claim.now_ticks)
            assert session.progress([StepRecords(*claim.claim, (step,), 1)]) == [True]
        session.close()
    return ran


def parts(url: str) -> list[Store]:
    store = open_store(url)
    return store.shards if isinstance(store, ShardedStore) else [store]


def contents(url: str) -> dict[bytes, Any]:
    """All that is kept of each key, but for numbers and times of one database."""
    found: dict[bytes, Any] = {}
    for store in parts(url):
        with store.look() as session:
            entries = [session.detail(one.entry_id) for one in session.entries(EntryFilter(), None, 1000)]
        for one in filter(None, entries):
            entry = one.entry
            records = [(record.kind, record.at_ms, record.actor, record.note) for record in one.records]
            steps = [(step.name, step.state, step.downstream) for step in one.steps]
            kept = (entry.surface, entry.label, entry.state, entry.attempt, entry.token, entry.reason)
            assert entry.key not in found, "a key is in two databases"
            found[entry.key] = (*kept, entry.received_at_ms, one.body, one.outcome, steps, records)
    return found


def move(old: str, new: str, crashpoints: Any = None, **options: Any) -> Any:
    made = Resharding(open_parts(old), open_parts(new), SystemClock(), crashpoints, **options)
    return made.run(lambda what, done, total: None)


def knock(url: str, ran: Counter[str], ids: list[str]) -> int:
    """Offers events to a program with this list; tells how many were answered."""
    answered = 0
    try:
        with program(url, ran) as gate:
            for order in ids:
                try:
                    gate.admit_sync("orders", {"id": order})
                    answered += 1
                except (OncegateError, Failed):
                    continue
    except SchemaMismatch:
        return answered
    return answered


def _is_refused(gate: Gate, order: str) -> bool:
    try:
        gate.admit_sync("orders", {"id": order})
    except OncegateError:
        return True
    return False


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    return [f"sqlite:///{tmp_path}/{name}.db" for name in "abc"]


CASES = [
    ((2, 3), "reshard.begun", 1),
    ((2, 3), "reshard.copied", 1),
    ((2, 3), "reshard.ending", 2),
    ((3, 2), "reshard.removed", 3),
    ((1, 2), "reshard.copied", 4),
    pytest.param((1, 2), "reshard.ending", 2, marks=pytest.mark.soak),
    *(
        pytest.param(change, point, nth, marks=pytest.mark.soak)
        for point in RESHARD_CRASH_POINTS for change in [(2, 3), (3, 2), (1, 2)] for nth in (2, 3)
    ),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("change", "point", "nth"), CASES, ids=str)
def test_move_that_is_killed_goes_on_and_forgets_no_key(
    files: list[str], tmp_path: Path, change: tuple[int, int], point: str, nth: int
) -> None:
    """Programs with the old and the new list offer old and new events meanwhile; then it is run again."""
    was, will = change
    old = shards([f"sqlite:///{tmp_path}/old.db"] if was == 1 else files[:was])
    new = shards(files[:will])
    ran = filled(old)
    before = contents(old)

    with program(old, ran) as living:
        assert living.admit_sync("orders", {"id": "0"}).verdict is Verdict.REPLAY
        with pytest.raises(CrashReached):
            move(old, new, ArmedCrashPoints.raising(point, occurrence=nth))
        offered = [str(number) for number in range(COUNT + 10)]
        answered = knock(new, ran, offered) + knock(old, ran, offered)
        for order in offered:
            try:
                living.admit_sync("orders", {"id": order})
            except OncegateError:
                continue
        assert set(ran.values()) == {1}, "run twice in the middle"
        report = move(old, new)
        assert not report.left
        refused = [_is_refused(living, f"late {order}") for order in offered]
        assert any(refused), "the list of before is refused, also where it is still connected"
    assert answered or point == "reshard.begun" or was == 1

    after = contents(new)
    assert {key: kept for key, kept in after.items() if key in before} == before
    assert knock(new, ran, offered) == len(offered)
    late = {order for order in ran if order.startswith("late")}
    assert set(ran.values()) == {1}
    assert set(offered) | {"fails"} | late == set(ran)
    assert move(old, new).virtual_shards == 0, "there is nothing left to do"
    with program(new, ran) as gate:
        Reconciler(gate).run_once()
        with gate.engine.store.look() as session:
            (died,) = session.read([bytes(range(24, 48))])
    assert died is not None
    assert died.state is not State.IN_FLIGHT, "recovered where it is now"


@pytest.mark.slow
@pytest.mark.parametrize("was", [1, 2])
def test_keys_that_were_moved_are_not_reported_as_lost(
    files: list[str], caplog: pytest.LogCaptureFixture, was: int
) -> None:
    """Neither where they have left nor where they are now; a key that is missing there still is."""
    addresses = files if was == 2 else files[1:]
    old, new, ran = shards(files[:was]), shards(addresses), Counter[str]()
    with program(old, ran) as left:
        left.admit_sync("orders", {"id": "0"})
        with pytest.raises(CrashReached):
            move(old, new, ArmedCrashPoints.raising("reshard.leaving"))
        with program(new, ran) as arrived:
            offered = [str(number) for number in range(COUNT)]
            refused = [_is_refused(arrived, order) for order in offered]
            assert all(refused) == (was == 1), "of one ledger nothing has moved yet"
            move(old, new)
            for order in offered:
                _is_refused(left, order)
            for gate in (left, arrived):
                store = gate.engine.store
                for one in store.shards if isinstance(store, ShardedStore) else [store]:
                    with suppress(SchemaMismatch):
                        one.connect().close()
            assert not [one for one in caplog.records if one.name == "oncegate.restored"]
            if was == 2:
                with closing(sqlite3.connect(files[2].removeprefix("sqlite:///"))) as third, third:
                    third.execute("DELETE FROM oncegate_entry")
                cast("ShardedStore", arrived.engine.store).shards[2].connect().close()
                assert "the ledger went back" in caplog.text
    assert set(ran.values()) == {1}


@pytest.mark.slow
def test_claims_under_way_end_where_they_began(files: list[str], tmp_path: Path) -> None:
    """Their keys are not moved; new keys and the rest are; the next run moves them."""
    old, new = shards(files[:2]), shards(files)
    inside, go_on = threading.Event(), threading.Event()
    moving = rendezvous(3)
    with Gate(f"sqlite:///{tmp_path}/other.db") as gate:
        gate.handler("slow", key="{id}")(lambda event: None)
        tried = {str(number): gate.admit_sync("slow", {"id": str(number)}).key for number in range(20)}
    order = next(one for one, key in tried.items() if moving[virtual_of(Key.from_text(key).digest)] == 2)
    with Gate(old) as gate:

        @gate.handler("slow", key="{id}")
        def slow(event: Any) -> str:
            inside.set()
            assert go_on.wait(DEADLINE_SECONDS)
            return "done"

        answers: list[Any] = []
        thread = threading.Thread(
            target=lambda: answers.append(gate.admit_sync("slow", {"id": order}).value)
        )
        thread.start()
        assert inside.wait(DEADLINE_SECONDS)
        assert move(old, new, patience_ms=0).left == 1
        go_on.set()
        thread.join(DEADLINE_SECONDS)
        assert answers == ["done"]
    assert move(old, new).left == 0
    with Gate(new) as gate:
        gate.handler("slow", key="{id}")(lambda event: "again")
        assert gate.admit_sync("slow", {"id": order}).value == "done"


@pytest.mark.parametrize(
    ("was", "will", "told"),
    [
        ((0, 1), (1, 0), "at the end of the list only"),
        ((0, 1), (0, 1), "at the end of the list only"),
        ((0, 1), (0,), "2 to 64 shards"),
        ((0,), (0, 1), "other, empty databases"),
        ((0, 1), (0, 1, 2), "has entries"),
        ((1, 0), (1, 0, 2), "is shard 1 of 2, not shard 0"),
    ],
)
def test_lists_that_cannot_be_change_nothing(
    files: list[str], was: tuple[int, ...], will: tuple[int, ...], told: str
) -> None:
    """One line each, and the ledger goes on."""
    ran: Counter[str] = Counter()
    knock(shards(files[:2]), ran, ["1", "2"])
    knock(files[2], ran, ["3"])
    with pytest.raises(OncegateError, match=told):
        move(shards([files[one] for one in was]), shards([files[one] for one in will]))
    assert knock(shards(files[:2]), ran, ["1", "2", "4"]) == 3
    assert set(ran.values()) == {1}


def test_ledger_with_lanes_is_not_divided(tmp_path: Path, files: list[str]) -> None:
    """Shards have none: its events would wait for ever."""
    url = f"sqlite:///{tmp_path}/old.db"
    with Gate(url) as gate:
        gate.handler("late", key="{id}", mode="accept")(lambda event: None)
        gate.admit_sync("late", {"id": 1})
    with pytest.raises(ConfigError, match="has lanes or a feed"):
        move(url, shards(files))


@pytest.mark.slow
def test_error_in_a_move_leaves_no_key_refused(
    files: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was not moved takes new events again at once; the command says what to do."""
    old, new, ran = shards(files[:2]), shards(files), Counter[str]()

    def fail(*arguments: Any) -> None:
        raise StoreUnavailable("the network is away")

    monkeypatch.setattr(reshard, "copy_entries", fail)
    assert knock(old, ran, ["1"]) == 1
    assert main(["reshard", old, new, "--yes"]) != 0
    assert "run the command again" in capsys.readouterr().err
    for file in files:
        with closing(sqlite3.connect(file.removeprefix("sqlite:///"))) as opened:
            said = {
                body for (body,) in opened.execute("SELECT body FROM oncegate_document WHERE kind = 'home'")
            }
        assert said <= {HERE, GONE}, "a part takes no new keys"
    offered = [str(number) for number in range(COUNT)]
    assert knock(old, ran, offered) == COUNT
    monkeypatch.undo()
    assert main(["reshard", old, new, "--yes"]) == 0
    assert knock(new, ran, offered) == COUNT
    assert set(ran.values()) == {1}


PROGRAM = """
import sys
from oncegate.clock import SystemClock
from oncegate.stores.sharded.reshard import Resharding
from oncegate.testing import ArmedCrashPoints
from oncegate.wiring.ledgers import open_parts

points = ArmedCrashPoints(sys.argv[3], occurrence=2)
Resharding(open_parts(sys.argv[1]), open_parts(sys.argv[2]), SystemClock(), points).run(lambda *_: None)
"""


@pytest.mark.slow
def test_killed_on_postgresql_while_events_arrive(
    postgres: PostgresServer | GivenServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """A real kill -9; a program of before goes on meanwhile; the command line finishes the move."""
    addresses = [new_ledger(postgres) for _ in range(3)]
    old, new = shards(addresses[:2]), shards(addresses)
    ran = filled(old)
    before = contents(old)
    with program(old, ran) as living:
        living.admit_sync("orders", {"id": "0"})
        command = [sys.executable, "-c", PROGRAM, old, new, "reshard.copied"]
        assert subprocess.run(command, check=False, timeout=DEADLINE_SECONDS).returncode == -9
        offered = [str(number) for number in range(COUNT + 10)]
        for order in offered:
            try:
                living.admit_sync("orders", {"id": order})
            except OncegateError:
                continue
        answered = knock(new, ran, offered)
        assert set(ran.values()) == {1}
        assert main(["reshard", old, new]) == 1, "asks first"
        assert main(["reshard", old, new, "--yes"]) == 0
        assert "programs use the new list" in capsys.readouterr().out
    assert answered > COUNT // 2
    after = contents(new)
    assert {key: kept for key, kept in after.items() if key in before} == before
    assert knock(new, ran, offered) == len(offered)
    assert set(ran.values()) == {1}


def test_open_transaction_of_a_user_is_waited_for(postgres: PostgresServer | GivenServer) -> None:
    """What it inserts would be left behind: nothing is moved before it has ended."""
    addresses = [new_ledger(postgres) for _ in range(3)]
    old, new = shards(addresses[:2]), shards(addresses)
    knock(old, Counter(), ["1"])
    store = cast("ShardedStore", open_store(old))
    session = store.shards[0].connect()
    unit = session.unit()
    unit.__enter__()
    session.execute("LOCK TABLE oncegate_entry IN ROW EXCLUSIVE MODE", ())
    with pytest.raises(StoreBusy):
        move(old, new, patience_ms=0)
    unit.__exit__(None, None, None)
    session.close()
    assert knock(old, Counter(), ["1"]) == 1


@pytest.mark.slow
@pytest.mark.parametrize("was", [1, 2])
def test_known_key_that_comes_while_it_is_removed_is_refused(
    postgres: PostgresServer | GivenServer, monkeypatch: pytest.MonkeyPatch, was: int
) -> None:
    """It waits for the move's open transaction; then the key is not there, and must not be new."""
    addresses = [new_ledger(postgres) for _ in range(3)]
    old, new = shards(addresses[:was]), shards(addresses if was == 2 else addresses[1:])
    moving = next(virtual for virtual, home in enumerate(rendezvous(3)) if home == 2 or was == 1)
    asked = Reservation(
        key=(moving << 4).to_bytes(2) * 12, tenant="", surface="orders", label="known",
        fingerprint=b"f" * 32, body=b"{}", received_at_ms=1, lease_ms=1000, attempts_max=3, token=7,
    )  # fmt: skip
    session = open_store(old).connect()
    with session.unit():
        assert session.record([asked], b"{}")[0].decision is Decision.RUN
    told: list[Any] = []

    def come_again() -> None:
        try:
            with session.unit():
                told.append(session.record([replace(asked, token=8)], b"{}")[0].decision)
        except StoreError as error:
            told.append(str(error))

    thread = threading.Thread(target=come_again)
    remove = PostgresSide.remove

    def removed(side: PostgresSide, entries: Any) -> None:
        remove(side, entries)
        if entries:
            thread.start()
            waits = (
                "SELECT 1 FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))"
            )
            wait_until(lambda: side.run(waits) or not thread.is_alive())

    monkeypatch.setattr(PostgresSide, "remove", removed)
    with pytest.raises(CrashReached):
        move(old, new, ArmedCrashPoints.raising("reshard.removed"))
    thread.join(DEADLINE_SECONDS)
    session.close()
    assert told == [REFUSAL]
