"""Users' own DynamoDB writes, as a claim keeps them until it commits: checked, copied, counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, Final

from oncegate.errors import UsageError
from oncegate.store import TRANSACT_ITEM, Statement

ITEMS_MAX: Final = 99  # a transaction of DynamoDB has 100, and the claim is one of them
VERBS: Final = frozenset({"Put", "Update", "Delete", "ConditionCheck"})


def checked_items(items: Sequence[Mapping[str, Any]], kept: int) -> list[Statement]:
    """Items of TransactWriteItems as they are kept; `kept` are those that the claim has already."""
    if isinstance(items, Mapping) or not all(_is_item(item) for item in items):
        raise UsageError(
            "transact= is a list of items as DynamoDB's TransactWriteItems takes them: "
            "[{'Put': {'TableName': 'bookings', 'Item': {'id': {'S': 'N-1'}}}}]"
        )
    if kept + len(items) > ITEMS_MAX:
        raise UsageError(f"a DynamoDB transaction holds {ITEMS_MAX} items of yours; {kept + len(items)} were given")
    return [(TRANSACT_ITEM, (deepcopy(dict(item)),)) for item in items]


def _is_item(item: object) -> bool:
    if not isinstance(item, Mapping) or len(item) != 1:
        return False
    ((verb, arguments),) = item.items()
    return verb in VERBS and isinstance(arguments, Mapping) and isinstance(arguments.get("TableName"), str)
