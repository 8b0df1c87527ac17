"""A ledger on several databases: keys by shard, one shard down, the list of shards that must not change."""

from __future__ import annotations

import sqlite3
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from oncegate import Failed, Gate, open_store
from oncegate.cli.main import main
from oncegate.errors import OncegateError, PartUnavailable, RulingRefused, SchemaMismatch, UsageError
from oncegate.gate.admission import Verdict
from oncegate.gate.once import Once
from oncegate.maintenance.jobs import standard_jobs
from oncegate.maintenance.reconciler import Reconciler
from oncegate.maintenance.schedule import PeriodicJob
from oncegate.model.keys import Key
from oncegate.store import EntryFilter
from oncegate.stores.sharded import ShardedStore
from oncegate.stores.sharded.shard_map import VIRTUALS, inner_id, rendezvous, shard_of
from oncegate.testing.postgres import GivenServer, PostgresServer
from tests.support.ledgers import new_ledger

COUNT = 40


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    return [f"sqlite:///{tmp_path}/{name}.db" for name in "abc"]


def shards(*addresses: str) -> str:
    return "shards: " + " ".join(addresses)


def counting(url: str, ran: Counter[str]) -> Gate:
    gate = Gate(url)
    gate.handler("orders", key="{id}")(lambda event: ran.update([event["id"]]))
    return gate


def test_each_key_has_one_shard_and_each_event_one_effect(files: list[str]) -> None:
    """From threads, in batches, and from another process's gate; every shard has its part."""
    ran: Counter[str] = Counter()
    with counting(shards(*files), ran) as gate, counting(shards(*files), ran) as other:

        def admit(number: int) -> Verdict:
            return (gate, other)[number % 2].admit_sync("orders", {"id": str(number // 4)}).verdict

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(admit, range(4 * COUNT)))
    assert ran == {str(number): 1 for number in range(COUNT)}
    for shard in cast("ShardedStore", open_store(shards(*files))).shards:
        with shard.look() as session:
            assert 3 < sum(session.counts().values()) < COUNT


@pytest.mark.parametrize("count", [2, 3, 5, 8, 16])
def test_virtual_shards_are_shared_out_evenly_and_one_more_takes_only_its_own(count: int) -> None:
    """Each has its share within an eighth, and no key moves between two that stay."""
    homes, before = rendezvous(count), rendezvous(count - 1)
    shares = Counter(homes)
    assert all(abs(shares[place] * count / VIRTUALS - 1) < 1 / 8 for place in range(count))
    assert {now for was, now in zip(before, homes, strict=True) if was != now} == {count - 1}


@pytest.mark.parametrize("change", ["order", "more", "fewer", "one"])
def test_list_of_shards_that_changed_is_refused(files: list[str], change: str) -> None:
    """Before anything runs: a key that is looked for elsewhere would be a new one."""
    one, two, three = files
    ran: Counter[str] = Counter()
    with counting(shards(one, two), ran) as gate:
        gate.admit_sync("orders", {"id": "1"})
    others = {"order": shards(two, one), "more": shards(one, two, three), "fewer": one, "one": two}
    for number in range(8):  # keys of every shard
        with counting(others[change], ran) as gate, pytest.raises(SchemaMismatch) as told:
            gate.admit_sync("orders", {"id": f"later-{number}"})
    assert sum(ran.values()) == 1
    assert "shard" in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    "command",
    [
        ("prune", "--surface", "orders", "--older-than", "90d"),
        ("prune", "--surface", "orders", "--older-than", "90d", "--dry-run"),
        ("entries", "list"),
        ("held", "list"),
        ("quarantine", "release", "1", "--reason", "looked at"),
        ("lanes", "list"),
        ("endpoints", "list"),
        ("surfaces", "switch", "orders", "paused", "--reason", "looked at"),
        ("reconcile",),
        ("signals",),
        ("journal", "seal"),
        ("operators", "list"),
        ("worker", "--once"),
        ("doctor",),
        ("migrate-ledger", "postgresql://u@127.0.0.1:1/d", "--yes"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_commands_refuse_one_shard_alone(
    files: list[str], command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Whether they read or write: its part of the keys is not the ledger."""
    with counting(shards(*files), Counter()) as gate:
        gate.admit_sync("orders", {"id": "1"})
    name, *rest = command
    words = [name, files[1], *rest] if name == "migrate-ledger" else [*command, "--url", files[1]]
    assert main(words) in (1, 5)
    told = capsys.readouterr()
    assert "is shard 1 of 3 of a sharded ledger; name all of its shards" in told.out + told.err


def test_old_entries_of_all_shards_are_forgotten(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """By the command, up to its limit, and by the worker; a shard that is away stops no other."""
    ran: Counter[str] = Counter()
    url, back = shards(*files), 100 * 86_400_000
    with counting(url, ran) as gate:
        for number in range(COUNT):
            gate.admit_sync("orders", {"id": str(number)})
        for address in files:
            with closing(sqlite3.connect(address.removeprefix("sqlite:///"))) as connection, connection:
                connection.execute("UPDATE oncegate_entry SET received_at = received_at - ?", (back,))
                connection.execute("UPDATE oncegate_entry SET settled_at = settled_at - ?", (back,))
        words = ["prune", "--surface", "orders", "--older-than", "90d", "--believe-clock", "--url", url]
        assert main([*words, "--surface", "order"]) == 2, "no surface is called so"
        assert main([*words, "--dry-run"]) == 0
        assert f"{COUNT} entries of orders" in capsys.readouterr().out
        assert main([*words, "--limit", str(COUNT - 5)]) == 0
        assert f"{COUNT - 5} entries of orders" in capsys.readouterr().out
        jobs = [job for job in standard_jobs(gate) if isinstance(job, PeriodicJob)]
        pruners = [job.run_once for job in jobs if job.run_once and job.name.startswith("pruner")]
        assert (len(pruners), sum(cast("Any", run)().entries for run in pruners)) == (3, 5)
        assert sum(job.name.startswith("payload pruner") for job in jobs) == 3


def test_ledger_with_entries_does_not_become_a_shard(files: list[str]) -> None:
    """Its keys belong to other shards now; it is left as it is."""
    ran: Counter[str] = Counter()
    with counting(files[0], ran) as gate:
        gate.admit_sync("orders", {"id": "1"})
    with counting(shards(*files), ran) as gate, pytest.raises(SchemaMismatch, match="has entries"):
        gate.admit_sync("orders", {"id": "2"})
    with counting(files[0], ran) as gate:
        assert gate.admit_sync("orders", {"id": "1"}).verdict is Verdict.REPLAY


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("shards: sqlite:///a.db", "2 to 64 shards"),
        ("shards: sqlite:///a.db sqlite:///a.db", "named twice"),
        ("shards: sqlite:///a.db redis://localhost/0", "cannot be a shard"),
        ("shards: sqlite:///a.db postgresql://u:secret@h/d", "all PostgreSQL or all SQLite"),
    ],
)
def test_shards_that_cannot_be_are_refused(address: str, told: str) -> None:
    """Before anything is opened, in one line without secrets."""
    with pytest.raises(OncegateError, match=told) as refused:
        open_store(address)
    assert "secret" not in str(refused.value)


def test_numbers_of_entries_name_their_shard(files: list[str]) -> None:
    """No two entries of different shards have the same number; each is found by it."""
    url, ran = shards(*files), Counter[str]()
    with Gate(url) as gate:
        gate.handler("orders", key="{id}", approve_first=True)(lambda event: ran.update([event["id"]]))
        answers = [gate.admit_sync("orders", {"id": str(number)}) for number in range(COUNT)]
        with gate.engine.store.look() as session:
            keys = [Key.from_text(answer.key).digest for answer in answers]
            found = [entry for entry in session.read(keys) if entry is not None]
            numbers = {entry.entry_id: entry.key for entry in found}
            details = [session.detail(number) for number in numbers]
    assert len(numbers) == COUNT
    assert [detail and detail.entry.key for detail in details] == list(numbers.values())
    assert all(inner_id(number)[0] == shard_of(key, 3) for number, key in numbers.items())


def test_failed_entries_stay_failed_where_their_steps_are_not_kept(files: list[str]) -> None:
    """A retry would repeat the steps that are done (I1)."""
    calls: list[str] = []
    with Gate(shards(*files)) as gate:
        bank = gate.downstream("bank")

        @gate.handler("orders", key="{order}")
        def order(event: dict[str, Any], once: Once) -> None:
            once.effect(bank, lambda: calls.append("paid"), name="pay")
            raise Failed("out of stock")

        with pytest.raises(Failed):
            gate.admit_sync("orders", {"order": 1})
        with gate.engine.store.look() as session:
            (entry,) = session.entries(EntryFilter(), None, 10)
        with pytest.raises(RulingRefused, match="running failed entries again need"):
            gate.people.retry(entry.entry_id, actor="ann", reason="again")
        assert gate.admit_sync("orders", {"order": 1}).replay
    assert calls == ["paid"]


def test_writes_of_an_event_go_to_its_own_database(files: list[str]) -> None:
    """Outcome and rows of an event are one transaction there; a transaction of the user's is refused."""
    url, paths = shards(*files), [address.removeprefix("sqlite:///") for address in files]
    open_store(url).migrate()
    for path in paths:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE booking (id TEXT PRIMARY KEY)")
    with Gate(url) as gate:

        @gate.handler("orders", key="{id}")
        def book(event: Any, once: Once) -> str:
            once.commit(writes=[("INSERT INTO booking VALUES (?)", [event["id"]])])
            return "booked"

        keys = {}
        for number in range(COUNT):
            answer = gate.admit_sync("orders", {"id": str(number)})
            keys[str(number)] = Key.from_text(answer.key).digest
        with pytest.raises(UsageError, match="joins no transaction"):
            gate.engine.store.join(object())

    for shard, path in enumerate(paths):
        with closing(sqlite3.connect(path)) as connection:
            booked = {ref for (ref,) in connection.execute("SELECT id FROM booking")}
        assert booked == {ref for ref, key in keys.items() if shard_of(key, 3) == shard}


def test_failing_write_undoes_the_outcome(files: list[str]) -> None:
    """Neighbours on the same shard and on others commit."""
    url = shards(*files)
    with Gate(url) as gate:

        @gate.handler("orders", key="{id}")
        def book(event: Any, once: Once) -> str:
            table = "no_such_table" if event["id"] == "7" else "oncegate_meta"
            once.commit(writes=[(f"UPDATE {table} SET value = value WHERE name = ?", ["nothing"])])
            return "booked"

        def admit(number: int) -> Any:
            try:
                return gate.admit_sync("orders", {"id": str(number)}).value
            except OncegateError as error:
                return error

        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(admit, range(COUNT)))
    assert [place for place, answer in enumerate(answers) if answer != "booked"] == [7]


def test_postgresql_database_that_is_away_stops_only_its_keys(
    postgres: PostgresServer | GivenServer,
) -> None:
    """Batches go on for the other shard; then it is back, and each event has had one effect."""
    addresses = [new_ledger(postgres), new_ledger(postgres)]
    ran: Counter[str] = Counter()
    with counting(shards(*addresses), ran) as gate:
        for number in range(10):
            gate.admit_sync("orders", {"id": f"before-{number}"})
        _close(addresses[1], is_open=False)

        answers = _admit_at_once(gate, [f"while-{number}" for number in range(COUNT)])
        refused = {order for order, answer in answers.items() if isinstance(answer, Exception)}
        assert 5 < len(refused) < COUNT - 5
        assert refused & set(ran) == set()
        with (
            pytest.raises(PartUnavailable, match="other shards go on"),
            gate.engine.store.look() as session,
        ):
            session.counts()
        assert Reconciler(gate).run_once().looked == [], "recovery goes on where it can"

        _close(addresses[1], is_open=True)
        again = _admit_at_once(gate, sorted(refused))
    assert {answer.verdict for answer in again.values()} <= {Verdict.RUN}
    assert set(ran.values()) == {1}
    assert len(ran) == 10 + COUNT


def _close(address: str, *, is_open: bool) -> None:
    """Lets nobody connect to a database any more, and ends who is; or opens it again."""
    parts = urlsplit(address)
    name = parts.path.removeprefix("/")
    with psycopg.connect(urlunsplit(parts._replace(path="/postgres")), autocommit=True) as admin:
        admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS {is_open}')
        ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
        admin.execute(ended, (name,))


def _admit_at_once(gate: Gate, orders: list[str]) -> dict[str, Any]:
    def admit(order: str) -> Any:
        try:
            return gate.admit_sync("orders", {"id": order})
        except OncegateError as error:
            return error

    with ThreadPoolExecutor(8) as threads:
        return dict(zip(orders, threads.map(admit, orders), strict=True))


def test_new_connection_to_a_shard_asks_no_other_one(
    files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is silent would keep all of them waiting."""
    ran: Counter[str] = Counter()
    with counting(shards(*files[:2]), ran) as gate:
        for number in range(COUNT):
            gate.admit_sync("orders", {"id": str(number)})
        first, second = cast("ShardedStore", gate.engine.store).shards

        def asked(*arguments: object, **options: object) -> None:
            pytest.fail("the other shard was asked")

        monkeypatch.setattr(second, "look", asked)
        monkeypatch.setattr(second, "connect", asked)
        first.connect().close()
