"""Reads one file as Python: its text, its tree, or one line that says why not."""

from __future__ import annotations

import ast
import io
import re
import tokenize
import warnings
from typing import Final

from oncegate.audit.values import Skipped

LINES_MAX: Final = 60_000
_PYTHON_2: Final = re.compile(
    r"^\s*(?:print\s+[^(=\s]|exec\s+[\"'(]|except\s+\w+\s*,\s*\w+\s*:|raise\s+\w+\s*,)", re.MULTILINE
)


def decode(content: bytes) -> str:
    """The text of a file in the encoding that it declares; raises ValueError or LookupError."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.decode("utf-16")
    encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
    return content.decode(encoding)


def parse(shown: str, content: bytes) -> tuple[str, ast.Module] | Skipped:
    """The text and tree of a file; never raises for what the file holds."""
    try:
        text = decode(content)
    except (SyntaxError, LookupError, UnicodeError, ValueError) as error:
        return Skipped(shown, f"its encoding cannot be read: {_line(error)}")
    if text.count("\n") > LINES_MAX:
        return Skipped(shown, f"has more than {LINES_MAX:,} lines")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return text, ast.parse(text)
    except SyntaxError as error:
        kind = "is Python 2" if _PYTHON_2.search(text) else "has a syntax error"
        return Skipped(shown, f"{kind}: line {error.lineno or 1}: {_line(error)}")
    except (RecursionError, MemoryError):
        return Skipped(shown, "is nested too deeply")
    except ValueError as error:
        return Skipped(shown, f"cannot be parsed: {_line(error)}")


def _line(error: Exception) -> str:
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return " ".join(str(text).split())[:120]
