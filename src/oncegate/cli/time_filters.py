"""`--since` and `--until`: which part of a list is wanted, by time."""

from __future__ import annotations

import argparse
from typing import NamedTuple

from oncegate.cli.parser import read_text
from oncegate.clock import SystemClock
from oncegate.errors import ConfigError
from oncegate.model.moments import read_moment

_FORMS = "90m, 2h or 3d ago, or 2026-11-18T02:00Z"


class Span(NamedTuple):
    """From when to when, in milliseconds; None is no bound."""

    since_ms: int | None = None
    until_ms: int | None = None

    def has(self, at_ms: int | None) -> bool:
        """Whether a moment is within it; what has no time is within no bound."""
        if at_ms is None:
            return self == Span()
        return (self.since_ms is None or at_ms >= self.since_ms) and not self.is_after(at_ms)

    def is_after(self, at_ms: int) -> bool:
        """Whether a moment is later than the span."""
        return self.until_ms is not None and at_ms >= self.until_ms

    @property
    def after_ms(self) -> int | None:
        """The lower bound of an `EntryFilter`, which is exclusive."""
        return None if self.since_ms is None else self.since_ms - 1


def add_times(parser: argparse.ArgumentParser, what: str) -> None:
    """Adds both options; `what` names the time that they are about."""
    parser.add_argument(
        "--since", type=read_text, metavar="WHEN", help=f"only what {what} since then: {_FORMS}"
    )
    parser.add_argument("--until", type=read_text, metavar="WHEN", help=f"only what {what} before then")


def span_of(arguments: argparse.Namespace) -> Span:
    """The span that was asked for; raises ConfigError where it ends before it begins."""
    now_ms = SystemClock().wall_ms()
    since, until = (
        None if text is None else read_moment(text, now_ms) for text in (arguments.since, arguments.until)
    )
    if since is not None and until is not None and since >= until:
        raise ConfigError("--until is before --since; the earlier moment goes to --since")
    return Span(since, until)


def time_words(arguments: argparse.Namespace) -> list[str]:
    """Both options as they were given, for the command of the next page."""
    given = (("--since", arguments.since), ("--until", arguments.until))
    return [word for name, text in given if text is not None for word in (name, text)]
