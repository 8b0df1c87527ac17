"""`make demo SOURCE=nats|rabbitmq|sqs|redis|kafka`: the Monday storm through a real queue.

39 containers, each announced several times, poison in between, two workers of which some are killed with
SIGKILL. What is counted is what the terminal was asked for and what the ledger's database holds.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from oncegate.clock import SystemClock
from tests.sources import test_storms as storms
from tests.support.kafka_mock import MockKafka
from tests.support.queue_storm import CONTAINERS, Storm
from tests.support.servers import MiniStack, Nats, RabbitMq, Server, Valkey, running

COPIES, KILLS, SEED = 3, 3, 39


def _on(
    kind: type[Server], broker_of: Callable[[str], storms.Broker]
) -> AbstractContextManager[storms.Broker]:
    @contextmanager
    def start() -> Iterator[storms.Broker]:
        if not kind.is_present():
            sys.exit(f"{kind.name} is not installed: {kind.install}")
        with running(kind) as one:
            yield broker_of(one.url)

    return start()


@contextmanager
def _kafka() -> Iterator[storms.Broker]:
    with MockKafka() as cluster:
        yield storms.of_kafka(cluster)


SOURCES: Final[dict[str, tuple[str, Callable[[], AbstractContextManager[storms.Broker]]]]] = {
    "nats": ("NATS JetStream", lambda: _on(Nats, storms.of_nats)),
    "rabbitmq": ("RabbitMQ", lambda: _on(RabbitMq, storms.of_rabbitmq)),
    "redis": ("Valkey streams", lambda: _on(Valkey, storms.of_valkey)),
    "sqs": ("SQS (ministack, a model)", lambda: _on(MiniStack, storms.of_ministack)),
    "kafka": ("Kafka (librdkafka's mock)", _kafka),
}


def play(source: str, folder: Path) -> int:
    """Plays the storm; 0 only if every container has one slot and one effect."""
    title, start = SOURCES[source]
    clock, rng = SystemClock(), random.Random(SEED)
    began_ms = clock.ticks_ms()
    with start() as broker:
        storm = Storm(folder, broker.adapter, broker.options)
        bodies = storm.bodies(COPIES, rng)
        sys.stderr.write(f"{len(bodies)} messages for {CONTAINERS} containers through {title}\n")
        broker.send(bodies)
        try:
            storm.run(lambda: broker.left() == 0, KILLS, rng)
        finally:
            storm.stop()
        storm.check()
    calls = [line for path in folder.glob("calls-*") for line in path.read_text().splitlines()]
    rows = [
        ("containers", CONTAINERS), ("messages sent", len(bodies)), ("workers killed", KILLS),
        ("calls of the terminal", len(calls)), ("keys it was called with", len(set(calls))),
        ("slots booked", storm.slots()), ("messages left", 0), ("poison in quarantine", 2),
    ]  # fmt: skip
    for name, count in rows:
        sys.stdout.write(f"{name:<26}{count:>6}\n")
    seconds = (clock.ticks_ms() - began_ms) / 1000
    sys.stdout.write(f"{CONTAINERS} slots for {CONTAINERS} containers in {seconds:.1f} s\n")
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Reads the name of the source and plays."""
    parser = argparse.ArgumentParser(prog="make demo SOURCE=…", description=__doc__)
    parser.add_argument("source", choices=sorted(SOURCES))
    source = parser.parse_args(arguments).source
    with tempfile.TemporaryDirectory(prefix="oncegate-storm-") as folder:
        return play(source, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
