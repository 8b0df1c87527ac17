"""Attempts over real HTTP: status, duration and response of each; success rate and p95."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from oncegate.cli.main import main
from oncegate.errors import UsageError
from oncegate.lanes.delivery_stats import DeliveryStats, delivery_stats
from oncegate.model.moments import read_moment
from oncegate.sender.addresses import AddressPolicy
from oncegate.sender.attempts import last_attempts
from oncegate.sender.delivery import DeliveryService
from oncegate.sender.exchange import Response
from oncegate.sender.responses import Answered, judge, read_reason, without_excerpt
from oncegate.store import Session
from oncegate.store.tallies import duration_bound_ms, of_duration
from oncegate.testing import ManualClock
from oncegate.wiring import open_store
from oncegate.wiring.sender import Sender
from tests.sender.test_delivery import sender, stage

__all__ = ["sender"]

NO = b"HTTP/1.1 500 Oh\r\ncontent-length: 16\r\n\r\n<b>no\x1b[31m\0room</b>"[:-3]
YES = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nthank"


def answers(*given: bytes) -> Callable[[dict[str, str], bytes], bytes]:
    """Answers in turn; the last one stays."""
    left = list(given)
    return lambda headers, body: left.pop(0) if len(left) > 1 else left[0]


def moved(sender: Sender, seconds: float) -> None:
    """Moves the clock of a sender."""
    assert isinstance(sender.clock, ManualClock)
    sender.clock.advance(seconds)


def lane_of(session: Session) -> int:
    """The lane of the key that all of these tests use."""
    lane = session.find_lane("orders", "", "k")
    assert lane is not None
    return lane.lane_id


async def test_every_attempt_is_kept_with_its_status_duration_and_response(sender: Sender) -> None:
    """The failed ones in rows of their own, the one that succeeded in its acknowledgement."""
    async with stage(sender) as (receiver, service):
        receiver.answer = answers(NO, NO, YES)
        await sender.emit("orders", key="k", payload={"n": 1}, type="paid")
        for _ in range(3):
            await service.engine.run_once()
            moved(sender, 10)
        with sender.commits.store.look() as session:
            found = last_attempts(session, lane_of(session), 1)
            stats = delivery_stats(session, sender.clock.wall_ms())
    assert [(one.status, one.is_delivered) for one in found] == [(500, False), (500, False), (200, True)]
    assert found[0].answer.startswith("<b>no")
    assert found[0].answer.isprintable()
    assert found[2].answer == "thank"
    assert all(one.took_ms is not None and one.took_ms >= 0 for one in found)
    assert (stats["orders"].succeeded, stats["orders"].failed) == (1, 2)
    assert stats["orders"].p95_ms is not None


async def test_an_endpoint_that_cannot_be_reached_has_attempts_without_a_status(sender: Sender) -> None:
    async with stage(sender):
        pass  # from here on its port is closed
    async with DeliveryService(sender, jitter=lambda: 0.999, runs=False) as service:
        await sender.emit("orders", key="k", payload={"n": 1}, type="paid")
        await service.engine.run_once()
        with sender.commits.store.look() as session:
            (one,) = last_attempts(session, lane_of(session), 1)
            stats = delivery_stats(session, sender.clock.wall_ms())
    assert (one.status, one.is_delivered) == (None, False)
    assert one.answer
    assert stats["orders"] == DeliveryStats(0, 1, None)
    assert stats["orders"].rate == 0


async def test_the_terminal_shows_attempts_and_how_endpoints_do(tmp_path: Path, capsys: Any) -> None:
    address = f"sqlite:///{tmp_path}/l.db"
    url, policy = ["--url", address], AddressPolicy.of(allow_http=True, allow_loopback=True)
    with Sender(store=open_store(address), policy=policy) as sender:
        async with stage(sender) as (receiver, service):
            receiver.answer = lambda headers, body: NO if headers["x-key"] == "bad" else YES
            for key in ("good", "bad"):
                await sender.emit("orders", key=key, payload={"n": 1}, type="paid")
            await service.engine.run_once()
    assert main(["lanes", "attempts", "orders", "bad", *url]) == 0
    told = capsys.readouterr().out
    assert ("500" in told, "failed" in told, "<b>no" in told, " ms" in told) == (True, True, True, True)
    assert "\x1b" not in told
    assert main(["lanes", "attempts", "orders", "good", "--seq", "1", "--json", *url]) == 0
    (seen,) = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (seen["status"], seen["is_delivered"], seen["answer"]) == (200, True, "thank")
    assert main(["lanes", "attempts", "orders", "nobody", *url]) == 1
    assert main(["endpoints", "list", "--json", *url]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["attempts_1h"], facts["success_1h"]) == (2, 0.5)
    assert facts["p95_ms_1h"] >= 1
    assert main(["endpoints", "list", *url]) == 0
    assert "50.0%" in capsys.readouterr().out


def test_a_kept_line_is_read_back_as_it_was_written() -> None:
    answer = Response(200, timedelta(milliseconds=34), body=b"fine: really")
    assert judge(answer).reason == "HTTP 200 in 34 ms: fine: really"
    assert read_reason("HTTP 200 in 34 ms: fine: really") == Answered(200, 34, "fine: really")
    assert read_reason("HTTP 302 (redirects are not followed)") == Answered(302, None, "")
    assert read_reason("HTTP 500: no") == Answered(500, None, "no")
    assert read_reason("no connection while connecting: refused") is None
    assert read_reason(None) is None
    assert without_excerpt("no connection: HTTP 500: secret", "•") == "no connection: HTTP 500: •"
    assert without_excerpt("HTTP 204 in 3 ms", "•") == "HTTP 204 in 3 ms"


@pytest.mark.parametrize("took_ms", [0, 1, 2, 3, 15, 100, 999, 15_000, 180_000])
def test_a_duration_is_never_shown_shorter_than_it_was_nor_much_longer(took_ms: int) -> None:
    bound = duration_bound_ms(of_duration(took_ms))
    assert bound is not None
    assert took_ms <= bound <= max(1, took_ms * 1.5)


def test_a_moment_is_how_long_ago_or_a_time_with_its_offset() -> None:
    now_ms = 1_800_000_000_000
    assert read_moment("2h", now_ms) == now_ms - 7_200_000
    assert read_moment("2026-11-18T02:00Z", now_ms) == read_moment("2026-11-18T03:00:00+01:00", now_ms)
    for text in ("", "yesterday", "2026-11-18", "2026-11-18T02:00", "-2h"):
        with pytest.raises(UsageError, match="how long ago"):
            read_moment(text, now_ms)
