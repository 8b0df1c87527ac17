"""Portable placeholders: a handler's `?` becomes PostgreSQL's, so that it runs on either ledger.

A statement that uses the driver's own `%s` or `%(name)s` is left alone. The result is always sent with
parameters, if only with none, so that the driver takes `%%` for `%`.
"""

from __future__ import annotations

import re
from functools import lru_cache
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
_NATIVE: Final = re.compile(r"%(?:s|b|t|\()")


@lru_cache(maxsize=512)
def to_driver(sql: str) -> str:
    """Rewrites `?` outside of quotes and comments."""
    if _NATIVE.search(sql):
        return sql
    return _TOKEN.sub(_rewritten, sql)


def _rewritten(match: re.Match[str]) -> str:
    token = match.group(0)
    if token == "?":
        return "%s"
    return token.replace("%", "%%")
