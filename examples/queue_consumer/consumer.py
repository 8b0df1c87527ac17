"""A queue consumer by hand: acknowledge what returned, give back what raised.

The queue is a folder of files, so that the example needs no broker. A message is a file in `queue/`.
Acknowledging removes it; giving back leaves it for the next delivery.
SQS, RabbitMQ and Kafka have the same three verbs.
"""

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from oncegate import Gate, Once, Verdict

log = logging.getLogger("consumer")
QUEUE, SLOTS = Path("queue"), Path("slots.txt")
gate = Gate(os.environ.get("ONCEGATE_URL", "sqlite:///consumer.db"))


def find_slot(key: str) -> dict[str, str] | None:
    """Asks the terminal what a key owns."""
    lines = SLOTS.read_text().splitlines() if SLOTS.exists() else []
    return next(({"id": line.split()[1]} for line in lines if line.startswith(key)), None)


terminal = gate.downstream("terminal", probe=find_slot)


def claim_slot(container: str, *, idempotency_key: str) -> dict[str, str]:
    """Buys a slot at the terminal; a second call would buy a second one."""
    slot = f"slot-{container}"
    with SLOTS.open("a") as slots:
        print(idempotency_key, slot, file=slots)
    return {"id": slot}


@gate.handler("containers", key="{notification}:{container}")
def book(event: dict[str, Any], once: Once) -> str:
    """Books one slot for one notification."""
    slot = once.effect(terminal, claim_slot, event["container"], name="claim_slot")
    return str(slot["id"])


def deliveries() -> Iterator[Path]:
    """What the queue delivers now; the same message may come again and again."""
    yield from sorted(QUEUE.glob("*.json"))


def consume() -> dict[str, int]:
    """Handles every message once; returns how often each verdict came."""
    counts: dict[str, int] = {}
    for message in deliveries():
        try:
            admission = gate.admit_sync("containers", json.loads(message.read_text()))
        except Exception:
            log.exception("%s stays in the queue", message.name)  # giving back: it comes again
            continue
        counts[admission.verdict.name] = counts.get(admission.verdict.name, 0) + 1
        if admission.verdict is not Verdict.BUSY:
            message.unlink()  # acknowledging, after the ledger has committed
    return counts


if __name__ == "__main__":
    print(*(f"{name} {count}" for name, count in sorted(consume().items())))
