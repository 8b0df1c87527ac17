"""`Idempotency-Key` in front of an ASGI application: carried out once, answered the same."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any
from urllib.parse import unquote

import pytest

from oncegate import ClaimLost, ConfigError, NotApplied, OutcomeUnknown, StoreUnavailable
from oncegate.asgi import IdempotencyKey, caller_by_authorization
from oncegate.crashpoints import CrashPoints
from oncegate.integrations.policy import Undecided
from oncegate.integrations.replies import ResponseBuffer
from oncegate.maintenance.reconciler import Reconciler
from oncegate.testing import CrashReached
from tests.integrations.callers import KEY, Answer, call, run
from tests.support.gates import DeadAfter, Ledger

ANNA = {"authorization": "Bearer anna"}


class Shop:
    """An application that counts what it carries out and answers as it is told."""

    def __init__(self) -> None:
        self.orders: list[bytes] = []
        self.scopes: list[Any] = []
        self.status = 201
        self.body = b'{"order": 7}'
        self.headers: list[tuple[bytes, bytes]] = [(b"content-type", b"application/json")]
        self.raises: Exception | None = None
        self.raises_after: Exception | None = None
        self.reached = asyncio.Event()
        self.gate: asyncio.Event | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.scopes.append(scope)
        self.orders.append((await receive())["body"])
        self.reached.set()
        if self.gate is not None:
            await self.gate.wait()
        if self.raises is not None:
            raise self.raises
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await send({"type": "http.response.body", "body": self.body[:3], "more_body": True})
        await send({"type": "http.response.body", "body": self.body[3:]})
        if self.raises_after is not None:
            raise self.raises_after


def guard(
    ledger: Ledger, shop: Any, crashpoints: CrashPoints | None = None, **options: Any
) -> IdempotencyKey:
    options = {"caller": caller_by_authorization, **options}
    return IdempotencyKey(shop, gate=ledger.gate(crashpoints), **options)


def ask(app: Any, **request: Any) -> Answer:
    answer: Answer = run(call(app, **{"headers": ANNA, **request}))
    return answer


def problem(answer: Answer) -> str:
    assert answer.headers["content-type"] == "application/problem+json"
    document = json.loads(answer.body)
    assert document["status"] == answer.status
    return str(document["type"]).removeprefix("urn:oncegate:problem:")


def test_a_repeat_gets_the_first_response_and_runs_nothing(ledger: Ledger) -> None:
    """Status, safe headers and body are the same; a header says that it is a replay."""
    shop = Shop()
    app = guard(ledger, shop)

    first, second = ask(app), ask(app)

    assert len(shop.orders) == 1
    assert (first.status, first.body, first.replayed) == (201, b'{"order": 7}', False)
    assert (second.status, second.body, second.replayed) == (201, b'{"order": 7}', True)
    assert second.headers["content-type"] == "application/json"


def test_a_repeat_after_a_restart_is_a_replay_too(ledger: Ledger) -> None:
    """Nothing of it lives in memory only."""
    shop = Shop()
    ask(guard(ledger, shop))

    answer = ask(guard(ledger, shop))

    assert answer.replayed
    assert len(shop.orders) == 1


@pytest.mark.parametrize(
    ("key", "kind"), [(None, "key-missing"), ("bare", "key-malformed"), ('""', "key-malformed")]
)
def test_a_request_without_a_usable_key_is_refused(ledger: Ledger, key: str | None, kind: str) -> None:
    shop = Shop()

    answer = ask(guard(ledger, shop), key=key)

    assert (answer.status, problem(answer)) == (400, kind)
    assert shop.orders == []


def test_a_request_without_a_key_passes_where_none_is_required(ledger: Ledger) -> None:
    shop = Shop()
    app = guard(ledger, shop, required=False)

    assert [ask(app, key=None).status, ask(app, key=None).status] == [201, 201]
    assert len(shop.orders) == 2


def test_reading_needs_no_key(ledger: Ledger) -> None:
    """GET is idempotent by itself; so is what `applies` leaves out."""
    shop = Shop()
    app = guard(ledger, shop, applies=lambda scope: scope["path"] != "/login")

    assert ask(app, method="GET", key=None).status == 201
    assert ask(app, path="/login", key=None).status == 201


@pytest.mark.parametrize(
    "change",
    [
        {"body": b'{"item": 2}'},
        {"path": "/refunds"},
        {"query": b"gift=1"},
        {"method": "PATCH"},
        {"headers": {**ANNA, "content-type": "text/plain"}},
    ],
)
def test_another_request_under_a_known_key_is_422(ledger: Ledger, change: dict[str, Any]) -> None:
    """Nothing runs, and the first response is not shown."""
    shop = Shop()
    app = guard(ledger, shop)
    ask(app)

    answer = ask(app, **change)

    assert (answer.status, problem(answer)) == (422, "conflict")
    assert b"order" not in answer.body
    assert len(shop.orders) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b"/p/a%2Fb", b"/p/a/b"),
        (b"/p/a%252Fb", b"/p/a%2Fb"),
        (b"/p/%E4", b"/p/%ef%bf%bd"),
        (b"/p/a%3Fb", b"/p/a"),
    ],
)
def test_paths_that_only_look_alike_are_other_requests(ledger: Ledger, one: bytes, other: bytes) -> None:
    """A server gives the path decoded, and as it was sent: two resources never share a response."""
    shop = Shop()
    app = guard(ledger, shop)

    def sent(raw_path: bytes) -> Answer:
        return ask(app, path=unquote(raw_path.decode(), errors="replace"), raw_path=raw_path)

    assert [sent(raw).status for raw in (one, other, one, other)] == [201, 422, 201, 422]
    assert sent(one).replayed
    assert len(shop.orders) == 1


@pytest.mark.parametrize(("path", "raw_path"), [("/orders", b"/orders"), ("/café a", b"/caf%C3%A9%20a")])
def test_a_path_in_its_usual_spelling_is_known_from_before_a_server_told_it(
    ledger: Ledger, path: str, raw_path: bytes
) -> None:
    """Another server, or an older ledger: what is the same request stays the same."""
    app = guard(ledger, Shop())
    ask(app, path=path)

    assert ask(app, path=path, raw_path=raw_path).replayed
    assert ask(app, path=path, raw_path=raw_path + b"?gift=1").replayed, (
        "some servers leave the query there"
    )


def test_while_the_first_runs_a_repeat_is_409_and_another_request_422(ledger: Ledger) -> None:
    """Content is compared first: another request learns nothing of whether one is running."""

    async def scene() -> tuple[Answer, Answer, Answer, Answer]:
        shop = Shop()
        shop.gate = asyncio.Event()
        app = guard(ledger, shop)
        running = asyncio.create_task(call(app, headers=ANNA))
        await shop.reached.wait()
        repeat = await call(app, headers=ANNA)
        other = await call(app, headers=ANNA, body=b"other")
        shop.gate.set()
        return repeat, other, await running, await call(app, headers=ANNA)

    repeat, other, first, later = run(scene())

    assert (repeat.status, problem(repeat)) == (409, "busy")
    assert int(repeat.headers["retry-after"]) >= 1
    assert (other.status, problem(other)) == (422, "conflict")
    assert (first.status, later.status, later.replayed) == (201, 201, True)


def test_callers_never_meet(ledger: Ledger) -> None:
    """Another caller with the same key is as if nobody had used it."""
    shop = Shop()
    app = guard(ledger, shop)
    ask(app)

    other = ask(app, headers={"authorization": "Bearer bert"})

    assert (other.status, other.replayed) == (201, False)
    assert len(shop.orders) == 2


@pytest.mark.parametrize("headers", [{}, {"authorization": ""}, {"authorization": " "}])
def test_a_request_whose_caller_cannot_be_told_is_refused(ledger: Ledger, headers: dict[str, str]) -> None:
    """Whoever sends an empty header would share keys with everybody else who does."""
    shop = Shop()

    answer = ask(guard(ledger, shop), headers=headers)

    assert (answer.status, problem(answer)) == (401, "caller-unknown")
    assert shop.orders == []


def test_the_authorization_itself_is_nowhere_in_the_ledger(ledger: Ledger) -> None:
    app = guard(ledger, Shop())
    ask(app, headers={"authorization": "Bearer canary-4711"}, body=b"canary-4712")

    for suffix in ("", "-wal"):
        file = ledger.path.with_name(ledger.path.name + suffix)
        assert not file.exists() or b"canary" not in file.read_bytes()


def test_secrets_in_the_response_reach_the_first_caller_only(ledger: Ledger) -> None:
    """A cookie set for one session is not set again by a replay, and is not kept."""
    shop = Shop()
    shop.headers = [
        (b"set-cookie", b"session=canary"),
        (b"www-authenticate", b"canary"),
        (b"x-internal", b"canary"),
        (b"location", b"/orders/7"),
        (b"x-order", b"7"),
    ]
    app = guard(ledger, shop, keep_headers=["X-Order"])

    first, second = ask(app), ask(app)

    assert first.headers["set-cookie"] == "session=canary"
    assert "set-cookie" not in second.headers
    assert "canary" not in str(second.headers)
    assert (second.headers["location"], second.headers["x-order"]) == ("/orders/7", "7")


@pytest.mark.parametrize("name", ["Set-Cookie", "authorization", "WWW-Authenticate"])
def test_headers_with_secrets_cannot_be_kept_at_all(ledger: Ledger, name: str) -> None:
    with pytest.raises(ConfigError, match="secret"):
        guard(ledger, Shop(), keep_headers=[name])


@pytest.mark.parametrize("status", [401, 403, 408, 409, 425, 429])
def test_an_answer_that_is_not_final_is_not_kept(ledger: Ledger, status: int) -> None:
    """The caller gets it as it is; a repeat runs again and may succeed."""
    shop = Shop()
    app = guard(ledger, shop)
    shop.status = status
    first = ask(app)
    shop.status = 201

    second, third = ask(app), ask(app)

    assert (first.status, first.body) == (status, b'{"order": 7}')
    assert (second.status, second.replayed, third.replayed) == (201, False, True)
    assert len(shop.orders) == 2


@pytest.mark.parametrize("status", [200, 204, 303, 400, 404, 410, 422])
def test_a_final_answer_is_kept_also_if_it_is_a_refusal(ledger: Ledger, status: int) -> None:
    shop = Shop()
    app = guard(ledger, shop)
    shop.status = status
    ask(app)

    assert (ask(app).status, len(shop.orders)) == (status, 1)


@pytest.mark.parametrize(("status", "told"), [(204, None), (304, None), (205, "0"), (200, "0")])
def test_no_length_is_added_where_there_can_be_no_body(
    ledger: Ledger, status: int, told: str | None
) -> None:
    """RFC 9110: a server must not send Content-Length with 204, nor a wrong one with 304."""
    shop = Shop()
    shop.status, shop.body, shop.headers = status, b"", []
    app = guard(ledger, shop)

    answers = [ask(app), ask(app)]

    assert [(answer.status, answer.replayed) for answer in answers] == [(status, False), (status, True)]
    assert [answer.headers.get("content-length") for answer in answers] == [told, told]


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_a_request_that_failed_is_not_run_again(ledger: Ledger, status: int) -> None:
    """A failure does not say what was done before it: three requests, one effect (I1, I18)."""
    shop = Shop()
    app = guard(ledger, shop)
    shop.status = status
    first = ask(app)
    shop.status = 201

    repeats = [ask(app), ask(app)]

    assert (first.status, first.body) == (status, b'{"order": 7}')
    assert [(answer.status, problem(answer)) for answer in repeats] == [(409, "unresolved")] * 2
    assert len(shop.orders) == 1
    assert ledger.state() == "unknown"


def test_an_application_that_raises_is_not_run_again(ledger: Ledger) -> None:
    """The error goes on to the server, as it does without the middleware; repeats get 409."""
    shop = Shop()
    shop.raises = KeyError("x")
    app = guard(ledger, shop)
    with pytest.raises(KeyError):
        ask(app)
    shop.raises = None

    answers = [ask(app), ask(app)]

    assert [(answer.status, problem(answer)) for answer in answers] == [(409, "unresolved")] * 2
    assert len(shop.orders) == 1


def test_an_application_that_declares_that_nothing_was_applied_is_run_again(ledger: Ledger) -> None:
    shop = Shop()
    shop.raises = NotApplied("the stock service refused the connection")
    app = guard(ledger, shop)
    with pytest.raises(NotApplied):
        ask(app)
    shop.raises = None

    assert (ask(app).status, len(shop.orders)) == (201, 2)


@pytest.mark.parametrize(
    ("declared", "status", "again"),
    [(True, 500, True), (True, 503, True), ([503], 503, True), ([503], 500, False), ([], 503, False)],
)
def test_failures_that_are_declared_harmless_are_run_again(
    ledger: Ledger, declared: Any, status: int, again: bool
) -> None:
    shop = Shop()
    app = guard(ledger, shop, retry_on_5xx=declared)
    shop.status = status
    ask(app)
    shop.status = 201

    assert (ask(app).status, len(shop.orders)) == ((201, 2) if again else (409, 1))


@pytest.mark.parametrize(("declared", "again"), [(True, True), ([500, 503], False)])
def test_an_exception_is_harmless_only_where_all_failures_are(
    ledger: Ledger, declared: Any, again: bool
) -> None:
    shop = Shop()
    shop.raises = KeyError("x")
    app = guard(ledger, shop, retry_on_5xx=declared)
    with pytest.raises(KeyError):
        ask(app)
    shop.raises = None

    assert (ask(app).status, len(shop.orders)) == ((201, 2) if again else (409, 1))


@pytest.mark.parametrize("declared", [[404], ["503"], [600]])
def test_only_failures_can_be_declared_harmless(ledger: Ledger, declared: Any) -> None:
    with pytest.raises(ConfigError, match="retry_on_5xx"):
        guard(ledger, Shop(), retry_on_5xx=declared)


def test_a_failure_after_the_response_is_a_failure(ledger: Ledger) -> None:
    """A commit on the way out that fails must not be told as a 200 (trap 4)."""
    shop = Shop()
    shop.raises_after = RuntimeError("commit failed")
    app = guard(ledger, shop)
    with pytest.raises(RuntimeError):
        ask(app)
    shop.raises_after = None

    assert (problem(ask(app)), len(shop.orders)) == ("unresolved", 1)


def test_a_failure_at_a_downstream_that_honours_the_key_is_run_again(ledger: Ledger) -> None:
    """And the application finds the key to pass on, the same each time."""
    shop, gate = Shop(), ledger.gate()
    bank = gate.downstream("bank", honours_key="7d")
    app = IdempotencyKey(shop, gate=gate, caller=caller_by_authorization, downstream=bank)
    shop.status = 500
    ask(app)
    shop.status = 201

    assert ask(app).status == 201
    first, second = (scope["oncegate.key"] for scope in shop.scopes)
    assert first == second != ""


def test_a_body_over_the_limit_is_413_also_in_parts(ledger: Ledger) -> None:
    """Nothing is run, and no more is read."""
    shop = Shop()
    app = guard(ledger, shop, body_bytes_max=10)

    answer = ask(app, body=[b"12345", b"678901", b"never read"])

    assert (answer.status, problem(answer)) == (413, "body-too-large")
    assert shop.orders == []
    assert ask(app, body=[b"12345", b"67890"]).status == 201
    assert shop.orders == [b"1234567890"]


def test_a_response_over_the_limit_is_told_as_such_each_time(ledger: Ledger) -> None:
    """It was carried out, once; what cannot be kept is not half kept."""
    shop = Shop()
    app = guard(ledger, shop, response_bytes_max=5)

    answers = [ask(app), ask(app)]

    assert [(answer.status, problem(answer)) for answer in answers] == [(500, "response-too-large")] * 2
    assert len(shop.orders) == 1


class BrokenStore(CrashPoints):
    """A ledger that cannot be written from a point on."""

    def __init__(self, at: str) -> None:
        self.at = at

    def hit(self, name: str) -> None:
        if name == self.at:
            raise StoreUnavailable("down")


@pytest.mark.parametrize("at", ["reserve.before", "commit.before"])
def test_without_the_ledger_nothing_runs(ledger: Ledger, at: str) -> None:
    """503 and no effect; it never fails open (I19)."""
    shop = Shop()

    answer = ask(guard(ledger, shop, BrokenStore(at)))

    assert (answer.status, problem(answer)) == (503, "store-unavailable")
    assert int(answer.headers["retry-after"]) >= 1
    assert shop.orders == []


def test_a_response_that_could_not_be_recorded_is_not_sent(ledger: Ledger) -> None:
    """2xx only after the record is durable (I3)."""
    shop = Shop()

    answer = ask(guard(ledger, shop, BrokenStore("settle.before")))

    assert (answer.status, problem(answer)) == (503, "store-unavailable")
    assert len(shop.orders) == 1


def test_after_a_crash_the_application_is_not_run_twice(ledger: Ledger) -> None:
    """Nobody can say whether it acted: a person decides."""
    shop = Shop()
    with pytest.raises(CrashReached):
        ask(guard(ledger, shop, DeadAfter("effect.after")))
    ledger.clock.advance(3600)

    answer = ask(guard(ledger, shop))

    assert (answer.status, problem(answer)) == (409, "unresolved")
    assert len(shop.orders) == 1


def test_a_caretaker_never_runs_a_request_by_itself(ledger: Ledger) -> None:
    """One that failed waits for its caller; one that was interrupted goes to a person."""
    shop, gate = Shop(), ledger.gate()
    app = IdempotencyKey(shop, gate=gate, caller=caller_by_authorization, retry_on_5xx=True)
    shop.status = 500
    ask(app)
    ask(app)
    ledger.clock.advance(3600)

    report = run(Reconciler(gate).run_once_async())

    assert report.looked == []
    assert len(shop.orders) == 2


def test_a_caretaker_does_not_run_an_interrupted_request_either(ledger: Ledger) -> None:
    """Even where its downstream would honour the key, there is no request to run any more."""
    shop = Shop()
    crashed = ledger.gate(DeadAfter("effect.after"))
    gate = ledger.gate()
    for one in (crashed, gate):
        bank = one.downstream("bank", honours_key="7d")
        app = IdempotencyKey(shop, gate=one, caller=caller_by_authorization, downstream=bank)
        if one is crashed:
            with pytest.raises(CrashReached):
                ask(app)
    ledger.clock.advance(3600)

    run(Reconciler(gate).run_once_async())

    assert (len(shop.orders), ledger.state()) == (1, "retryable")
    assert (ask(app).status, len(shop.orders)) == (201, 2)


def test_a_caller_that_goes_away_early_leaves_nothing(ledger: Ledger) -> None:
    """Half a request is no request."""
    shop = Shop()

    async def scene() -> list[Any]:
        got: list[Any] = []
        waiting = [{"type": "http.request", "body": b"x", "more_body": True}, {"type": "http.disconnect"}]

        async def receive() -> Any:
            return waiting.pop(0)

        async def send(message: Any) -> None:
            got.append(message)

        headers = [(b"idempotency-key", KEY.encode()), (b"authorization", b"a")]
        scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": headers}
        await guard(ledger, shop)(scope, receive, send)
        return got

    assert run(scene()) == []
    assert shop.orders == []


def test_an_application_that_uses_once_is_finished_after_a_crash(ledger: Ledger) -> None:
    """What it did outside is not done again; the rest is."""
    charged: list[str] = []

    def make(crashpoints: CrashPoints | None) -> IdempotencyKey:
        gate = ledger.gate(crashpoints)
        bank = gate.downstream("bank", honours_key="7d")

        async def charge(idempotency_key: str) -> dict[str, str]:
            charged.append(idempotency_key)
            return {"id": "ch-1"}

        async def shop(scope: Any, receive: Any, send: Any) -> None:
            await receive()
            done = await scope["oncegate.once"].effect(bank, charge)
            await send({"type": "http.response.start", "status": 201, "headers": []})
            await send({"type": "http.response.body", "body": done["id"].encode()})

        return IdempotencyKey(shop, gate=gate, caller=caller_by_authorization, uses_once=True)

    with pytest.raises(CrashReached):
        ask(make(DeadAfter("settle.before")))
    ledger.clock.advance(3600)

    answer = ask(make(None))

    assert (answer.status, answer.body) == (201, b"ch-1")
    assert len(charged) == 2
    assert len(set(charged)) == 1


def test_what_the_gate_says_through_once_reaches_the_caller(ledger: Ledger) -> None:
    """An effect whose end nobody knows leaves the request to a person, not to a retry."""

    async def shop(scope: Any, receive: Any, send: Any) -> None:
        raise OutcomeUnknown("the bank did not answer")

    app = guard(ledger, shop, uses_once=True)

    answer = ask(app)

    assert (answer.status, problem(answer), ledger.state()) == (409, "unresolved", "unknown")


def test_a_response_that_never_ends_is_a_failure(ledger: Ledger) -> None:
    """An application that returns in the middle of its response has not answered."""

    async def shop(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})

    with pytest.raises(Undecided):
        ask(guard(ledger, shop))
    assert ledger.state() == "unknown"


def test_an_application_cannot_send_past_the_record(ledger: Ledger) -> None:
    """Extensions by which a server sends files itself are not offered."""
    shop = Shop()
    app = guard(ledger, shop)

    async def with_extensions(scope: Any, receive: Any, send: Any) -> None:
        scope["extensions"] = {"http.response.pathsend": {}, "tls": {}}
        await app(scope, receive, send)

    ask(with_extensions)

    assert shop.scopes[0]["extensions"] == {"tls": {}}


def test_work_started_by_a_request_cannot_run_the_request_again(ledger: Ledger) -> None:
    """A worker's task that a request started is not that request's caller."""
    shop, gate = Shop(), ledger.gate(DeadAfter("never"))
    bank = gate.downstream("bank", honours_key="7d")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        ledger.clock.advance(3600)
        await Reconciler(gate).run_once_async()
        await shop(scope, receive, send)

    guarded = IdempotencyKey(app, gate=gate, caller=caller_by_authorization, downstream=bank)

    with contextlib.suppress(ClaimLost):
        ask(guarded)

    assert len(shop.orders) == 1


def test_what_is_too_large_is_not_held_in_memory() -> None:
    gathering = ResponseBuffer(10)
    for part in (b"12345", b"678901", b"x"):
        gathering.add(part)

    assert (gathering.is_too_large, gathering.body) == (True, b"")
