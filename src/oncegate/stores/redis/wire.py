"""Connections to the servers of a ledger: pipelines by slot, functions that are loaded when missing.

One wire is used by one thread at a time. A cluster has one connection a primary. A primary that cannot be
reached when the wire opens is away: commands for its slots raise PartUnavailable, those for others go on.
It is tried again with the next wire, where it is compared before it is used. A command that the server
certainly did not run (a missing function, a slot that moved) is sent again; nothing else is. Must never
send a command twice that may have run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import redis
from redis.crc import key_slot

from oncegate.clock import Clock, SystemClock
from oncegate.errors import PartUnavailable, StoreUnavailable, StoreUnknown
from oncegate.stores.redis import failures
from oncegate.stores.redis.address import RedisAddress
from oncegate.stores.redis.connection import (
    CONNECT_AGAIN_SECONDS,
    CONNECT_SECONDS,
    Command,
    RedisConnection,
    Where,
)
from oncegate.stores.redis.functions import LIBRARY, Call, library

AWAY_MS: Final = 2_000  # before a server that was away is tried again
WAIT_MS: Final = 2_000  # for replicas; then the write counts as doubtful
ROUNDS_MAX: Final = 4  # a function that is loaded, and slots that move meanwhile
TAGS: Final = 64  # hash tags, so also the largest number of primaries that share the load
_MISSING: Final = ("NOSCRIPT", "Function not found", "ERR Function not found")


class TaggedCommand(NamedTuple):
    """A command about keys of one tag."""

    tag: int
    command: Command


class _Asked(NamedTuple):
    """Where a request that has to be sent again goes, and whether a slot is being moved there."""

    place: int
    where: Where
    asking: bool


class Outages:
    """Servers of a cluster that this process knows, and which of them were away lately."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self.nodes: set[Where] = set()
        self._since: dict[Where, int] = {}

    def lost(self, where: Where) -> None:
        """A server could not be reached just now."""
        self._since[where] = self._clock.ticks_ms()

    def found(self, where: Where) -> None:
        """A server answers."""
        self._since.pop(where, None)

    def is_due(self, where: Where) -> bool:
        """Whether it is time to try a server again."""
        return self._clock.ticks_ms() - self._since.get(where, 0) >= AWAY_MS

    def connect_seconds(self, where: Where) -> float:
        """How long to wait for a connection."""
        return CONNECT_AGAIN_SECONDS if where in self._since else CONNECT_SECONDS


class RedisWire:
    """What one session sends through."""

    def __init__(self, address: RedisAddress, known: Outages | None = None) -> None:
        self._address = address
        self._known = known or Outages()
        self.away: dict[Where, StoreUnavailable] = {}
        self._seed: Where = (address.host, address.port)
        self._connections: dict[Where, RedisConnection] = {}
        self._nodes: list[Where] = [self._seed] * TAGS
        self._slots: list[tuple[int, int, Where]] = []
        self._by_name = True
        self.is_cluster = False
        self.is_broken = False

    def open(self, *, is_cluster: bool) -> None:
        """Finds the servers of all tags and connects to each."""
        self.is_cluster = is_cluster
        if is_cluster:
            self._learn_slots()
            self._known.nodes = set(self._nodes)
        for where in set(self._nodes):
            try:
                self._connection(where)
            except StoreUnavailable as error:
                if not is_cluster:
                    raise
                self.away[where] = error
                self._known.lost(where)

    def find_seed(self) -> None:
        """Takes a server that answers for the one that the address names, where that is away."""
        for where in [self._seed, *sorted(self._known.nodes - {self._seed})]:
            try:
                self._connection(where)
            except StoreUnavailable:
                if where == self._seed and not self._known.nodes:
                    raise
                continue
            self._seed = where
            return
        self._connection(self._seed)

    @property
    def servers(self) -> list[Where]:
        """The servers that hold tags and can be reached, in a fixed order."""
        return sorted(set(self._nodes) - set(self.away))

    @property
    def tags(self) -> Sequence[int]:
        """The tags whose servers can be reached."""
        if not self.away:
            return range(TAGS)
        return [tag for tag, where in enumerate(self._nodes) if where not in self.away]

    def ask(self, where: Where | None, *command: bytes | str | int) -> Any:
        """Sends one command that changes nothing to one server; raises what it answers."""
        where = where or self._seed
        connection = self._connection(where)
        try:
            connection.send([command])
            answer = connection.read()
        except (redis.exceptions.RedisError, OSError) as error:
            self._break()
            raise failures.unreachable(error, self._name(where)) from error
        if isinstance(answer, Exception):
            raise answer
        return answer

    def ask_key(self, key: bytes, *command: bytes) -> Any:
        """Sends one command about a key that has no tag of ours; an error of the server is its answer."""
        if not self.is_cluster:
            where = self._seed
        else:
            slot = key_slot(key)
            where = self._owner(slot)
        try:
            return self.ask(where, *command)
        except redis.exceptions.ResponseError as error:
            return error

    def call(self, call: Call, tag: int, keys: Sequence[bytes], arguments: Iterable[Any]) -> TaggedCommand:
        """A request that calls a function; the head says how it is named on the servers."""
        head = call.by_name if self._by_name else call.by_digest
        return TaggedCommand(tag, (*head, *keys, *arguments))

    def exchange(self, requests: Sequence[TaggedCommand], *, writes: bool) -> list[Any]:
        """Sends requests in one go a server; returns answers in order, errors of the server among them."""
        answers: list[Any] = [None] * len(requests)
        round_ = [_Asked(place, self._nodes[request.tag], False) for place, request in enumerate(requests)]
        for number in range(ROUNDS_MAX):
            self._round(round_, requests, answers, writes)
            is_last = number == ROUNDS_MAX - 1
            round_ = [] if is_last else self._again(round_, requests, answers)
            if not round_:
                break
        return answers

    def _round(
        self, asked: list[_Asked], requests: Sequence[TaggedCommand], answers: list[Any], writes: bool
    ) -> None:
        by_node: dict[Where, list[_Asked]] = {}
        for one in asked:
            by_node.setdefault(one.where, []).append(one)
        connections = {where: self._connection(where) for where in by_node}
        try:
            for where, some in by_node.items():
                self._send(connections[where], some, requests, writes)
            for where, some in by_node.items():
                self._receive(connections[where], some, answers, writes)
        except (redis.exceptions.RedisError, OSError) as error:
            self._break()
            shown = self._name(self._seed)
            # An error that ends the connection was answered: no command before it was run.
            if isinstance(error, redis.exceptions.AuthenticationError | redis.exceptions.BusyLoadingError):
                raise failures.translate(error, shown) from error
            raise (failures.lost if writes else failures.unreachable)(error, shown) from error
        except BaseException:
            self._break()  # unread answers would be taken for those of the next commands
            raise

    def _send(
        self,
        connection: RedisConnection,
        asked: list[_Asked],
        requests: Sequence[TaggedCommand],
        writes: bool,
    ) -> None:
        commands: list[Command] = []
        for one in asked:
            if one.asking:
                commands.append(("ASKING",))
            commands.append(requests[one.place].command)
        if writes and (wait := self._wait_command()) is not None:
            commands += [self._marked(asked, requests), wait]
        connection.send(commands)

    def _receive(
        self, connection: RedisConnection, asked: list[_Asked], answers: list[Any], writes: bool
    ) -> None:
        for one in asked:
            if one.asking:
                connection.read()
            answers[one.place] = connection.read()
        if writes and self._wait_command() is not None:
            connection.read()
            self._check_waited(connection.read())

    def _wait_command(self) -> Command | None:
        if self._address.wait:
            return ("WAIT", self._address.wait, WAIT_MS)
        if self._address.wait_synced:
            return ("WAITAOF", 1, self._address.wait_synced, WAIT_MS)
        return None

    def _marked(self, asked: list[_Asked], requests: Sequence[TaggedCommand]) -> Command:
        """A write of this connection's own: waiting for it waits for all that was read before, too."""
        keys = requests[asked[0].place].command[3:6]
        head = Call.SETTLE_DOUBT.by_name if self._by_name else Call.SETTLE_DOUBT.by_digest
        return (*head, *keys, b"")

    def _check_waited(self, answer: Any) -> None:
        wanted = self._address.wait or self._address.wait_synced
        if isinstance(answer, Exception):
            raise StoreUnknown(
                f"{self._name(self._seed)}: replicas were not asked: {failures.said(answer)}"
            )
        reached = answer[1] if isinstance(answer, list) else answer
        if reached < wanted:
            raise StoreUnknown(
                f"{self._name(self._seed)}: {reached} of {wanted} replicas have it after {WAIT_MS} ms"
            )

    def _again(
        self, asked: list[_Asked], requests: Sequence[TaggedCommand], answers: list[Any]
    ) -> list[_Asked]:
        """Requests that were certainly not run, and where to send them now."""
        again: list[_Asked] = []
        moved = False
        for one in asked:
            answer = answers[one.place]
            if isinstance(answer, redis.exceptions.MovedError):
                moved = True
                again.append(one)
            elif isinstance(answer, redis.exceptions.AskError):
                again.append(_Asked(one.place, (answer.host or self._seed[0], answer.port), True))
            elif isinstance(answer, redis.exceptions.ResponseError) and _is_missing(answer):
                self.load(one.where)
                again.append(one)
        if moved:
            self._learn_slots()
            if not set(self._nodes) - set(self.away) <= set(self._connections):
                # Another server has taken over, and may lack records: it is compared when a session opens.
                self.is_broken = True
                raise StoreUnknown(f"{self._name(self._seed)}: another server has taken over its slots")
        return [
            one if one.asking else one._replace(where=self._nodes[requests[one.place].tag]) for one in again
        ]

    def load(self, where: Where) -> None:
        """Loads the functions: as a library, or as scripts where the server allows no library."""
        if self._by_name:
            try:
                self.ask(where, "FUNCTION", "LOAD", library())
                return
            except redis.exceptions.ResponseError as error:
                if "already exists" in str(error):
                    return
                if isinstance(error, redis.exceptions.ReadOnlyError | redis.exceptions.OutOfMemoryError):
                    raise failures.translate(error, self._name(where)) from error
        self._by_name = False
        try:
            for call in Call:
                self.ask(where, "SCRIPT", "LOAD", call.script)
        except redis.exceptions.ResponseError as error:
            raise failures.translate(error, self._name(where)) from error

    @property
    def loaded_as(self) -> str:
        """How the functions are kept on the server."""
        return f"function library {LIBRARY}" if self._by_name else "scripts"

    def _learn_slots(self) -> None:
        try:
            ranges = self.ask(None, "CLUSTER", "SLOTS")
        except redis.exceptions.ResponseError as error:
            raise failures.translate(error, self._name(self._seed)) from error
        self._slots = [
            (first, last, (bytes(primary[0] or b"").decode() or self._seed[0], int(primary[1])))
            for first, last, primary, *_ in ranges
        ]
        self._nodes = [self._owner(key_slot(tag_name(tag))) for tag in range(TAGS)]

    def _owner(self, slot: int) -> Where:
        for first, last, where in self._slots:
            if first <= slot <= last:
                return where
        raise StoreUnavailable(
            f"{self._name(self._seed)}: no server of the cluster has slot {slot}; run CLUSTER SHARDS"
        )

    @property
    def is_stale(self) -> bool:
        """Whether a server has closed its connection, or one that was away is to be tried again."""
        if self.is_broken or any(one.is_closed for one in self._connections.values()):
            return True
        return any(self._known.is_due(where) for where in self.away)

    def _connection(self, where: Where) -> RedisConnection:
        if self.is_broken:
            raise StoreUnavailable(f"{self._name(where)}: the connection is closed")
        if where in self.away:
            raise PartUnavailable(f"a part of the cluster is away, other keys go on: {self.away[where]}")
        found = self._connections.get(where)
        if found is None:
            seconds = self._known.connect_seconds(where)
            found = RedisConnection(self._address, where, self._name(where), seconds)
            self._connections[where] = found
            self._known.found(where)
        return found

    def _name(self, where: Where) -> str:
        return (
            self._address.shown if where == self._seed else f"{self._address.shown} ({where[0]}:{where[1]})"
        )

    def _break(self) -> None:
        self.is_broken = True
        self.close()

    def close(self) -> None:
        """Closes every connection; never raises."""
        while self._connections:
            _, connection = self._connections.popitem()
            connection.close()


def _is_missing(error: Exception) -> bool:
    return isinstance(error, redis.exceptions.NoScriptError) or str(error).startswith(_MISSING)


def tag_name(tag: int) -> bytes:
    """The text of a hash tag."""
    return b"%02x" % tag
