"""The endpoint book: endpoints as the ledger's registry keeps them, remembered for a moment.

Every process that emits or delivers reads it; a change is seen by all within `FRESH_MS`. Threads ask `get`
and `all`, which may read the ledger; tasks ask `find` and `list_all`, which let a thread read it, so that
an event loop never waits. Adding, changing and removing name who and why, and leave a log record that holds
no secret.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from oncegate.clock import Clock
from oncegate.commit.group_commit import GroupCommit
from oncegate.commit.registry_operations import ChangeDocument
from oncegate.errors import BadEndpoint, StoreBusy, StoreError, UnknownEndpoint
from oncegate.sender.addresses import AddressPolicy
from oncegate.sender.connector import look_up
from oncegate.sender.endpoints import Endpoint, checked, decode_endpoint, encode_endpoint
from oncegate.sender.registration import LookUp, judge_name
from oncegate.store import Document, DocumentChange, Session
from oncegate.store.registry import ENDPOINT_KIND

KIND: Final = ENDPOINT_KIND
FRESH_MS: Final = 2_000  # how long a change may go unnoticed by another process
ENDPOINTS_MAX: Final = 1_000
TRIES_MAX: Final = 5


def followers(session: Session) -> list[str]:
    """The endpoints that get what is published for a tenant."""
    known = (decode_endpoint(document.body) for document in session.documents(KIND))
    return [endpoint.name for endpoint in known if endpoint.follows is not None]


class EndpointChange(Struct, frozen=True):
    """Who changes an endpoint, and why."""

    actor: str
    reason: str


class EndpointBook:
    """The endpoints of one ledger."""

    def __init__(
        self, commits: GroupCommit, clock: Clock, policy: AddressPolicy, resolve: LookUp = look_up
    ) -> None:
        self._commits = commits
        self._clock = clock
        self.policy = policy
        self._resolve = resolve
        self._known: dict[str, Endpoint] = {}
        self._read_at_ms: int | None = None
        self._forgotten = 0
        self._reading: asyncio.Task[None] | None = None

    def get(self, name: str) -> Endpoint:
        """Finds an endpoint; raises UnknownEndpoint naming those there are."""
        endpoint = self._fresh().get(name)
        if endpoint is None:  # perhaps it was added a moment ago
            self.forget()
            endpoint = self._fresh().get(name)
        return endpoint or self._missing(name)

    async def find(self, name: str) -> Endpoint:
        """Finds an endpoint from a task; as `get`."""
        endpoint = self.peek(name)
        if endpoint is None:
            endpoint = (await self._freshened()).get(name)
        if endpoint is None:
            self.forget()
            endpoint = (await self._freshened()).get(name)
        return endpoint or self._missing(name)

    def peek(self, name: str) -> Endpoint | None:
        """An endpoint that is known well enough not to read anything; None says nothing."""
        return None if self._is_stale() else self._known.get(name)

    def _missing(self, name: str) -> Endpoint:
        names = ", ".join(sorted(self._known)[:10]) or "none"
        raise UnknownEndpoint(f"no endpoint is called {name[:60]!r}; there are: {names}")

    def all(self) -> list[Endpoint]:
        """All endpoints, by name."""
        return [endpoint for _, endpoint in sorted(self._fresh().items())]

    async def list_all(self) -> list[Endpoint]:
        """All endpoints, by name, for a task."""
        return [endpoint for _, endpoint in sorted((await self._freshened()).items())]

    def forget(self) -> None:
        """Reads again at the next question."""
        self._forgotten += 1
        self._read_at_ms = None

    def _is_stale(self) -> bool:
        read_at = self._read_at_ms
        return read_at is None or not 0 <= self._clock.ticks_ms() - read_at < FRESH_MS

    def _fresh(self) -> dict[str, Endpoint]:
        if self._is_stale():
            self._read()
        return self._known

    async def _freshened(self) -> dict[str, Endpoint]:
        """Lets a thread read, once for all tasks that ask meanwhile."""
        if self._is_stale():
            loop, reading = asyncio.get_running_loop(), self._reading
            if reading is None or reading.done() or reading.get_loop() is not loop:
                reading = self._reading = loop.create_task(asyncio.to_thread(self._read))
            await asyncio.shield(reading)
        return self._known

    def _read(self) -> None:
        now, forgotten = self._clock.ticks_ms(), self._forgotten
        try:
            self._known = {one.name: decode_endpoint(one.body) for one in self._documents()}
        except StoreError:
            if not self._known:
                raise
            # The store is away: what was known goes on, or every delivery would fail and count.
        if forgotten == self._forgotten:  # else something was changed while we read
            self._read_at_ms = now

    def _documents(self) -> list[Document]:
        store = self._commits.store
        if not store.exists():
            return []
        with store.look() as session:
            return session.documents(KIND)

    def add(self, endpoint: Endpoint, change: EndpointChange) -> str | None:
        """Adds an endpoint and returns a warning if its host has no address here.

        Raises BadEndpoint if there is one of that name, or if its host has an address that is blocked.
        """
        warning = self._judged(checked(endpoint, self.policy))
        if len(self._fresh()) >= ENDPOINTS_MAX:
            raise BadEndpoint(f"there are {ENDPOINTS_MAX} endpoints already")
        if endpoint.follows is not None:
            self._check_unused(endpoint.name)
        if not self._write(endpoint.name, 0, encode_endpoint(endpoint), change, "added"):
            raise BadEndpoint(f"there is an endpoint called {endpoint.name!r} already")
        return warning

    def _judged(self, endpoint: Endpoint) -> str | None:
        """Resolves the endpoint's hosts, so that a blocked address is refused before the first event."""
        found = [judge_name(one, self.policy, self._resolve) for one in endpoint.addresses(self.policy)]
        return next((warning for warning in found if warning is not None), None)

    def _check_unused(self, name: str) -> None:
        """A follower's lanes must have no gaps, so it cannot go on with those of an earlier endpoint."""
        store = self._commits.store
        if not store.exists():
            return
        with store.look() as session:
            if any(one.name == name for one in session.destinations()):
                raise BadEndpoint(f"events were sent to an endpoint {name} before; choose another name")

    def change(
        self, name: str, make: Callable[[Endpoint], Endpoint], change: EndpointChange, what: str
    ) -> Endpoint:
        """Changes an endpoint from whatever it is now; `what` goes into the log."""
        for _ in range(TRIES_MAX):
            found = self._stored(name)
            old = decode_endpoint(found.body)
            new = checked(make(old), self.policy)
            if new.follows != old.follows:
                raise BadEndpoint(f"what {name} follows cannot be changed; add an endpoint of another name")
            if new.url != old.url:
                self._judged(new)
            if self._write(name, found.version, encode_endpoint(new), change, what):
                return new
        raise StoreBusy(f"endpoint {name!r} is being changed by others; try again")

    def remove(self, name: str, change: EndpointChange) -> None:
        """Removes an endpoint; events that wait for it stay and wait."""
        for _ in range(TRIES_MAX):
            if self._write(name, self._stored(name).version, None, change, "removed"):
                return
        raise StoreBusy(f"endpoint {name!r} is being changed by others; try again")

    def _stored(self, name: str) -> Document:
        self.get(name)
        for document in self._documents():
            if document.name == name:
                return document
        raise UnknownEndpoint(f"no endpoint is called {name[:60]!r}")

    def _write(
        self, name: str, version: int, body: bytes | None, change: EndpointChange, what: str
    ) -> bool:
        note = f"endpoint {name} {what}: {change.reason}"
        now_ms = self._clock.wall_ms()
        wanted = DocumentChange(KIND, name, version, body, now_ms, change.actor, note[:300])
        try:
            return self._commits.submit(ChangeDocument(wanted))
        finally:
            self.forget()
