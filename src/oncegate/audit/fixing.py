"""`--fix`: applies edits that need no judgement, and nothing else. The only code here that writes files."""

from __future__ import annotations

import ast
import difflib
import io
import tokenize
from collections.abc import Sequence
from pathlib import Path

from oncegate.audit.source import decode
from oncegate.audit.values import AuditFinding, TextEdit


def edits_by_file(findings: Sequence[AuditFinding]) -> dict[str, list[TextEdit]]:
    """The edits of all findings, by file."""
    found: dict[str, list[TextEdit]] = {}
    for finding in findings:
        for edit in finding.edits:
            found.setdefault(edit.place.path, []).append(edit)
    return found


def edited(text: str, edits: Sequence[TextEdit]) -> str:
    """The text with its edits; edits that overlap an earlier one are left out."""
    lines = text.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    limit = len(text) + 1
    for edit in sorted(edits, key=lambda one: (one.place.line, one.place.column), reverse=True):
        start = starts[edit.place.line - 1] + _position(lines[edit.place.line - 1], edit.place.column)
        end = starts[edit.place.end_line - 1] + _position(
            lines[edit.place.end_line - 1], edit.place.end_column
        )
        if end <= limit:
            text = text[:start] + edit.text + text[end:]
            limit = start
    for line in sorted({edit.import_line for edit in edits if edit.import_line}):
        text = _with_import(text, line)
    return text


def _position(line: str, column: int) -> int:
    """`ast` counts columns in bytes of UTF-8."""
    return len(line.encode("utf-8", "surrogatepass")[: column - 1].decode("utf-8", "ignore"))


def _with_import(text: str, line: str) -> str:
    tree = ast.parse(text)
    after = 0
    for node in tree.body:
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not is_text and not isinstance(node, ast.Import | ast.ImportFrom):
            break
        after = node.end_lineno or after
    lines = text.split("\n")
    return "\n".join([*lines[:after], line, *lines[after:]])


def patch(base: Path, findings: Sequence[AuditFinding]) -> str:
    """What `--fix` would change, as a unified diff."""
    parts = []
    for path, edits in sorted(edits_by_file(findings).items()):
        before = decode((base / path).read_bytes())
        after = edited(before, edits)
        parts += list(
            difflib.unified_diff(before.splitlines(True), after.splitlines(True), f"a/{path}", f"b/{path}")
        )
    return "".join(parts)


def apply_fixes(base: Path, findings: Sequence[AuditFinding]) -> dict[str, int]:
    """Writes the edits; a file that would not parse any more stays as it is."""
    done: dict[str, int] = {}
    for path, edits in sorted(edits_by_file(findings).items()):
        target = base / path
        content = target.read_bytes()
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        if b"\r" in content or encoding != "utf-8":
            continue
        after = edited(decode(content), edits)
        try:
            ast.parse(after)
        except SyntaxError:
            continue
        target.write_text(after, "utf-8", newline="")
        done[path] = len(edits)
    return done
