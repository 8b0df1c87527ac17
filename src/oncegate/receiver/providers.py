"""What is known of providers' webhooks: the signature, where the id is, and which fields change.

Used by `Receiver.stripe(…)` and its like, and by surfaces of the service with `provider =`. Both make the
same event of a request: `{"id", "type", "payload"}`. Pure. Must never make an id of anything that the
signature does not cover, unless headers are trusted on purpose.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import Enum
from hashlib import sha256
from typing import Any, Final

from msgspec import Struct

from oncegate.errors import ConfigError, MalformedRequest
from oncegate.model.strictjson import read_json
from oncegate.signatures import (
    Authentic,
    GithubSignature,
    Headers,
    Scheme,
    ShopifySignature,
    SlackSignature,
    StandardWebhooks,
    StripeSignature,
    TwilioSignature,
)
from oncegate.signatures.twilio import FORM, read_form

ID_LENGTH_MAX: Final = 255
_TYPE: Final = re.compile(r"[A-Za-z0-9_./:-]{1,120}", re.ASCII)
_ID: Final = re.compile(r"[!-~]{1,255}", re.ASCII)


class ProviderName(Enum):
    """Providers whose webhooks are known."""

    STRIPE = "stripe"
    GITHUB = "github"
    SHOPIFY = "shopify"
    SLACK = "slack"
    TWILIO = "twilio"
    STANDARD = "standard"
    SVIX = "svix"


class Sent(Struct, frozen=True):
    """An authentic request, as a provider's functions see it."""

    headers: Headers
    body: bytes
    payload: Any
    authentic: Authentic


class Provider(Struct, frozen=True):
    """One provider. `ignore` are fields that differ between two sendings of one event.

    `horizon` is how long after its first sending the provider may send an event again, by hand too.
    `id_header` has an id that no signature covers. `signs_type` is False where no signature covers the
    type: a recorded body could come again under another one.
    """

    name: ProviderName
    scheme: Callable[..., Scheme]
    id_of: Callable[[Sent], str | None]
    type_of: Callable[[Sent], str | None]
    ignore: tuple[str, ...] = ()
    horizon: str | None = None
    id_header: str | None = None
    takes_forms: bool = False
    signs_type: bool = True
    greeting: Callable[[Any], dict[str, str] | None] = lambda payload: None

    def make_scheme(self, secrets: Sequence[str], url: str | None) -> Scheme:
        """How requests are checked; raises ConfigError where `url` is missing or has no use."""
        if self.takes_forms:
            if url is None:
                raise ConfigError(f"{self.name.value} signs the address: give url=, as it is called there")
            return self.scheme(secrets, url=url)
        if url is not None:
            raise ConfigError(f"{self.name.value} signs no address; leave url= out")
        return self.scheme(secrets)

    def check_trust(self, *, trusts_header: bool) -> None:
        """Raises ConfigError where no header has an id."""
        if trusts_header and self.id_header is None:
            raise ConfigError(f"{self.name.value} signs its ids already; leave trust_id_header= out")

    def check_routing(self, *, trusts_header: bool) -> None:
        """Raises ConfigError where a recorded request could be sent again as an event of another type."""
        if not (self.signs_type or trusts_header):
            raise ConfigError(
                f"{self.name.value} does not sign the type: a recorded request would run again as another"
                " one. Tell types apart in the handler, or, where only the provider can reach the address,"
                " set trust_id_header"
            )

    def is_form(self, headers: Headers) -> bool:
        """Whether a request of this provider is a form."""
        return self.takes_forms and (headers.find("content-type") or "").lower().startswith(FORM)

    def event(
        self,
        headers: Headers,
        body: bytes,
        authentic: Authentic,
        payload: Any,
        *,
        trusts_header: bool = False,
    ) -> dict[str, Any]:
        """The event of a request whose signature was checked; raises MalformedRequest without an id."""
        sent = Sent(headers, body, payload, authentic)
        if trusts_header and self.id_header is not None:
            found: str | None = headers.require(self.id_header)
        else:
            found = self.id_of(sent)
        if found is None or _ID.fullmatch(found) is None:
            raise MalformedRequest(f"the request has no id as {self.name.value} gives one")
        return {"id": found, "type": _checked_type(self.type_of(sent)), "payload": payload}

    def read(self, headers: Headers, body: bytes) -> Any:
        """The body as its provider sends it, or MalformedRequest."""
        return read_form(body) if self.is_form(headers) else read_json(body)


def provider_of(name: ProviderName) -> Provider:
    """A provider by its name."""
    return PROVIDERS[name]


def _checked_type(text: str | None) -> str | None:
    if text is not None and _TYPE.fullmatch(text) is None:
        raise MalformedRequest("the type of the event has characters that no type has")
    return text


def _field(name: str) -> Callable[[Sent], str | None]:
    def find(sent: Sent) -> str | None:
        found = sent.payload.get(name) if isinstance(sent.payload, dict) else None
        return found if isinstance(found, str) else None

    return find


def _signed_id(sent: Sent) -> str | None:
    return sent.authentic.message_id


def _content_id(sent: Sent) -> str:
    """The body alone is signed: what was sent is the same event, and nothing else is."""
    return sha256(sent.body).hexdigest()


def _header(name: str) -> Callable[[Sent], str | None]:
    return lambda sent: sent.headers.find(name)


def _topic_id(sent: Sent) -> str | None:
    """Shopify sends one body under several topics: `orders/create` and `orders/paid`."""
    topic = sent.headers.find("x-shopify-topic")
    return None if topic is None else f"{topic}:{_content_id(sent)}"


def _slack_type(sent: Sent) -> str | None:
    inner = sent.payload.get("event") if isinstance(sent.payload, dict) else None
    found = inner.get("type") if isinstance(inner, dict) else None
    return found if isinstance(found, str) else _field("type")(sent)


def _slack_greeting(payload: Any) -> dict[str, str] | None:
    """Slack asks once whether an address is ours; there is no event in that."""
    if not isinstance(payload, dict) or payload.get("type") != "url_verification":
        return None
    challenge = payload.get("challenge")
    return (
        {"challenge": challenge} if isinstance(challenge, str) and len(challenge) <= ID_LENGTH_MAX else None
    )


_SIDS: Final = ("MessageSid", "SmsSid", "CallSid", "RecordingSid", "ConferenceSid", "Sid")
_STATES: Final = ("MessageStatus", "SmsStatus", "CallStatus", "RecordingStatus", "StatusCallbackEvent")


def _twilio_id(sent: Sent) -> str:
    """Which message or call, in which state, and its number among the callbacks; else the whole content."""
    fields = sent.payload if isinstance(sent.payload, dict) else {}
    texts = {name: value for name, value in fields.items() if isinstance(value, str) and value}
    sid = next((texts[name] for name in _SIDS if name in texts), None)
    if sid is None:
        return _content_id(sent)
    state = next((texts[name] for name in _STATES if name in texts), None)
    return ":".join(part for part in (sid, state, texts.get("SequenceNumber")) if part)


def _twilio_type(sent: Sent) -> str | None:
    fields = sent.payload if isinstance(sent.payload, dict) else {}
    return next((f"{name}.{fields[name]}" for name in _STATES if isinstance(fields.get(name), str)), None)


PROVIDERS: Final = {
    one.name: one
    for one in (
        Provider(
            ProviderName.STRIPE,
            StripeSignature,
            _field("id"),
            _field("type"),
            ignore=("payload.pending_webhooks",),  # counts down while other endpoints take the event
            horizon="30d",
        ),
        Provider(
            ProviderName.GITHUB,
            GithubSignature,
            _content_id,
            _header("x-github-event"),
            horizon="3d",
            id_header="x-github-delivery",
            signs_type=False,
        ),
        Provider(
            ProviderName.SHOPIFY,
            ShopifySignature,
            _topic_id,
            _header("x-shopify-topic"),
            horizon="2d",
            id_header="x-shopify-webhook-id",
            signs_type=False,
        ),
        Provider(
            ProviderName.SLACK,
            SlackSignature,
            _field("event_id"),
            _slack_type,
            horizon="1d",
            greeting=_slack_greeting,
        ),
        Provider(ProviderName.TWILIO, TwilioSignature, _twilio_id, _twilio_type, takes_forms=True),
        Provider(ProviderName.STANDARD, StandardWebhooks, _signed_id, _field("type")),
        Provider(ProviderName.SVIX, StandardWebhooks, _signed_id, _field("type")),
    )
}
