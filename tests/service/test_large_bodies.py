"""Bodies of many values are bounded, and read beside the loop, one at a time for each tenant (I11, I18)."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from oncegate.clock import SystemClock
from oncegate.model.limits import CARRIED_VALUES_MAX, VALUES_MAX
from oncegate.service.large_bodies import LARGE_VALUES, LargeBodies
from oncegate.testing.waiting import DEADLINE_SECONDS, wait_until
from tests.service.process import HOOKS as HOOKS_TEXT
from tests.service.process import Process, served
from tests.service.site import BEARER, HOOKS, Answer, Site, settings
from tests.service.test_fast_path import chunked

OTHERS = msgspec.structs.replace(HOOKS, tenant="other")
TWO = {"hooks": HOOKS, "others": OTHERS}


def body(number: object, values: int) -> bytes:
    """A webhook with so many values: the object, its id, the array and what is in it."""
    return json.dumps({"id": f"n-{number}", "x": [0.5] * (values - 3)}, separators=(",", ":")).encode()


def told(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.document.get("detail", "")


@pytest.mark.slow
def test_a_body_of_too_many_values_is_refused_on_either_way(shared: Site) -> None:
    refused = (400, f"the body has more than {VALUES_MAX} JSON values; send fewer at once")

    assert told(shared.call("POST", "/in/hooks", body(1, VALUES_MAX + 1), BEARER)) == refused
    assert told(chunked(shared, body(1, VALUES_MAX + 1), BEARER)) == refused
    assert shared.call("POST", "/in/hooks", body(1, VALUES_MAX), BEARER).document["replay"] is False
    assert chunked(shared, body(2, VALUES_MAX), BEARER).document["replay"] is False
    again = [shared.call("POST", "/in/hooks", body(1, VALUES_MAX), BEARER) for _ in range(3)]
    assert [(one.status, one.document["replay"]) for one in again] == [(200, True)] * 3
    assert chunked(shared, body(1, VALUES_MAX), BEARER).document == again[0].document


@pytest.mark.parametrize("values", [LARGE_VALUES * 2, VALUES_MAX + 1])
def test_partners_bodies_have_the_same_bound(shared: Site, values: int) -> None:
    many = [0.5] * values
    calls = (
        ("/wes/v1/realtime", {"correlation_id": str(uuid4()), "x": many}),
        ("/wes/v1/confirmations", {"correlation_id": str(uuid4()), "window": f"w-{values}", "x": many}),
        ("/v1/events", {"id": f"e-{values}", "key": "k", "data": many}),
    )
    found = [shared.partner("POST", path, document).status for path, document in calls]
    again = [shared.partner("POST", path, document).status for path, document in calls]

    assert found == again == [200 if values <= VALUES_MAX else 400] * 3
    if values > VALUES_MAX:
        more = {"cursor": "x", "y": many}
        assert shared.partner("POST", "/wes/v1/dispatch/ack", more).problem == "malformed"


def test_commas_in_a_text_are_no_values(shared: Site) -> None:
    event = {"id": "csv", "text": 'a,[{"\\,' * (VALUES_MAX // 2)}

    assert shared.hook(event).status == 200


def test_the_bound_can_be_set_and_what_cannot_be_sent_on_is_still_refused(tmp_path: Path) -> None:
    with Site(tmp_path, settings(server={"body_values_max": VALUES_MAX * 2})).serving() as site:
        assert site.call("POST", "/in/hooks", body(1, VALUES_MAX + 10), BEARER).status == 200
        event = {"id": "e", "key": "k", "data": [0] * (CARRIED_VALUES_MAX + 1)}
        refused = site.partner("POST", "/v1/events", event)

    assert refused.problem == "malformed"
    assert f"more than {CARRIED_VALUES_MAX} JSON values" in refused.document["detail"]


class Held:
    """Reading that waits, in its thread, until it is let go."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.go = threading.Event()


@contextmanager
def held(site: Site, monkeypatch: pytest.MonkeyPatch, count: int) -> Iterator[tuple[Held, list[Answer]]]:
    """Large bodies of one tenant on the way, the first of which is being read."""
    reading, answers, read = Held(), [], LargeBodies.read

    def wait(self: LargeBodies, given: bytes) -> Any:
        if self.has(given):
            reading.begun.append(len(given))
            reading.go.wait(DEADLINE_SECONDS)
        return read(self, given)

    monkeypatch.setattr(LargeBodies, "read", wait)

    def send(number: int) -> None:
        given = body(number, 5_000)
        short = site.call("POST", "/in/hooks", given, BEARER) if number % 2 else None
        answers.append(short or chunked(site, given, BEARER))

    threads = [threading.Thread(target=send, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: reading.begun, what="a body to be read")
        yield reading, answers
    finally:
        reading.go.set()
        for thread in threads:
            thread.join(DEADLINE_SECONDS)


def test_everybody_else_is_served_while_a_large_body_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One body of the tenant is being read; its others wait, and take its places only."""
    with Site(tmp_path, settings(surfaces=TWO)).serving() as site:
        with held(site, monkeypatch, 4) as (reading, answers):
            wait_until(lambda: site.service._throttle.total == 4, what="all to have a place")
            assert site.call("GET", "/livez").status == 200
            assert site.call("POST", "/in/others", {"id": "small"}, BEARER).status == 200
            assert site.hook({"id": "small"}).status == 200
            assert len(reading.begun) == 1
        assert [answer.status for answer in answers] == [200] * 4
        assert len(reading.begun) == 4


def test_large_bodies_that_wait_count_for_their_tenant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = settings(surfaces=TWO, server={"tenant_concurrency_max": 2})
    with Site(tmp_path, given).serving() as site, held(site, monkeypatch, 2):
        wait_until(lambda: site.service._throttle.total == 2, what="both to have a place")
        assert site.call("POST", "/in/hooks", body(9, 5_000), BEARER).problem == "too-many"
        assert chunked(site, body(9, 5_000), BEARER).problem == "too-many"
        assert site.call("POST", "/in/others", {"id": "small"}, BEARER).status == 200


@pytest.mark.slow
@pytest.mark.parametrize("values", [170_000, 45_000], ids=["refused", "taken"])
def test_a_tenants_large_bodies_do_not_make_another_tenant_wait(tmp_path: Path, values: int) -> None:
    """In a process of its own: four connections, each sending as fast as it is answered."""
    others = HOOKS_TEXT.replace(".hooks]", ".others]").replace('"acme"', '"other"')
    with served(tmp_path, more=HOOKS_TEXT + others) as site, flood(site, values) as statuses:
        wait_until(lambda: len(statuses) >= 4, what="the flood")
        took = [_took_ms(site, number) for number in range(12)]

    assert set(statuses) == {400 if values > VALUES_MAX else 200}
    assert median(took) < 150, (
        took
    )  # in the loop, each body alone would take 50 to 200 ms, and there are four


@contextmanager
def flood(site: Process, values: int) -> Iterator[list[int]]:
    """Four connections with different large bodies, until the block ends."""
    statuses: list[int] = []
    over = threading.Event()

    def send(sender: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=DEADLINE_SECONDS)
        large, number = body("0", values), 0
        while not over.is_set():
            number += 1
            given = large.replace(b'"n-0"', b'"n-%d-%d"' % (sender, number))
            connection.request("POST", "/in/hooks", given, BEARER)
            response = connection.getresponse()
            response.read()
            statuses.append(response.status)
        connection.close()

    threads = [threading.Thread(target=send, args=(sender,)) for sender in range(4)]
    for thread in threads:
        thread.start()
    try:
        yield statuses
    finally:
        over.set()
        for thread in threads:
            thread.join(DEADLINE_SECONDS)


def _took_ms(site: Process, number: int) -> float:
    clock = SystemClock()
    began = clock.elapsed_us()
    assert site.call("POST", "/in/others", {"id": f"v-{number}"}, BEARER).status == 200
    return (clock.elapsed_us() - began) / 1000
