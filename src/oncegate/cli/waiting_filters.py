"""The filters of `oncegate held` and `oncegate quarantine`: the same terms as on the operations page.

Whatever the page can filter by must have an option here: the command that it shows beside a plan for many
would otherwise mean more than the plan.
"""

from __future__ import annotations

import argparse
from typing import Final

from oncegate.cli.parser import read_key_prefix, read_text
from oncegate.cli.time_filters import add_times, span_of
from oncegate.clock import SystemClock
from oncegate.errors import ConfigError
from oncegate.model.durations import parse_duration
from oncegate.model.states import State
from oncegate.store import EntryFilter

_NAMES: Final = (
    "state",
    "surface",
    "tenant",
    "key",
    "label",
    "reason_contains",
    "cause",
    "older_than",
    "age_over",
    "age_under",
    "since",
    "until",
)


def add_filters(parser: argparse.ArgumentParser) -> None:
    """Adds one option for each term."""
    parser.add_argument("--state", type=read_text, help="entries in this state, of those that wait here")
    parser.add_argument("--surface", type=read_text, help="entries of this surface")
    parser.add_argument("--tenant", type=read_text, help="entries of this tenant")
    parser.add_argument("--key", type=read_key_prefix, metavar="PREFIX", help="keys that begin like this")
    parser.add_argument("--label", type=read_text, metavar="TEXT", help="labels that contain this text")
    parser.add_argument(
        "--reason-contains", type=read_text, metavar="TEXT", help="entries whose reason contains this text"
    )
    parser.add_argument(
        "--cause", type=read_text, metavar="NAME", help="entries of one cause, as signals count them: skew"
    )
    parser.add_argument(
        "--older-than", metavar="AGE", help="entries that wait for longer, such as 4h or 7d"
    )
    parser.add_argument("--age-over", metavar="AGE", help="entries that first came longer ago than this")
    parser.add_argument("--age-under", metavar="AGE", help="entries that first came later than this")
    add_times(parser, "first came")


def has_filter(arguments: argparse.Namespace) -> bool:
    """Tells whether any filter was given."""
    return any(getattr(arguments, name) is not None for name in _NAMES)


def filter_of(states: tuple[State, ...], arguments: argparse.Namespace) -> EntryFilter:
    """The filter that the options name, within the states that wait here."""
    now_ms, span = SystemClock().wall_ms(), span_of(arguments)
    before = (_before(arguments.age_over, now_ms), span.until_ms)
    after = (_before(arguments.age_under, now_ms), span.after_ms)
    return EntryFilter(
        states if arguments.state is None else (_state_of(states, arguments.state),),
        arguments.surface,
        arguments.tenant,
        arguments.key,
        arguments.label,
        arguments.reason_contains,
        _before(arguments.older_than, now_ms),
        min((one for one in before if one is not None), default=None),
        max((one for one in after if one is not None), default=None),
        cause=arguments.cause,
    )


def _before(age: str | None, now_ms: int) -> int | None:
    return None if age is None else now_ms - int(parse_duration(age).total_seconds() * 1000)


def _state_of(states: tuple[State, ...], text: str) -> State:
    known = {state.label: state for state in states}
    name = text.strip().lower().replace("-", "_")
    if name not in known:
        raise ConfigError(f"{text[:40]!r} is not a state that waits here: {', '.join(known)}")
    return known[name]
