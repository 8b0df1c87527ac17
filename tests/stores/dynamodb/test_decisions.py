"""What waits for a person in a DynamoDB ledger is listed, approved and rejected by the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from oncegate import Failed, Gate
from oncegate.errors import OncegateError
from oncegate.gate.admission import Verdict
from oncegate.gate.once import Once


class Sender:
    """A process whose bank may break in the middle of a call that cannot be repeated."""

    def __init__(self, address: str) -> None:
        self.gate = Gate(address)
        self.bank = self.gate.downstream("bank")
        self.breaks, self.payments = True, 0
        self.gate.handler("orders", key="{id}")(self.run)

    def run(self, event: Any, once: Once) -> str:
        return once.effect(self.bank, self.pay, event["id"], name="pay")

    def pay(self, order: str) -> str:
        if self.breaks:
            raise TimeoutError("no answer from the bank")
        self.payments += 1
        return f"paid {order}"

    def admit(self) -> Any:
        return self.gate.admit_sync("orders", {"id": "o-1"})


@pytest.fixture
def in_doubt(new_table: str) -> Iterator[Sender]:
    sender = Sender(new_table)
    with sender.gate:
        with pytest.raises((OncegateError, TimeoutError)):
            sender.admit()
        sender.breaks = False
        assert sender.admit().verdict is Verdict.HOLD
        yield sender


def listed(call: Any, address: str) -> list[dict[str, Any]]:
    ended = call("dynamodb", "open", "--json", "--url", address)
    assert ended.code == 0, ended.err
    return [json.loads(line) for line in ended.out.splitlines()]


def test_approved_event_runs_when_it_is_delivered_again(
    call: Any, in_doubt: Sender, new_table: str
) -> None:
    """What is in doubt must be said first; then it runs once, and nothing is open."""
    (entry,) = listed(call, new_table)
    words = ("dynamodb", "approve", entry["key"], "--reason", "not at the bank", "--as", "ada")
    unsaid = call(*words, "--url", new_table)
    assert unsaid.code != 0
    assert "may or may not have happened" in unsaid.err

    said = call(*words, "--step", "pay=did-not-happen", "--url", new_table)
    assert said.code == 0, said.err
    again = call(*words, "--step", "pay=did-not-happen", "--url", new_table)

    assert again.code != 0, "a decision counts once"
    assert in_doubt.admit().value == "paid o-1"
    assert in_doubt.payments == 1
    assert listed(call, new_table) == []


def test_rejected_event_is_told_as_failed(call: Any, in_doubt: Sender, new_table: str) -> None:
    """With who decided it and why, and never run."""
    (entry,) = listed(call, new_table)

    said = call(
        "dynamodb", "reject", entry["key"], "--reason", "cancelled", "--as", "ada", "--url", new_table
    )

    assert said.code == 0, said.err
    again = in_doubt.admit()
    assert (again.verdict, again.error) == (Verdict.REPLAY, "rejected by ada: cancelled")
    with pytest.raises(Failed):
        again.result()
    assert in_doubt.payments == 0
    assert listed(call, new_table) == []


def test_key_that_names_no_open_entry_is_told(call: Any, in_doubt: Sender, new_table: str) -> None:
    """With the command that lists them; other ledgers have other commands."""
    ended = call("dynamodb", "reject", "ffffffff", "--reason", "x", "--url", new_table)
    other = call("dynamodb", "open", "--url", "sqlite:///ledger.db")

    assert (ended.code, "see: oncegate dynamodb open" in ended.err) == (2, True)
    assert (other.code, "this is a sqlite ledger" in other.err) == (2, True)
