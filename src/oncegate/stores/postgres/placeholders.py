"""Portable placeholders: a handler's `?` becomes PostgreSQL's, so that it runs on either ledger.

A statement that uses the driver's own `%s` or `%(name)s` is left alone. The result is always sent with
parameters, if only with none, so that the driver takes `%%` for `%`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import count
from typing import Final

_TOKEN: Final = re.compile(
    r"""'(?:[^']|'')*'          # text
      | "(?:[^"]|"")*"          # a quoted name
      | \$(\w*)\$.*?\$\1\$      # dollar-quoted text
      | --[^\n]*                # a comment to the end of the line
      | /\*.*?\*/               # a comment
      | \?                      # a placeholder
      | %                       # means something to the driver
    """,
    re.VERBOSE | re.DOTALL,
)
_NUMBERED_TOKEN: Final = re.compile(_TOKEN.pattern.replace("| %  ", "| %[s%]"), re.VERBOSE | re.DOTALL)
_NUMBERED: Final = re.compile(r"\$[1-9]")
_DRIVERS_OWN: Final = re.compile(r"%(?:b|t|\()")
_NAMED: Final = re.compile(r"%\((\w+)\)s")
_NATIVE: Final = re.compile(r"%(?:s|b|t|\()")


@lru_cache(maxsize=512)
def to_driver(sql: str) -> str:
    """Rewrites `?` outside of quotes and comments."""
    if _NATIVE.search(sql):
        return sql
    return _TOKEN.sub(_rewritten, sql)


@lru_cache(maxsize=512)
def to_numbered(sql: str) -> str:
    """Rewrites `?` or `%s` outside of quotes and comments to `$1`, `$2`, … as asyncpg wants them.

    A statement that has those already is left alone.
    """
    if _NUMBERED.search(sql):
        return sql
    numbers = count(1)
    native = _NATIVE.search(sql) is not None
    placeholder = "%s" if native else "?"

    def numbered(match: re.Match[str]) -> str:
        token = match.group(0)
        if token == placeholder:
            return f"${next(numbers)}"
        return token.replace("%%", "%") if native else token

    return _NUMBERED_TOKEN.sub(numbered, sql)


@lru_cache(maxsize=512)
def names_to_numbers(sql: str) -> tuple[str, tuple[str, ...]]:
    """Rewrites `%(name)s` to `$1`, `$2`, … in our own statements; returns the names in their order."""
    numbers: dict[str, int] = {}

    def numbered(match: re.Match[str]) -> str:
        return f"${numbers.setdefault(match.group(1), len(numbers) + 1)}"

    return _NAMED.sub(numbered, sql).replace("%%", "%"), tuple(numbers)


def needs_driver(sql: str, parameters: object) -> bool:
    """Whether a statement says something that only the driver's own cursor understands."""
    return not parameters or isinstance(parameters, Mapping) or _has_drivers_own(sql)


@lru_cache(maxsize=512)
def _has_drivers_own(sql: str) -> bool:
    return _DRIVERS_OWN.search(sql) is not None


def _rewritten(match: re.Match[str]) -> str:
    token = match.group(0)
    if token == "?":
        return "%s"
    return token.replace("%", "%%")
