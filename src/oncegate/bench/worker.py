"""One of several processes that share a ledger: admits events of its own and prints when."""

from __future__ import annotations

import asyncio
import json
import sys
from time import perf_counter, process_time

from oncegate.bench.workload import event_blocks, open_gate, run_gate


def main(url: str, events: int, tasks: int, prefix: str) -> None:
    """Warms up, runs, and prints begin and end on the machine's common clock, and its processor time."""
    gate = open_gate(url)
    blocks = event_blocks(events, prefix=prefix)
    asyncio.run(run_gate(gate, blocks()[: tasks * 2], tasks))
    begun, used = perf_counter(), process_time()
    asyncio.run(run_gate(gate, blocks(), tasks))
    ended, used = perf_counter(), process_time() - used
    gate.close()
    sys.stdout.write(json.dumps({"begun": begun, "ended": ended, "events": events, "processor": used}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
