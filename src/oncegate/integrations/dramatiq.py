"""dramatiq actors that run each event once: `gate_actor(gate, "portbase.cis")`.

dramatiq acknowledges a message after its actor returns or raises. The actor returns only when the ledger
has the event on record, or when a copy of the message is enqueued with a delay. The ledger counts attempts.
Options that drop messages, and brokers without the middleware that this needs, are refused.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from oncegate.clock import Clock
from oncegate.errors import ConfigError
from oncegate.gate.facade import GateOnStore
from oncegate.integrations.task_queues import TaskRunner
from oncegate.sources.decisions import OnRecord

if TYPE_CHECKING:
    from dramatiq import Actor, Broker, Message

_REFUSED: Final = {
    "max_age": "max_age drops messages that are too old without a record",
    "max_retries": "the ledger counts attempts; give retry_for= to the handler instead of max_retries",
    "retry_when": "the ledger decides what is tried again",
    "store_results": "a message that comes again would store None as its result",
    "throws": "throws moves a message to the dead letters without a record of the ledger",
}
ENQUEUE_TRIES: Final = 60
ENQUEUE_WAIT_SECONDS: Final = 1.0

log = logging.getLogger("oncegate.sources")


def gate_actor(
    gate: GateOnStore, surface: str, *, broker: Broker | None = None, actor_name: str | None = None,
    tenant: str | None = None, **options: Any,
) -> Actor[Any, Any]:  # fmt: skip
    """An actor that takes one event and runs the surface's handler once; its result is the handler's value.

    `options` are dramatiq's own. Send events with `actor.send(event)`.
    """
    import dramatiq
    from dramatiq.middleware import CurrentMessage, SkipMessage

    runner = TaskRunner(gate, surface, "dramatiq", tenant)
    broker = broker or dramatiq.get_broker()
    _check(broker, options, runner.surface.rule.time_limit.total_seconds())
    if not any(isinstance(one, CurrentMessage) for one in broker.middleware):
        broker.add_middleware(CurrentMessage())

    def run_once(event: Any) -> Any:
        message = CurrentMessage.get_current_message()
        found = runner.run_sync(event, "direct call" if message is None else message.message_id)
        if isinstance(found, OnRecord):
            return found.value
        if message is None:
            raise ConfigError(f"the event is not on record and must be sent again: {found.why}")
        _enqueue(broker, message, int(found.seconds * 1000), gate.engine.clock)
        raise SkipMessage(found.why)  # acknowledged, and no successor takes it for a success

    make: Any = dramatiq.actor
    actor: Actor[Any, Any] = make(
        run_once, broker=broker, actor_name=actor_name or f"oncegate.{surface}", max_retries=None, **options
    )
    return actor


def _enqueue(broker: Broker, message: Message[Any], delay_ms: int, clock: Clock) -> None:
    """Sends a message again; waits for a broker that is away, as dramatiq acknowledges this one next."""
    for left in reversed(range(ENQUEUE_TRIES)):
        try:
            broker.enqueue(message.copy(), delay=delay_ms)
            return
        except Exception as error:
            if not left:
                raise
            log.warning("message %s could not be sent again: %s", message.message_id, error)
            clock.pause(ENQUEUE_WAIT_SECONDS)


def _check(broker: Broker, options: dict[str, Any], time_limit_seconds: float) -> None:
    from dramatiq.middleware import AgeLimit, Retries

    for option, why in _REFUSED.items():
        if option in options:
            raise ConfigError(f"{option} is not taken: {why}")
    if not any(isinstance(one, Retries) for one in broker.middleware):
        raise ConfigError(
            "this broker has no Retries middleware: an actor that is interrupted would be acknowledged;"
            " add dramatiq.middleware.Retries()"
        )
    if any(isinstance(one, Retries) and one.retry_when is not None for one in broker.middleware):
        raise ConfigError(f"the broker's Retries has retry_when: {_REFUSED['retry_when']}")
    if any(isinstance(one, AgeLimit) and one.max_age for one in broker.middleware):
        raise ConfigError(f"the broker's AgeLimit has a max_age: {_REFUSED['max_age']}")
    limit_ms = options.get("time_limit")
    if limit_ms is not None and limit_ms < time_limit_seconds * 1000:
        raise ConfigError(
            f"time_limit of {limit_ms} ms is shorter than the {time_limit_seconds:g} s that the handler may"
            " run: shorten the handler's time_limit"
        )
