"""Servers and addresses that cannot hold a ledger: one clear line, nothing run, nothing lost."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pytest

from oncegate import Gate, open_store
from oncegate.cli.doctor import Status, examine
from oncegate.errors import (
    BadUrl,
    DurabilityRefused,
    OncegateError,
    SchemaMismatch,
    StoreCorrupt,
    StoreFull,
    StoreUnavailable,
)
from oncegate.store import Durability
from oncegate.stores.redis import RedisStore
from oncegate.stores.redis.open_entries import Layout
from oncegate.testing import ManualClock
from oncegate.testing.waiting import wait_until
from tests.support.postgres_site import reservation, settlement
from tests.support.servers_valkey import ValkeyServer, running

_NUMBERS = count()
SHORT: dict[str, Any] = {"retention": "72h", "retention_floor": "72h"}


@pytest.fixture
def url(valkey: ValkeyServer) -> str:
    return valkey.url(prefix=f"bad{next(_NUMBERS)}")


def refusal(url: str, kind: type[OncegateError]) -> str:
    """What an event gets on a ledger that refuses; its handler did not run."""
    ran: list[object] = []
    with Gate(url) as gate:
        gate.handler("orders", key="{id}", **SHORT)(ran.append)
        with pytest.raises(kind) as told:
            gate.admit_sync("orders", {"id": "1"})
    assert ran == []
    assert "\n" not in str(told.value)
    assert "secret" not in str(told.value)
    return str(told.value)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("redis://", "names no server"),
        ("redis://h/x", "the path is the number of a database"),
        ("redis://h/0?wait=many", "wait is a number of replicas"),
        ("redis://h/0?wait=1&waitaof=1", "give wait or waitaof, not both"),
        ("redis://h/0?prefix={a}", "a prefix is 1 to 40 letters"),
        ("redis://h/0?long_retention=yes", "long_retention is 0 or 1"),
        ("redis://h/0?durable=1", "unknown option 'durable'"),
        ("redis://:secret@h:99999/0", "cannot be taken apart"),
    ],
)
def test_address_that_cannot_be_used_is_refused_before_anything_is_opened(address: str, said: str) -> None:
    """With what to write instead, and without the password."""
    with pytest.raises(BadUrl, match=said) as told:
        open_store(address)
    assert "secret" not in str(told.value)


def test_wrong_password_is_told_in_one_line(tmp_path: Path) -> None:
    """A missing password, a wrong one, and a user without rights."""
    with running(tmp_path / "data", requirepass="right") as server:
        plain = server.url()
        assert "refuses the user or the password" in refusal(plain, StoreUnavailable)
        wrong = plain.replace("://", "://:secret@")
        assert "refuses the user or the password" in refusal(wrong, StoreUnavailable)
        admin = server.client(password="right")
        admin.acl_setuser("poor", enabled=True, passwords=["+secret"], keys=["*"], commands=["+info"])
        poor = plain.replace("://", "://poor:secret@")
        assert "the user lacks a right" in refusal(poor, StoreUnavailable)


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_server_that_may_evict_keys_is_refused(tmp_path: Path, policy: str) -> None:
    """I19: it would forget keys silently. The doctor fails too, and says what to set."""
    with running(tmp_path / "data", maxmemory="50mb", maxmemory_policy=policy) as server:
        said = refusal(server.url(), DurabilityRefused)
        lines = RedisStore(server.url()).examine()

    assert f"maxmemory-policy is {policy}" in said
    assert "CONFIG SET maxmemory-policy noeviction" in said
    assert [(line.ok, "noeviction" in line.next_step) for line in lines] == [(False, True)]


def test_server_whose_policy_nobody_may_see_is_refused(tmp_path: Path) -> None:
    """A ledger is not trusted to a server that does not say whether it evicts."""
    with running(tmp_path / "data") as server:
        commands = ["+@all", "-config", "-info"]
        server.client().acl_setuser(
            "blind", enabled=True, passwords=["+secret"], keys=["*"], commands=commands
        )
        said = refusal(server.url().replace("://", "://blind:secret@"), StoreUnavailable)
        server.client().acl_setuser(
            "managed", enabled=True, passwords=["+secret"], keys=["*"], commands=["+@all", "-config"]
        )
        store = RedisStore(server.url().replace("://", "://managed:secret@"))
        store.connect().close()

    assert "the user lacks a right" in said
    assert store.capabilities.durability is Durability.MEMORY, "nobody tells how it syncs"


def test_full_server_takes_no_new_event_and_lets_those_under_way_end(valkey, tmp_path: Path) -> None:
    """I18: a reservation is refused, a settlement is not; the ledger has everything it acknowledged."""
    with running(tmp_path / "data") as server:
        store = RedisStore(server.url())
        session = store.connect()
        (claim,) = session.reserve([reservation(1)])
        server.client().config_set("maxmemory", "1mb")

        with pytest.raises(StoreFull, match="out of memory; raise maxmemory"):
            session.reserve([reservation(2)])
        assert session.settle([settlement(claim, outcome=b"1")]) == [True]
        server.client().config_set("maxmemory", "0")
        assert [entry is not None for entry in session.read([claim.key, reservation(2).key])] == [
            True,
            False,
        ]
        session.close()


def test_replica_is_refused_and_names_its_primary(tmp_path: Path) -> None:
    """Writing needs the primary; a primary that becomes a replica under a session is reported as well."""
    with running(tmp_path / "one") as primary, running(tmp_path / "two") as other:
        session = RedisStore(other.url()).connect()
        other.client().replicaof("127.0.0.1", primary.port)
        with pytest.raises(StoreUnavailable, match="read-only replica"):
            session.reserve([reservation(1)])
        session.close()
        said = refusal(other.url(), StoreUnavailable)

    assert f"is a read-only replica of 127.0.0.1:{primary.port}; name the primary" in said


def test_key_of_another_program_is_told_and_left_alone(valkey: ValkeyServer, url: str) -> None:
    """WRONGTYPE: the other program's key stays as it is."""
    store = RedisStore(url)
    session, key = store.connect(), reservation(1).key
    theirs = Layout(url.partition("prefix=")[2]).entry(key)
    valkey.client().set(theirs, "theirs")

    with pytest.raises(StoreCorrupt, match="holds something else"):
        session.reserve([reservation(1)])

    assert valkey.client().get(theirs) == b"theirs"
    session.close()


def test_ledger_of_a_newer_version_is_refused(valkey: ValkeyServer, url: str) -> None:
    """A downgrade changes nothing."""
    RedisStore(url).connect().close()
    valkey.client().hset(Layout(url.partition("prefix=")[2]).meta, "schema", 2)

    assert "made by a newer oncegate" in refusal(url, SchemaMismatch)


def test_partly_refused_batch_is_in_doubt_and_read_back(valkey: ValkeyServer, url: str) -> None:
    """I25: the neighbour of a damaged key runs, and the damaged one is refused."""
    ran: list[object] = []
    with Gate(url) as gate:
        gate.handler("orders", key="{id}", **SHORT)(ran.append)
        gate.admit_sync("orders", {"id": "0"})
        session = gate.engine.store.connect()
        wanted = [reservation(1), reservation(2)]
        theirs = Layout(url.partition("prefix=")[2]).entry(wanted[1].key)
        valkey.client().set(theirs, "theirs")

        with pytest.raises(OncegateError, match="1 of 2 were written"):
            session.reserve(wanted)
        assert [found is not None for found in session.details([one.key for one in wanted])] == [
            True,
            False,
        ]
        session.close()


def test_doctor_examines_a_ledger(valkey: ValkeyServer, url: str) -> None:
    """Every line is printed: use, durability, failover, memory, a rehearsed claim that leaves nothing."""
    store = RedisStore(url)
    store.connect().close()
    before = valkey.client().dbsize()

    lines = {line.what: line for line in examine(open_store(url), None, ManualClock(1_790_000_000_000))}

    assert valkey.client().dbsize() == before
    assert lines["use"].value == "short windows only (3d), no audit trail"
    assert lines["durability"].status is Status.WARN
    assert "appendfsync always" in lines["durability"].next_step
    assert lines["failover"].value == "no replica: nothing takes over"
    assert lines["writing"].value.startswith("possible")
    assert lines["functions"].value.startswith("function library oncegate_")
    assert "72 h at most" in lines["may lose"].value
    assert "without lanes, feed, review, stats" in lines["may lose"].value


def test_doctor_says_what_replicas_are_waited_for(tmp_path: Path) -> None:
    """A replica that is not waited for is a warning; one that is missing is a failure."""
    with running(tmp_path / "one") as primary:
        alone = {one.what: one for one in RedisStore(primary.url(wait=1)).examine()}
        with running(tmp_path / "two", replicaof=f"127.0.0.1 {primary.port}"):
            wait_until(lambda: primary.client().info("replication")["connected_slaves"] == 1)
            plain = {one.what: one for one in RedisStore(primary.url()).examine()}
            waited = {one.what: one for one in RedisStore(primary.url(waitaof=1)).examine()}

    assert not alone["failover"].ok
    assert "add wait=1 to the address" in plain["failover"].next_step
    assert waited["failover"].value == "1 replicas, WAITAOF 1"
