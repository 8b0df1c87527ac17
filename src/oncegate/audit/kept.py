"""Reports of the audit that a ledger keeps: the last one, and a line for each earlier one.

`oncegate audit --keep` writes them, the operations page shows them. A report comes from a file too, such as
one that CI made, so it is read strictly and kept within bounds.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Struct

from oncegate.errors import ConfigError, UsageError
from oncegate.store.log import LogKind
from oncegate.store.registry import DocumentChange, Registry

KIND: Final = "audit"
LAST, TREND = "report", "trend"
FINDINGS_MAX: Final = 500  # of the last report; the counts are of all
CARDS_MAX: Final = 500
TREND_MAX: Final = 200  # reports; older ones leave the curve
TEXT_MAX: Final = 400
BYTES_MAX: Final = 64 * 1024 * 1024


class KeptFinding(Struct, frozen=True):
    """One finding as people read it."""

    rule: str
    path: str
    line: int
    message: str
    handler: str = ""
    why: str = ""
    fix: str = ""
    new: bool = True
    reason: str = ""


class KeptCard(Struct, frozen=True):
    """The four questions about one handler."""

    handler: str
    path: str
    line: int
    answers: dict[str, str]


class ReportCounts(Struct, frozen=True):
    """The numbers of one report."""

    findings: int
    new: int
    handlers: int
    not_judged: int
    suppressed: int
    files: int
    lines: int
    by_rule: dict[str, int] = {}


class KeptReport(Struct, frozen=True):
    """A report: its numbers, its findings, what was accepted with a reason, and the handlers."""

    summary: ReportCounts
    findings: list[KeptFinding] = []
    suppressed: list[KeptFinding] = []
    cards: list[KeptCard] = []


class TrendPoint(Struct, frozen=True):
    """When a report was kept, by whom, and its numbers."""

    at_ms: int
    actor: str
    summary: ReportCounts


def read_report(document: bytes) -> KeptReport:
    """Reads what `oncegate audit --json` wrote; raises ConfigError for anything else."""
    if len(document) > BYTES_MAX:
        raise ConfigError(f"the report has {len(document)} bytes, more than {BYTES_MAX}")
    try:
        head: dict[str, Any] = msgspec.json.decode(document, type=dict[str, Any])
        report = msgspec.convert(head, KeptReport)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigError(f"this is no report of oncegate audit --json: {error}") from None
    if head.get("tool") != "oncegate audit" or head.get("version") != 1:
        raise ConfigError("this is no report of oncegate audit --json, or of another version")
    return report


def keep_report(session: Registry, report: KeptReport, *, at_ms: int, actor: str) -> None:
    """Keeps a report as the last one and adds it to the trend; inside a unit."""
    short = KeptReport(
        report.summary,
        [_short(one) for one in report.findings[:FINDINGS_MAX]],
        [_short(one) for one in report.suppressed[:FINDINGS_MAX]],
        report.cards[:CARDS_MAX],
    )
    point = TrendPoint(at_ms, actor, report.summary)
    points = [*trend(session), point][-TREND_MAX:]
    _change(session, LAST, msgspec.json.encode(short), point)
    _change(session, TREND, msgspec.json.encode(points), point)


def last_report(session: Registry) -> KeptReport | None:
    """The last report; None where none was kept."""
    found = session.document(KIND, LAST)
    return None if found is None else msgspec.json.decode(found.body, type=KeptReport)


def trend(session: Registry) -> list[TrendPoint]:
    """All kept reports, oldest first."""
    found = session.document(KIND, TREND)
    return [] if found is None else msgspec.json.decode(found.body, type=list[TrendPoint])


def _change(session: Registry, name: str, body: bytes, point: TrendPoint) -> None:
    found = session.document(KIND, name)
    change = DocumentChange(
        KIND,
        name,
        0 if found is None else found.version,
        body,
        point.at_ms,
        point.actor,
        f"audit report: {point.summary.findings} findings in {point.summary.handlers} handlers",
        recorded_as=LogKind.DOCUMENT_CHANGED if name == LAST else None,
    )
    if not session.change_document(change):
        raise UsageError("another report was kept at the same moment; try again")


def _short(one: KeptFinding) -> KeptFinding:
    return msgspec.structs.replace(
        one,
        **{name: getattr(one, name)[:TEXT_MAX] for name in ("message", "handler", "why", "fix", "reason")},
    )
