"""The ledger's own time: an item that each worker moves ahead, and the monotonic clock in between.

No clock of a client is compared with another one's: containers, clones of a machine image and resumed
snapshots may share a boot id and differ in their clocks. A process measures by its own monotonic clock
what has passed since it saw the item. For the time before that it takes the difference of the service's
own clock, as its answers tell it. Either adds PAUSE_MAX_MS at most: a step of that clock, or a pause in
which no process worked, moves the ledger's time by no more (decision 0003). A process that has not looked
at the item for LOOK_AFTER_MS looks again before it tells the time.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from oncegate.errors import SchemaMismatch
from oncegate.stores.dynamodb.client import Answer, TableClient, server_ms
from oncegate.stores.dynamodb.failures import ConditionFailed
from oncegate.stores.dynamodb.items import Item, binary, number, text

META_KEY: Final = b"\0oncegate"  # no key of an event is that short
VERSION: Final = 1
PAUSE_MAX_MS: Final = 20_000  # the default lease, as on PostgreSQL
LOOK_AFTER_MS: Final = 10_000
WRITE_AFTER_MS: Final = 5_000
FENCE_BITS: Final = 16  # fences are ledger time with room for 65,536 in a millisecond
_SECOND_MS: Final = 1_000  # the unit of the service's clock


class Moment(Struct, frozen=True):
    """The item: ledger time, and both clocks at that time."""

    identity: str
    ticks: int
    server: int  # the service's wall clock, ms
    count: int

    @classmethod
    def of(cls, item: Item) -> Moment:
        """Reads the item."""
        version = int(item["v"]["N"])
        if version > VERSION:
            raise SchemaMismatch(
                f"the table has schema {version}, and this version of oncegate knows {VERSION}; upgrade it"
            )
        return cls(
            item["id"]["S"], int(item["tm"]["N"]), int(item["w"]["N"]), int(item["n"]["N"])
        )  # fmt: skip


class LedgerTime:
    """Tells the time to all sessions of a store, and gives out numbers that grow with it.

    `ticks` replaces the ledger's time; only tests do that.
    """

    def __init__(self, client: TableClient, ticks: Callable[[], int] | None = None) -> None:
        self._client = client
        self._given = ticks
        self._clock = client.clock
        self._lock = threading.Lock()
        self._base: tuple[int, int] | None = None  # ledger time, and the monotonic clock then
        self._server_base = (0, 0)  # the service's clock, and the monotonic clock then
        self._seen: tuple[str, int] | None = None  # the item that the base was taken from
        self._told = 0
        self._last_number = 0

    def look(self) -> Moment | None:
        """Reads the item, and goes on from it; None where there is no item."""
        item, answer = self._read()
        if item is None:
            return None
        found = Moment.of(item)
        with self._lock:
            self._take(found, self._ticks(found, server_ms(answer)), answer)
        return found

    def keep(self, found: Moment) -> None:
        """Writes the time down where the item is old; of several who do so one succeeds."""
        now = self.now(found)
        if self._given is not None or now - found.ticks < WRITE_AFTER_MS:
            return
        with self._lock:
            server = self._server_now()
        values = {
            ":t": number(now), ":w": number(server), ":n": number(found.count + 1),
            ":o": number(found.count),
        }  # fmt: skip
        try:
            self._client.write(
                "update_item",
                TableName=self._client.table,
                Key={"k": binary(META_KEY)},
                UpdateExpression="SET tm = :t, w = :w, n = :n",
                ConditionExpression="n = :o",
                ExpressionAttributeValues=values,
            )
        except ConditionFailed:
            return  # another process has just written it

    def begin(self) -> None:
        """Writes the first item of a new ledger, unless another process has."""
        _, answer = self._read()
        server = server_ms(answer) or 0
        item: Item = {
            "k": binary(META_KEY), "v": number(VERSION), "id": text(uuid.uuid4().hex),
            "tm": number(max(server, 1)), "w": number(server), "n": number(1),
        }  # fmt: skip
        try:
            self._client.write(
                "put_item",
                TableName=self._client.table,
                Item=item,
                ConditionExpression="attribute_not_exists(k)",
            )
        except ConditionFailed:
            return

    def now(self, found: Moment | None = None, *, may_write: bool = True) -> int:
        """The ledger's time; looks at the item first where that is too long ago."""
        if self._given is not None:
            return self._given()
        machine = self._clock.ticks_ms()
        with self._lock:
            base = self._base
            if base is not None and (found is not None or 0 <= machine - base[1] <= LOOK_AFTER_MS):
                self._told = max(self._told, base[0] + max(0, machine - base[1]))
                return self._told
        seen = self.look()
        if seen is None:
            raise SchemaMismatch(f"{self._client.place} is not a ledger yet; run oncegate migrate")
        if may_write:
            self.keep(seen)
        return self.now(seen)

    def numbers(self, ticks: int, above: int = 0) -> int:
        """A number for a fence or a log record: it grows with time, and is above those given before."""
        with self._lock:
            self._last_number = max(self._last_number + 1, ticks << FENCE_BITS, above + 1)
            return self._last_number

    def server_seconds(self) -> int | None:
        """The service's wall clock, for the time to live, which the service compares with its own.

        None where the endpoint does not tell its clock: then nothing is given a time to live.
        """
        with self._lock:
            return self._server_now() // 1000 if self._server_base[0] else None

    def removal(self, keep_s: int) -> int | None:
        """The time to live of an entry that becomes final now; None where it has none."""
        now = self.server_seconds()
        return None if now is None else now + keep_s

    def _server_now(self) -> int:
        server, machine = self._server_base
        return server + max(0, self._clock.ticks_ms() - machine)

    def _read(self) -> tuple[Item | None, Answer]:
        answer = self._client.read(
            "get_item", TableName=self._client.table, Key={"k": binary(META_KEY)}, ConsistentRead=True
        )
        return answer.get("Item"), answer

    def _ticks(self, found: Moment, server: int | None) -> int:
        """What the time is now, by the item."""
        machine = self._clock.ticks_ms()
        if (
            self._base is not None
            and self._seen == (found.identity, found.count)
            and machine >= self._base[1]
        ):
            return self._base[0] + min(machine - self._base[1], PAUSE_MAX_MS)  # not written since
        passed = 0 if server is None else max(0, min(server - found.server, PAUSE_MAX_MS))
        return max(found.ticks + passed, self._told)

    def _take(self, found: Moment, ticks: int, answer: Answer) -> None:
        machine, server = self._clock.ticks_ms(), server_ms(answer)
        self._base, self._seen = (ticks, machine), (found.identity, found.count)
        if server is not None:
            guess = found.server + ticks - found.ticks
            is_near = server <= guess < server + _SECOND_MS  # the service tells whole seconds
            self._server_base = (guess if is_near else server, machine)
