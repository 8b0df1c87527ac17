"""Celery tasks that run each event once: `gate_task(app, gate, "portbase.cis")`.

The task acknowledges after the ledger has the event on record. A busy key, a failed attempt and an absent
ledger send the message again with a delay. The ledger counts attempts, not Celery. Settings that
acknowledge early, or lose a message when its worker dies, are refused at registration and at a worker's
start.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from oncegate.errors import ConfigError
from oncegate.gate.facade import GateOnStore
from oncegate.integrations.task_queues import TaskRunner
from oncegate.sources.decisions import OnRecord

if TYPE_CHECKING:
    from celery import Celery, Task

_SET: Final[dict[str, Any]] = {
    "acks_late": True,
    "reject_on_worker_lost": True,
    "acks_on_failure_or_timeout": False,
    "acks_on_failure": False,
    "acks_on_timeout": False,
    "max_retries": None,
    "serializer": "json",
}
_WHY: Final = {
    "acks_late": "acks_late=False acknowledges a message before its handler ran: a crash loses the event",
    "reject_on_worker_lost": "without reject_on_worker_lost a message is lost with the worker that runs it",
    "acks_on_failure_or_timeout": "acks_on_failure_or_timeout acknowledges what is not on record",
    "acks_on_failure": "acks_on_failure acknowledges what is not on record",
    "acks_on_timeout": "acks_on_timeout acknowledges what is not on record",
    "max_retries": "the ledger counts attempts; give retry_for= to the handler instead of max_retries",
    "serializer": "events are JSON: set serializer='json'",
}
_REFUSED: Final = ("autoretry_for", "retry_backoff", "retry_kwargs", "bind")
log = logging.getLogger("oncegate.sources")

_VISIBILITY_SECONDS: Final = {"redis": 3600, "rediss": 3600, "sentinel": 3600, "sqs": 1800}
_COUNTDOWN_MAX_SECONDS: Final = 900.0


def gate_task(
    app: Celery,
    gate: GateOnStore,
    surface: str,
    *,
    name: str | None = None,
    tenant: str | None = None,
    **options: Any,
) -> Task[Any, Any]:
    """A task that takes one event and runs the surface's handler once; its result is the handler's value.

    `options` are Celery's own. Send events with `task.delay(event)`.
    """
    from celery.exceptions import Reject
    from celery.signals import worker_init

    runner = TaskRunner(gate, surface, "celery", tenant)
    _check_options(options)

    @app.task(bind=True, name=name or f"oncegate.{surface}", shared=False, **{**options, **_SET})  # type: ignore[untyped-decorator]
    def run_once(self: Task[Any, Any], event: Any) -> Any:
        # Celery drops a message whose task raises anything else than Retry or Reject.
        try:
            found = runner.run_sync(event, str(self.request.id))
            if isinstance(found, OnRecord):
                return found.value
            again = self.retry(countdown=_countdown(app, found.seconds), throw=False)
        except Exception as error:
            log.warning("message %s is returned: %s", self.request.id, error)
            raise Reject(f"it is not on record: {error}", requeue=True) from error
        raise again

    def check(**_: Any) -> None:
        try:
            check_app(app, runner.surface.rule.time_limit.total_seconds(), run_once)
        except ConfigError as error:
            raise SystemExit(f"oncegate: {error}") from None  # Celery logs other exceptions and goes on

    worker_init.connect(check, weak=False)
    return run_once


def check_app(app: Celery, time_limit_seconds: float, task: Task[Any, Any]) -> None:
    """Refuses what would acknowledge early or repeat without an end; a worker calls it when it starts."""
    for option, value in _SET.items():
        if option in _WHY and getattr(task, option) != value:
            raise ConfigError(f"task {task.name}: {_WHY[option]}")
    for name in ("soft_time_limit", "time_limit"):
        limit = getattr(task, name) or getattr(app.conf, f"task_{name}")
        if limit is not None and limit < time_limit_seconds:
            raise ConfigError(
                f"task {task.name}: Celery's {name} of {limit:g} s is shorter than the"
                f" {time_limit_seconds:g} s that the handler may run: raise it, or shorten its time_limit"
            )
    seconds = _visibility_seconds(app)
    if seconds is not None and seconds <= time_limit_seconds:
        raise ConfigError(
            f"task {task.name}: visibility_timeout is {seconds:g} s, and a handler may run for"
            f" {time_limit_seconds:g} s: the broker would deliver the message to a second worker meanwhile;"
            " raise broker_transport_options['visibility_timeout'] or shorten the handler's time_limit"
        )


def _check_options(options: dict[str, Any]) -> None:
    for option, value in options.items():
        if option in _REFUSED:
            raise ConfigError(f"{option} is not taken: the ledger decides what is tried again")
        if option in _SET and value != _SET[option]:
            raise ConfigError(_WHY[option])


def _visibility_seconds(app: Celery) -> float | None:
    """How long the broker hides a message; None where it waits for the connection to end."""
    transport = str(app.connection_for_read().transport_cls or "").split("+")[0].rsplit(":", 1)[-1].lower()
    default = _VISIBILITY_SECONDS.get(transport)
    options = app.conf.broker_transport_options or {}
    return None if default is None else float(options.get("visibility_timeout", default))


def _countdown(app: Celery, seconds: float) -> float:
    """A delay that the broker keeps: a longer one than the visibility timeout repeats for ever."""
    visibility = _visibility_seconds(app)
    return min(seconds, _COUNTDOWN_MAX_SECONDS if visibility is None else visibility / 2)
