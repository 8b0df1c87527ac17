"""The crew: starts worker processes, hands them deliveries, replaces the killed ones.

Who calls it: `run.py`, in the parent process, from one thread. Must never acknowledge a message without a
worker's word that it is done, and never leave a process behind, whatever happens.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import IO, Any, Final, Self, cast

from oncegate.demo.storm.deadline import Deadline, StormBroken
from oncegate.demo.storm.delivery_queue import DeliveryQueue, QueuedDelivery

END_WAIT_SECONDS: Final = 30.0  # a worker that was told to end closes its ledger, no more
POLL_MS_MAX: Final = 100  # how stale the progress line may be


@dataclass(slots=True)
class StormTally:
    """What the parent saw happen to its deliveries."""

    killed: int = 0
    done: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)

    @property
    def failed(self) -> int:
        """How many deliveries ended with an error of the handler."""
        return self.errors.total()


class StormWorker:
    """One child process and the delivery it is busy with."""

    def __init__(self, arguments: list[str], environment: dict[str, str]) -> None:
        # A group of its own: Ctrl-C is for the parent, which then ends its workers by their ids.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "oncegate.demo.storm.worker", *arguments],
            bufsize=0,
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,
        )
        self._input = cast("IO[bytes]", self._process.stdin)
        self._output = cast("IO[bytes]", self._process.stdout)
        self.delivery: QueuedDelivery | None = None

    def fileno(self) -> int:
        """Where its answers arrive."""
        return self._output.fileno()

    def send(self, delivery: QueuedDelivery) -> None:
        """Give it a delivery to work on."""
        self.delivery = delivery
        fault = None if delivery.fault is None else delivery.fault.value
        order = {"event": delivery.message.event, "fault": fault}
        try:
            self._input.write(json.dumps(order).encode() + b"\n")
        except BrokenPipeError:
            raise StormBroken("a worker ended before its next delivery; stderr says why") from None

    def read(self) -> dict[str, Any] | None:
        """Its answer, which a pipe delivers in one piece; None if the process has ended."""
        line = os.read(self.fileno(), select.PIPE_BUF)
        answer: dict[str, Any] | None = json.loads(line) if line else None
        return answer

    def stop(self, *, at_once: bool) -> None:
        """Tell the process to end, which it does when its stdin closes; at once, with SIGKILL."""
        self._input.close()
        if at_once:
            self._process.kill()

    def bury(self) -> int:
        """Wait for the end of the process, which is not waited for for ever; returns its exit code."""
        try:
            self._process.wait(END_WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._input.close()
        self._output.close()
        return self._process.returncode


class StormWorkers:
    """Several workers on one queue; a context manager that starts and ends them."""

    def __init__(
        self,
        size: int,
        queue: DeliveryQueue,
        arguments: list[str],
        environment: dict[str, str],
        tally: StormTally,
    ) -> None:
        self._size = size
        self._queue = queue
        self._arguments = arguments
        self._environment = environment
        self._tally = tally
        self._workers: list[StormWorker] = []

    def __enter__(self) -> Self:
        try:
            for _ in range(self._size):
                self._hire()
        except BaseException:
            self._dismiss(at_once=True)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._dismiss(at_once=error is not None)

    def drain(self, deadline: Deadline, show: Callable[[], None]) -> None:
        """Work the queue off until nothing waits and nothing is out."""
        while not self._queue.is_empty:
            deadline.check("the workers have not finished their deliveries")
            self._hand_out()
            for worker in self._wait_for_answers():
                self._collect(worker)
            show()

    def _hire(self) -> None:
        self._workers.append(StormWorker(self._arguments, self._environment))

    def _dismiss(self, *, at_once: bool) -> None:
        for worker in self._workers:
            worker.stop(at_once=at_once)
        while self._workers:
            self._workers[-1].bury()
            self._workers.pop()

    def _hand_out(self) -> None:
        for worker in self._workers:
            if worker.delivery is None:
                delivery = self._queue.receive()
                if delivery is None:
                    return
                worker.send(delivery)

    def _wait_for_answers(self) -> list[StormWorker]:
        """Workers that have answered or died, or none if it takes longer than a progress line may."""
        poller = select.poll()
        busy = {worker.fileno(): worker for worker in self._workers if worker.delivery is not None}
        for file in busy:
            poller.register(file, select.POLLIN)
        wait_ms = self._queue.wait_ms if len(busy) < len(self._workers) else None
        ready = poller.poll(POLL_MS_MAX if wait_ms is None else min(wait_ms, POLL_MS_MAX))
        return [busy[file] for file, _ in ready]

    def _collect(self, worker: StormWorker) -> None:
        delivery, worker.delivery = cast("QueuedDelivery", worker.delivery), None
        answer = worker.read()
        if answer is None:
            self._replace(worker)
            self._queue.give_back(delivery)
        elif answer["done"] is None:
            self._tally.errors[answer["error"]] += 1
            self._queue.give_back(delivery)
        else:
            self._tally.done[answer["done"]] += 1
            self._queue.acknowledge(delivery)

    def _replace(self, worker: StormWorker) -> None:
        """Count a killed worker and hire its replacement."""
        code = worker.bury()
        self._workers.remove(worker)
        if code != -signal.SIGKILL:
            raise StormBroken(f"a worker ended with exit code {code}; stderr says why")
        self._tally.killed += 1
        self._hire()
