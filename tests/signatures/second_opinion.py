"""The published verifier of Standard Webhooks beside ours: both verdicts, and why they may differ.

The package (standardwebhooks 1.1.0) brings no corpus of hostile requests and none is published with it, so
requests are made here by changing good ones. It reads the wall clock by itself; here its clock stands.
"""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from enum import Enum
from random import Random
from typing import TypeVar
from unittest.mock import patch

import standardwebhooks
from msgspec import Struct
from standardwebhooks import webhooks as published

from oncegate.errors import MalformedRequest, NotAuthentic
from oncegate.signatures import Headers, StandardWebhooks

NOW = 1_700_000_000
SECRET_BYTES = b"s" * 32
SECRET = "whsec_" + base64.b64encode(SECRET_BYTES).decode()
OURS = StandardWebhooks([SECRET])

T = TypeVar("T")


class Why(Enum):
    """Every reason for which the two may differ, in the words of docs/signatures.md."""

    STRANGE_ID = "an id with a full stop, a control or non-ASCII character, or over 255 characters"
    STRANGE_TIMESTAMP = (
        "a timestamp such as `1.7e9`, `+1700000000`, `1_700_000_000` or one in full-width digits"
    )
    LEADING_ZEROS = "a timestamp with leading zeros"
    LOOSE_BASE64 = "an entry with other characters among its base64"
    NINTH_ENTRY = "a right entry after eight others"
    SPACES = "spaces at the ends of a header's value"
    STRANGE_BODY = "a body that is not UTF-8"
    UNREADABLE_ENTRY = "an entry that cannot be read before a right one"


class Case(Struct, frozen=True):
    """A request as a receiver gets it."""

    message_id: str
    timestamp: str
    signature: str
    body: bytes

    @property
    def headers(self) -> dict[str, str]:
        """Its three headers."""
        return {
            "webhook-id": self.message_id,
            "webhook-timestamp": self.timestamp,
            "webhook-signature": self.signature,
        }


class StandingClock(datetime):
    """What the published verifier takes for the time."""

    @classmethod
    def now(cls, tz=None):
        """Always the same moment."""
        return datetime.fromtimestamp(NOW, tz)


@contextmanager
def standing_clock() -> Iterator[None]:
    """Stops the published verifier's clock."""
    with patch.object(published, "datetime", StandingClock):
        yield


def we_accept(case: Case) -> bool:
    """Our verdict; anything raised but a refusal is a failed test."""
    try:
        OURS.verify(Headers(case.headers), case.body, NOW)
    except (MalformedRequest, NotAuthentic):
        return False
    return True


def they_accept(case: Case) -> bool:
    """The published verdict; whatever it raises is a refusal."""
    try:
        with standing_clock():
            standardwebhooks.Webhook(SECRET).verify(case.body, case.headers, json_parse=False)
    except Exception:  # noqa: BLE001  it raises almost anything on hostile input
        return False
    return True


def reasons(case: Case, *, ours: bool) -> set[Why]:
    """Why one of the two accepts and the other does not; `ours` says that it is us."""
    found = _why_only_we(case) if ours else _why_only_they(case)
    if any(value != value.strip() for value in case.headers.values()):
        found.add(Why.SPACES)
    if re.fullmatch("0[0-9]+", case.timestamp.strip()):
        found.add(Why.LEADING_ZEROS)
    return found


def _why_only_we(case: Case) -> set[Why]:
    found = set()
    try:
        case.body.decode()
    except UnicodeDecodeError:
        found.add(Why.STRANGE_BODY)
    if any(entry.count(",") != 1 or not _is_base64(entry) for entry in case.signature.split(" ")):
        found.add(Why.UNREADABLE_ENTRY)
    return found


def _is_base64(entry: str) -> bool:
    try:
        base64.b64decode(entry.partition(",")[2])
    except ValueError:
        return False
    return True


def _why_only_they(case: Case) -> set[Why]:
    found = set()
    if not re.fullmatch(r"[\x20-\x2d\x2f-\x7e]{1,255}", case.message_id):
        found.add(Why.STRANGE_ID)
    if not re.fullmatch(r"[0-9]{1,12}", case.timestamp.strip(" \t"), re.ASCII):
        found.add(Why.STRANGE_TIMESTAMP)
    entries = case.signature.split(" ")
    if any(_is_loose(entry) for entry in entries):
        found.add(Why.LOOSE_BASE64)
    if len(entries) > 8:
        found.add(Why.NINTH_ENTRY)
    return found


def _is_loose(entry: str) -> bool:
    is_strict = re.fullmatch(r"v1,[A-Za-z0-9+/]{43}=", entry)
    return not is_strict and _is_base64(entry) and len(base64.b64decode(entry.partition(",")[2])) == 32


def entry(message_id: str, timestamp: str, body: bytes) -> str:
    """The entry that a sender with the right secret makes for exactly these bytes."""
    content = f"{message_id}.{timestamp}.".encode("utf-8", "surrogatepass") + body
    return "v1," + base64.b64encode(hmac.digest(SECRET_BYTES, content, "sha256")).decode()


# --- a corpus: good requests with some of their parts changed ---

_IDS = [
    "a.1",
    " msg_1",
    "msg_1 ",
    "x" * 255,
    "x" * 256,
    "caf\xe9",
    "a\x00b",
    "a\nb",
    "\ud800",
    "",
    "\u202e",
]
_OFFSETS = [-301, -300, -1, 1, 300, 301, 10**9]
_SPELLINGS = [
    *("00{0}", "+{0}", " {0}", "{0}\t", "\n{0}", "{0}.0", "{0}.7", "{0}e0", "{0:_}"),
    *("-{0}", "0x{0:x}", "nan", "inf", "", "9" * 400, "hello", "1{0}000"),
]
_BODIES = [
    b"",
    b"{}",
    b"\xff",
    b"\x00",
    b"\xed\xa0\x80",
    "\u2028 \u20ac".encode(),
    b"\xef\xbb\xbf{}",
    b"." * 99,
]
_JUNK = [
    *("v1", "v1,", ",", "", "v1,AAAA", "v1,#", "v1,a,b", "v1,A", "v2,AAAA", "v1a,AAAA", "v1,\ud800", "\t"),
    *("v1," + "A" * 43 + "=", "v1," + "A" * 5_000, "v1,\u0661"),
]
_CHANGES = [
    *("{0}=", "{0}\n", "v1,*{1}", "v1,{1}.", "v1,\t{1}", "V1,{1}", "v1a,{1}", "v2,{1}", "v1,{2}", "v1,{3}"),
    *("v1 ,{1}", "v1,{1},", "v1={1}", "v1,{1}\x00", "{0},{0}", "{0}{0}"),
]
_FULL_WIDTH = {ord("0") + digit: 0xFF10 + digit for digit in range(10)}


def corpus(seed: int, count: int) -> Iterator[Case]:
    """So many requests; the same seed makes the same ones."""
    dice = Random(seed)
    for _ in range(count):
        yield _tampered(dice, _case(dice))


def _case(dice: Random) -> Case:
    """A request each of whose parts is strange now and then, before it is signed or after."""
    message_id, body = _strange(dice, "msg_1", _IDS), _strange(dice, b'{"a":1}', _BODIES)
    seconds = NOW + _strange(dice, 0, _OFFSETS)
    timestamp = _strange(dice, "{0}", _SPELLINGS).format(seconds)
    timestamp = _strange(dice, timestamp, [timestamp.translate(_FULL_WIDTH)])
    signed_time = dice.choice([timestamp, str(seconds)])
    right = _changed(_strange(dice, "{0}", _CHANGES), entry(message_id, signed_time, body))
    before = dice.choices(_JUNK, k=_strange(dice, 0, range(1, 10)))
    after = dice.choices(_JUNK, k=_strange(dice, 0, [1, 2]))
    return Case(message_id, timestamp, " ".join([*before, right, *after]), body)


def _strange(dice: Random, usual: T, others: Sequence[T]) -> T:
    return dice.choice(others) if dice.random() < 0.15 else usual


def _changed(change: str, right: str) -> str:
    text = right.removeprefix("v1,")
    return change.format(right, text, text[:-1], text[::-1])


def _tampered(dice: Random, given: Case) -> Case:
    """Now and then one byte or one part is replaced after signing."""
    place = dice.randrange(len(given.signature) or 1)
    bent = given.signature[:place] + dice.choice("Aa+/=, \t\xe9") + given.signature[place + 1 :]
    return Case(
        _strange(dice, given.message_id, ["msg_2"]),
        _strange(dice, given.timestamp, [str(NOW + 1)]),
        _strange(dice, given.signature, [bent, given.signature[:place]]),
        _strange(dice, given.body, [given.body + b" ", given.body[1:]]),
    )
