"""What people decide about a surface while programs run: its mode, fields to ignore, its retention.

A ledger keeps one document a surface. Running processes read it every few seconds and obey: what is decided
stands above what the program declares. Pure: no store, no clock.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import Any, Final

import msgspec
from msgspec import Struct

from oncegate.errors import ConfigError
from oncegate.model.durations import parse_duration
from oncegate.model.paths import parse_path
from oncegate.model.surface import SurfaceRule

KIND: Final = "surface"  # of the documents in the ledger's registry
OBEYED_SECONDS: Final = 3  # within which running processes obey a decision, while the ledger answers
IGNORED_MAX: Final = 32


class SurfaceMode(Enum):
    """What the gate does at a surface."""

    ON = "on"
    OBSERVE = "observe"  # the handler runs as without a gate, which records what it would have done
    PAUSED = "paused"  # nothing runs and nothing is taken


class SurfaceDecisions(Struct, frozen=True, omit_defaults=True):
    """What is decided about one surface; None and nothing stand for what the program declares.

    `why`, `by` and `at_ms` are of the mode.
    """

    mode: SurfaceMode | None = None
    why: str = ""
    by: str = ""
    at_ms: int = 0
    ignore: tuple[str, ...] = ()
    retention: str | None = None

    def encoded(self) -> bytes:
        """As a document of the registry."""
        return msgspec.json.encode(self)

    @property
    def text(self) -> str:
        """In words, for the journal and for lists."""
        parts = [] if self.mode is None else [self.mode.value]
        parts += [f"ignores {', '.join(self.ignore)}"] if self.ignore else []
        parts += [f"retention {self.retention}"] if self.retention is not None else []
        return "; ".join(parts) or "as declared"


NOTHING_DECIDED: Final = SurfaceDecisions()


def read_decisions(body: bytes | None) -> SurfaceDecisions:
    """Decisions as a ledger keeps them."""
    if body is None:
        return NOTHING_DECIDED
    try:
        return msgspec.json.decode(body, type=SurfaceDecisions)
    except msgspec.DecodeError as error:
        raise ConfigError(
            f"the ledger keeps a decision about a surface that this version cannot read ({error}); install"
            " a newer one"
        ) from error


def read_mode(text: str) -> SurfaceMode:
    """Reads a mode as people write it."""
    try:
        return SurfaceMode(text)
    except ValueError:
        raise ConfigError(f"{text[:40]!r} is no mode; choose observe, on or paused") from None


def ignoring(known: SurfaceDecisions, path: str) -> SurfaceDecisions:
    """The decisions with one more field that may differ between two sendings of one event."""
    parse_path(path)
    if path in known.ignore:
        raise ConfigError(f"{path!r} is ignored already; nothing was changed")
    if len(known.ignore) >= IGNORED_MAX:
        raise ConfigError(f"{IGNORED_MAX} fields are ignored by decision; name them in ignore= instead")
    return msgspec.structs.replace(known, ignore=(*known.ignore, path))


def decided_rule(rule: SurfaceRule, decided: SurfaceDecisions) -> SurfaceRule:
    """A rule as it is obeyed; raises ConfigError for a retention that the surface cannot have."""
    changes: dict[str, Any] = {}
    more = tuple(path for path in decided.ignore if path not in rule.fingerprint_ignore)
    if more:
        changes["fingerprint_ignore"] = rule.fingerprint_ignore + more
    if decided.retention is not None:
        # Never shorter: a process that has not read it yet would take a forgotten key for a new one.
        changes["retention"] = max(rule.retention, parse_duration(decided.retention))
    return replace(rule, **changes) if changes else rule
