"""Endpoints: where events are sent, signed with what, how often, and what happens when it fails.

An endpoint is checked when it is made and when it is read back; nothing else needs to check it again. Must
never show a secret: `shown` is what people and programs may see.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from enum import Enum
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from oncegate.errors import BadEndpoint, BadSecret, BadUrl, ConfigError
from oncegate.model import event_types
from oncegate.model.backoff import Backoff
from oncegate.model.kafka_address import KafkaAddress, is_kafka, parse_kafka_address
from oncegate.model.redact import masked_url
from oncegate.model.surface import check_name
from oncegate.sender.addresses import AddressPolicy
from oncegate.sender.headers import check_headers
from oncegate.sender.request_builder import BodyFormat
from oncegate.sender.urls import EndpointUrl, parse_endpoint_url
from oncegate.signatures.keys import HmacSecret, SigningKey, read_signing_key

SECRETS_MAX: Final = 4  # those that sign at once while receivers change over
RETRY_FOR: Final = timedelta(days=3)
RETRY_FOR_MAX: Final = timedelta(days=30)
RETRY_BASE_MIN: Final = timedelta(milliseconds=100)
ATTEMPTS_MAX: Final = 10_000
TIMEOUT_MAX: Final = timedelta(seconds=30)
IN_FLIGHT_MAX: Final = 256
ROTATION_OVERLAP: Final = timedelta(days=1)
FROM_ENVIRONMENT: Final = "env:"


class OnDeadLetter(Enum):
    """What a key does once one of its events has been given up."""

    BLOCK = "block"
    ADVANCE = "advance"


class Secret(Struct, frozen=True):
    """A secret or `env:NAME`, and until when it signs; None means without end."""

    text: str
    until_ms: int | None = None

    def key(self, environment: Mapping[str, str]) -> SigningKey:
        """The key behind the text; raises BadSecret naming the variable that is missing."""
        if not self.text.startswith(FROM_ENVIRONMENT):
            return read_signing_key(self.text)
        name = self.text.removeprefix(FROM_ENVIRONMENT)
        if not environment.get(name):
            raise BadSecret(f"the environment variable {name} is not set")
        return read_signing_key(environment[name])

    def __repr__(self) -> str:
        return "Secret(…)"


class Endpoint(Struct, frozen=True, kw_only=True):
    """One destination of the sender: an HTTP address, or a Kafka topic, which has no secrets.

    One that `follows` a tenant gets every event published for it from then on, and nothing else. A delivery
    is retried for `retry_for`; with `attempts_max` it also ends after so many attempts. One with `types`
    takes only events of these types; `order.*` stands for all that begin with `order.`.
    """

    name: str
    url: str
    secrets: tuple[Secret, ...]
    headers: tuple[tuple[str, str], ...] = ()
    body_format: BodyFormat = BodyFormat.STANDARD
    on_dead_letter: OnDeadLetter = OnDeadLetter.BLOCK
    retry_for: timedelta = RETRY_FOR
    retry_base: timedelta = timedelta(seconds=1)
    retry_cap: timedelta = timedelta(minutes=5)
    retry_jitter: float = 0.1
    attempts_max: int | None = None
    timeout: timedelta = timedelta(seconds=15)
    rate_per_second: float | None = None
    in_flight_max: int = 64
    follows: str | None = None
    types: tuple[str, ...] = ()

    @property
    def is_kafka(self) -> bool:
        """Whether it is a Kafka topic."""
        return is_kafka(self.url)

    def takes(self, event_type: str) -> bool:
        """Whether events of this type are for it."""
        return event_types.takes(self.types, event_type)

    @property
    def backoff(self) -> Backoff:
        """When a failed delivery is tried again."""
        return Backoff(
            base=self.retry_base,
            cap=self.retry_cap,
            attempts_max=self.attempts_max,
            retry_for=self.retry_for,
            jitter=self.retry_jitter,
        )

    def address(self, policy: AddressPolicy) -> EndpointUrl:
        """The URL, taken apart and judged."""
        return parse_endpoint_url(self.url, policy)

    def addresses(self, policy: AddressPolicy) -> list[EndpointUrl]:
        """All hosts that are called first, each judged: the URL's, or a Kafka cluster's brokers."""
        if not self.is_kafka:
            return [self.address(policy)]
        return [
            parse_endpoint_url(f"https://{host}:{port}/", policy)
            for host, port in self.topic_address(policy).brokers
        ]

    def topic_address(self, policy: AddressPolicy) -> KafkaAddress:
        """The Kafka topic, judged; raises BadEndpoint."""
        try:
            address = parse_kafka_address(self.url)
        except BadUrl as refused:
            raise BadEndpoint(str(refused)) from None
        if not address.is_encrypted and not policy.allow_http:
            raise BadEndpoint("Kafka without TLS is allowed only with ONCEGATE_ALLOW_HTTP=1; or add tls=1")
        return address

    def signing_keys(self, now_ms: int, environment: Mapping[str, str] = os.environ) -> list[SigningKey]:
        """The keys that sign now, the newest first."""
        current = [one for one in self.secrets if one.until_ms is None or now_ms < one.until_ms]
        return [one.key(environment) for one in current]

    def rotated(self, text: str, now_ms: int, overlap: timedelta = ROTATION_OVERLAP) -> Endpoint:
        """The endpoint with a new secret in front; earlier ones go on signing for a while."""
        ends_ms = now_ms + overlap // timedelta(milliseconds=1)
        kept = [
            replace(one, until_ms=min(one.until_ms or ends_ms, ends_ms))
            for one in self.secrets
            if one.until_ms is None or now_ms < one.until_ms
        ]
        return replace(self, secrets=(Secret(text), *kept[: SECRETS_MAX - 1]))

    @property
    def shown_url(self) -> str:
        """Where it sends to, without what may be a secret in it."""
        return masked_url(self.url)

    def shown(self, *, full_url: bool = False) -> dict[str, Any]:
        """What may be seen of it: no secret, no header's value, nor what in its URL may be a secret."""
        document: dict[str, Any] = msgspec.to_builtins(self)
        document["url"] = self.url if full_url else self.shown_url
        document["secrets"] = [
            {"kind": _kind_of(one.text), "until_ms": one.until_ms} for one in self.secrets
        ]
        document["headers"] = {name: "…" for name, _ in self.headers}
        return document

    def __repr__(self) -> str:
        return f"Endpoint({self.name!r})"


def _kind_of(text: str) -> str:
    if text.startswith(FROM_ENVIRONMENT):
        return text
    return text.partition("_")[0] + "_…"


def new_endpoint(
    name: str,
    url: str,
    *,
    secret: str | None = None,
    headers: Mapping[str, str] | None = None,
    **settings: Any,
) -> Endpoint:
    """Makes an endpoint; without a secret it gets a new one, which `secrets[0]` holds.

    A Kafka topic gets none: records are not signed.
    """
    if is_kafka(url) and secret is None:
        secrets: tuple[Secret, ...] = ()
    else:
        secrets = (Secret(secret if secret is not None else HmacSecret.generate().reveal()),)
    return Endpoint(name=name, url=url, secrets=secrets, headers=check_headers(headers or {}), **settings)


def checked(endpoint: Endpoint, policy: AddressPolicy) -> Endpoint:
    """Returns the endpoint if all of it can be used, or raises the error that says what cannot.

    Which addresses may be called is not the endpoint's to say: a person who registers one could otherwise
    point it at the inside of the network.
    """
    check_name("endpoint", endpoint.name)
    if endpoint.follows is not None:
        check_name("tenant", endpoint.follows)
    endpoint.addresses(policy)
    if not endpoint.is_kafka:
        _check_secrets(endpoint.secrets)
    elif endpoint.secrets:
        raise BadSecret("a Kafka endpoint has no secret: records are not signed; leave it out")
    _check_types(endpoint.types)
    check_headers(dict(endpoint.headers))
    _check_limits(endpoint)
    _ = endpoint.backoff
    return endpoint


def _check_secrets(secrets: tuple[Secret, ...]) -> None:
    if not 1 <= len(secrets) <= SECRETS_MAX:
        raise BadSecret(f"an endpoint has 1 to {SECRETS_MAX} secrets")
    for one in secrets:
        if one.text.startswith(FROM_ENVIRONMENT):
            if not one.text.removeprefix(FROM_ENVIRONMENT).isidentifier():
                raise BadSecret("env: is followed by the name of an environment variable")
        else:
            read_signing_key(one.text)


def _check_types(types: tuple[str, ...]) -> None:
    if len(types) > event_types.TYPES_MAX:
        most = event_types.TYPES_MAX
        raise BadEndpoint(f"an endpoint takes at most {most} types; use a pattern such as order.*")
    for one in types:
        if not event_types.is_pattern(one):
            raise BadEndpoint(f"{one[:40]!r} is neither a type nor a pattern such as order.*")


def _check_limits(endpoint: Endpoint) -> None:
    if endpoint.attempts_max is not None and not 1 <= endpoint.attempts_max <= ATTEMPTS_MAX:
        raise BadEndpoint(f"attempts_max is 1 to {ATTEMPTS_MAX:,}")
    if not timedelta(0) <= endpoint.retry_for <= RETRY_FOR_MAX:
        raise BadEndpoint(f"retry_for is at most {RETRY_FOR_MAX.days} days")
    if endpoint.retry_base < RETRY_BASE_MIN:
        raise BadEndpoint("the first wait, retry_base, is at least 100 ms")
    if not timedelta(0) < endpoint.timeout <= TIMEOUT_MAX:
        raise BadEndpoint(f"the timeout is at most {TIMEOUT_MAX.seconds} s and longer than nothing")
    if not 1 <= endpoint.in_flight_max <= IN_FLIGHT_MAX:
        raise BadEndpoint(f"in_flight_max is 1 to {IN_FLIGHT_MAX}")
    rate = endpoint.rate_per_second
    if rate is not None and not 0.001 <= rate <= 100_000:
        raise BadEndpoint("rate_per_second is between 0.001 and 100,000")


def encode_endpoint(endpoint: Endpoint) -> bytes:
    """The endpoint as the registry keeps it, secrets included."""
    return msgspec.json.encode(endpoint)


def decode_endpoint(body: bytes) -> Endpoint:
    """Reads an endpoint back from the registry."""
    try:
        return msgspec.json.decode(body, type=Endpoint)
    except msgspec.ValidationError as error:
        raise ConfigError(f"a stored endpoint cannot be read by this version: {error}") from None
