"""Work in a forked process, which a test may kill, stop, resume and outlive.

A process that forks must have no ledger open: SQLite connections do not survive a fork, in neither process.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import threading
import traceback
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import Any, NoReturn, Self

from oncegate.testing.waiting import DEADLINE_SECONDS, wait_until


class Forked:
    """A child process that runs `work` and ends; what `work` returns comes back as JSON.

    A context manager: on leaving, a child that still runs is killed.
    """

    def __init__(self, work: Callable[[], Any]) -> None:
        self._answer, writer = os.pipe()
        self._status: int | None = None
        self.pid = _fork()
        if self.pid == 0:
            _work_and_exit(work, writer)
        os.close(writer)

    def wait(self, seconds: float = DEADLINE_SECONDS) -> int:
        """Waits until the child has ended; returns its exit code, or minus the signal that ended it."""
        wait_until(self._has_ended, what=f"the end of process {self.pid}", seconds=seconds)
        assert self._status is not None
        return os.waitstatus_to_exitcode(self._status)

    def wait_stopped(self, seconds: float = DEADLINE_SECONDS) -> None:
        """Waits until the child has been stopped by a signal, or has ended."""
        wait_until(self._has_stopped, what=f"the stop of process {self.pid}", seconds=seconds)

    @property
    def is_stopped(self) -> bool:
        """Whether the child was seen stopped, rather than ended."""
        return self._status is not None and os.WIFSTOPPED(self._status)

    def resume(self) -> None:
        """Lets a stopped child go on."""
        self._status = None
        os.kill(self.pid, signal.SIGCONT)

    def answer(self, seconds: float = DEADLINE_SECONDS) -> Any:
        """Waits for the child's end and returns what its work returned; None if it never came to that."""
        self.wait(seconds)
        with open(self._answer, "rb", closefd=False) as pipe:
            sent = pipe.read()
        return json.loads(sent) if sent else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._status is None or self.is_stopped:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
        os.close(self._answer)

    def _has_ended(self) -> bool:
        if self._status is None or self.is_stopped:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._status = status if pid else None
        return self._status is not None

    def _has_stopped(self) -> bool:
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
            self._status = status if pid else None
        return self._status is not None


def run_forked(work: Callable[[], Any], seconds: float = DEADLINE_SECONDS) -> tuple[int, Any]:
    """Runs `work` in a child to its end; returns the exit code or minus the signal, and the answer."""
    with Forked(work) as child:
        answer = child.answer(seconds)
        return child.wait(), answer


def stop_this_process(name: str) -> None:
    """Stops the process as SIGSTOP does, at a crash point; it goes on when it is resumed.

    The signal is sent to this very thread: one sent to the process is taken by its main thread, and until
    that has its turn this one would run on, out of the transaction in which it was to stop.
    """
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def _fork() -> int:
    with warnings.catch_warnings():
        # Newer Pythons warn about threads of the parent; nothing of theirs is used in the child.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _work_and_exit(work: Callable[[], Any], writer: int) -> NoReturn:
    """Ends without any of the parent's clean-up, whatever the work does."""
    gc.freeze()  # a collection would copy whatever the parent holds, page by page
    try:
        answer = work()
        with open(writer, "wb") as pipe:
            pipe.write(json.dumps(answer).encode())
        os._exit(0)
    except BaseException:  # noqa: BLE001  nothing may get past here into the parent's test run
        traceback.print_exc()
    finally:
        os._exit(1)
