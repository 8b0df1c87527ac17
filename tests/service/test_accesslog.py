"""The line for each request: the same as Python's logging would write, cheaper, and never in the way."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from oncegate.service import accesslog
from oncegate.service.accesslog import GatheredLog
from oncegate.service.logs import JsonLines
from oncegate.testing.clock import ManualClock
from tests.support.gates import until

WALL_MS = 1_780_000_000_007


def _lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_it_is_the_line_that_logging_would_write(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    record = logging.LogRecord("oncegate.service", logging.INFO, "", 0, "answered", (), None)
    record.created = WALL_MS / 1000
    record.oncegate = {"route": "in", "status": 200, "key": 'k-1 "\n\x1b[2J'}

    async def answer() -> None:
        access = GatheredLog(ManualClock(WALL_MS))
        access.answered("in", 200, 'k-1 "\n\x1b[2J')
        assert stream.getvalue() == ""  # gathered for a moment
        access.flush()

    asyncio.run(answer())

    assert _lines(stream) == [json.loads(JsonLines().format(record))]


def test_lines_are_written_by_themselves_and_never_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(accesslog, "LINES_MAX", 3)

    async def answer() -> None:
        access = GatheredLog(ManualClock())
        for _ in range(3):
            access.answered("in", 200, None)
        assert len(_lines(stream)) == 3
        access.answered("in", 503, None)
        await until(lambda: len(_lines(stream)) == 4)

    asyncio.run(answer())


def test_a_log_that_nobody_reads_does_not_end_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)

    async def answer() -> None:
        access = GatheredLog(ManualClock())
        access.answered("in", 200, None)
        access.flush()

    asyncio.run(answer())


def test_lines_that_are_written_together_have_each_its_own_time_and_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Given plain keys, none, and one that must be escaped, across the turn of a second."""
    stream, clock = io.StringIO(), ManualClock(WALL_MS)
    monkeypatch.setattr(sys, "stderr", stream)
    keys: list[list[str | None]] = [["ab12", None, "cd34"], ["ab12", None, 'odd"\n'], [None]]

    async def answer() -> None:
        access = GatheredLog(clock)
        for batch in keys:
            for key in batch:
                access.answered("in", 200, key)
                clock.advance(0.6)
            access.flush()

    asyncio.run(answer())

    lines = _lines(stream)
    assert [line["key"] for line in lines] == [key for batch in keys for key in batch]
    told = [datetime.fromisoformat(line["at"]) for line in lines]
    first = datetime.fromtimestamp(WALL_MS / 1000, UTC)
    assert told == [first + number * timedelta(milliseconds=600) for number in range(len(lines))]
