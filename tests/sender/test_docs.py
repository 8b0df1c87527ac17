"""What the documents show about sending can be run as it stands."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest

from oncegate.sender.addresses import AddressPolicy
from oncegate.sender.endpoint_registry import EndpointChange
from oncegate.sender.endpoints import Endpoint, new_endpoint
from oncegate.sender.request_builder import OutgoingRequest, build_request
from oncegate.testing.waiting import DEADLINE_SECONDS
from oncegate.wiring.sender import Sender
from tests.sender.chaos_site import SECRET
from tests.sender.scripted import answering, serving

ROOT = Path(__file__).parents[2]
OK = b"HTTP/1.1 204 No Content\r\n\r\n"


@pytest.mark.slow
async def test_example_of_the_guide_delivers_three_events_in_order(tmp_path: Path) -> None:
    section = (ROOT / "docs" / "sending.md").read_text("utf-8").partition("## Deliver\n")[2]
    found = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert found is not None
    url = f"sqlite:///{tmp_path}/l.db"
    environment = {**os.environ, "ONCEGATE_URL": url, "ONCEGATE_ALLOW_LOOPBACK": "1"}
    async with serving(answering(OK)) as site:
        policy = AddressPolicy.of(allow_http=True, allow_loopback=True)
        with Sender(url, policy=policy) as sender:
            endpoint = new_endpoint("orders", f"http://127.0.0.1:{site.port}/", secret=SECRET)
            sender.endpoints.add(endpoint, EndpointChange("ann", "test"))
        running = await asyncio.create_subprocess_exec(sys.executable, "-c", found[1], env=environment)
        try:
            assert await asyncio.wait_for(running.wait(), DEADLINE_SECONDS) == 0
        finally:
            if running.returncode is None:
                running.kill()

    assert [re.search(rb"x-seq: (\d)", one)[1] for one in site.requests] == [b"1", b"2", b"3"]  # type: ignore[index]


def test_every_header_that_is_sent_is_in_the_document() -> None:
    text = (ROOT / "docs" / "sending.md").read_text("utf-8")
    event = OutgoingRequest(
        event_id="e", key="k", seq=1, type="t", payload=b"{}", occurred_at_ms=0, correlation_id="c",
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", tracestate="a=1",
    )  # fmt: skip
    secret = new_endpoint("n", "https://example.com/", secret=SECRET).signing_keys(0)
    request = build_request(event, secret, 0, replay_nonce="1")

    named = {name for name, _ in request.headers} - {"content-type", "user-agent"}
    assert {name for name in named if f"`{name}`" not in text} == set()


def test_defaults_in_the_document_are_the_endpoints_defaults() -> None:
    text = (ROOT / "docs" / "sending.md").read_text("utf-8")
    endpoint: Endpoint = new_endpoint("n", "https://example.com/", secret=SECRET)

    assert (endpoint.attempts_max, endpoint.retry_for.days, endpoint.in_flight_max) == (None, 3, 64)
    assert f"| {endpoint.retry_for.days} days |" in text
    waits = f"{endpoint.retry_base.seconds} s, {endpoint.retry_cap.seconds // 60} min"
    assert f"| {waits}, {endpoint.retry_jitter} |" in text
    assert f"| {endpoint.timeout.seconds} s |" in text
    assert f"none, {endpoint.in_flight_max} |" in text
