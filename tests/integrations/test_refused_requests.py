"""What refused requests leave in the ledger: nothing, where nothing was done for them (I14, I18)."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from oncegate import Gate
from oncegate.asgi import IdempotencyKey
from oncegate.maintenance.pruner import Bounds, Pruner
from oncegate.model.states import State
from oncegate.testing import ManualClock
from tests.integrations.callers import call, run

REQUESTS, IN_DOUBT_MAX = 50, 5
RETENTION_SECONDS = 30 * 86_400
TABLES = ("entry", "payload", "outcome", "step", "trace", "content", "repeat", "name", "log")
Counts = dict[str, int]


class Shop:
    """An application that answers with one status."""

    def __init__(self, status: int) -> None:
        self.status, self.calls = status, 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.calls += 1
        await send({"type": "http.response.start", "status": self.status, "headers": []})
        await send({"type": "http.response.body", "body": b""})


class Place:
    """One ledger with a gate, and a way to count its rows."""

    def __init__(self, url: str, connect: Callable[[], Any]) -> None:
        self.clock = ManualClock()
        self.gate = Gate(url, clock=self.clock, parked_max=IN_DOUBT_MAX)
        self.pruner = Pruner(self.gate)
        self._connect = connect

    def app(self, shop: Any, **options: Any) -> IdempotencyKey:
        return IdempotencyKey(shop, **{"gate": self.gate, "caller": lambda request: "anna", **options})

    def rows(self) -> Counts:
        with contextlib.closing(self._connect()) as connection:
            return {
                table: connection.execute(f"SELECT count(*) FROM oncegate_{table}").fetchone()[0]
                for table in TABLES
            }

    def states(self) -> Counts:
        with contextlib.closing(self._connect()) as connection:
            found = connection.execute("SELECT state, count(*) FROM oncegate_entry GROUP BY state")
            return {State(number).name: count for number, count in found.fetchall()}


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "sqlite":
        path = tmp_path / "ledger.db"
        made = Place(f"sqlite:///{path}", lambda: sqlite3.connect(path))
    else:
        url = request.getfixturevalue("ledger_url")
        made = Place(url, lambda: psycopg.connect(url))
    with made.gate:
        yield made


def ask(app: IdempotencyKey, count: int) -> set[int]:
    """Sends requests with different keys."""

    async def all_of_them() -> set[int]:
        return {(await call(app, key=f'"key-{number}"')).status for number in range(count)}

    found: set[int] = run(all_of_them())
    return found


@pytest.mark.slow
def test_refused_requests_leave_nothing(place: Place) -> None:
    """Nothing was done for them: no entry, no payload, no step, no record of the log."""
    shop = Shop(201)
    app = place.app(shop)
    run(call(app, key='"first"'))
    before = place.rows()
    for shop.status in (401, 403, 409, 429):
        assert ask(app, REQUESTS) == {shop.status}

    assert place.rows() == before
    assert shop.calls == 1 + 4 * REQUESTS


@pytest.mark.parametrize("status", [500, 503])
def test_failures_declared_harmless_leave_nothing(place: Place, status: int) -> None:
    """With retry_on_5xx the application says that it did nothing."""
    shop = Shop(201)
    app = place.app(shop, retry_on_5xx=[500, 503])
    run(call(app, key='"first"'))
    before, shop.status = place.rows(), status

    assert ask(app, REQUESTS) == {status}

    assert place.rows() == before


def test_refused_key_runs_once_it_is_allowed_and_then_never_again(place: Place) -> None:
    """A 401 is no outcome: the same key with a good token runs, once."""
    shop = Shop(401)
    app = place.app(shop)
    ask(app, 3)
    shop.status = 201
    ask(app, 3)

    assert ask(app, 3) == {201}
    assert shop.calls == 6


def test_request_that_called_something_through_once_is_kept_although_it_was_refused(place: Place) -> None:
    """A step was called for it: what is known of the step stays for the next try."""
    called: list[str] = []
    bank = place.gate.downstream("bank", honours_key="7d")

    async def pay(order: str, idempotency_key: str) -> str:
        called.append(order)
        return "paid"

    async def shop(scope: Any, receive: Any, send: Any) -> None:
        await scope["oncegate.once"].effect(bank, pay, "order")
        await send({"type": "http.response.start", "status": 409, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    app = place.app(shop, uses_once=True)
    assert ask(app, 1) == {409}
    assert ask(app, 1) == {409}

    assert place.states() == {"RETRYABLE": 1}
    assert called == ["order"]


def test_request_whose_call_was_cut_off_is_kept_although_no_step_is_on_record(place: Place) -> None:
    """I1: the bank may have paid; a withdrawn key would forget that it was ever called."""
    bank, answers = place.gate.downstream("bank", honours_key="7d"), ["paid"]

    async def pay(order: str, idempotency_key: str) -> str:
        if answers:
            return answers.pop()
        raise TimeoutError("no answer")

    async def shop(scope: Any, receive: Any, send: Any) -> None:
        status = 409
        with contextlib.suppress(TimeoutError):
            await scope["oncegate.once"].effect(bank, pay, "order")
            status = 201
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    assert ask(place.app(shop, uses_once=True), 2) == {201, 409}

    # The first request declared the step for all that follow, so the second one's start is not recorded.
    assert (place.states(), place.rows()["step"]) == ({"COMMITTED": 1, "RETRYABLE": 1}, 0)


def test_names_of_strangers_are_removed_with_the_next_runs_of_the_pruner(place: Place) -> None:
    """Each stranger shows another credential: their names are all that is left, and not for long."""
    shop = Shop(401)
    app = place.app(shop, caller=lambda scope: dict(scope["headers"])[b"authorization"].decode())
    pruner = Pruner(place.gate, bounds=Bounds(names_kept=0))
    run(call(app, key='"key"', headers={"authorization": "anna"}))

    for number in range(5):
        run(call(app, key='"key"', headers={"authorization": f"stranger {number}"}))
    full = place.rows()
    for _ in range(3):
        pruner.run_once()
        place.clock.advance(3_600)

    assert full["entry"] == 0
    assert place.rows()["name"] <= full["name"] - 5


def test_requests_that_failed_with_500_stay_however_old_they_are(place: Place) -> None:
    """The application may have acted: a person decides, and no repeat runs meanwhile."""
    shop = Shop(500)
    app = place.app(shop)
    ask(app, 5)
    place.pruner.run_once()
    place.clock.advance(10 * RETENTION_SECONDS)

    assert place.pruner.run_once().entries == 0
    assert place.states() == {"UNKNOWN": 5}
    ask(app, 5)
    assert shop.calls == 5


def test_caller_whose_requests_end_in_doubt_is_told_429_at_the_bound(place: Place) -> None:
    """Each may have acted and waits for a person: new keys are refused before they run, others go on."""
    shop = Shop(500)
    app = place.app(shop, caller=lambda scope: dict(scope["headers"])[b"authorization"].decode())

    async def send(caller: str, number: int) -> int:
        answer = await call(app, key=f'"key-{number}"', headers={"authorization": caller})
        return answer.status

    async def all_of_them() -> list[int]:
        flood = [await send("mallory", number) for number in range(8)]
        shop.status = 201
        return [*flood, await send("mallory", 0), await send("anna", 1)]

    assert run(all_of_them()) == [*[500] * 5, *[429] * 3, 409, 201]
    assert shop.calls == 6
    assert place.states() == {"UNKNOWN": 5, "COMMITTED": 1}
