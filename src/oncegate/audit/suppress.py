"""Comments that suppress a finding: `# oncegate: ignore[OG001] reason`."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from oncegate.audit.catalogue import RULES
from oncegate.audit.values import AuditFinding, SourcePlace

MARK: Final = b"oncegate: ignore"
_COMMENT: Final = re.compile(r"#\s*oncegate:\s*ignore\s*(?:\[([^\]]*)\])?[ :]*(.*)$")


class Suppression(Struct):
    """One comment: the rules it names, the line it covers, its reason."""

    path: str
    line: int
    column: int
    covers: int
    rules: tuple[str, ...]
    reason: str
    is_used: bool = False


def read_suppressions(path: str, text: str) -> list[Suppression]:
    """The comments of a file. A comment on a line of its own covers the next line of code."""
    found = []
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError, IndentationError, ValueError):
        return []
    for number, token in enumerate(tokens):
        match = _COMMENT.search(token.string) if token.type == tokenize.COMMENT else None
        if match is None:
            continue
        alone = not token.line[: token.start[1]].strip()
        covers = _next_code(tokens, number) if alone else token.start[0]
        rules = tuple(re.findall(r"OG\d{3}", match.group(1) or ""))
        found.append(
            Suppression(path, token.start[0], token.start[1] + 1, covers, rules, match.group(2).strip())
        )
    return found


def _next_code(tokens: list[tokenize.TokenInfo], number: int) -> int:
    quiet = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    return next(
        (one.start[0] for one in tokens[number + 1 :] if one.type not in quiet), tokens[number].start[0]
    )


def apply(
    findings: Iterable[AuditFinding], comments: list[Suppression]
) -> tuple[list[AuditFinding], list[AuditFinding]]:
    """Findings that stay, and those that a comment with a reason suppresses."""
    kept: list[AuditFinding] = []
    gone: list[AuditFinding] = []
    by_line: dict[tuple[str, int], list[Suppression]] = {}
    for comment in comments:
        by_line.setdefault((comment.path, comment.covers), []).append(comment)
    for finding in findings:
        lines = range(
            finding.place.line,
            max(finding.place.line, min(finding.place.end_line, finding.place.line + 30)) + 1,
        )
        places = [(finding.place.path, line) for line in lines]
        places += [(step.path, step.line) for step in finding.flow]
        hiding = next(
            (one for where in places for one in by_line.get(where, ()) if finding.rule in one.rules), None
        )
        if hiding is None:
            kept.append(finding)
            continue
        hiding.is_used = True
        if hiding.reason:
            gone.append(replace(finding, suppressed=hiding.reason))
        else:
            kept.append(finding)
    return kept, gone


def faulty(comments: list[Suppression]) -> list[AuditFinding]:
    """OG900: comments without a rule, without a reason, or without anything to suppress."""
    found = []
    for comment in comments:
        if not comment.rules:
            text = "a suppression names its rule: # oncegate: ignore[OG001] reason"
        elif not comment.reason:
            text = f"the suppression of {', '.join(comment.rules)} has no reason"
        elif not comment.is_used:
            text = f"the suppression of {', '.join(comment.rules)} hides nothing"
        else:
            continue
        where = SourcePlace(comment.path, comment.line, comment.column, comment.line, comment.column + 1)
        rule = RULES["OG900"]
        found.append(
            AuditFinding(
                "OG900",
                where,
                text,
                "",
                "",
                text,
                rule.why,
                rule.fix,
                fingerprint=f"OG900:{comment.path}:{comment.line}",
            )
        )
    return found
