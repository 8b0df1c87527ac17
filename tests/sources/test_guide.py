"""docs/sources.md and docs/consumer-by-hand.md: the programs run; all options and kinds are documented."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from pathlib import Path
from typing import Any

import pytest

from oncegate import ConfigError, NotApplied
from oncegate.sources import status
from oncegate.sources.kinds import KINDS
from oncegate.sources.options import ConsumeOptions, consumption_of

DOCS = Path(__file__).parents[2] / "docs"
SOURCES = (DOCS / "sources.md").read_text("utf-8")
BY_HAND = (DOCS / "consumer-by-hand.md").read_text("utf-8")


class Message:
    def __init__(self, body: bytes) -> None:
        self.body = body


class Queue:
    """Notes what is done with messages."""

    def __init__(self) -> None:
        self.done: list[Any] = []

    async def ack(self, message: Message) -> None:
        self.done.append("ack")

    async def give_back(self, message: Message, delay: float) -> None:
        self.done.append(("back", delay > 0))


def raising(error: BaseException) -> Any:
    async def admit(*_: Any) -> Any:
        raise error

    return admit


def test_the_consumer_by_hand_obeys_its_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it stands on the page: a run, a replay, a failure, a programming error."""
    (program,) = re.findall(r"```python\n(.*?)```", BY_HAND, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "guide"}
    exec(compile(program, "consumer-by-hand.md", "exec"), names)
    queue, gate, consume = Queue(), names["gate"], names["consume"]

    async def scene() -> None:
        message = Message(json.dumps({"order_id": 1}).encode())
        await consume(queue, message)
        await consume(queue, message)
        for error in (NotApplied("later"), asyncio.CancelledError(), ConfigError("wrong")):
            monkeypatch.setattr(gate, "admit", raising(error))
            try:
                await consume(queue, message)
            except (asyncio.CancelledError, ConfigError) as raised:
                queue.done.append(type(raised).__name__)

    asyncio.run(scene())
    gate.close()
    assert queue.done == ["ack", "ack", ("back", True), "CancelledError", "ConfigError"]


def test_every_option_of_consume_is_told_with_its_default() -> None:
    """And the type that editors see has the same names."""
    parameters = inspect.signature(consumption_of).parameters
    options = [name for name in parameters if name not in ("source", "surface")]
    assert sorted(ConsumeOptions.__annotations__) == sorted(options)
    told = SOURCES.partition("## Options of `gate.consume`")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", told, re.MULTILINE) == ["surface", *options]
    assert f"| {parameters['concurrency'].default} |" in told


def test_every_kind_and_every_state_is_told() -> None:
    """An operator finds each word on the page."""
    for kind in KINDS:
        assert f"oncegate[{kind}]" in SOURCES
    states = [value for name, value in vars(status).items() if name.isupper() and isinstance(value, str)]
    for state in set(states) - {status.KIND}:
        assert state in SOURCES.partition("| state |")[2], state
