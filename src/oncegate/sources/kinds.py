"""Adapters by name, for settings: `kind = "nats"` with its options becomes a source."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from msgspec import Struct

from oncegate.errors import ConfigError
from oncegate.sources.contract import Source


class SourceKind(Struct, frozen=True):
    """One adapter: where it is, and which settings it needs and takes besides."""

    module: str
    adapter: str
    needs: tuple[str, ...]
    takes: tuple[str, ...] = ()


KINDS: Final[dict[str, SourceKind]] = {
    "nats": SourceKind("nats", "Nats", ("url", "stream", "durable"), ("subject",)),
    "redis": SourceKind("redis_stream", "RedisStream", ("url", "stream", "group"), ("dead_letters",)),
    "sqs": SourceKind("sqs", "Sqs", ("url",), ("region", "endpoint")),
    "rabbitmq": SourceKind("rabbitmq", "RabbitMq", ("url", "queue"), ("dead_letters", "management")),
    "kafka": SourceKind("kafka", "Kafka", ("url", "group"), ("start",)),
}
OPTIONS: Final = tuple(
    dict.fromkeys(name for kind in KINDS.values() for name in (*kind.needs, *kind.takes))
)


def make_source(kind: str, given: Mapping[str, Any]) -> Source:
    """Makes the source of a kind; raises ConfigError naming the setting that is missing or foreign."""
    known = KINDS.get(kind)
    if known is None:
        raise ConfigError(f"kind {kind[:40]!r} is not known; use one of {', '.join(KINDS)}")
    for name in known.needs:
        if given.get(name) is None:
            raise ConfigError(f"a source of kind {kind} needs {name}")
    foreign = [
        name for name in given if given[name] is not None and name not in (*known.needs, *known.takes)
    ]
    if foreign:
        takes = ", ".join((*known.needs, *known.takes))
        raise ConfigError(f"a source of kind {kind} takes no {foreign[0]}; it takes {takes}")
    adapter = getattr(import_module(f"oncegate.sources.{known.module}"), known.adapter)
    options = {name: value for name, value in given.items() if value is not None and name != "url"}
    source: Source = adapter(given["url"], **options)
    return source
