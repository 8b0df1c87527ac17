"""The filter language of the entries page: `surface:portbase.cis state:unknown age>10m "some words"`.

Pure. What it cannot read it says and never guesses: a filter that quietly did not filter would be acted on.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, Final

from msgspec import Struct

from oncegate.errors import ConfigError
from oncegate.model.durations import parse_duration
from oncegate.model.states import State
from oncegate.store import EntryFilter

TEXT_MAX: Final = 500
_TERM: Final = re.compile(
    r"(surface|tenant|state|key|label|reason|id):(.*)|(age|waits)([<>])(.*)", re.DOTALL
)
# What looks like a term and is none: a misspelt name, or another sign than the term takes.
_NEARLY: Final = re.compile(r"([A-Za-z]{2,9})(:|[<>=]=?)(.*)", re.DOTALL)
_ALIKE: Final = 0.75
EXAMPLES: Final = (
    ("state:unknown,held", "entries in these states"),
    ("surface:orders", "entries of one surface"),
    ("tenant:acme", "entries of one tenant"),
    ("key:3f9ac2", "keys that begin so"),
    ("reason:skew", "whose reason contains a text"),
    ("age>10m  age<2h", "by time since their first arrival"),
    ("waits>4h", "by time in their present state"),
    ('MSKU "two words"', "whose label contains a text"),
)


class Filter(Struct, frozen=True):
    """What was asked for: the store's filter, one entry by its id, or what could not be read."""

    wanted: EntryFilter = EntryFilter()
    entry_id: int | None = None
    problem: str | None = None

    @property
    def is_narrow(self) -> bool:
        """Whether an index leads straight to what is wanted, so that the search needs no bound."""
        wanted = self.wanted
        open_only = bool(wanted.states) and not any(state.is_final for state in wanted.states)
        return open_only or len(wanted.key_prefix or "") >= 4


def read_filter(text: str, now_ms: int) -> Filter:
    """Reads a filter; one that cannot be read has a `problem` and fits nothing."""
    if len(text) > TEXT_MAX:
        return Filter(problem=f"a filter has at most {TEXT_MAX} characters")
    try:
        return _read(text, now_ms)
    except ConfigError as error:
        return Filter(problem=str(error))


def _read(text: str, now_ms: int) -> Filter:
    fields: dict[str, Any] = {}
    for word in _words(text):
        found = _TERM.fullmatch(word)
        if found is None:
            _refuse_misspelt(word)
            _put(fields, "label_contains", word, "label")
        elif found.group(1) is not None:
            name, read = _FIELDS[found.group(1)]
            _put(fields, name, read(found.group(2)), found.group(1))
        else:
            _put_age(fields, found.group(3), found.group(4), found.group(5), now_ms)
    entry_id = fields.pop("entry_id", None)
    if entry_id is not None and fields:
        raise ConfigError("id: names one entry; it stands alone")
    return Filter(EntryFilter(**fields), entry_id)


def _refuse_misspelt(word: str) -> None:
    """Searching labels for a misspelt term would find nothing, and look as if there were nothing."""
    found = _NEARLY.fullmatch(word)
    near = [] if found is None else get_close_matches(found[1].lower(), _TERMS, 1, _ALIKE)
    if found is not None and near:
        sign = ">" if near[0] in ("age", "waits") else ":"
        raise ConfigError(
            f"{found[1] + found[2]!r} is not a term; write {near[0]}{sign}… (or label:… to search labels)"
        )


def _words(text: str) -> list[str]:
    try:
        words = shlex.split(text)
        text.encode()
    except (ValueError, UnicodeEncodeError):
        raise ConfigError("a quotation mark is missing, or a character cannot be read") from None
    return words


def _put(fields: dict[str, Any], name: str, value: Any, term: str) -> None:
    if name in fields:
        raise ConfigError(f"{term} is given twice; put words that belong together in quotes")
    fields[name] = value


def _put_age(fields: dict[str, Any], term: str, sign: str, text: str, now_ms: int) -> None:
    age_ms = int(parse_duration(text).total_seconds() * 1000)
    if term == "waits":
        if sign == "<":
            raise ConfigError("waits takes >, as in waits>4h")
        _put(fields, "settled_before_ms", now_ms - age_ms, "waits>")
    else:
        name = "received_before_ms" if sign == ">" else "received_after_ms"
        _put(fields, name, now_ms - age_ms, f"age{sign}")


def _read_states(text: str) -> tuple[State, ...]:
    names = [name for name in text.lower().replace("-", "_").split(",") if name]
    known = {state.label: state for state in State}
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        shown = (unknown or [text])[0]
        raise ConfigError(f"{shown[:40]!r} is not a state; states are {', '.join(known)}")
    return tuple(known[name] for name in names)


def _read_key(text: str) -> str:
    digits = text.partition(":")[0].lower()
    if not 0 < len(digits) <= 48 or not set(digits) <= set("0123456789abcdef"):
        raise ConfigError(f"{text[:60]!r} is not the beginning of a key: 1 to 48 digits of 0-9 and a-f")
    return digits


def _read_id(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < len(text) <= 18):
        raise ConfigError(f"{text[:40]!r} is not an entry's id")
    return int(text)


def _read_text(text: str) -> str:
    if not text:
        raise ConfigError("a term such as surface: needs something after the colon")
    return text


_FIELDS: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "surface": ("surface", _read_text),
    "tenant": ("tenant", str),
    "state": ("states", _read_states),
    "key": ("key_prefix", _read_key),
    "label": ("label_contains", _read_text),
    "reason": ("reason_contains", _read_text),
    "id": ("entry_id", _read_id),
}
_TERMS: Final = (*_FIELDS, "age", "waits")
