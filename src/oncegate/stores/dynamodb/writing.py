"""Runs conditional writes, many in one request, and says of each whether it was carried out.

Each write commits by itself. One session has one writer, and `applied` counts what its present call has
written: a call that fails later is unknown then, and each of its items is read back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol, TypeVar

from msgspec import Struct

from oncegate.errors import StoreError
from oncegate.stores.dynamodb.changes import Change, Insertion
from oncegate.stores.dynamodb.client import TableClient
from oncegate.stores.dynamodb.failures import ConditionFailed, Throttled, of_code
from oncegate.stores.dynamodb.items import Item, binary

STATEMENTS_MAX: Final = 25  # of one BatchExecuteStatement; the service's own limit
KEYS_MAX: Final = 100  # of one BatchGetItem
_REFUSED: Final = frozenset({"ConditionalCheckFailed", "DuplicateItem"})

W = TypeVar("W", Change, Insertion)
Statement = dict[str, Any]


class _ChunkResult(Struct):
    """What became of one request: an answer for each statement that has one, and an error."""

    answers: list[ConditionFailed | None]
    applied: int = 0
    error: StoreError | None = None


class HasKey(Protocol):
    """What acts on one key."""

    @property
    def key(self) -> bytes:
        """The key."""


K = TypeVar("K", bound=HasKey)


def rounds(items: Sequence[K]) -> Iterator[list[tuple[int, K]]]:
    """Items with their places, in rounds in which no key is there twice: a request takes each key once."""
    waiting = list(enumerate(items))
    while waiting:
        taken: set[bytes] = set()
        now: list[tuple[int, K]] = []
        later: list[tuple[int, K]] = []
        for pair in waiting:
            (later if pair[1].key in taken else now).append(pair)
            taken.add(pair[1].key)
        yield now
        waiting = later


class ItemWriter:
    """The writes of one session."""

    def __init__(self, client: TableClient) -> None:
        self._client = client
        self._table = client.table
        self.applied = 0

    def insert(self, insertions: Sequence[Insertion]) -> list[ConditionFailed | None]:
        """Inserts items under keys that differ; the answer for a key that is there has its item."""
        answers = self._run(insertions, self._put)
        unread = [place for place, one in enumerate(answers) if one is not None and one.item is None]
        if unread:  # a statement does not tell what stands there
            for place, item in zip(unread, self.read([insertions[i].key for i in unread]), strict=True):
                answers[place] = ConditionFailed(item)
        return answers

    def change(self, changes: Sequence[Change]) -> list[ConditionFailed | None]:
        """Carries out changes in their order; those of one key one after the other."""
        answers: list[ConditionFailed | None] = [None] * len(changes)
        for some in rounds(changes):
            self._change_apart(some, answers)
        return answers

    def _change_apart(
        self, changes: Sequence[tuple[int, Change]], answers: list[ConditionFailed | None]
    ) -> None:
        plain = [pair for pair in changes if pair[1].is_plain]
        for place, one in changes:
            if not one.is_plain:
                answers[place] = self._update(one)
        found = self._run([one for _, one in plain], self._update)
        for (place, _), answer in zip(plain, found, strict=True):
            answers[place] = answer

    def _run(
        self, writes: Sequence[W], alone: Callable[[W], ConditionFailed | None]
    ) -> list[ConditionFailed | None]:
        if len(writes) == 1:
            return [alone(writes[0])]
        chunks = [writes[start : start + STATEMENTS_MAX] for start in range(0, len(writes), STATEMENTS_MAX)]
        results = self._client.side_by_side(self._chunk, chunks)
        self.applied += sum(result.applied for result in results)
        for result in results:
            if result.error is not None:
                raise result.error
        return [answer for result in results for answer in result.answers]

    def _put(self, insertion: Insertion) -> ConditionFailed | None:
        return self._alone("put_item", insertion.put(self._table))

    def _update(self, change: Change) -> ConditionFailed | None:
        return self._alone("update_item", change.update(self._table))

    def _alone(self, operation: str, arguments: dict[str, Any]) -> ConditionFailed | None:
        try:
            self._client.write(operation, ReturnConsumedCapacity="INDEXES", **arguments)
        except ConditionFailed as refused:
            return refused
        self.applied += 1
        return None

    def _chunk(self, writes: Sequence[Change] | Sequence[Insertion]) -> _ChunkResult:
        """One request; statements that were throttled are sent again, the others are not."""
        result = _ChunkResult([None] * len(writes))
        waiting = list(enumerate(one.statement(self._table) for one in writes))
        wait = self._client.waits()
        while waiting and result.error is None:
            waiting = self._send(waiting, result)
            if waiting and result.error is None and not wait():
                result.error = of_code("ThrottlingError", "", self._client.place, 400, is_write=True)
        return result

    def _send(
        self, waiting: list[tuple[int, Statement]], result: _ChunkResult
    ) -> list[tuple[int, Statement]]:
        statements = [statement for _, statement in waiting]
        try:
            answer = self._client.write("batch_execute_statement", Statements=statements)
        except StoreError as error:
            result.error = error
            return []
        again: list[tuple[int, Statement]] = []
        for (place, statement), said in zip(waiting, answer["Responses"], strict=True):
            wrong = self._said(said.get("Error"))
            if wrong is None:
                result.applied += 1
            elif isinstance(wrong, ConditionFailed):
                result.answers[place] = wrong
            elif isinstance(wrong, Throttled):
                again.append((place, statement))
            else:
                result.error = wrong
        return again

    def _said(self, said: dict[str, Any] | None) -> StoreError | None:
        if said is None:
            return None
        code = str(said.get("Code", ""))
        if code in _REFUSED:
            return ConditionFailed(said.get("Item"))
        return of_code(code, str(said.get("Message", "")), self._client.place, 0, is_write=True)

    def read(self, keys: Sequence[bytes]) -> list[Item | None]:
        """Reads items as they are now, in the order of their keys."""
        if len(keys) == 1:
            answer = self._client.read(
                "get_item", TableName=self._table, Key={"k": binary(keys[0])}, ConsistentRead=True
            )
            return [answer.get("Item")]
        wanted = list(dict.fromkeys(keys))
        found: dict[bytes, Item] = {}
        for start in range(0, len(wanted), KEYS_MAX):
            self._read_some(wanted[start : start + KEYS_MAX], found)
        return [found.get(key) for key in keys]

    def _read_some(self, keys: list[bytes], found: dict[bytes, Item]) -> None:
        wait = self._client.waits()
        while keys:
            asked = {"Keys": [{"k": binary(key)} for key in keys], "ConsistentRead": True}
            answer = self._client.read("batch_get_item", RequestItems={self._table: asked})
            for item in answer["Responses"].get(self._table, ()):
                found[bytes(item["k"]["B"])] = item
            left = answer.get("UnprocessedKeys", {}).get(self._table, {}).get("Keys", [])
            keys = [bytes(key["k"]["B"]) for key in left]
            if keys and not wait():
                raise of_code("ThrottlingException", "", self._client.place, 400, is_write=False)
