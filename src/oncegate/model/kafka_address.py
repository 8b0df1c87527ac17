"""The address of a Kafka topic, taken apart: `kafka://host:9092[,host:9092]/topic?option=value`.

Used by endpoints (events out) and by sources (events in). Pure: the environment that holds passwords is
passed in. Must never hold a password: an address names the environment variable that does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

from msgspec import Struct

from oncegate.errors import BadUrl, ConfigError

SCHEME: Final = "kafka://"
BROKERS_MAX: Final = 16
PORT: Final = 9092
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
COMPRESSIONS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
FROM_ENVIRONMENT: Final = "env:"

_OPTIONS: Final = frozenset({"key", "tls", "ca", "user", "password", "mechanism", "compression"})
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)
_BROKER: Final = re.compile(
    r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[1-9][0-9]{0,4}))?", re.ASCII
)
_FIELD: Final = re.compile(r"[^.\s]{1,100}(\.[^.\s]{1,100}){0,7}")


class KafkaAddress(Struct, frozen=True):
    """Where a topic is and how to sign in there. `key_field` is the payload's field for the record key.

    `password_variable` names the environment variable with the password.
    """

    brokers: tuple[tuple[str, int], ...]
    topic: str
    key_field: str | None = None
    is_encrypted: bool = False
    ca_file: str | None = None
    user: str | None = None
    password_variable: str | None = None
    mechanism: str = MECHANISMS[2]
    compression: str = COMPRESSIONS[0]

    @property
    def bootstrap(self) -> str:
        """The brokers as the client takes them."""
        return ",".join(f"{host}:{port}" for host, port in self.brokers)

    def client_settings(self, environment: Mapping[str, str]) -> dict[str, Any]:
        """What the client needs to connect; raises ConfigError naming a variable that is missing."""
        protocol = ("SASL_" if self.user else "") + ("SSL" if self.is_encrypted else "PLAINTEXT")
        settings: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "client.id": "oncegate",
            "security.protocol": protocol,
        }
        if self.ca_file is not None:
            settings["ssl.ca.location"] = self.ca_file
        if self.user is not None and self.password_variable is not None:
            password = environment.get(self.password_variable)
            if not password:
                raise ConfigError(f"the environment variable {self.password_variable} is not set")
            settings |= {
                "sasl.mechanism": self.mechanism,
                "sasl.username": self.user,
                "sasl.password": password,
            }
        return settings


def is_kafka(url: str) -> bool:
    """Whether an address names a Kafka topic."""
    return url[: len(SCHEME)].lower() == SCHEME


@lru_cache(maxsize=1_024)
def parse_kafka_address(url: str) -> KafkaAddress:
    """Takes an address apart, or raises BadUrl with the reason."""
    head, _, query = url[len(SCHEME) :].partition("?")
    authority, _, topic = head.partition("/")
    if "@" in authority:
        raise BadUrl("the address has a user name; write ?user=NAME&password=env:VARIABLE")
    if "#" in url or _TOPIC.fullmatch(topic) is None or topic in (".", ".."):
        raise BadUrl("the address does not name a topic; write kafka://host:9092/topic")
    brokers = tuple(map(_broker, authority.split(",")))
    if len(brokers) > BROKERS_MAX:
        raise BadUrl(f"the address names more than {BROKERS_MAX} brokers; three are enough to begin with")
    return _with_options(brokers, topic, _options(query))


def _broker(text: str) -> tuple[str, int]:
    found = _BROKER.fullmatch(text)
    port = PORT if found is None or found["port"] is None else int(found["port"])
    if found is None or port > 65_535:
        raise BadUrl("a broker is not written as host:port; write kafka://host:9092,host:9092/topic")
    return found["host"].lower(), port


def _options(query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        raise BadUrl("the options of the address are not written as name=value&name=value") from None
    options = dict(pairs)
    unknown = sorted(options.keys() - _OPTIONS)
    if unknown or len(options) < len(pairs):
        known = ", ".join(sorted(_OPTIONS))
        name = unknown[0][:40] if unknown else "one, which is given twice"
        raise BadUrl(f"the address has an option {name!r}; known: {known}")
    return options


def _with_options(
    brokers: tuple[tuple[str, int], ...], topic: str, options: Mapping[str, str]
) -> KafkaAddress:
    field, user, variable = options.get("key"), options.get("user"), _variable(options.get("password"))
    if field is not None and _FIELD.fullmatch(field) is None:
        raise BadUrl("key= is not the name of a field; write key=warehouse, or key=order.id")
    if (user is None) != (variable is None):
        raise BadUrl("user= and password=env:VARIABLE belong together")
    ca_file = options.get("ca")
    return KafkaAddress(
        brokers,
        topic,
        field,
        _one_of("tls", options.get("tls", "1" if ca_file or user else "0"), ("0", "1")) == "1",
        None if ca_file is None else unquote(ca_file),
        user,
        variable,
        _one_of("mechanism", options.get("mechanism", MECHANISMS[2]).upper(), MECHANISMS),
        _one_of("compression", options.get("compression", COMPRESSIONS[0]).lower(), COMPRESSIONS),
    )


def _variable(password: str | None) -> str | None:
    if password is None:
        return None
    name = password.removeprefix(FROM_ENVIRONMENT)
    if name == password or not name.isidentifier():
        raise BadUrl("a password is never part of an address; write password=env:VARIABLE")
    return name


def _one_of(name: str, value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise BadUrl(f"{name}= is one of {', '.join(known)}")
    return value
