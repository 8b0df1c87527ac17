"""What RabbitMQ's management API says of a queue: how long messages stay, and where they go then.

AMQP tells neither the arguments of a queue nor its policies; the management API has both in one answer.
"""

from __future__ import annotations

import json
from base64 import b64encode
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

from msgspec import Struct

from oncegate.errors import BadSource
from oncegate.model.redact import masked_url

ASK_SECONDS: Final = 5.0
DELIVERY_LIMIT_MIN: Final = 20  # below, restarts of workers use a queue's deliveries up
_BY_MESSAGE: Final = "by each message's routing key"


class QueueFacts(Struct, frozen=True):
    """What a queue promises; no parts where the management API did not answer."""

    retention_seconds: dict[str, float | None] = {}
    warnings: tuple[str, ...] = ()


class _Refused(Exception):
    """The management API answered with an error."""


def read_facts(management: str, broker: str, queue: str) -> QueueFacts:
    """Asks about a queue and the queues that its dead letters reach; BadSource where asking is refused."""
    ask = _Asking(management, broker)
    try:
        found = ask.queue(queue)
        dead = ask.dead_letters(found)
        parts = {"queue": _ttl(found)} | {f"dead-letter queue {name}": ttl for name, ttl in dead.items()}
        return QueueFacts(parts, tuple(_warnings(queue, found)))
    except _Refused as refused:
        raise BadSource(
            f"RabbitMQ's management API at {masked_url(management)} answers {refused}: check management=,"
            " its user (it needs the tag management) and the virtual host"
        ) from None
    except (OSError, HTTPException, ValueError) as error:
        told = f"{error or type(error).__name__}"
        return QueueFacts({}, (f"RabbitMQ's management API at {masked_url(management)}: {told}",))
    except (AttributeError, KeyError, TypeError, OverflowError):
        told = "its answer is not as RabbitMQ gives it"
        return QueueFacts({}, (f"RabbitMQ's management API at {masked_url(management)}: {told}",))


class _Asking:
    """Questions to the management API, as the user of the broker's address unless its own names another."""

    def __init__(self, management: str, broker: str) -> None:
        own, amqp = urlsplit(management), urlsplit(broker)
        if own.scheme not in ("http", "https") or own.hostname is None:
            raise BadSource("RabbitMQ: management= is an address such as http://host:15672")
        if amqp.scheme == "amqps" and own.scheme == "http":
            raise BadSource("RabbitMQ: management= would send the password in clear; give it with https://")
        known = own if own.username else amqp
        user, password = unquote(known.username or "guest"), unquote(known.password or "guest")
        self._own = own
        self._headers = {"Authorization": "Basic " + b64encode(f"{user}:{password}".encode()).decode()}
        self._host = quote(unquote(amqp.path.removeprefix("/")) or "/", safe="")

    def queue(self, name: str) -> Any:
        return self._ask(f"queues/{self._host}/{quote(name, safe='')}")

    def dead_letters(self, found: Any) -> dict[str, float | None]:
        """How long each queue keeps messages that dead letters of this one reach."""
        exchange = _setting(found, "dead-letter-exchange")
        if exchange is None:
            return {}
        word = _setting(found, "dead-letter-routing-key")
        if exchange == "":  # the default exchange: a routing key names a queue
            return {word: _ttl(self.queue(word))} if word else {_BY_MESSAGE: None}
        bindings = self._ask(f"exchanges/{self._host}/{quote(exchange, safe='')}/bindings/source")
        names = {str(one["destination"]) for one in bindings if one["destination_type"] == "queue"}
        return {name: _ttl(self.queue(name)) for name in sorted(names)}

    def _ask(self, path: str) -> Any:
        kind = HTTPSConnection if self._own.scheme == "https" else HTTPConnection
        asking = kind(self._own.hostname or "", self._own.port, timeout=ASK_SECONDS)
        try:
            asking.request("GET", f"{self._own.path.rstrip('/')}/api/{path}", headers=self._headers)
            with asking.getresponse() as answer:
                if answer.status != HTTPStatus.OK:
                    raise _Refused(f"{answer.status} to {path}")
                return json.load(answer)
        finally:
            asking.close()


def _setting(found: Any, name: str) -> Any:
    """A setting of a queue: its own argument, or its policy's."""
    own = (found.get("arguments") or {}).get(f"x-{name}")
    return own if own is not None else (found.get("effective_policy_definition") or {}).get(name)


def _ttl(found: Any) -> float | None:
    own = (found.get("arguments") or {}).get("x-message-ttl")
    policy = (found.get("effective_policy_definition") or {}).get("message-ttl")
    known = [int(one) / 1000 for one in (own, policy) if one is not None]
    return min(known) if known else None


def _warnings(queue: str, found: Any) -> list[str]:
    limit, dead = _setting(found, "delivery-limit"), _setting(found, "dead-letter-exchange")
    warnings = []
    if limit is not None and 0 <= int(limit) < DELIVERY_LIMIT_MIN:  # below 0 is no limit
        end = "drops them" if dead is None else "sends them to the dead letters"
        warnings.append(
            f"after {limit} deliveries queue {queue} {end}: each restart of a worker is one; set"
            f" x-delivery-limit to {DELIVERY_LIMIT_MIN} or more"
        )
    is_bounded = any(_setting(found, name) is not None for name in ("max-length", "max-length-bytes"))
    if is_bounded and not str(_setting(found, "overflow")).startswith("reject-publish"):
        warnings.append(
            f"queue {queue} drops its oldest messages when full; set overflow to reject-publish"
        )
    return warnings
