"""The format of a recording: lines of JSON, the first of which says which version this is.

    {"line":"recording","version":1,"began_at":"…","made_by":"…"}
    {"line":"surface","name":"…","occurred_at":"…"}
    {"line":"arrival","n":1,"at_ms":0,"surface":"…","event":"…","content":"…","payload":{…}}
    {"line":"answer","of":1,"verdict":"run"}
    {"line":"end","arrivals":1}

An arrival is written when it comes and its answer when it has one, so that a killed process leaves an
arrival without an answer rather than no trace. A recording without its last line was cut off. Explained for
users in docs/recording.md. Must never gain a field for headers, signatures or secrets.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

VERSION: Final = 1
# A payload of the largest size that the gate takes, in the longest spelling that JSON has for it.
LINE_BYTES_MAX: Final = 8 * 1024 * 1024
ARRIVALS_MAX: Final = 1_000_000


class _Tagged(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, tag_field="line"):
    """A line; `line` says of which kind."""


class Header(_Tagged, frozen=True, tag="recording"):
    """The first line. `began_at` is what the times of all arrivals count from."""

    version: int
    began_at: str
    made_by: str = ""
    story: str = ""


class SurfaceLine(_Tagged, frozen=True, tag="surface"):
    """Stands before the first arrival of a surface: are payloads kept, and where is an event dated?"""

    name: str
    payloads: bool = True
    occurred_at: str | None = None


class ArrivalLine(_Tagged, frozen=True, tag="arrival"):
    """One arrival.

    `event` stands for the key and `content` for the fingerprint: two arrivals of one recording have the
    same event if and only if the gate saw the same key. Without a payload, `why` says why there is none.
    `about` marks a time that is only roughly known, `note` is for people.
    """

    n: int
    at_ms: int
    surface: str
    event: str
    content: str
    tenant: str = ""
    type: str | None = None
    occurred_at: str | None = None
    payload: Raw | UnsetType = UNSET
    why: str | None = None
    about: bool = False
    note: str | None = None

    @property
    def has_payload(self) -> bool:
        """Whether there is something to play."""
        return self.payload is not UNSET

    def decoded(self) -> Any:
        """The payload as a value."""
        assert isinstance(self.payload, Raw)
        return msgspec.json.decode(self.payload)


class AnswerLine(_Tagged, frozen=True, tag="answer"):
    """The answer to an arrival: a verdict, or the class of the error that it raised."""

    of: int
    verdict: str | None = None
    error: str | None = None
    repeat: str | None = None


class EndLine(_Tagged, frozen=True, tag="end"):
    """The last line. `left_out` are arrivals that were seen and not written, for lack of room."""

    arrivals: int
    left_out: int = 0


Line = Header | SurfaceLine | ArrivalLine | AnswerLine | EndLine

_encoder: Final = msgspec.json.Encoder()
_decoder: Final[msgspec.json.Decoder[Line]] = msgspec.json.Decoder(Line)


def encode_line(line: Line) -> bytes:
    """A line with its end."""
    return _encoder.encode(line) + b"\n"


def decode_line(text: bytes) -> Line:
    """The line that a text is; raises msgspec.DecodeError or another ValueError."""
    return _decoder.decode(text)


class Recording(Struct, frozen=True):
    """A whole recording: its header, its arrivals in order, and the answers by their numbers."""

    header: Header
    arrivals: tuple[ArrivalLine, ...]
    surfaces: dict[str, SurfaceLine] = {}
    answers: dict[int, AnswerLine] = {}
    left_out: int = 0
    is_whole: bool = True
