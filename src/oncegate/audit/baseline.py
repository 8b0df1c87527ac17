"""A baseline: the findings that a project knows already, so that only new ones count."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from oncegate.audit.values import AuditFinding
from oncegate.errors import ConfigError


class KnownFinding(Struct):
    """One known finding."""

    fingerprint: str
    rule: str
    path: str
    message: str
    count: int = 1
    reason: str = ""
    since: str = ""


class Baseline(Struct):
    """The file."""

    version: int
    findings: list[KnownFinding]


def read_baseline(path: Path) -> Baseline:
    """Reads a baseline; a missing file is an empty one."""
    if not path.exists():
        return Baseline(1, [])
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Baseline)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path}: not a baseline: {error}; write one with --update-baseline") from error
    if found.version != 1:
        raise ConfigError(
            f"{path}: version {found.version} of a baseline is not known; write it again with --update-baseline"
        )
    return found


def compare(findings: Sequence[AuditFinding], baseline: Baseline) -> list[AuditFinding]:
    """The findings, each marked as new or known. A known one covers as many as were counted."""
    left = {one.fingerprint: one.count for one in baseline.findings}
    marked = []
    for finding in findings:
        count = left.get(finding.fingerprint, 0)
        left[finding.fingerprint] = count - 1
        marked.append(replace(finding, is_new=count <= 0))
    return marked


def updated(findings: Sequence[AuditFinding], baseline: Baseline, today: str, *, adds: bool) -> Baseline:
    """The baseline without what is gone; with `adds`, also with what is new. Reasons and dates stay."""
    known = {one.fingerprint: one for one in baseline.findings}
    counts: dict[str, list[AuditFinding]] = {}
    for finding in findings:
        counts.setdefault(finding.fingerprint, []).append(finding)
    kept = []
    for name, found in sorted(counts.items()):
        old = known.get(name)
        if old is None and not adds:
            continue
        count = len(found) if adds or old is None else min(len(found), old.count)
        first = found[0]
        kept.append(
            KnownFinding(
                name,
                first.rule,
                first.place.path,
                first.message,
                count,
                old.reason if old else "",
                old.since if old else today,
            )
        )
    return Baseline(1, kept)


def write_baseline(path: Path, baseline: Baseline) -> None:
    """Writes a baseline that a review can read: one finding a line group, sorted."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(baseline), indent=2) + b"\n")
