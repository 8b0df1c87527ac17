"""A ledger on a cluster of three primaries: keys by slot, slots that move, a primary that is gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from redis.crc import key_slot

from oncegate import Gate
from oncegate.errors import OncegateError, StoreUnavailable, StoreUnknown
from oncegate.gate.admission import Verdict
from oncegate.store import Reserved
from oncegate.stores.redis import RedisStore
from oncegate.stores.redis.open_entries import Layout
from oncegate.stores.redis.session import RedisSession
from oncegate.stores.redis.wire import TAGS, tag_name
from oncegate.testing.waiting import wait_until
from tests.support.postgres_site import reservation, settlement
from tests.support.servers_valkey import HOST, ValkeyServer, running

pytestmark = pytest.mark.slow

_NUMBERS = count()
SLOTS = 16_384
SHORT: dict[str, Any] = {"retention": "72h", "retention_floor": "72h"}


class Cluster:
    """Three primaries that share the slots."""

    def __init__(self, servers: list[ValkeyServer]) -> None:
        self.servers = servers
        share = SLOTS // len(servers) + 1
        for number, server in enumerate(servers):
            last = min(SLOTS, (number + 1) * share) - 1
            server.client().execute_command("CLUSTER", "ADDSLOTSRANGE", number * share, last)
            server.client().execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for server in servers[1:]:
            server.client().execute_command("CLUSTER", "MEET", HOST, servers[0].port)
        wait_until(lambda: all(self.state(one) == "ok" for one in servers), what="the cluster")

    def state(self, server: ValkeyServer) -> str:
        text: Any = server.client().execute_command("CLUSTER", "INFO")
        words = text if isinstance(text, dict) else dict(line.split(":") for line in text.decode().split())
        return str(words["cluster_state"])

    def owner(self, slot: int) -> ValkeyServer:
        """As the slots were first shared out."""
        share = SLOTS // len(self.servers) + 1
        return self.servers[slot // share]

    def move(self, slot: int, target: ValkeyServer) -> None:
        """Moves a slot with its keys, as an operator would."""
        source = self.owner(slot)
        names = {one: one.client().execute_command("CLUSTER", "MYID").decode() for one in self.servers}
        target.client().execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", names[source])
        source.client().execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", names[target])
        keys = source.client().execute_command("CLUSTER", "GETKEYSINSLOT", slot, 1000)
        if keys:
            source.client().execute_command("MIGRATE", HOST, target.port, "", 0, 5000, "KEYS", *keys)
        for server in (target, source):
            server.client().execute_command("CLUSTER", "SETSLOT", slot, "NODE", names[target])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with ExitStack() as stack:
        yield Cluster([stack.enter_context(_primary(folder / str(number))) for number in range(3)])


def _primary(folder: Path, full: str = "yes") -> Any:
    return running(
        folder, cluster_enabled="yes", cluster_node_timeout="1000", cluster_require_full_coverage=full
    )


@pytest.fixture
def url(cluster: Cluster) -> str:
    return cluster.servers[0].url(prefix=f"cluster{next(_NUMBERS)}")


def reserve(session: RedisSession, *numbers: int) -> list[Reserved]:
    return session.reserve([reservation(number) for number in numbers])


def test_keys_of_a_batch_go_to_the_primaries_of_their_slots(cluster: Cluster, url: str) -> None:
    """One call claims, settles and reads keys of all three; each primary has its own."""
    session = RedisStore(url).connect()
    before = [server.client().dbsize() for server in cluster.servers]

    claims = reserve(session, *range(200))
    assert session.settle([settlement(claim, outcome=b"1") for claim in claims]) == [True] * 200

    assert all(found is not None for found in session.read([claim.key for claim in claims]))
    assert {one.decision.value for one in reserve(session, *range(200))} == {"replay"}
    grown = [server.client().dbsize() - old for server, old in zip(cluster.servers, before, strict=True)]
    assert min(grown) > 20
    session.settle_doubt()
    session.close()


def test_gate_runs_each_event_once_on_a_cluster(url: str) -> None:
    """As on one server."""
    calls: Counter[str] = Counter()
    for _ in range(2):
        with Gate(url) as gate:
            gate.handler("orders", key="{id}", **SHORT)(lambda event: calls.update([event["id"]]))
            for number in range(60):
                gate.admit_sync("orders", {"id": str(number)})

    assert (len(calls), set(calls.values())) == (60, {1})


def test_slot_that_moved_is_followed(cluster: Cluster, url: str) -> None:
    """A claim that was made on one primary is settled on another; the session asks where slots are."""
    session, wanted = RedisStore(url).connect(), reservation(7)
    (claim,) = session.reserve([wanted])
    tag = Layout("x").tag(claim.key)
    slot = key_slot(tag_name(tag))
    source = cluster.owner(slot)
    target = next(one for one in cluster.servers if one is not source)
    cluster.move(slot, target)

    assert session.settle([settlement(claim, outcome=b"1")]) == [True]
    assert session.reserve([reservation(7)])[0].decision.value == "replay"
    assert session._wire._nodes[tag] == (HOST, target.port), "the next call goes there directly"
    session.close()


@pytest.mark.slow
def test_cluster_that_wants_all_slots_is_refused_without_one(tmp_path: Path) -> None:
    """`cluster-require-full-coverage yes`, the default: a primary that is gone stops all. One line."""
    with ExitStack() as stack:
        made = Cluster([stack.enter_context(_primary(tmp_path / str(number))) for number in range(3)])
        ran: list[object] = []
        gate = stack.enter_context(Gate(made.servers[0].url()))
        gate.handler("orders", key="{id}", **SHORT)(ran.append)
        assert gate.admit_sync("orders", {"id": "0"}).verdict is Verdict.RUN
        made.servers[2].kill()
        wait_until(lambda: made.state(made.servers[0]) == "fail", what="the failure of the cluster")
        with pytest.raises(StoreUnavailable) as told:
            gate.admit_sync("orders", {"id": "1"})

    assert len(ran) == 1
    assert "cannot be reached" in str(told.value) or "cluster is down" in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.slow
@pytest.mark.parametrize("gone", [0, 2])
def test_primary_that_is_gone_stops_only_its_slots(tmp_path: Path, gone: int) -> None:
    """The one that the address names, and another: other keys go on, in batches too; then it is back."""
    with ExitStack() as stack:
        made = Cluster(
            [stack.enter_context(_primary(tmp_path / str(number), full="no")) for number in range(3)]
        )
        ran: Counter[str] = Counter()
        gate = stack.enter_context(Gate(made.servers[0].url()))
        gate.handler("orders", key="{id}", **SHORT)(lambda event: ran.update([event["id"]]))
        for number in range(30):
            gate.admit_sync("orders", {"id": f"before-{number}"})
        made.servers[gone].kill()

        answers = _admit_at_once(gate, [f"while-{number}" for number in range(60)])
        refused = {order for order, answer in answers.items() if isinstance(answer, Exception)}
        assert 5 < len(refused) < 55, "about a third of the keys has no server"
        assert set(ran) & refused == set()
        assert all(isinstance(answers[order], (StoreUnavailable, StoreUnknown)) for order in refused)

        made.servers[gone].start()
        waiting = set(refused)

        def all_ran() -> bool:
            again = _admit_at_once(gate, sorted(waiting))
            busy = {o for o, a in again.items() if isinstance(a, Exception) or a.verdict is Verdict.BUSY}
            waiting.intersection_update(busy)
            return not waiting

        wait_until(all_ran, what="the slots of the primary that is back")
        assert set(ran.values()) == {1}
        assert len(ran) == 90


def _admit_at_once(gate: Gate, orders: list[str]) -> dict[str, Any]:
    def admit(order: str) -> Any:
        try:
            return gate.admit_sync("orders", {"id": order})
        except OncegateError as error:
            return error

    with ThreadPoolExecutor(12) as threads:
        return dict(zip(orders, threads.map(admit, orders), strict=True))


def test_every_tag_has_a_slot_of_its_own() -> None:
    """64 tags spread over the slots: no two share one, and each third of the slots has some."""
    slots = sorted(key_slot(tag_name(tag)) for tag in range(TAGS))

    assert len(set(slots)) == TAGS
    assert min(Counter(slot * 3 // SLOTS for slot in slots).values()) > 10
