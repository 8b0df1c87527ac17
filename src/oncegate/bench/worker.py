"""One of several processes that share a ledger: admits events of its own for as long as it is told.

It says when it is ready and waits for the word, so that no process is measured while another still starts.
"""

from __future__ import annotations

import asyncio
import json
import sys
from time import perf_counter, process_time
from typing import Final

from oncegate.bench.workload import event_blocks, events_for, open_gate, run_gate

READY: Final = "ready"
WARM_EACH: Final = 8  # a server plans a statement anew the first five times on each connection


def main(url: str, tasks: int, prefix: str) -> None:
    """Warms up, says so, reads for how many seconds to run, and prints what came of it.

    Begin and end are on the machine's common clock; beside them events and processor time.
    """
    with open_gate(url) as gate:
        asyncio.run(run_gate(gate, event_blocks(tasks * WARM_EACH, prefix=f"{prefix}-warm")(), tasks))
        _say(READY)
        seconds = float(sys.stdin.readline())
        begun, used = perf_counter(), process_time()
        sample = asyncio.run(run_gate(gate, events_for(seconds, prefix), tasks))
        ended, used = perf_counter(), process_time() - used
    answer = {"begun": begun, "ended": ended, "events": sample.events, "processor": used}
    _say(json.dumps(answer))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
