"""Plays the whole crash matrix, writes its record and the table on docs/proof.md: `make matrix`.

python -m lab.crash_matrix              every cell; one that was played before is played again
python -m lab.crash_matrix --resume     only cells that the record has not got
python -m lab.crash_matrix --page       only writes the table anew, from the record
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
from pathlib import Path

from lab.crash_matrix import history_cells
from lab.crash_matrix.cells import all_cells
from lab.crash_matrix.gate_cells import SCENARIOS
from lab.crash_matrix.history_cells import play_history, read_record
from lab.crash_matrix.stage import stage
from lab.crash_matrix.table import PAGE, RECORD, Record, page_with, rendered
from oncegate.stores.postgres import store as postgres_store
from oncegate.testing.postgres import PostgresServer
from oncegate.testing.spare_ledgers import SpareLedgers

STATEMENT_WAIT_MS = 2_000  # how long a worker waits for a row that one who stands still has locked


def main() -> int:
    """Plays, keeps what was found after each cell, and publishes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--resume", action="store_true", help="only cells that the record has not got")
    parser.add_argument("--page", action="store_true", help="only write the table anew")
    parser.add_argument("--handlers", type=int, default=len(SCENARIOS), help="at most so many in a cell")
    arguments = parser.parse_args()
    keeps = arguments.resume or arguments.page
    record, history = (_read(), read_record()) if keeps else ({}, {})
    failed = [] if arguments.page else _play(record, history, arguments.handlers)
    if failed:
        sys.stdout.write("\n".join([*failed, ""]))
        return 1
    page = page_with(PAGE.read_text("utf-8"), rendered(record))
    PAGE.write_text(page_with(page, history_cells.rendered(history), history_cells.MARKS), "utf-8")
    return 0


def _read() -> Record:
    return json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {}


def _play(record: Record, history: Record, handlers_max: int) -> list[str]:
    postgres_store.STATEMENT_WAIT_MS = STATEMENT_WAIT_MS  # type: ignore[misc]
    failed = []
    gc.freeze()  # what is there already is not copied for each of thousands of processes
    with (
        tempfile.TemporaryDirectory() as folder,
        PostgresServer(in_memory=True) as server,
        stage(Path(folder), server, ledgers := SpareLedgers(server)) as players,
    ):
        failed += play_history(Path(folder), ledgers, history, sys.stdout.write)
        for cell in all_cells():
            if cell.why_impossible or str(cell) in record:
                continue
            try:
                record[str(cell)] = players.play(cell, handlers_max).as_json()
            except AssertionError as error:
                failed.append(f"{cell}: {error}")
            RECORD.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
            sys.stdout.write(f"{cell}: {record.get(str(cell), 'FAILED')}\n")
            sys.stdout.flush()
    return failed


if __name__ == "__main__":
    sys.exit(main())
