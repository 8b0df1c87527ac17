"""The simulated ledger as a store: it passes the same conformance suite as the real ones.

`fault` says what goes wrong with a commit. It is asked once for every unit that writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, cast

from oncegate.clock import Clock
from oncegate.errors import StoreBusy, StoreUnavailable, StoreUnknown, UsageError
from oncegate.store import (
    AuditTrail,
    Capabilities,
    Census,
    Claims,
    Durability,
    Facet,
    Finding,
    Log,
    Migration,
    Pruning,
    Registry,
    Session,
)
from oncegate.store.incarnations import Incarnations, Sight
from oncegate.testing.simulation.census import SimulatedCensus
from oncegate.testing.simulation.claims import SimulatedClaims
from oncegate.testing.simulation.ledger import GoneLedger, Ledger, Tables
from oncegate.testing.simulation.registry import SimulatedRegistry

# Of review it has what the gate, the reconciler and the pruner ask.
_CAPABILITIES: Final = Capabilities(
    "simulated",
    Durability.MEMORY,
    1,
    AuditTrail.LOG,
    business_writes=True,
    is_local=False,
    facets=frozenset({Facet.CLAIMS, Facet.OPEN_ENTRIES, Facet.REVIEW}),
)
_MIGRATION: Final = Migration(1, "tables in memory", "", "")


class CommitFault(Enum):
    """What goes wrong with one commit, as a session notices it."""

    NONE = "nothing"
    LOST_REPLY = "committed, and the reply is lost"
    UNDONE = "undone, and the caller cannot know"
    DOWN = "the store cannot be reached"


def no_fault() -> CommitFault:
    """Nothing goes wrong."""
    return CommitFault.NONE


def fault_of(what_goes_wrong: Callable[[], CommitFault]) -> CommitFault:
    """What will go wrong with a transaction that begins now; raises if not even that is possible."""
    fault = what_goes_wrong()
    if fault is CommitFault.DOWN:
        raise StoreUnavailable("the store is down")
    return fault


class SimulatedUnit:
    """One transaction, whose commit may go wrong."""

    __slots__ = ("_fault", "_ledger", "_session", "_what_goes_wrong")

    def __init__(
        self, session: SimulatedSession, ledger: Ledger, what_goes_wrong: Callable[[], CommitFault]
    ) -> None:
        self._session = session
        self._ledger = ledger
        self._what_goes_wrong = what_goes_wrong
        self._fault = CommitFault.NONE

    def __enter__(self) -> None:
        self._fault = fault_of(self._what_goes_wrong)
        if not self._ledger.begin(self._session):
            raise StoreBusy("another session is writing")

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is not None:
            self._session.abort()
            return
        if self._ledger.writer is not self._session:
            raise StoreUnavailable("the connection was lost; nothing was changed")
        if self._fault is CommitFault.UNDONE:
            self._ledger.rollback()
        else:
            self._ledger.commit()
        if self._fault is not CommitFault.NONE:
            raise StoreUnknown("no reply to the commit")


class SimulatedSession(SimulatedClaims, SimulatedCensus, SimulatedRegistry):
    """One connection to the simulated ledger."""

    def __init__(self, ledger: Ledger, clock: Clock, fault: Callable[[], CommitFault] = no_fault) -> None:
        self._ledger = ledger
        self._tables = ledger.tables
        self._clock = clock
        self._fault = fault
        self._offset_ms = _offset(ledger.tables, clock)

    def now_ticks(self) -> int:
        """The ledger's own time, carried on over restarts of the machine."""
        return self._clock.ticks_ms() + self._offset_ms

    def unit(
        self, *, wait: bool = True, single: bool = False, patient: bool = True
    ) -> AbstractContextManager[None]:
        """One transaction."""
        return SimulatedUnit(self, self._ledger, self._fault)

    def abort(self) -> None:
        """Undoes what the session has open, as a server does when its client is gone."""
        if self._ledger.writer is self:
            self._ledger.rollback()

    def cut(self) -> None:
        """Ends the connection: its server is gone."""
        self._ledger = GoneLedger()

    def settle_doubt(self) -> None:
        """Nothing to do: what is not committed by now never will be."""

    def post(self, posting: object) -> bool:
        """Nothing to do: no process reads notices here."""
        return True

    def close(self) -> None:
        """Gives the connection back."""


class SimulatedReader(SimulatedSession):
    """One moment of a ledger, for reading."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        super().__init__(ledger, clock)
        self._tables = ledger.moment()


class SimulatedStore:
    """One simulated ledger, as one of its users sees it; `session_type` may be a broken one."""

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        fault: Callable[[], CommitFault] = no_fault,
        session_type: type[SimulatedSession] = SimulatedSession,
    ) -> None:
        self._ledger = ledger
        self._clock = clock
        self._fault = fault
        self._session_type = session_type
        self.is_down = False
        self._incarnations = Incarnations()
        self.sessions: list[SimulatedSession] = []

    @property
    def capabilities(self) -> Capabilities:
        """Like a server's: one commit after another, and a network in between."""
        return _CAPABILITIES

    @property
    def incarnations(self) -> Incarnations:
        """Which incarnation of the ledger the user has seen."""
        return self._incarnations

    @property
    def address(self) -> str:
        """Where it is: nowhere."""
        return "simulated:"

    def connect(self) -> SimulatedSession:
        """Opens a session."""
        self._check_up()
        if not self._ledger.exists:
            self.migrate()
        session = self._session_type(self._ledger, self._clock, self._fault)
        self.sessions.append(session)
        self._incarnations.check(Sight(self._ledger.identity, 0), lambda: cast("Session", session))
        return session

    def _check_up(self) -> None:
        if self.is_down:
            raise StoreUnavailable("the store is down")

    def disconnect(self) -> None:
        """Ends every session, as when the process that held them has died."""
        for session in self.sessions:
            session.abort()

    def cut(self) -> None:
        """Ends every connection, as a failover does; the process lives on."""
        for session in self.sessions:
            session.cut()
        self.sessions.clear()

    def knows(self, names: Any) -> bool:
        """Nothing needs to be known before."""
        return True

    def learn(self, names: Any) -> None:
        """Nothing to do."""

    def join(self, transaction: object) -> Any:
        """There is no library whose transactions could be joined."""
        raise UsageError("a simulated ledger has no transactions of users to join")

    def exists(self) -> bool:
        """Whether there was a connection yet."""
        return self._ledger.exists

    @contextmanager
    def look(self, *, again: bool = False) -> Iterator[SimulatedReader]:
        """One moment, read."""
        self._check_up()
        if not self._ledger.exists:
            raise StoreUnavailable("there is no ledger yet")
        yield SimulatedReader(self._ledger, self._clock)

    def close(self) -> None:
        """Nothing is kept."""

    def pending_migrations(self) -> list[Migration]:
        """One, until the first connection."""
        return [] if self._ledger.exists else [_MIGRATION]

    def migrate(self) -> list[Migration]:
        """Makes the ledger exist."""
        pending, self._ledger.exists = self.pending_migrations(), True
        return pending

    def make_room(self, now_ms: int) -> list[str]:
        """Nothing to do."""
        return []

    def examine(self) -> list[Finding]:
        """Says that it is only simulated."""
        return [Finding(True, "ledger", "in memory, for simulations")]


def _offset(tables: Tables, clock: Clock) -> int:
    """The offset of this boot: ticks go on at the latest lease that is still held."""
    if tables.meta.get("boot") != clock.boot_id():
        times = [
            max(row.lease_until_ticks or 0, row.first_reserved or 0)
            for row in tables.rows.values()
            if not row.state.is_final
        ]
        tables.meta["boot"], tables.meta["ticks_offset"] = (
            clock.boot_id(),
            max(times, default=0) - clock.ticks_ms(),
        )
    return int(tables.meta["ticks_offset"])


if TYPE_CHECKING:
    # Whoever changes the contract is told here that the simulated store has to follow.

    def _as_claims(session: SimulatedSession) -> Claims:
        return session

    def _as_log(session: SimulatedSession) -> Log:
        return session

    def _as_census(session: SimulatedSession) -> Census:
        return session

    def _as_pruning(session: SimulatedSession) -> Pruning:
        return session

    def _as_registry(session: SimulatedSession) -> Registry:
        return session
