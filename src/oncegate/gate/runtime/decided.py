"""What people decided about surfaces, as this process obeys it: read at its first event, then by a thread.

The gate's thread for sightings reads the ledger about every two seconds. Must never delay an arrival, and
never let one pass in a process that has not read what was decided; a surface that observes does not wait.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from oncegate.clock import Clock
from oncegate.commit.registry_operations import ReadDocuments
from oncegate.errors import ConfigError
from oncegate.gate.driver.requests import Flow, Invoke, Where
from oncegate.model.surface_decisions import KIND, SurfaceDecisions, read_decisions
from oncegate.store import Document, Facet, Store

READ_EVERY_MS: Final = 1_500

log: Final = logging.getLogger("oncegate.surfaces")


class Obeys(Protocol):
    """A gate's surfaces."""

    def decide(self, name: str, decided: SurfaceDecisions) -> None:
        """Obeys a decision."""


class DecidedSurfaces:
    """The decisions of one ledger, and how far this process has read them."""

    def __init__(self, surfaces: Obeys, names: Callable[[], list[str]], store: Store, clock: Clock) -> None:
        self._surfaces, self._names, self._store, self._clock = surfaces, names, store, clock
        self._obeyed: dict[str, bytes | None] = {}
        self._read_at_ms: int | None = None
        self.has_any = Facet.REVIEW in store.capabilities.facets
        self.was_tried = not self.has_any  # whether the ledger was asked once, answer or not
        self.refused: dict[str, str] = {}  # by surface: why this process does not obey

    @property
    def is_read(self) -> bool:
        """Whether this process knows what is decided about every surface it has."""
        return not self.has_any or (
            self._read_at_ms is not None and self._obeyed.keys() >= {*self._names()}
        )

    def read(self) -> None:
        """Reads the ledger and obeys; raises StoreError where it does not answer."""
        if not self.has_any:
            return
        try:
            with self._store.look() as session:
                found = session.documents(KIND)
            self._obey_all(found)
        finally:
            self.was_tried = True  # last: a first event waits for it

    def read_flow(self) -> Flow[None]:
        """The same for an event. Those that come at once read a server in one batch, on one connection."""
        if self._store.capabilities.is_local:
            yield Invoke(self.read, where=Where.STATEMENT)
            return
        try:
            found: list[Document] = yield ReadDocuments(KIND)
            self._obey_all(found)
        finally:
            self.was_tried = True  # as above

    def _obey_all(self, found: Sequence[Document]) -> None:
        bodies = {one.name: one.body for one in found}
        for name in self._names():
            self._obey(name, bodies.get(name))
        self._read_at_ms = self._clock.ticks_ms()

    def _obey(self, name: str, body: bytes | None) -> None:
        if name in self._obeyed and self._obeyed[name] == body:
            return
        if body is not None or self._obeyed.get(name) is not None:
            try:
                self._surfaces.decide(name, read_decisions(body))
                self.refused.pop(name, None)
            except ConfigError as error:
                self.refused[name] = str(error)
                log.error("%s: a decision is not obeyed here: %s", name, error)
        self._obeyed[name] = body

    def read_in_turn(self) -> None:
        """Reads if it is time to, from the thread; an error means that the last word still stands."""
        if self._read_at_ms is not None and self._clock.ticks_ms() - self._read_at_ms < READ_EVERY_MS:
            return
        try:
            self.read()
        except Exception:  # noqa: BLE001  the thread goes on, and tries again
            return
