"""Where cells of either ledger are played: a ledger file, a server, terminals, and the players on them."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

from lab.crash_matrix.cells import Cell, Finding, Ledger
from lab.crash_matrix.gate_cells import SCENARIOS, GateCells
from lab.crash_matrix.lane_cells import LaneCells
from lab.crash_matrix.restore_cells import RestorableDatabase, RestorableFile, RestoreCells
from lab.crash_matrix.server_site import ServerSite
from lab.crash_matrix.site import Site, started_terminals
from oncegate.store import Store
from oncegate.stores.postgres import PostgresStore
from oncegate.stores.sqlite import SqliteStore
from oncegate.testing import SharedClock
from oncegate.testing.postgres import GivenServer, PostgresServer
from oncegate.testing.spare_ledgers import SpareLedgers


class Stage:
    """Players for every cell; the gate's share one ledger of each kind, each cell of lanes has its own."""

    def __init__(
        self,
        gates: dict[Ledger, GateCells],
        lanes: dict[Ledger, LaneCells],
        restores: dict[Ledger, RestoreCells],
    ) -> None:
        self._gates = gates
        self._lanes = lanes
        self._restores = restores

    def play(self, cell: Cell, handlers_max: int = len(SCENARIOS)) -> Finding:
        """Plays a cell that can exist; what was struck is never nothing."""
        if cell.is_of_lanes:
            found = self._lanes[cell.ledger].play(cell)
        elif cell.is_of_restores:
            found = self._restores[cell.ledger].play(cell)
        else:
            found = self._gates[cell.ledger].play(cell, handlers_max)
        assert found.strikes, f"{cell}: nobody ever came here"
        return found


@contextlib.contextmanager
def stage(
    folder: Path,
    server: PostgresServer | GivenServer,
    spare: SpareLedgers,
) -> Iterator[Stage]:
    """Everything set up; terminals end with it."""
    files = itertools.count()

    def new_file() -> Callable[[SharedClock], Store]:
        path = folder / f"lanes-{next(files)}.db"
        return lambda clock: SqliteStore(path, clock=clock)

    with started_terminals(folder) as terminals, contextlib.ExitStack() as taken:

        def new_database() -> Callable[[SharedClock], Store]:
            url = spare.take()
            taken.callback(spare.give_back, url)
            return lambda clock: PostgresStore(url, clock=clock)

        on_server = ServerSite(Path("server"), terminals, url=server.new_database())
        taken.callback(on_server.close)
        gates = {
            Ledger.SQLITE: GateCells(Site(folder / "ledger.db", terminals)),
            Ledger.POSTGRES: GateCells(on_server),
        }
        lanes = {
            Ledger.SQLITE: LaneCells(new_file, folder),
            Ledger.POSTGRES: LaneCells(new_database, folder),
        }
        restores = {
            Ledger.SQLITE: RestoreCells(lambda place: RestorableFile(place / "ledger.db"), folder),
            Ledger.POSTGRES: RestoreCells(lambda _: RestorableDatabase(server.new_database()), folder),
        }
        yield Stage(gates, lanes, restores)
