"""One conditional write to one item, in the two languages of the service.

A change alone is an UpdateItem, which tells what it consumed; many are statements of one
BatchExecuteStatement, each by itself. Statements use only what the service documents for them: values,
list_append and REMOVE. A change that computes on the server (`sums`, `additions`) is never batched.
"""

from __future__ import annotations

from random import SystemRandom
from typing import Any, Final

from msgspec import Struct, field

from oncegate.stores.dynamodb.items import Item, ItemRow, Value, binary, number

Path = tuple[str, ...]


_RANDOM: Final = SystemRandom()
_SETS_MAX: Final = 100  # of a statement, whose text is limited to 8 KB


def request_number() -> Value:
    """A number for one request: an item that carries it was written by that very request."""
    return number(_RANDOM.getrandbits(62))


class Change(Struct):
    """What to change, and what must be true before."""

    key: bytes
    sets: dict[Path, Value] = field(default_factory=dict)
    records: list[Value] = field(default_factory=list)  # appended to the log of the entry
    removes: list[str] = field(default_factory=list)
    equals: Item = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    sums: dict[str, tuple[str, Value]] = field(default_factory=dict)  # an attribute and a number
    additions: dict[str, Value] = field(default_factory=dict)

    @property
    def is_plain(self) -> bool:
        """Whether it may be a statement of a batch."""
        return not (self.sums or self.additions) and len(self.sets) <= _SETS_MAX

    def numbered(self) -> Change:
        """Gives the request its number."""
        self.sets[("z",)] = request_number()
        return self

    def log(self, row: ItemRow, record: Value) -> None:
        """Adds a record to the log of an entry that was read; a long log is shortened."""
        kept = row.history([record])
        if kept is None:
            self.records.append(record)
        else:
            self.sets[("hs",)] = {"L": kept}

    def was_ours(self, there: Item | None) -> bool:
        """Whether what stands there was written by this very request, which was carried out before."""
        ours = self.sets.get(("z",))
        return ours is not None and there is not None and there.get("z") == ours

    def statement(self, table: str) -> dict[str, Any]:
        """As a statement of a batch."""
        parts, values = [f'UPDATE "{table}"'], []
        for path, value in self.sets.items():
            parts.append(f"SET {_quoted(path)}=?")
            values.append(value)
        if self.records:
            parts.append('SET "hs"=list_append("hs",?)')
            values.append({"L": self.records})
        parts += [f'REMOVE "{name}"' for name in self.removes]
        conditions = ['"k"=?', *(f'"{name}"=?' for name in self.equals)]
        conditions += [f'"{name}" IS MISSING' for name in self.missing]
        parts.append(f"WHERE {' AND '.join(conditions)}")
        values += [binary(self.key), *self.equals.values()]
        return {
            "Statement": " ".join(parts),
            "Parameters": values,
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }

    def update(self, table: str) -> dict[str, Any]:
        """As the arguments of UpdateItem, and of an Update in a transaction."""
        names, values = _Names(), _Values()
        sets = [f"{names.path(path)} = {values.of(value)}" for path, value in self.sets.items()]
        sets += [
            f"{names.of(name)} = {names.of(source)} + {values.of(more)}"
            for name, (source, more) in self.sums.items()
        ]
        sets += [
            f"{names.of(name)} = {names.of(name)} + {values.of(value)}"
            for name, value in self.additions.items()
        ]
        if self.records:
            log = names.of("hs")
            sets.append(f"{log} = list_append({log}, {values.of({'L': self.records})})")
        expression = f"SET {', '.join(sets)}" if sets else ""
        if self.removes:
            expression += f" REMOVE {', '.join(names.of(name) for name in self.removes)}"
        conditions = [f"{names.of(name)} = {values.of(value)}" for name, value in self.equals.items()]
        conditions += [f"attribute_not_exists({names.of(name)})" for name in self.missing]
        return {
            "TableName": table,
            "Key": {"k": binary(self.key)},
            "UpdateExpression": expression.strip(),
            "ConditionExpression": " AND ".join(conditions),
            "ExpressionAttributeNames": names.given,
            "ExpressionAttributeValues": values.given,
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }


class Insertion(Struct):
    """A new item, only where none is."""

    item: Item

    @property
    def key(self) -> bytes:
        """The key that it inserts."""
        return bytes(self.item["k"]["B"])

    def statement(self, table: str) -> dict[str, Any]:
        """As a statement of a batch."""
        body = ",".join(f"'{name}':?" for name in self.item)
        return {
            "Statement": f'INSERT INTO "{table}" VALUE {{{body}}}',
            "Parameters": list(self.item.values()),
        }

    def put(self, table: str) -> dict[str, Any]:
        """As the arguments of PutItem."""
        return {
            "TableName": table,
            "Item": self.item,
            "ConditionExpression": "attribute_not_exists(k)",
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }


def _quoted(path: Path) -> str:
    return ".".join(f'"{part}"' for part in path)


class _Names:
    """Placeholders for names: many words are reserved."""

    def __init__(self) -> None:
        self._placeholders: dict[str, str] = {}

    @property
    def given(self) -> dict[str, str]:
        return {placeholder: name for name, placeholder in self._placeholders.items()}

    def of(self, name: str) -> str:
        if name not in self._placeholders:
            self._placeholders[name] = f"#n{len(self._placeholders)}"
        return self._placeholders[name]

    def path(self, path: Path) -> str:
        return ".".join(self.of(part) for part in path)


class _Values:
    """Placeholders for values."""

    def __init__(self) -> None:
        self.given: dict[str, Value] = {}

    def of(self, value: Value) -> str:
        placeholder = f":v{len(self.given)}"
        self.given[placeholder] = value
        return placeholder
