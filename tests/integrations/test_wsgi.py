"""`Idempotency-Key` in front of a WSGI application: the same promises, for threads."""

from __future__ import annotations

import io
from typing import Any

import pytest

from oncegate.wsgi import IdempotencyKey, caller_by_authorization
from tests.integrations.callers import KEY, Answer
from tests.integrations.test_asgi import BrokenStore
from tests.support.gates import Ledger


class Shop:
    """An application that counts what it carries out; its iterable may fail when it is closed."""

    def __init__(self) -> None:
        self.orders: list[bytes] = []
        self.status = "201 Created"
        self.fails_on_close = False
        self.closed = 0

    def __call__(self, environ: Any, start_response: Any) -> Any:
        self.orders.append(environ["wsgi.input"].read())
        write = start_response(self.status, [("Content-Type", "text/plain"), ("Set-Cookie", "canary")])
        write(b"first ")
        return self

    def __iter__(self) -> Any:
        yield b"second"

    def close(self) -> None:
        self.closed += 1
        if self.fails_on_close:
            raise RuntimeError("COMMIT failed")


def ask(app: Any, body: bytes = b"tea", **changes: Any) -> Answer:
    environ = {
        "REQUEST_METHOD": "POST",
        "SCRIPT_NAME": "",
        "PATH_INFO": "/orders",
        "QUERY_STRING": "",
        "CONTENT_LENGTH": str(len(body)),
        "HTTP_IDEMPOTENCY_KEY": KEY,
        "HTTP_AUTHORIZATION": "Bearer anna",
        "wsgi.input": io.BytesIO(body),
        **changes,
    }
    got: list[Any] = []

    def start_response(status: str, headers: Any, exc_info: Any = None) -> None:
        got.append((int(status.split(maxsplit=1)[0]), {name.lower(): value for name, value in headers}))

    parts = b"".join(app({k: v for k, v in environ.items() if v is not None}, start_response))
    status, headers = got[0]
    return Answer(status, headers, parts)


def guard(ledger: Ledger, shop: Any, **options: Any) -> IdempotencyKey:
    gate = ledger.gate(options.pop("crashpoints", None))
    return IdempotencyKey(shop, gate=gate, caller=caller_by_authorization, **options)


def test_a_repeat_gets_the_first_response_and_runs_nothing(ledger: Ledger) -> None:
    shop = Shop()
    app = guard(ledger, shop)

    first, second = ask(app), ask(app)

    assert (first.status, first.body, first.headers["set-cookie"]) == (201, b"first second", "canary")
    assert (second.status, second.body, second.replayed) == (201, b"first second", True)
    assert "set-cookie" not in second.headers
    assert (len(shop.orders), shop.closed) == (1, 1)


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"HTTP_IDEMPOTENCY_KEY": None}, 400),
        ({"HTTP_IDEMPOTENCY_KEY": '"a","b"'}, 400),
        ({"HTTP_AUTHORIZATION": None}, 401),
        ({"HTTP_AUTHORIZATION": ""}, 401),
        ({"HTTP_AUTHORIZATION": " "}, 401),
        ({"PATH_INFO": "/other"}, 422),
        ({"QUERY_STRING": "a=1"}, 422),
    ],
)
def test_refusals(ledger: Ledger, changes: dict[str, Any], status: int) -> None:
    shop = Shop()
    app = guard(ledger, shop)
    ask(app)

    assert ask(app, **changes).status == status
    assert len(shop.orders) == 1


@pytest.mark.parametrize(
    ("status", "told"), [("204 No Content", None), ("304 Not Modified", None), ("200 OK", "0")]
)
def test_no_length_is_added_where_there_can_be_no_body(
    ledger: Ledger, status: str, told: str | None
) -> None:
    def shop(environ: Any, start_response: Any) -> Any:
        start_response(status, [])
        return []

    app = guard(ledger, shop)

    assert [ask(app).headers.get("content-length") for _ in range(2)] == [told, told]


@pytest.mark.parametrize("changes", [{}, {"CONTENT_LENGTH": None, "wsgi.input_terminated": True}])
def test_a_body_over_the_limit_is_413(ledger: Ledger, changes: dict[str, Any]) -> None:
    """Whether its length was announced or not."""
    shop = Shop()
    app = guard(ledger, shop, body_bytes_max=4)

    assert ask(app, b"12345", **changes).status == 413
    assert ask(app, b"1234", **changes).status == 201
    assert shop.orders == [b"1234"]


def test_a_failure_while_closing_is_a_failure(ledger: Ledger) -> None:
    """Django commits and answers; what closing does late still counts (trap 4)."""
    shop = Shop()
    shop.fails_on_close = True
    app = guard(ledger, shop)
    with pytest.raises(RuntimeError):
        ask(app)
    shop.fails_on_close = False

    assert (ask(app).status, ask(app).status, len(shop.orders)) == (409, 409, 1)


@pytest.mark.parametrize(("declared", "again"), [(False, False), (True, True), ([503], True)])
def test_a_request_that_failed_is_run_again_only_where_failures_are_declared_harmless(
    ledger: Ledger, declared: Any, again: bool
) -> None:
    shop = Shop()
    app = guard(ledger, shop, retry_on_5xx=declared)
    shop.status = "503 Service Unavailable"
    assert ask(app).status == 503
    shop.status = "201 Created"

    assert (ask(app).status, len(shop.orders)) == ((201, 2) if again else (409, 1))


def test_without_the_ledger_nothing_runs(ledger: Ledger) -> None:
    """503 and no effect (I19)."""
    shop = Shop()

    answer = ask(guard(ledger, shop, crashpoints=BrokenStore("commit.before")))

    assert (answer.status, shop.orders) == (503, [])


def test_an_application_may_use_once(ledger: Ledger) -> None:
    """`once` is in the environ, for plain functions."""
    gate = ledger.gate()
    bank = gate.downstream("bank", honours_key="7d")
    charged: list[str] = []

    def charge(idempotency_key: str) -> dict[str, str]:
        charged.append(idempotency_key)
        return {"id": "ch-1"}

    def shop(environ: Any, start_response: Any) -> Any:
        environ["oncegate.once"].effect(bank, charge)
        start_response("200 OK", [])
        return [environ["oncegate.key"].encode()]

    app = IdempotencyKey(shop, gate=gate, caller=caller_by_authorization, uses_once=True)

    assert [ask(app).status, ask(app).status, len(charged)] == [200, 200, 1]


def test_callers_never_meet(ledger: Ledger) -> None:
    shop = Shop()
    app = guard(ledger, shop)

    answers = [ask(app), ask(app, HTTP_AUTHORIZATION="Bearer bert")]

    assert [answer.replayed for answer in answers] == [False, False]
    assert len(shop.orders) == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"CONTENT_LENGTH": "10"},
        {"CONTENT_LENGTH": "ten"},
        {"CONTENT_LENGTH": "-3"},
        {"CONTENT_LENGTH": "+3"},
        {"CONTENT_LENGTH": None, "HTTP_TRANSFER_ENCODING": "chunked"},
    ],
)
def test_a_body_that_is_not_there_as_announced_is_not_run_and_does_not_spend_the_key(
    ledger: Ledger, changes: dict[str, Any]
) -> None:
    """A caller whose connection broke in the middle may send the whole request again."""
    shop = Shop()
    app = guard(ledger, shop)

    broken, whole = ask(app, **changes), ask(app)

    assert (broken.status, b"problem:malformed" in broken.body) == (400, True)
    assert (whole.status, shop.orders) == (201, [b"tea"])
