"""Plans that wait for a yes, and jobs that carry them out in the background, with progress and cancel.

Kept in this process: a restart forgets plans that nobody confirmed, and stops a job between two batches.
What a job has done is in the ledger like any other decision; a new plan finds what is left.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, Protocol

from oncegate.errors import OncegateError

KEPT_MAX: Final = 50
RUNNING_MAX: Final = 4


class Work(Protocol):
    """A job of one of the use cases: entries or heads of lanes."""

    progress: Any

    def run(self) -> Any:
        """Runs to the end or until it is cancelled."""

    def cancel(self) -> None:
        """Stops after the part under way."""


class TooManyJobs(OncegateError):
    """Other jobs are running; this one must wait."""


class Planned:
    """A plan with what is known of carrying it out."""

    def __init__(self, owner: str, tenant: str | None, values: dict[str, Any], work: Work) -> None:
        self.owner = owner
        self.tenant = tenant
        self.values = values
        self.work = work
        self.is_started = False
        self.is_ended = False
        self.failure: str | None = None

    @property
    def state(self) -> str:
        """A word for people: planned, running, cancelled, ended or broken off."""
        if not self.is_started:
            return "planned"
        if not self.is_ended:
            return "running"
        if self.failure is not None:
            return "broken off"
        return "cancelled" if self.work.progress.is_cancelled else "ended"


class Jobs:
    """The plans and jobs of this process."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Planned] = OrderedDict()
        self._lock = threading.Lock()

    def plan(self, planned: Planned) -> str:
        """Keeps a plan and returns its name; the oldest that is not running makes room."""
        name = secrets.token_urlsafe(12)
        with self._lock:
            self._known[name] = planned
            idle = [key for key, one in self._known.items() if one.state != "running"]
            for key in idle[: max(0, len(self._known) - KEPT_MAX)]:
                del self._known[key]
        return name

    def find(self, name: str) -> Planned | None:
        """A plan by its name."""
        with self._lock:
            return self._known.get(name)

    def start(self, planned: Planned) -> bool:
        """Starts a plan in a thread of its own, once; False if it was started before."""
        with self._lock:
            if planned.is_started:
                return False
            if sum(one.state == "running" for one in self._known.values()) >= RUNNING_MAX:
                raise TooManyJobs(f"{RUNNING_MAX} jobs are running already; wait for one to end")
            planned.is_started = True
        threading.Thread(target=_carry_out, args=(planned,), name="oncegate-page-job", daemon=True).start()
        return True


def _carry_out(planned: Planned) -> None:
    run: Callable[[], Any] = planned.work.run
    try:
        run()
    except OncegateError as error:
        planned.failure = str(error)
    except Exception as error:  # noqa: BLE001  a job's end must be seen on its page, whatever it was
        planned.failure = f"unexpected {type(error).__name__}: {error}"
    finally:
        planned.is_ended = True
