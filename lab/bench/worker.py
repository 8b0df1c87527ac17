"""One of several processes that share a ledger: admits events of its own for as long as it is told.

It says when it is ready and waits for the word, so that no process is measured while another still starts.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter, process_time
from typing import Final

from lab.bench.joined import is_joined, open_joined_gate
from oncegate.bench.workload import event_blocks, events_for, open_gate, run_gate
from oncegate.wiring import Gate

READY: Final = "ready"
WARM_EACH: Final = 8  # a server plans a statement anew the first five times on each connection


async def main(url: str, mode: str, tasks: int, prefix: str) -> None:
    """Warms up, says so, reads for how many seconds to run, and prints what came of it.

    Begin and end are on the machine's common clock; beside them events and processor time.
    """
    async with _opened(url, mode, tasks) as gate:
        await run_gate(gate, event_blocks(tasks * WARM_EACH, prefix=f"{prefix}-warm")(), tasks)
        _say(READY)
        seconds = float(sys.stdin.readline())
        begun, used = perf_counter(), process_time()
        sample = await run_gate(gate, events_for(seconds, prefix), tasks)
        ended, used = perf_counter(), process_time() - used
    answer = {"begun": begun, "ended": ended, "events": sample.events, "processor": used}
    _say(json.dumps(answer))


@asynccontextmanager
async def _opened(url: str, mode: str, tasks: int) -> AsyncIterator[Gate]:
    if is_joined(mode):
        async with open_joined_gate(url, mode, tasks) as gate:
            yield gate
    else:
        with open_gate(url, mode) as gate:
            yield gate


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]))
