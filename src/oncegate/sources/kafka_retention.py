"""How long Kafka keeps the records of a topic, asked of the brokers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

ASK_SECONDS: Final = 5.0


def read_retention(settings: Mapping[str, Any], topic: str) -> dict[str, float | None]:
    """The parts of a topic's retention; empty where the brokers do not tell, or not to this user."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._config import ConfigResource  # the package does not export it by name

    try:
        admin = AdminClient({**settings, "log_level": 0})
        known = admin.list_topics(topic, timeout=ASK_SECONDS)
        if known.controller_id not in known.brokers:  # none answers for settings: asking would only wait
            return {}
        asked = ConfigResource(ConfigResource.Type.TOPIC, topic)
        found = admin.describe_configs([asked], request_timeout=ASK_SECONDS)[asked].result(2 * ASK_SECONDS)
    except (KafkaException, TimeoutError):
        return {}
    return retention_of({name: str(entry.value) for name, entry in found.items()})


def retention_of(configs: Mapping[str, str]) -> dict[str, float | None]:
    """The parts of a topic's retention, from its settings.

    A segment goes when its newest record is old enough. So a record may stay for the time of a segment
    longer. A compacted topic keeps the newest record of each key without end.
    """
    kept = int(configs.get("retention.ms", "-1"))
    if kept < 0 or "delete" not in configs.get("cleanup.policy", "delete").split(","):
        return {"topic": None}
    return {"topic": kept / 1000, "open segment": int(configs.get("segment.ms", "0")) / 1000}
