"""Values that are too long for an entry's own item: they stand in items of their own, written first.

A part's key is the entry's key, a digest of the value and a number. So the same value written twice is the
same items, and a claim that was lost cannot change what another one wrote. The entry names the digest in
the write that needs the value; parts that no entry names are never read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

from oncegate.errors import StoreCorrupt, StoreRejected
from oncegate.stores.dynamodb.client import TableClient
from oncegate.stores.dynamodb.items import Item, binary, number
from oncegate.stores.dynamodb.writing import ItemWriter

PART_BYTES_MAX: Final = 380_000  # below the service's limit for an item, with its key
VALUE_BYTES_MAX: Final = 16 * 1024 * 1024
OUTCOME_INLINE_MAX: Final = 16 * 1024  # a repeat pays for the whole item: longer outcomes stand apart
BODY_INLINE_MAX: Final = 4 * 1024  # every write pays for the whole item
STEP_INLINE_MAX: Final = 4 * 1024  # many steps share the item
_DELETED_MAX: Final = 25


class Parts:
    """Long values of one session."""

    def __init__(self, client: TableClient, writer: ItemWriter) -> None:
        self._client = client
        self._writer = writer

    def write(self, key: bytes, value: bytes, removed_after_s: int | None) -> str:
        """Writes a value and returns its name; a final entry's parts go when the entry goes."""
        if len(value) > VALUE_BYTES_MAX:
            raise StoreRejected(
                f"{self._client.place}: a value of {len(value)} bytes is longer than the limit of"
                f" {VALUE_BYTES_MAX} bytes; nothing was changed"
            )
        digest = hashlib.sha256(value).digest()[:16]
        chunks = [value[start : start + PART_BYTES_MAX] for start in range(0, len(value), PART_BYTES_MAX)]
        name = f"{len(chunks)}:{digest.hex()}"
        for part_key, chunk in zip(part_keys(key, name), chunks, strict=True):
            item: Item = {"k": binary(part_key), "v": binary(chunk)}
            if removed_after_s is not None:
                item["x"] = number(removed_after_s)
            self._client.write("put_item", TableName=self._client.table, Item=item)
        return name

    def read(self, key: bytes, name: str) -> bytes:
        """Reads a value by its name."""
        found = self._writer.read(part_keys(key, name))
        value = b"".join(bytes(item["v"]["B"]) for item in found if item is not None)
        if hashlib.sha256(value).digest()[:16].hex() != name.partition(":")[2]:
            raise StoreCorrupt(
                f"{self._client.place}: parts of the entry {key.hex()} are missing or changed; restore the"
                " table from a copy, do not delete its keys"
            )
        return value

    def remove(self, key: bytes, names: Sequence[str]) -> None:
        """Removes values that no entry names any more."""
        keys = [part_key for name in names for part_key in part_keys(key, name)]
        for start in range(0, len(keys), _DELETED_MAX):
            some = [
                {"DeleteRequest": {"Key": {"k": binary(one)}}} for one in keys[start : start + _DELETED_MAX]
            ]
            self._client.write("batch_write_item", RequestItems={self._client.table: some})


def part_keys(key: bytes, name: str) -> list[bytes]:
    """The keys of the items that a value stands in."""
    count, _, digest = name.partition(":")
    return [key + b"#" + bytes.fromhex(digest) + place.to_bytes(2) for place in range(int(count))]
