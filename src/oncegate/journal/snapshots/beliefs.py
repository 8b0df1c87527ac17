"""Beliefs: users' functions that return or stream the objects which a snapshot keeps.

An object is a dict with an id, or a pair of id and object. Must never let two objects with one id pass.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from hashlib import sha256
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct

from oncegate.errors import OncegateError, SnapshotError
from oncegate.gate.codec.introspection import is_async, name_of
from oncegate.model.canonical import canonical_json

LEDGER: Final = "oncegate"  # the belief about the ledger itself; no user's belief has this name
STEP: Final = 1_000
_plain: Final = msgspec.to_builtins


class BeliefObject(NamedTuple):
    """One object as it is kept: its id as JSON, its canonical JSON, and a hash of its content."""

    id: str
    body: bytes
    content: bytes


class Belief(Struct, frozen=True):
    """A named function that gives objects. `id_field` names the id; `content` the fields that count.

    Two objects with the same content are content duplicates. Without `content` all fields but the id count.
    """

    name: str
    function: Callable[[], Any]
    id_field: str = "id"
    content: tuple[str, ...] | None = None

    def read(self, given: Any) -> BeliefObject:
        """One object of the function's, checked."""
        identity, value = given if type(given) is tuple and len(given) == 2 else (None, given)
        value = value if type(value) is dict else _plain(value)
        if not isinstance(value, dict):
            raise SnapshotError(f"belief {self.name}: an object is a {type(given).__name__}, not a dict")
        identity = value.get(self.id_field) if identity is None else identity
        try:
            target, body = id_text(identity), canonical_json(value)
        except OncegateError as error:
            what = f"belief {self.name}: object {str(identity)[:60]!r} cannot be kept: {error}"
            raise SnapshotError(what) from error
        return BeliefObject(target, body, self.content_of(value))

    def content_of(self, value: dict[str, Any]) -> bytes:
        """A hash of the fields that tell contents apart."""
        names = self.content
        if names is None:
            kept = {name: one for name, one in value.items() if name != self.id_field}
        else:
            kept = {name: value[name] for name in names if name in value}
        return sha256(canonical_json(kept)).digest()[:16]

    async def steps(self) -> AsyncIterator[list[BeliefObject]]:
        """The objects in lists of bounded length; a plain function runs in a thread."""
        try:
            async for step in self._steps():
                yield step
        except (SnapshotError, asyncio.CancelledError):
            raise
        except Exception as error:
            raise SnapshotError(
                f"belief {self.name}: {name_of(self.function)} raised {type(error).__name__}: {error}"
            ) from error

    async def _steps(self) -> AsyncIterator[list[BeliefObject]]:
        if is_async(self.function):
            found = await self.function()
        else:
            found = await asyncio.to_thread(self.function)
        if not hasattr(found, "__aiter__"):
            items = iter(self._checked(found))
            while step := await asyncio.to_thread(self._some, items):
                yield step
            return
        step = []
        async for one in found:
            step.append(self.read(one))
            if len(step) == STEP:
                yield step
                step = []
        if step:
            yield step

    def _checked(self, found: Any) -> Iterable[Any]:
        if isinstance(found, dict):
            return found.items()
        if isinstance(found, (str, bytes)) or not hasattr(found, "__iter__"):
            raise SnapshotError(f"belief {self.name}: it returned a {type(found).__name__}, not objects")
        return found  # type: ignore[no-any-return]

    def _some(self, items: Iterator[Any]) -> list[BeliefObject]:
        return [self.read(one) for one in islice(items, STEP)]


def id_text(identity: Any) -> str:
    """An id as JSON, so that 1 and "1" stay two ids; raises SnapshotError for what is no id."""
    if isinstance(identity, bool) or not isinstance(identity, (str, int)) or identity == "":
        raise SnapshotError(f"an id is a text or a whole number, not {identity!r:.60}")
    return canonical_json(identity).decode()


def id_of(text: str) -> Any:
    """The id that `id_text` wrote."""
    return msgspec.json.decode(text)
