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
    r"(surface|tenant|state|key|label|reason|cause|resource|id):(.*)|(age|waits)([<>])(.*)", re.DOTALL
)
# What looks like a term and is none: a misspelt name, or another sign than the term takes.
_NEARLY: Final = re.compile(r"([A-Za-z]{2,9})(:|[<>=]=?)(.*)", re.DOTALL)
_ALIKE: Final = 0.75
EXAMPLES: Final = (
    ("state:unknown,held", "entries in these states"),
    ("surface:orders", "entries of one surface"),
    ("tenant:acme", "entries of one tenant"),
    ("key:3f9ac2", "keys that begin so"),
    ("cause:skew", "of one cause, as the page counts them"),
    ("reason:skew", "whose reason contains a text"),
    ("resource:S-4711", "whose outcome names a resource, such as a slot"),
    ("age>10m  age<2h", "by time since their first arrival"),
    ("waits>4h", "by time in their present state"),
    ('MSKU "two words"', "whose label contains a text; one text alone is looked for everywhere"),
)


class Filter(Struct, frozen=True):
    """What was asked for: the store's filter, one entry by its id, or what could not be read.

    `suspect` is what to say if nothing is found: a word looked like a term and is none.
    """

    wanted: EntryFilter = EntryFilter()
    entry_id: int | None = None
    problem: str | None = None
    suspect: str | None = None

    @property
    def text(self) -> str:
        """What to search for beyond labels, where the filter is nothing but a text."""
        text = self.wanted.label_contains or ""
        return text if EntryFilter(label_contains=text) == self.wanted else ""

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
    suspect: str | None = None
    for word in _words(text):
        found = _TERM.fullmatch(word)
        if found is None:
            suspect = _refuse_misspelt(word) or suspect
            _put(fields, "label_contains", word, "label")
        elif found.group(1) is not None:
            name, read = _FIELDS[found.group(1)]
            _put(fields, name, read(found.group(2)), found.group(1))
        else:
            _put_age(fields, found.group(3), found.group(4), found.group(5), now_ms)
    entry_id = fields.pop("entry_id", None)
    if entry_id is not None and fields:
        raise ConfigError("id: names one entry; it stands alone")
    return Filter(EntryFilter(**fields), entry_id, suspect=suspect)


def _refuse_misspelt(word: str) -> str | None:
    """Refuses what is plainly a term of another language; returns what to say if a text finds nothing.

    Searching labels for a misspelt term would find nothing, and look as if there were nothing.
    """
    found = _NEARLY.fullmatch(word)
    if found is None:
        return None
    name, sign = found[1].lower(), found[2]
    said = f"{found[1] + sign!r} is not a term; "
    if name in _TIMES:
        raise ConfigError(f"{said}write age<1h (came within the hour), age>1h or waits>1h")
    known = _SYNONYMS.get(name) or next(iter(get_close_matches(name, _TERMS, 1, _ALIKE)), None)
    if known is not None:
        right = f"{known}>" if known in ("age", "waits") else f"{known}:"
        raise ConfigError(f"{said}write {right}… (or label:… to search labels)")
    if sign != ":":
        raise ConfigError(f"{said}{_TERMS_SAID}")
    hint = f"Write {_HINTS[name]}:… " if name in _HINTS else ""
    return f"{said}no label contains {word[:60]!r} either. {hint}{_TERMS_SAID}"


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
    "cause": ("cause", _read_text),
    "resource": ("resource", _read_text),
    "id": ("entry_id", _read_id),
}
_TERMS: Final = (*_FIELDS, "age", "waits")
_TERMS_SAID: Final = f"Terms are {', '.join(f'{name}:' for name in _FIELDS)}, age<, age> and waits>"
_TIMES: Final = frozenset({"since", "before", "after", "until", "received", "older", "newer"})
_SYNONYMS: Final = {"status": "state", "why": "reason", "error": "reason"}
# These may well begin a label: said only where nothing is found.
_HINTS: Final = {
    "slot": "resource",
    "entry": "id",
    "customer": "tenant",
    "source": "surface",
    "queue": "surface",
}
