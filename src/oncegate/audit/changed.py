"""Lines that changed since a revision, as git tells them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from oncegate.audit.values import AuditFinding, AuditReport
from oncegate.errors import ConfigError

_HUNK: Final = re.compile(r"^@@ -\S+ \+(\d+)(?:,(\d+))? @@")
SECONDS_MAX: Final = 60


def changed_lines(revision: str, base: Path) -> dict[str, list[range]]:
    """Changed lines by path below the working folder; files that git does not know count as a whole."""
    if revision.startswith("-"):
        raise ConfigError(f"--diff {revision[:60]!r} is not a revision; name a branch, a tag or a commit")
    text = _git(
        ["diff", "--no-color", "--no-ext-diff", "-U0", "--relative", "--no-prefix", revision, "--", "."],
        base,
    )
    found: dict[str, list[range]] = {}
    path = ""
    for line in text.splitlines():
        if line.startswith("+++ "):
            path = line[4:].strip().strip('"')
        match = _HUNK.match(line)
        if match and path != "/dev/null":
            start, count = int(match.group(1)), int(match.group(2) or "1")
            found.setdefault(path, []).append(range(start, start + max(count, 1)))
    for name in _git(["ls-files", "--others", "--exclude-standard", "-z", "--", "."], base).split("\0"):
        if name:
            found[name] = [range(1, 10**9)]
    return found


def _git(arguments: Sequence[str], base: Path) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(base), *arguments], capture_output=True, timeout=SECONDS_MAX, check=False
        )
    except FileNotFoundError:
        raise ConfigError("--diff needs git, which is not installed") from None
    except subprocess.TimeoutExpired:
        raise ConfigError(f"--diff: git gave no answer in {SECONDS_MAX} s") from None
    if done.returncode:
        told = " ".join(done.stderr.decode("utf-8", "replace").split())[:200]
        raise ConfigError(f"--diff: git says: {told}")
    return done.stdout.decode("utf-8", "surrogateescape")


def only_changed(report: AuditReport, lines: dict[str, list[range]]) -> AuditReport:
    """The findings that touch a changed line: their own lines, or a call on the way."""

    def touches(finding: AuditFinding) -> bool:
        end = max(finding.place.end_line, finding.place.line)
        own = any(
            one.start <= end and finding.place.line < one.stop for one in lines.get(finding.place.path, ())
        )
        return own or any(step.line in one for step in finding.flow for one in lines.get(step.path, ()))

    kept = tuple(one for one in report.findings if touches(one))
    return replace(report, findings=kept)
