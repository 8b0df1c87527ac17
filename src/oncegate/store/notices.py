"""Notices: what processes tell each other by the ledger, such as how an endpoint's circuit stands.

They are small, replaced by the next word of the same writer, and gone after a while; the log has nothing of
them. They are hearsay: how long ago something was said is part of it, and no key, lease or order may depend
on what one says.
"""

from __future__ import annotations

from typing import Final, Protocol

import msgspec
from msgspec import Struct

KEPT_MAX: Final = 10_000
WORKER: Final = "worker"  # the kind, and the name, of what workers say of themselves
WORKERS_MAX: Final = 100
WATCH: Final = "watch"  # the kind, and the name, of what watches say of themselves
KEYLESS: Final = "keyless"  # the kind of what gates say of calls that took no key
KEYLESS_KEPT_MS: Final = 2 * 86_400_000
KEYLESS_MAX: Final = 200


DRIFT: Final = "drift"  # the kind, and the writer, of what is said of partners whose windows differ
DRIFT_KEPT_MS: Final = 2 * 3_600_000


RETENTION: Final = "retention"  # the kind of what pruners say of surfaces: by which retention, as text
SUBJECT: Final = "subject"  # the kind of what pruners say of surfaces: which field names a person
RETENTION_KEPT_MS: Final = 30 * 86_400_000


class DriftWord(Struct, frozen=True):
    """How many windows of a partner differ, and the latest of them.

    `is_behind` says that not everything was read yet, so that nothing can be told.
    """

    windows: int
    latest: tuple[str, ...]
    is_behind: bool = False


class WorkerWord(Struct, frozen=True):
    """What a worker says after a run: how often it runs, and which surfaces it looks after."""

    every_ms: int
    surfaces: tuple[str, ...]


class Posting(Struct, frozen=True):
    """Asks to put a notice up, in place of the writer's earlier one of that kind and name.

    It is gone after `keep_ms`, and when `kept_max` newer ones of its kind are up. With `must_be_first` it
    is put up only where none stands, for what may be begun once; `body` must then be this request's own.
    """

    kind: str
    name: str
    writer: str
    body: bytes
    at_ms: int
    keep_ms: int
    must_be_first: bool = False
    kept_max: int = KEPT_MAX


def keyless_posting(place: tuple[str, str, str], at_ms: int) -> Posting:
    """Says that a step of a surface calls a downstream without the key; by surface, then step."""
    surface, step, downstream = place
    who = f"{step} at {downstream}"
    return Posting(KEYLESS, surface, who, b"", at_ms, KEYLESS_KEPT_MS, kept_max=KEYLESS_MAX)


class ObservedSample(Struct, frozen=True):
    """An arrival that the gate would have stopped, as `what`, at a surface that observes."""

    what: str
    label: str
    key: str
    at_ms: int
    reason: str = ""


OBSERVED: Final = "observed"  # the kind of samples of what a gate would have stopped
OBSERVED_KEPT_MS: Final = 90 * 86_400_000


def observed_posting(surface: str, sample: ObservedSample, place: int) -> Posting:
    """Shows a sample, in one of a few places for each kind."""
    body = msgspec.json.encode(sample)
    who = f"{sample.what} {place}"
    return Posting(OBSERVED, surface, who, body, sample.at_ms, OBSERVED_KEPT_MS, kept_max=KEYLESS_MAX)


class Notice(Struct, frozen=True):
    """A notice that is up. `age_ms` is by the ledger's own time."""

    kind: str
    name: str
    writer: str
    body: bytes
    told_at_ms: int
    age_ms: int


class Notices(Protocol):
    """Puts notices up and reads them."""

    def post(self, posting: Posting) -> bool:
        """Puts a notice up; False and nothing changed if it had to be the first and was not.

        Some of those that are over, or too many, go with it.
        """

    def notices(self, kind: str, name: str | None = None) -> list[Notice]:
        """Reads the notices of a kind that are not over, by name and writer; all, or those of one name."""
