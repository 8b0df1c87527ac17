"""pgbench with the same transactions: the limit that the gate on PostgreSQL is measured against."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from oncegate.testing.postgres import PostgresServer

# What a careful hand-written program sends: reserve; then settle with outcome, log line and business row.
_RESERVE: Final = """
INSERT INTO bench_claim (key, state, at) VALUES (:key::text || '-' || :client_id, 1, 0)
ON CONFLICT (key) DO NOTHING;
INSERT INTO bench_event (key, body) VALUES (:key::text || '-' || :client_id, repeat('x', 480))
ON CONFLICT DO NOTHING;
"""
_SETTLE: Final = """
UPDATE bench_claim SET state = 2 WHERE key = :key::text || '-' || :client_id AND state = 1;
INSERT INTO bench_outcome (key, body) VALUES (:key::text || '-' || :client_id, '{"slot": "0123456789"}')
ON CONFLICT DO NOTHING;
INSERT INTO bench_log (key, state, at) VALUES (:key::text || '-' || :client_id, 2, 0);
INSERT INTO booking (equipment, slot) VALUES ('MSKU0000001', '0123456789');
"""
_KEY: Final = "\\set key random(1, 1000000000000)\n"
SCRIPTS: Final = {
    "two transactions": f"{_KEY}BEGIN;{_RESERVE}COMMIT;\nBEGIN;{_SETTLE}COMMIT;\n",
    "one transaction": f"{_KEY}BEGIN;{_RESERVE}{_SETTLE}COMMIT;\n",
}
THREADS: Final = 2
TABLES: Final = (
    "CREATE TABLE bench_claim (key text PRIMARY KEY, state int, at bigint) WITH (fillfactor = 85)",
    "CREATE TABLE bench_event (key text PRIMARY KEY, body text)",
    "CREATE TABLE bench_outcome (key text PRIMARY KEY, body text)",
    "CREATE TABLE bench_log (id bigserial PRIMARY KEY, key text, state int, at bigint)",
)


def run_pgbench(
    server: PostgresServer, url: str, script: str, clients: int, seconds: int
) -> tuple[float, float]:
    """Runs a script and returns events a second and the average latency in milliseconds."""
    database = url.partition("?")[0].rpartition("/")[2]
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        file.write(SCRIPTS[script])
        file.flush()
        done = subprocess.run(
            [
                str(server.programs / "pgbench"),
                *("-n", "-M", "prepared", "-f", str(Path(file.name))),
                *("-c", str(clients), "-j", str(min(clients, THREADS)), "-T", str(seconds)),
                *("-h", str(server.folder), "-U", "oncegate", database),
            ],
            capture_output=True,
            text=True,
            check=True,
        )
    return _number(r"tps = ([\d.]+)", done.stdout), _number(r"latency average = ([\d.]+)", done.stdout)


def _number(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    return float(found.group(1)) if found else 0.0
