"""What is fuzzed: each target takes bytes and ends in an answer, or in an error that is raised on purpose.

Some say more: what was read once is read the same way again. Nothing here needs a fuzzer; the tests run
every target over hostile samples, and `fuzz.py` runs them with atheris.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
from collections.abc import Callable, Iterable
from typing import Any, Final

from oncegate.dashboard.filters import Filter, read_filter
from oncegate.errors import ConfigError, CursorRefused, EventError, OncegateError
from oncegate.feed.cursors import Cursors
from oncegate.integrations.keyheader import BadKeyHeader, read_key_header
from oncegate.model.canonical import canonical_json, fingerprint
from oncegate.model.durations import format_duration, parse_duration
from oncegate.model.strictjson import read_json
from oncegate.model.template import KeyTemplate
from oncegate.model.timestamps import format_timestamp, parse_timestamp
from oncegate.signatures import BearerToken, GithubSignature, StandardWebhooks, StripeSignature
from oncegate.signatures.scheme import Headers, Scheme

NOW_S: Final = 1_780_000_000
SECRET: Final = f"whsec_{base64.b64encode(b'a signing secret of the fuzzer').decode()}"
_PLAIN: Final = "a-shared-secret-of-the-fuzzer"
_SCHEMES: Final[tuple[Scheme, ...]] = (
    StandardWebhooks([SECRET]),
    StripeSignature([_PLAIN]),
    GithubSignature([_PLAIN]),
    BearerToken([_PLAIN]),
)
_NAMES: Final = (
    "webhook-id", "webhook-timestamp", "webhook-signature",
    "stripe-signature", "x-hub-signature-256", "authorization",
)  # fmt: skip
_CURSORS: Final = Cursors(b"secret of a ledger")
_TEMPLATES: Final = tuple(
    KeyTemplate.parse(text)
    for text in ("{id}", "{a.b}:{c}", "{at:timestamp}", "{n:int}/{u:uuid}", "{d:date}-{flag:bool}")
)


def signatures(data: bytes) -> None:
    """Headers in any shape, for every scheme; nothing is ever authentic."""
    lines = data.split(b"\n")
    text = [line.decode("latin-1") for line in lines]
    pairs: list[tuple[str | bytes, str | bytes]] = list(zip(_NAMES, text, strict=False))
    pairs += itertools.pairwise(lines[6:])
    for scheme in _SCHEMES:
        with contextlib.suppress(EventError):
            scheme.verify(Headers(pairs), data, NOW_S)
            raise AssertionError(f"{type(scheme).__name__} took a forged request")


def timestamps(data: bytes) -> None:
    """What is taken as a time reads the same when it is written again."""
    text = data.decode("utf-8", "surrogateescape")
    with contextlib.suppress(EventError):
        moment = parse_timestamp(text)
        assert parse_timestamp(format_timestamp(moment)) == moment
    with contextlib.suppress(ConfigError):
        duration = parse_duration(text)
        assert parse_duration(format_duration(duration)) == duration


def cursors(data: bytes) -> None:
    """A cursor that nobody gave out is refused; one that was given out is read."""
    text = data.decode("utf-8", "surrogateescape")
    with contextlib.suppress(CursorRefused):
        _CURSORS.read("x", text)
        raise AssertionError("a forged cursor was taken")
    position = int.from_bytes(data[:8], "big")
    assert _CURSORS.read("x", _CURSORS.make("x", position)) == position


def templates(data: bytes) -> None:
    """Templates of any text, and known ones over events of any shape."""
    with contextlib.suppress(ConfigError):
        KeyTemplate.parse(data.decode("utf-8", "surrogateescape"))
    with contextlib.suppress(EventError, ValueError, RecursionError):
        event = json.loads(data)  # looser than anything that production reads with
        for template in _TEMPLATES:
            with contextlib.suppress(EventError):
                template.derive(event)


def canonical(data: bytes) -> None:
    """What is JSON has one canonical form, and the same fingerprint however often it is read."""
    with contextlib.suppress(OncegateError, ValueError):
        _check_canonical(read_json(data))
    with contextlib.suppress(OncegateError, ValueError, RecursionError):
        _check_canonical(json.loads(data))


def _check_canonical(value: Any) -> None:
    with contextlib.suppress(EventError):
        text = canonical_json(value)
        again = json.loads(text)
        assert canonical_json(again) == text
        assert fingerprint(value) == fingerprint(again)


def filters(data: bytes) -> None:
    """The search field of the operations page takes anything that people type."""
    text = data.decode("utf-8", "surrogateescape")
    with contextlib.suppress(OncegateError):
        assert isinstance(read_filter(text, NOW_S * 1000), Filter)


def key_headers(data: bytes) -> None:
    """The Idempotency-Key header, with and without quotes."""
    for bare in (False, True):
        with contextlib.suppress(BadKeyHeader):
            key = read_key_header(data.split(b"\n"), bare_keys=bare)
            assert key
            assert key.isascii()


TARGETS: Final[dict[str, Callable[[bytes], None]]] = {
    "signatures": signatures,
    "timestamps": timestamps,
    "cursors": cursors,
    "templates": templates,
    "canonical": canonical,
    "filters": filters,
    "key-headers": key_headers,
}

# Where a fuzzer begins; the tests run every target over all of them.
SAMPLES: Final[Iterable[bytes]] = (
    b"",
    b"\xff\xfe\x00",
    b"msg_1\n1780000000\nv1,AAAA v1a,AAAA v1,\nt=1780000000,v1=00\nsha256=00\nBearer x",
    b"2026-06-01T07:00:00.123456+02:00",
    b"2016-12-31T23:59:60Z",
    b"0000-00-00T99:99:99-99:99",
    b"PT1H",
    b"1h30m",
    b"9999999999999999999999d",
    b"{id}:{when:timestamp}",
    b"{",
    b"{a.{b}}",
    b"[" * 3000,
    b'{"id": 1e400, "a": {"b": "\\ud800"}, "at": "2026-06-01T07:00:00Z", "n": 12345678901234567890123}',
    b'{"a": 1, "a": 2}',
    b"NaN",
    b"-0.0",
    b"1" * 5000,
    b"state:held tenant:x age>2h key:ab",
    b"age>99999999999999999999d",
    b'"a-key"; q=1',
)
