"""Plays many seeds on all cores, for a number of schedules or for a time, and adds up what they came to."""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from multiprocessing.context import BaseContext
from time import process_time
from typing import Final

from lab.simulator.outcome import play
from lab.simulator.tally import Tally
from lab.simulator.traffic.outcome import play_traffic
from lab.simulator.traffic.plan import TRAFFIC_EVERY, make_traffic
from lab.simulator.workload import make_schedule

CHUNK: Final = 50  # schedules that one process plays between two reports, less than a tenth of a second
WORLDS_KEPT: Final = 16  # that have ended, until their memory is freed


def play_seeds(first: int, count: int) -> Tally:
    """Plays a row of seeds in this process."""
    tally, begun = Tally(), process_time()
    with _freeing_by_hand() as free:
        for seed in range(first, first + count):
            tally.add(seed, play(make_schedule(seed)))
            if seed % TRAFFIC_EVERY == 0:
                tally.add_traffic(seed, play_traffic(make_traffic(seed)))
            if seed % WORLDS_KEPT == 0:
                free()
    tally.processor_seconds = process_time() - begun
    return tally


@contextmanager
def _freeing_by_hand() -> Iterator[Callable[[], object]]:
    """Between two calls nothing looks for garbage: a world is one circle, and garbage only as a whole."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield lambda: gc.collect(0)
    finally:
        if was_enabled:
            gc.enable()


def campaign(
    first: int,
    *,
    goes_on: Callable[[Tally], bool],
    schedules_max: int | None = None,
    processes: int | None = None,
    may_fork: bool = False,
    progress: Callable[[Tally], None] = lambda tally: None,
) -> Tally:
    """Plays seeds from `first` on until there are enough or `goes_on` says no.

    Whoever has neither threads nor ledgers may be forked, which saves the start of new processes.
    """
    total, chunks = Tally(), _chunks(first, schedules_max)
    workers = processes or os.cpu_count() or 1
    with ProcessPoolExecutor(workers, mp_context=_context(may_fork)) as pool:
        running: set[Future[Tally]] = set()
        while True:
            while goes_on(total) and len(running) < 2 * workers:
                chunk = next(chunks, None)
                if chunk is None:
                    break
                running.add(pool.submit(play_seeds, *chunk))
            if not running:
                return total
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                total.merge(future.result())
            progress(total)


def _context(may_fork: bool) -> BaseContext:
    """A child must not inherit threads or ledgers of whoever calls."""
    return multiprocessing.get_context("fork" if may_fork and sys.platform == "linux" else "spawn")


def _chunks(first: int, schedules_max: int | None) -> Iterator[tuple[int, int]]:
    last = None if schedules_max is None else first + schedules_max
    while last is None or first < last:
        size = CHUNK if last is None else min(CHUNK, last - first)
        yield first, size
        first += size
