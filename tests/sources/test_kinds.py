"""Sources by name: each kind of the settings makes its adapter, and says which setting is missing."""

from __future__ import annotations

from typing import Any

import pytest

from oncegate import sources
from oncegate.errors import ConfigError
from oncegate.service.settings import SourceSettings
from oncegate.sources.kinds import KINDS, make_source

GIVEN: dict[str, dict[str, Any]] = {
    "nats": {"url": "nats://127.0.0.1:4222", "stream": "ORDERS", "durable": "orders"},
    "redis": {"url": "redis://127.0.0.1:6379", "stream": "orders", "group": "orders"},
    "sqs": {"url": "https://sqs.eu-central-1.amazonaws.com/1/orders", "region": "eu-central-1"},
    "rabbitmq": {"url": "amqp://127.0.0.1", "queue": "orders"},
    "kafka": {"url": "kafka://127.0.0.1:9092/orders", "group": "orders", "start": "earliest"},
}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_each_kind_makes_its_adapter(kind: str) -> None:
    source = make_source(kind, GIVEN[kind])
    assert type(source).__name__ in sources.__all__
    assert source.name


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_missing_setting_is_named(kind: str) -> None:
    for name in KINDS[kind].needs:
        with pytest.raises(ConfigError, match=f"a source of kind {kind} needs {name}"):
            make_source(kind, {key: value for key, value in GIVEN[kind].items() if key != name})


def test_a_setting_of_another_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match="a source of kind rabbitmq takes no region"):
        make_source("rabbitmq", {**GIVEN["rabbitmq"], "region": "eu-central-1"})


def test_every_setting_belongs_to_a_kind() -> None:
    """And every option of a kind can be set in a settings file."""
    general = {"kind", "surface", "concurrency", "order_by", "poison"}
    ours = set(SourceSettings.__struct_fields__) - general
    assert ours == {name for kind in KINDS.values() for name in (*kind.needs, *kind.takes)}
