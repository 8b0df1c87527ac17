"""Providers' webhooks: signed by the providers' own libraries, taken once, mounted in every framework."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import http.client
import json
from datetime import UTC, datetime
from importlib import import_module
from typing import Any
from urllib.parse import urlencode

import fastapi
import flask
import pytest

from oncegate import ConfigError
from oncegate.receiver import Answer, Receiver
from oncegate.receiver.providers import ProviderName
from oncegate.signatures import ShopifySignature, SlackSignature
from oncegate.testing.waiting import DEADLINE_SECONDS
from tests.integrations.callers import post, served
from tests.support.gates import Ledger, ledger

__all__ = ["ledger"]

SECRET = "a secret of some length"
WHSEC = "whsec_" + base64.b64encode(b"k" * 24).decode()
URL = "https://shop.example/hooks/twilio"
Request = tuple[dict[str, str], bytes]


def now_s(ledger: Ledger) -> int:
    """The ledger's time in seconds."""
    return ledger.clock.wall_ms() // 1000


def signed_by_stripe(at_s: int, event: dict[str, Any]) -> Request:
    """As Stripe's documentation says; the library checks it below."""
    body = json.dumps(event).encode()
    mac = hmac.new(SECRET.encode(), f"{at_s}.".encode() + body, hashlib.sha256).hexdigest()
    return {"Stripe-Signature": f"t={at_s},v1={mac}"}, body


def signed_by_slack(at_s: int, event: dict[str, Any]) -> Request:
    """By Slack's own library."""
    verifier = import_module("slack_sdk.signature").SignatureVerifier(SECRET)
    body = json.dumps(event).encode()
    signature = verifier.generate_signature(timestamp=str(at_s), body=body)
    return {"X-Slack-Signature": signature, "X-Slack-Request-Timestamp": str(at_s)}, body


class FormFields(dict[str, Any]):
    """Fields of a form, as Twilio's library takes those that come several times."""

    def getlist(self, name: str) -> list[str]:
        """All values of a field."""
        return self[name] if isinstance(self[name], list) else [self[name]]


def signed_by_twilio(fields: dict[str, Any], algorithm: str | None = None) -> Request:
    """By Twilio's own library."""
    module = import_module("twilio.request_validator")
    more = {} if algorithm is None else {"algorithm": algorithm}
    signature = module.RequestValidator(SECRET).compute_signature(URL, FormFields(fields), **more)
    headers = {"X-Twilio-Signature": signature, "Content-Type": "application/x-www-form-urlencoded"}
    return headers, urlencode(fields, doseq=True).encode()


def signed_by_standard(at_s: int, message_id: str, event: dict[str, Any], library: str) -> Request:
    """By the libraries of Standard Webhooks and of Svix."""
    body = json.dumps(event)
    signer = import_module(library).Webhook(WHSEC)
    signature = signer.sign(message_id, datetime.fromtimestamp(at_s, UTC), body)
    prefix = "svix" if library == "svix" else "webhook"
    names = {"id": message_id, "timestamp": str(at_s), "signature": signature}
    return {f"{prefix}-{name}": text for name, text in names.items()}, body.encode()


def signed_by_github(event: dict[str, Any], delivery: str = "d-1") -> Request:
    """As GitHub's documentation says."""
    body = json.dumps(event).encode()
    mac = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    headers = {"X-Hub-Signature-256": f"sha256={mac}", "X-GitHub-Event": "push"}
    return {**headers, "X-GitHub-Delivery": delivery}, body


def signed_by_shopify(event: dict[str, Any], topic: str = "orders/create", webhook: str = "w-1") -> Request:
    """As Shopify's documentation says."""
    body = json.dumps(event).encode()
    mac = base64.b64encode(hmac.digest(SECRET.encode(), body, "sha256")).decode()
    headers = {"X-Shopify-Hmac-Sha256": mac, "X-Shopify-Topic": topic, "X-Shopify-Webhook-Id": webhook}
    return headers, body


def taking(receiver: Receiver) -> list[dict[str, Any]]:
    """Registers a handler that keeps what it gets."""
    seen: list[dict[str, Any]] = []

    @receiver.handler()
    def keep(event: dict[str, Any]) -> None:
        seen.append(event)

    return seen


def replayed(found: Answer) -> bool:
    """Whether an answer says that it was a repeat; it must be a success."""
    assert found.status == 200, found
    return bool(json.loads(found.body)["replay"])


def test_stripe_sends_one_event_twice(ledger: Ledger) -> None:
    """Signed at another time, with another count of pending webhooks: a repeat; its library agrees."""
    receiver = Receiver.stripe(ledger.gate(), secrets=[SECRET])
    seen = taking(receiver)
    event = {"id": "evt_1", "type": "charge.succeeded", "pending_webhooks": 2, "data": {"object": {}}}
    first = signed_by_stripe(now_s(ledger), event)
    again = signed_by_stripe(now_s(ledger) + 30, {**event, "pending_webhooks": 1})

    assert [replayed(receiver.receive_sync(*one)) for one in (first, again)] == [False, True]
    assert seen == [{"id": "evt_1", "type": "charge.succeeded", "payload": event}]
    other = signed_by_stripe(now_s(ledger), {**event, "data": {"object": {"amount": 5}}})
    assert receiver.receive_sync(*other).status == 422
    late = signed_by_stripe(now_s(ledger) - 301, event)
    assert receiver.receive_sync(*late).status == 401
    stripe = import_module("stripe")
    stripe.WebhookSignature.verify_header(first[1].decode(), first[0]["Stripe-Signature"], SECRET, None)


def test_a_type_has_a_surface_of_its_own(ledger: Ledger) -> None:
    """With its own retention; other types go to the handler without a type; a type must be signed."""
    gate = ledger.gate()
    receiver, seen = Receiver.stripe(gate, secrets=[SECRET]), []

    @receiver.handler("invoice.paid", retention="400d")
    def paid(event: dict[str, Any]) -> None:
        seen.append("paid")

    event = {"id": "evt_1", "type": "invoice.paid", "data": {}}
    other = signed_by_stripe(now_s(ledger), {**event, "id": "evt_2", "type": "invoice.sent"})
    assert receiver.receive_sync(*other).status == 500  # the provider sends it again
    assert not receiver.is_async
    others = taking(receiver)
    answers = [receiver.receive_sync(*signed_by_stripe(now_s(ledger), event)) for _ in range(2)]
    assert list(map(replayed, answers)) == [False, True]
    assert not replayed(receiver.receive_sync(*other))
    assert (seen, [one["type"] for one in others]) == (["paid"], ["invoice.sent"])
    kept = {one.name: one.rule.retention.days for one in gate.engine.surfaces}
    assert kept == {"stripe.invoice.paid": 400, "stripe": 90}
    with pytest.raises(ConfigError, match="is ordered"):
        Receiver(gate, "lanes", secrets=[WHSEC]).handler("paid")
    for unsigned in (Receiver.github(gate, secrets=[SECRET]), Receiver.shopify(gate, secrets=[SECRET])):
        with pytest.raises(ConfigError, match="does not sign the type"):
            unsigned.handler("orders/paid")
    with pytest.raises(ConfigError, match="know the type"):
        Receiver(gate, "hooks", secrets=[WHSEC], ordered=False).handler("paid")


@pytest.mark.slow
@pytest.mark.parametrize("library", ["svix", "standardwebhooks"])
def test_standard_webhooks_and_svix_have_a_signed_id(ledger: Ledger, library: str) -> None:
    """Signed by their own libraries."""
    make = Receiver.svix if library == "svix" else Receiver.standard
    receiver = make(ledger.gate(), "hooks", secrets=[WHSEC])
    seen = taking(receiver)
    event = {"type": "invoice.paid", "data": {"n": 1}}
    requests = [signed_by_standard(now_s(ledger) + n, "msg_1", event, library) for n in range(2)]

    assert [replayed(receiver.receive_sync(*one)) for one in requests] == [False, True]
    assert seen == [{"id": "msg_1", "type": "invoice.paid", "payload": event}]


def test_slack_events_and_its_greeting(ledger: Ledger) -> None:
    """Signed by Slack's own library; the greeting is answered and leaves nothing."""
    receiver = Receiver.slack(ledger.gate(), secrets=[SECRET])
    seen = taking(receiver)
    hello = signed_by_slack(now_s(ledger), {"type": "url_verification", "challenge": "c-1"})
    event = {"type": "event_callback", "event_id": "Ev1", "event": {"type": "app_mention"}}

    greeted = receiver.receive_sync(*hello)
    assert (greeted.status, json.loads(greeted.body)) == (200, {"challenge": "c-1"})
    answers = [receiver.receive_sync(*signed_by_slack(now_s(ledger) + n, event)) for n in range(2)]
    assert list(map(replayed, answers)) == [False, True]
    assert seen == [{"id": "Ev1", "type": "app_mention", "payload": event}]
    headers, body = hello
    assert receiver.receive_sync(headers, body + b" ").status == 401


@pytest.mark.parametrize("algorithm", [None, "HMAC_SHA256"])
def test_twilio_forms(ledger: Ledger, algorithm: str | None) -> None:
    """Signed by Twilio's own library: each state of a message is an event of its own."""
    receiver = Receiver.twilio(ledger.gate(), secrets=[SECRET], url=URL)
    seen = taking(receiver)
    fields = {"MessageSid": "SM1", "MessageStatus": "sent", "Body": "Grüße & mehr", "Media": ["b", "a"]}
    sent, delivered = fields, {**fields, "MessageStatus": "delivered"}
    answers = [receiver.receive_sync(*signed_by_twilio(one, algorithm)) for one in (sent, sent, delivered)]

    assert list(map(replayed, answers)) == [False, True, False]
    assert seen[0] == {"id": "SM1:sent", "type": "MessageStatus.sent", "payload": fields}
    headers, body = signed_by_twilio(fields, algorithm)
    assert receiver.receive_sync(headers, body + b"&Body=other").status == 401


def test_twilio_json_is_covered_by_the_address(ledger: Ledger) -> None:
    """The hash of the body is in the address that Twilio's library signs."""
    module = import_module("twilio.request_validator")
    receiver = Receiver.twilio(ledger.gate(), secrets=[SECRET], url=URL)
    taking(receiver)
    body = b'{"CallSid":"CA1"}'
    address = f"{URL}?bodySHA256={hashlib.sha256(body).hexdigest()}"
    signature = module.RequestValidator(SECRET).compute_signature(address, {})
    headers = {"X-Twilio-Signature": signature, "Content-Type": "application/json"}

    assert not replayed(receiver.receive_sync(headers, body))
    assert receiver.receive_sync(headers, body + b" ").status == 401


def test_github_and_shopify_ids_are_made_of_what_is_signed(ledger: Ledger) -> None:
    """A recorded request under another delivery id is a repeat; another topic is another event."""
    gate = ledger.gate()
    github, shopify = Receiver.github(gate, secrets=[SECRET]), Receiver.shopify(gate, secrets=[SECRET])
    pushed, ordered = taking(github), taking(shopify)
    pushes = [github.receive_sync(*signed_by_github({"after": "c0ffee"}, one)) for one in ("d-1", "d-2")]
    topics = ("orders/create", "orders/paid", "orders/create")
    orders = [shopify.receive_sync(*signed_by_shopify({"id": 7}, topic)) for topic in topics]

    assert list(map(replayed, pushes)) == [False, True]
    assert list(map(replayed, orders)) == [False, False, True]
    assert [one["type"] for one in pushed + ordered] == ["push", "orders/create", "orders/paid"]
    assert ordered[0]["payload"] == {"id": 7}


def test_an_id_header_counts_only_where_it_is_trusted(ledger: Ledger) -> None:
    """Two deliveries of one body are two events then; a provider that signs its ids refuses the setting."""
    receiver = Receiver.github(ledger.gate(), secrets=[SECRET], trust_id_header=True)
    seen = taking(receiver)
    for delivery in ("d-1", "d-2", "d-1"):
        receiver.receive_sync(*signed_by_github({"zen": "x"}, delivery))
    headers, body = signed_by_github({"zen": "x"})
    del headers["X-GitHub-Delivery"]

    assert [one["id"] for one in seen] == ["d-1", "d-2"]
    assert receiver.receive_sync(headers, body).status == 400
    make: Any = Receiver
    with pytest.raises(ConfigError, match="signs its ids already"):
        make._known(ProviderName.STRIPE, ledger.gate(), "x", [SECRET], sender=None, trust_id_header=True)


def test_a_scheme_without_an_id_needs_another_key(ledger: Ledger) -> None:
    """Every webhook would be quarantined; it is refused when the handler is registered."""
    for scheme in (ShopifySignature([SECRET]), SlackSignature([SECRET])):
        receiver = Receiver(ledger.gate(), "hooks", scheme=scheme, ordered=False)
        with pytest.raises(ConfigError, match="signs no id"):
            receiver.handler()(lambda event: None)
    with pytest.raises(ConfigError, match="address that Twilio calls"):
        Receiver.twilio(ledger.gate(), secrets=[SECRET], url="/hooks")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b"\xff",
        b'{"id": 5}',
        b'{"id": ""}',
        b'{"id": "a b"}',
        b'{"id": "' + b"x" * 300 + b'"}',
    ],
)
def test_hostile_bodies_are_refused(ledger: Ledger, body: bytes) -> None:
    """400 with a valid signature, 401 or 400 without one; never 500, and nothing runs."""
    gate = ledger.gate()
    stripe, slack = Receiver.stripe(gate, secrets=[SECRET]), Receiver.slack(gate, secrets=[SECRET])
    seen = taking(stripe) + taking(slack)
    mac = hmac.new(SECRET.encode(), f"{now_s(ledger)}.".encode() + body, hashlib.sha256).hexdigest()
    signed = {"Stripe-Signature": f"t={now_s(ledger)},v1={mac}"}

    assert stripe.receive_sync(signed, body).status == 400
    assert stripe.receive_sync({"Stripe-Signature": "t=1,v1=zz"}, body).status == 401
    assert (
        slack.receive_sync({"X-Slack-Signature": "v0=é", "X-Slack-Request-Timestamp": "x"}, body).status
        == 400
    )
    assert seen == []


def test_mounted_in_starlette_and_fastapi(ledger: Ledger) -> None:
    """One line each; other methods are refused, and a body over the limit is not read to its end."""
    receiver = Receiver.github(ledger.gate(), secrets=[SECRET])

    @receiver.handler()
    async def keep(event: dict[str, Any]) -> None: ...

    app: Any = fastapi.FastAPI()
    app.add_route("/hooks/github", receiver.asgi())
    headers, body = signed_by_github({"n": 1})
    with served(app) as port:
        answers = [post(port, "/hooks/github", body, headers) for _ in range(2)]
        assert [json.loads(one.body)["replay"] for one in answers] == [False, True]
        assert post(port, "/hooks/github", b"x" * 2**21, headers).status == 413
        assert post(port, "/hooks/github", body + b" ", headers).status == 401
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_SECONDS)
        connection.request("GET", "/hooks/github")
        assert connection.getresponse().status == 405
        connection.close()


def test_a_sender_that_goes_away_runs_nothing(ledger: Ledger) -> None:
    """Half a body is no webhook."""
    receiver = Receiver.github(ledger.gate(), secrets=[SECRET])
    seen, sent = taking(receiver), []
    parts = iter([{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}])

    async def receive() -> Any:
        return next(parts)

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(receiver.asgi()({"type": "http", "method": "POST", "headers": []}, receive, send))
    assert (seen, sent) == ([], [])


def test_mounted_in_flask(ledger: Ledger) -> None:
    """A view may return a WSGI application."""
    receiver = Receiver.twilio(ledger.gate(), secrets=[SECRET], url=URL)
    seen = taking(receiver)
    app = flask.Flask("shop")
    app.add_url_rule("/hooks/twilio", view_func=receiver.wsgi, methods=["POST"])
    headers, body = signed_by_twilio({"MessageSid": "SM1"})
    site = app.test_client()

    answers = [site.post("/hooks/twilio", data=body, headers=headers) for _ in range(2)]
    assert [(one.json or {})["replay"] for one in answers] == [False, True]
    assert site.post("/hooks/twilio", data=body + b"1", headers=headers).status_code == 401
    assert len(seen) == 1


@pytest.mark.parametrize("is_async", [False, True])
def test_mounted_in_django(ledger: Ledger, is_async: bool) -> None:
    """A view without a CSRF token, plain or async as the handler is."""
    from django.conf import settings

    if not settings.configured:
        settings.configure(DEBUG=False, ALLOWED_HOSTS=["*"], SECRET_KEY="x")
    from django.test import RequestFactory

    receiver = Receiver.shopify(ledger.gate(), secrets=[SECRET])

    async def keep_async(event: dict[str, Any]) -> None: ...

    def keep(event: dict[str, Any]) -> None: ...

    receiver.handler()(keep_async if is_async else keep)
    view, (headers, body) = receiver.django(), signed_by_shopify({"id": 7})
    wsgi = {f"HTTP_{name.upper().replace('-', '_')}": text for name, text in headers.items()}

    def post(content: bytes) -> Any:
        request = RequestFactory().post("/hooks", content, "application/json", **wsgi)
        return asyncio.run(view(request)) if is_async else view(request)

    assert [json.loads(post(body).content)["replay"] for _ in range(2)] == [False, True]
    assert post(body + b" ").status_code == 401
    assert view.csrf_exempt  # type: ignore[attr-defined]
