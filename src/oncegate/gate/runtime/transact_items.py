"""Users' own DynamoDB writes, as a claim keeps them until it commits: checked, copied, counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, Final

from oncegate.errors import ConfigError, UsageError
from oncegate.gate.runtime.claim import Claim
from oncegate.gate.runtime.context import GateContext
from oncegate.store import TRANSACT_ITEM, Statement

Item = Mapping[str, Any]  # one of TransactWriteItems

ITEMS_MAX: Final = 99  # a transaction of DynamoDB has 100, and the claim is one of them
VERBS: Final = frozenset({"Put", "Update", "Delete", "ConditionCheck"})


def stage_items(gate: GateContext, claim: Claim, items: Sequence[Item]) -> None:
    """Keeps items until the claim commits; raises ConfigError where the ledger takes none."""
    if type(items) is tuple and not items:  # nearly every commit
        return
    store = gate.commits.store
    if items and not store.capabilities.transact_items:
        raise ConfigError(
            "once.commit(transact=…) needs a DynamoDB ledger (dynamodb://table), and this one is"
            f" {store.capabilities.name}; use writes= or tx= here"
        )
    claim.writes += _checked(items, len(claim.writes))


def _checked(items: Sequence[Item], kept: int) -> list[Statement]:
    """Items of TransactWriteItems as they are kept; `kept` are those that the claim has already."""
    if isinstance(items, Mapping) or not all(_is_item(item) for item in items):
        raise UsageError(
            "transact= is a list of items as DynamoDB's TransactWriteItems takes them: "
            "[{'Put': {'TableName': 'bookings', 'Item': {'id': {'S': 'N-1'}}}}]"
        )
    if kept + len(items) > ITEMS_MAX:
        raise UsageError(
            f"a DynamoDB transaction holds {ITEMS_MAX} items of yours; {kept + len(items)} were given"
        )
    return [(TRANSACT_ITEM, (deepcopy(dict(item)),)) for item in items]


def _is_item(item: object) -> bool:
    if not isinstance(item, Mapping) or len(item) != 1:
        return False
    ((verb, arguments),) = item.items()
    return verb in VERBS and isinstance(arguments, Mapping) and isinstance(arguments.get("TableName"), str)
