"""Addresses of ledgers as they may be shown: without anything that may be a password, however mistyped.

Used wherever an address goes to a person, a log or an error. Must never show a part that follows a colon
unless it is a port, nor a value that could be a password's end.
"""

from __future__ import annotations

import re
from typing import Final

from oncegate.model.redact import HIDDEN

SHOWN_MAX: Final = 120

_LEAD: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|(?:(?:sqlite|postgres(?:ql)?)(?=[:/]))?[:/]*")
_PARTS: Final = re.compile(r"(?:([^/?#]*)@)?([^/?#@]*)([^?#]*)(\?.*)?", re.DOTALL)
_HOSTS: Final = re.compile(r"(?:[^:\[\]]*|\[[0-9A-Fa-f:.%]*\])(?::\d{0,5})?(?:,[^:]*(?::\d{0,5})?)*")
_HARMLESS: Final = frozenset(
    {
        "application_name",
        "connect_timeout",
        "create",
        "dbname",
        "durability",
        "endpoint",
        "host",
        "long_retention",
        "port",
        "prefix",
        "profile",
        "region",
        "sslmode",
        "synchronous",
        "wait",
        "waitaof",
    }
)
_IN_TEXT: Final = (
    (re.compile(r"\b(postgres(?:ql)?)[:/%][^\s'\"]*", re.IGNORECASE), rf"\1{HIDDEN}"),
    (re.compile(r"[^\s'\"]*:[^'\"]*@"), f"{HIDDEN}@"),
    (re.compile(r"(pass\w*\s*=\s*)('[^']*'|[^\s&'\"]+)", re.IGNORECASE), rf"\1{HIDDEN}"),
)


def masked_address(address: str) -> str:
    """A ledger's address for people, short enough for one line."""
    lead = _LEAD.match(address)[0]  # type: ignore[index]  # it matches nothing at all, too
    rest = address[len(lead) :]
    if lead.endswith("://") and rest.startswith("/") and lead.lower() == "sqlite://":
        file, mark, query = rest.partition("#")[0].partition("?")
        return (lead + file + mark + _shown_query(query))[:SHOWN_MAX]
    parts = _PARTS.fullmatch(rest) if "://" in lead else None
    if parts is None or not _is_plain(*parts.groups()):
        return (lead + _mistyped(rest))[:SHOWN_MAX]
    user, host, path, query = parts.groups()
    who = "" if user is None else f"{_shown_user(user)}@"
    return f"{lead}{who}{host}{path}{'?' if query else ''}{_shown_query((query or '')[1:])}"[:SHOWN_MAX]


def _is_plain(user: str | None, host: str, path: str, query: str | None) -> bool:
    """Whether an address can be read in one way only: its password holds no sign that divides it."""
    names = [pair.partition("=")[0] for pair in (query or "").split("&")]
    marked = "@" in path or "#" in (query or "") or any("@" in name or ":" in name for name in names)
    return _HOSTS.fullmatch(host) is not None and not marked and "=" not in host + path


def _shown_user(user: str) -> str:
    name, colon, _ = re.split(r"%3[Aa]", user, maxsplit=1)[0].partition(":")
    return f"{name}:{HIDDEN}" if colon or "%3a" in user.lower() else name


def _shown_query(query: str) -> str:
    """Options by name; values only of those that are known to be no secret."""
    pairs = [pair.partition("=") for pair in query.split("&")] if query else []
    return "&".join(f"{n}={v if n in _HARMLESS and '@' not in v else HIDDEN}" for n, _, v in pairs)


def _mistyped(rest: str) -> str:
    """What is certainly no secret: the beginning up to the first sign of one, the host after the last @."""
    begin = re.split(r"[:@?#=\s%]", rest, maxsplit=1)[0]
    if begin == rest:
        return rest
    before, at, after = rest.rpartition("@")
    if not at or "?" in before or "=" in before or re.search(r"[?=\s]", after):
        return f"{begin}{HIDDEN}" if rest[len(begin)] != "@" else HIDDEN
    return f"{begin if ':' in before else ''}{HIDDEN}@{after.partition(':')[0]}"


def masked_text(text: str) -> str:
    """A message that may quote an address somewhere."""
    for pattern, shown in _IN_TEXT:
        text = pattern.sub(shown, text)
    return text
