"""Many workers on one table: racers for one key, and worker processes that are killed (I1, I2, I6)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
import pytest

from oncegate import Gate
from oncegate.gate.admission import Verdict
from oncegate.model.states import Decision
from oncegate.store import EntryFilter, Reservation
from oncegate.stores.dynamodb import DynamoStore
from oncegate.testing import ManualClock
from oncegate.testing.waiting import DEADLINE_SECONDS, wait_until

RACERS = 32


def reservation(token: int) -> Reservation:
    return Reservation(b"k" * 32, "", "orders", "a", b"content", b"", 0, 20_000, 8, token)


@pytest.mark.slow
def test_of_many_racers_for_a_new_key_one_wins(new_table: str) -> None:
    """Each has a store of its own; all others are busy."""
    clock, start = ManualClock(), threading.Barrier(RACERS)
    DynamoStore(new_table, clock=clock).connect()

    def race(token: int) -> Decision:
        session = DynamoStore(new_table, clock=clock).connect()
        start.wait(DEADLINE_SECONDS)
        return session.reserve([reservation(token)])[0].decision

    with ThreadPoolExecutor(RACERS) as threads:
        decisions = list(threads.map(race, range(1, RACERS + 1)))

    assert decisions.count(Decision.RUN) == 1
    assert decisions.count(Decision.BUSY) == RACERS - 1


def test_of_many_racers_for_a_stranded_key_one_takes_it_over(new_table: str) -> None:
    """The write names the fence that was seen, so that the second finds another one."""
    clock, start = ManualClock(), threading.Barrier(RACERS)
    store = DynamoStore(new_table, clock=clock)
    (first,) = store.connect().reserve([reservation(1_000)])
    clock.advance(21)

    def race(token: int) -> Any:
        session = store.connect()
        start.wait(DEADLINE_SECONDS)
        return session.reserve([reservation(token)])[0]

    with ThreadPoolExecutor(RACERS) as threads:
        answers = list(threads.map(race, range(1, RACERS + 1)))

    winners = [answer for answer in answers if answer.decision.claims]
    assert [answer.decision for answer in winners] == [Decision.RECOVER]
    assert winners[0].fence > first.fence
    assert {answer.decision for answer in answers} == {Decision.RECOVER, Decision.BUSY}


WORKER = """
import os, pathlib, signal, sys
from oncegate import Gate
address, folder, how = sys.argv[1:]
gate = Gate(address)
bank = gate.downstream("bank", honours_key="1d")

def charge(order, idempotency_key=""):
    if how == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    with open(pathlib.Path(folder, idempotency_key.replace("/", "_")), "ab") as file:
        file.write(b"x")
    if how == "after":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "stay":
        pathlib.Path(folder, "reached").touch()
        signal.pause()
    return "paid"

@gate.handler("orders", key="{id}", lease="1s")
def run(event, once):
    return once.effect(bank, charge, event["id"])

for number in range(3):
    print(gate.admit_sync("orders", {"id": number}).verdict.value, flush=True)
"""


def worker(address: str, folder: Path, how: str) -> subprocess.Popen[bytes]:
    """A process that admits three orders and is killed at the bank, or not."""
    words = [sys.executable, "-c", WORKER, address, str(folder), how]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["before", "after"])
def test_order_of_a_worker_that_was_killed_is_charged_once(
    new_table: str, tmp_path: Path, how: str
) -> None:
    """kill -9 at the bank, before or after the charge: the next worker recovers it under the same key."""
    DynamoStore(new_table).connect()
    killed = worker(new_table, tmp_path, how)
    killed.communicate(timeout=DEADLINE_SECONDS)
    assert killed.returncode == -signal.SIGKILL

    said = _until_done(new_table, tmp_path)

    assert said == ["run", "run", "run"]
    charges = [path.read_bytes() for path in tmp_path.iterdir()]
    assert len(charges) == 3, "one idempotency key for each order"
    assert sum(len(one) for one in charges) <= 4, "the bank saw the repeated call under the same key"


def _until_done(address: str, folder: Path) -> list[str]:
    """Sends the orders again until none is busy, as a queue would."""
    said: list[str] = []

    def all_ran() -> bool:
        done = worker(address, folder, "no")
        out, wrong = done.communicate(timeout=DEADLINE_SECONDS)
        assert done.returncode == 0, wrong
        said[:] = [
            new if old in ("", "busy") else old
            for old, new in zip(said or [""] * 3, out.decode().split(), strict=True)
        ]
        return "busy" not in said

    wait_until(all_ran, what="the lease of the dead worker to end")
    return said


@pytest.mark.slow
def test_living_worker_keeps_its_claim_beyond_its_lease(new_table: str, tmp_path: Path) -> None:
    """Renewals go on while the handler is at the bank: no worker takes it over; then it is killed."""
    DynamoStore(new_table).connect()
    alive = worker(new_table, tmp_path, "stay")
    try:
        wait_until((tmp_path / "reached").exists, what="the worker to be at the bank")
        store, entry = DynamoStore(new_table), None
        with store.look() as session:
            (entry,) = session.entries(EntryFilter(), None, 10)
            begun = session.now_ticks()
            wait_until(lambda: session.now_ticks() > begun + 1_500, what="more than a lease to pass")
            (now,) = session.entries(EntryFilter(), None, 10)
            assert now.fence == entry.fence
            assert (now.lease_until_ticks or 0) > (entry.lease_until_ticks or 0)
            assert (now.lease_until_ticks or 0) > session.now_ticks()
    finally:
        os.kill(alive.pid, signal.SIGKILL)
        alive.communicate(timeout=DEADLINE_SECONDS)


def test_table_holds_one_entry_for_each_event_of_many_threads(new_table: str) -> None:
    """Sixty events, each sent four times from threads: each runs once, in batches of the commit engine."""
    ran: list[str] = []
    with Gate(store=DynamoStore(new_table)) as gate:
        gate.handler("orders", key="{id}")(lambda event: ran.append(event["id"]))

        def admit(number: int) -> Verdict:
            return gate.admit_sync("orders", {"id": f"o-{number % 60}"}).verdict

        with ThreadPoolExecutor(24) as threads:
            verdicts = list(threads.map(admit, range(240)))

    assert sorted(ran) == sorted({f"o-{number}" for number in range(60)})
    assert verdicts.count(Verdict.RUN) == 60
    table = new_table.partition("//")[2].partition("?")[0]
    endpoint = new_table.partition("endpoint=")[2].partition("&")[0]
    client = boto3.client("dynamodb", region_name="eu-central-1", endpoint_url=endpoint)
    counted = client.scan(TableName=table, Select="COUNT", ConsistentRead=True)["Count"]
    client.close()
    assert counted == 61, "sixty entries, and the item of the ledger's time"


def test_threads_that_create_the_same_table_at_once_all_get_it(new_table: str) -> None:
    """With `create=1` the first event of each of many threads may find no table yet."""
    start = threading.Barrier(8)

    def connect(number: int) -> str | None:
        store = DynamoStore(new_table)
        start.wait(DEADLINE_SECONDS)
        store.connect()
        return store.incarnations.identity

    with ThreadPoolExecutor(8) as threads:
        identities = set(threads.map(connect, range(8)))

    assert len(identities) == 1, "one ledger"
