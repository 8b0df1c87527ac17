"""What is wrong with an address, a table, credentials or an item is said in one line; nothing is run."""

from __future__ import annotations

import json
from typing import Any

import boto3
import pytest

from oncegate import Gate
from oncegate.cli.doctor import Status, examine
from oncegate.errors import BadUrl, OncegateError, SchemaMismatch, StoreRejected, StoreUnavailable
from oncegate.model.states import State
from oncegate.store import Reservation, Settlement, StepRecord, StepRecords, StepState
from oncegate.stores.dynamodb import DynamoStore
from oncegate.stores.dynamodb.parts import VALUE_BYTES_MAX
from oncegate.testing import ManualClock
from oncegate.wiring import open_store
from tests.stores.dynamodb.conftest import REGION
from tests.support.dynamodb_front import DynamoFront, FrontFault
from tests.support.servers import DynamoDb


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("dynamodb://?region=eu-west-1", "names no table"),
        ("dynamodb://ab?region=eu-west-1", "names no table"),
        ("dynamodb://orders/more", "names no table"),
        ("dynamodb://orders?zone=1", "unknown option 'zone'; known: create, endpoint, profile, region"),
        ("dynamodb://orders?region=Frankfurt", "is not a region"),
        ("dynamodb://orders?endpoint=localhost:8000", "an endpoint begins with http"),
        ("dynamodb://orders?create=yes", "create can only be 0 or 1"),
        ("dynamodb://key:secret@orders", "credentials do not belong into the address"),
    ],
)
def test_address_that_cannot_be_used_is_refused(address: str, told: str) -> None:
    """Before anything is opened, and without a secret in the message."""
    with pytest.raises(BadUrl, match=told) as refused:
        open_store(address)
    assert "secret" not in str(refused.value)


def refused_with(address: str, kind: type[OncegateError]) -> str:
    """What a gate on the address says when an event arrives; the handler must not run."""
    ran: list[Any] = []
    with Gate(address) as gate:
        gate.handler("orders", key="{id}")(ran.append)
        with pytest.raises(kind) as refused:
            gate.admit_sync("orders", {"id": 1})
    assert ran == []
    (line,) = str(refused.value).splitlines()
    return line


def test_missing_table_is_not_created_by_an_event(new_table: str, dynamodb: DynamoDb) -> None:
    """A misspelt name must not become an empty ledger that lets everything run again."""
    line = refused_with(new_table.replace("&create=1", ""), SchemaMismatch)

    assert "there is no such table in this region and account; create it with oncegate migrate" in line
    assert not DynamoStore(new_table).exists()


def test_table_of_something_else_is_refused(new_table: str, dynamodb: DynamoDb) -> None:
    """Its key is another one: nothing is written to it."""
    table = new_table.partition("//")[2].partition("?")[0]
    client = boto3.client("dynamodb", region_name=REGION, endpoint_url=dynamodb.url)
    client.create_table(
        TableName=table,
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    client.close()

    assert refused_with(new_table, SchemaMismatch)
    with pytest.raises(SchemaMismatch, match="its key is pk"):
        DynamoStore(new_table).pending_migrations()


def test_credentials_that_aws_does_not_know_are_told(fronted: str, front: DynamoFront) -> None:
    """With the code that AWS gave, and where the rights are listed."""
    DynamoStore(fronted).connect()
    front.do("GetItem", *[FrontFault.REFUSE] * 5)

    line = refused_with(fronted, StoreUnavailable)

    assert "AWS refuses the credentials (UnrecognizedClientException" in line


def test_missing_credentials_are_told(new_table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With where they are looked for."""
    from oncegate.stores.dynamodb import client

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    client._session.cache_clear()
    try:
        line = refused_with(new_table, StoreUnavailable)
    finally:
        client._session.cache_clear()

    assert "no usable AWS credentials" in line


def test_server_that_is_not_there_is_told(new_table: str, dynamodb: DynamoDb) -> None:
    """With what to check."""
    line = refused_with(new_table.replace(dynamodb.url, "http://127.0.0.1:9"), StoreUnavailable)

    assert "cannot be reached" in line
    assert "check the region, the endpoint and the network" in line


def test_no_region_at_all_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """With both ways to give one."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")

    line = refused_with("dynamodb://orders", StoreUnavailable)

    assert (
        "no region. Give it in the address, dynamodb://orders?region=eu-central-1, or as AWS_REGION" in line
    )


def test_item_that_would_be_too_large_is_refused_and_its_claim_goes_on(new_table: str) -> None:
    """Short steps by the thousand fill the item; the claim can still be ended."""
    session = DynamoStore(new_table, clock=ManualClock()).connect()
    wanted = Reservation(b"k" * 32, "", "orders", "a", b"content", b"", 0, 20_000, 8, 7)
    (claim,) = session.reserve([wanted])
    steps = tuple(StepRecord(f"step {n}", StepState.DONE, "bank", b"x" * 4_000) for n in range(110))

    with pytest.raises(StoreRejected, match="larger than DynamoDB's limit of 400 KB; nothing was changed"):
        session.progress([StepRecords(*claim.claim, steps, 5)])

    (found,) = session.details([claim.key])
    assert found is not None
    assert found.steps == ()
    assert session.settle([Settlement(*claim.claim, State.COMMITTED, 5, "test")]) == [True]


def test_outcome_beyond_every_limit_is_refused_with_the_limit(new_table: str) -> None:
    """Nothing of it is written."""
    session = DynamoStore(new_table, clock=ManualClock()).connect()
    wanted = Reservation(b"k" * 32, "", "orders", "a", b"content", b"", 0, 20_000, 8, 7)
    (claim,) = session.reserve([wanted])
    outcome = bytes(VALUE_BYTES_MAX + 1)

    with pytest.raises(StoreRejected, match=f"limit of {VALUE_BYTES_MAX} bytes"):
        session.settle([Settlement(*claim.claim, State.COMMITTED, 5, "test", outcome)])

    (entry,) = session.read([claim.key])
    assert entry is not None
    assert entry.state is State.IN_FLIGHT


def test_result_of_a_step_that_is_large_comes_back_whole(new_table: str) -> None:
    """It stands in items of its own, which go when the claim has ended."""
    clock = ManualClock()
    session = DynamoStore(new_table, clock=clock).connect()
    wanted = Reservation(b"k" * 32, "", "orders", "a", b"content", b"", 0, 20_000, 8, 7)
    (claim,) = session.reserve([wanted])
    step = StepRecord("report", StepState.DONE, "bank", b"\0\xff" * 300_000)
    assert session.progress([StepRecords(*claim.claim, (step,), 5)]) == [True]
    clock.advance(21)

    (again,) = session.reserve(
        [Reservation(b"k" * 32, "", "orders", "a", b"content", b"", 0, 20_000, 8, 8)]
    )

    assert again.steps == (step,)
    ended = Settlement(*again.claim, State.COMMITTED, 5, "test", b"1", clear_steps=True)
    assert session.settle([ended]) == [True]
    (found,) = session.details([claim.key])
    assert found is not None
    assert (found.outcome, found.steps) == (b"1", ())


def test_migrate_creates_the_table_and_says_so(call: Any, new_table: str) -> None:
    """The second time there is nothing to do; --check and --template tell without changing anything."""
    address = new_table.replace("&create=1", "")

    assert call("migrate", "--check", "--url", address).code != 0
    created, again = call("migrate", "--url", address), call("migrate", "--url", address)

    assert created.code == again.code == 0
    assert "applied 0001 table" in created.out
    assert "was up to date already" in again.out + again.err
    assert call("migrate", "--check", "--url", address).code == 0


def test_templates_describe_the_table_that_migrate_creates(call: Any, new_table: str) -> None:
    """Keys, index and time to live are the same; none asks a server."""
    address = "dynamodb://orders-ledger?region=eu-central-1&endpoint=http://127.0.0.1:9"

    cloudformation = call("migrate", "--template", "cloudformation", "--url", address)
    terraform = call("migrate", "--template", "terraform", "--url", address)

    wanted = json.loads(cloudformation.out)["Resources"]["OncegateLedger"]["Properties"]
    store = DynamoStore(new_table)
    store.migrate()
    made = store._table.describe()
    assert made is not None
    assert wanted["TableName"] == "orders-ledger"
    assert wanted["KeySchema"] == made["KeySchema"]
    by_name = {one["AttributeName"]: one["AttributeType"] for one in made["AttributeDefinitions"]}
    assert {one["AttributeName"]: one["AttributeType"] for one in wanted["AttributeDefinitions"]} == by_name
    (index,), (there,) = wanted["GlobalSecondaryIndexes"], made["GlobalSecondaryIndexes"]
    assert all(there[name] == value for name, value in index.items())
    assert wanted["TimeToLiveSpecification"] == {"AttributeName": "x", "Enabled": True}
    assert 'name                        = "orders-ledger"' in terraform.out
    assert terraform.out.count("{") == terraform.out.count("}")
    refused = call("migrate", "--template", "terraform", "--url", "sqlite:///x.db")
    assert (refused.code, "for DynamoDB ledgers" in refused.err) == (2, True)


def test_doctor_examines_a_table(new_table: str) -> None:
    """Every line is good on the emulator, and a claim was rehearsed."""
    store = open_store(new_table)
    store.connect()

    lines = {line.what: line for line in examine(store, new_table, ManualClock())}

    for what in ("facets", "may lose", "table", "index", "time to live", "open entries", "claim"):
        assert lines[what].status is Status.OK, lines[what]
    assert "claims, open entries; units: per call; audit trail: per entry" in lines["facets"].value
    assert "withdrawn in" in lines["claim"].value
