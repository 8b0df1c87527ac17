"""From a raw request to an event with its id and its place in a lane. Pure; nothing is looked up.

The signature is checked on the raw bytes first. What the body says is signed and counts; a header that says
something else is refused. An id that no signature covers is left out. A place that only headers tell is not
signed: it moves its lane by one event at most.
"""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from msgspec import Struct

from oncegate.errors import EncodedBody, MalformedRequest, RequestTooLarge
from oncegate.model.strictjson import read_json
from oncegate.model.trace import Context, context_of
from oncegate.receiver.providers import Provider
from oncegate.signatures import Headers, Scheme

BODY_BYTES_MAX: Final = 1024 * 1024
KEY_LENGTH_MAX: Final = 255
SEQ_MAX: Final = 2**63 - 1

_SEQ: Final = re.compile(r"[0-9]{1,19}", re.ASCII)


class LanePosition(Struct, frozen=True):
    """Where an event stands: in the lane of `key`, as `seq`, after `previous`."""

    key: str
    seq: int
    previous: int
    is_signed: bool = True


class Incoming(Struct, frozen=True):
    """An authentic request, read."""

    event: dict[str, Any]
    place: LanePosition | None = None
    context: Context | None = None


class Greeting(Exception):
    """A request without an event, and what it is answered."""

    def __init__(self, document: dict[str, str]) -> None:
        super().__init__("a provider asks whether this address is ours")
        self.document = document


def read_request(
    scheme: Scheme,
    headers: Headers,
    body: bytes,
    now_s: int,
    *,
    ordered: bool,
    trusts_headers: bool = False,
    provider: Provider | None = None,
    trusts_id: bool = False,
) -> Incoming:
    """Checks and reads a request, or raises RequestRefused."""
    if len(body) > BODY_BYTES_MAX:
        raise RequestTooLarge(f"the body is larger than {BODY_BYTES_MAX} bytes")
    if (headers.find("content-encoding") or "identity").lower() != "identity":
        raise EncodedBody("the body is compressed; send it as it is")
    authentic = scheme.verify(headers, body, now_s)
    if provider is not None:
        payload = provider.read(headers, body)
        if (greeting := provider.greeting(payload)) is not None:
            raise Greeting(greeting)
        found = provider.event(headers, body, authentic, payload, trusts_header=trusts_id)
        return Incoming(found, None, context_of(headers.only))
    payload = read_json(body)
    message_id = authentic.message_id
    event: dict[str, Any] = (
        {"payload": payload} if message_id is None else {"id": message_id, "payload": payload}
    )
    context = context_of(headers.only)
    if not ordered:
        return Incoming(event, None, context)
    place = _place(headers, payload if isinstance(payload, dict) else {}, trusts_headers)
    return Incoming({**event, "key": place.key, "seq": place.seq}, place, context)


def _place(headers: Headers, payload: dict[str, Any], trusts_headers: bool) -> LanePosition:
    signed = _signed_place(payload)
    given_key, given_seq = headers.find("x-key"), headers.find("x-seq")
    if signed is None:
        if given_key is None or given_seq is None:
            raise MalformedRequest("x-key and x-seq are missing, and the body has no key and seq")
        key, seq = _check_key(_unescaped(given_key)), _seq(given_seq, "x-seq")
        previous = _previous(headers.find("x-previous-seq"), seq)
        return (
            LanePosition(key, seq, previous)
            if trusts_headers
            else LanePosition(key, seq, seq - 1, is_signed=False)
        )
    if given_key is not None and _unescaped(given_key) != signed.key:
        raise MalformedRequest("x-key is not the key in the signed body")
    if given_seq is not None and _seq(given_seq, "x-seq") != signed.seq:
        raise MalformedRequest("x-seq is not the seq in the signed body")
    return signed


def _signed_place(payload: dict[str, Any]) -> LanePosition | None:
    """Key and seq of our own bodies, or of a CloudEvent."""
    for key_name, seq_name, previous_name in (
        ("key", "seq", "previous_seq"),
        ("partitionkey", "sequence", "previoussequence"),
    ):
        key, seq = payload.get(key_name), payload.get(seq_name)
        if isinstance(key, str) and isinstance(seq, (int, str)) and not isinstance(seq, bool):
            number = _seq(str(seq), seq_name)
            previous = payload.get(previous_name)
            return LanePosition(
                _check_key(key), number, _previous(None if previous is None else str(previous), number)
            )
    return None


def _seq(text: str, name: str) -> int:
    if _SEQ.fullmatch(text) is None or not 1 <= int(text) <= SEQ_MAX:
        raise MalformedRequest(f"{name} is not a number from 1")
    return int(text)


def _previous(text: str | None, seq: int) -> int:
    if text is None:
        return seq - 1
    if _SEQ.fullmatch(text) is None or int(text) >= seq:
        raise MalformedRequest("the previous seq is not a number before seq")
    return int(text)


def _check_key(key: str) -> str:
    if not 0 < len(key) <= KEY_LENGTH_MAX or any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 for c in key):
        raise MalformedRequest(
            f"the key is not 1 to {KEY_LENGTH_MAX} characters without control characters"
        )
    try:
        key.encode()
    except UnicodeEncodeError:
        raise MalformedRequest("the key is not Unicode text") from None
    return key


def _unescaped(text: str) -> str:
    try:
        return unquote_to_bytes(text.encode("ascii")).decode("utf-8")
    except UnicodeError:
        raise MalformedRequest("x-key is not %-escaped UTF-8") from None
