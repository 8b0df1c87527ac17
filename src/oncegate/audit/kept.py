"""Reports of the audit that a ledger keeps: the last one, and a line for each earlier one.

`oncegate audit --keep` writes them, the operations page shows them. A report comes from a file too, such as
one that CI made, so it is read strictly and kept within bounds.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from oncegate.audit.catalogue import RULES
from oncegate.errors import ConfigError, UsageError
from oncegate.store.log import LogKind
from oncegate.store.registry import DocumentChange, Registry

KIND: Final = "audit"
LAST, TREND = "report", "trend"
FINDINGS_MAX: Final = 500  # of the last report; the counts are of all
CARDS_MAX: Final = 500
TREND_MAX: Final = 200  # reports; older ones leave the curve
TEXT_MAX: Final = 400
ANSWERS_MAX: Final = 8  # of a card, which has four
BYTES_MAX: Final = 64 * 1024 * 1024
Count = Annotated[int, Meta(ge=0, le=2**53)]


class KeptFinding(Struct, frozen=True):
    """One finding as people read it."""

    rule: str
    path: str
    line: Count
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
    line: Count
    answers: dict[str, str]


class ReportCounts(Struct, frozen=True):
    """The numbers of one report."""

    findings: Count
    new: Count
    handlers: Count
    not_judged: Count
    suppressed: Count
    files: Count
    lines: Count
    by_rule: dict[str, Count] = {}


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
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"this is no report of oncegate audit --json: {error}") from None
    if head.get("tool") != "oncegate audit" or head.get("version") != 1:
        raise ConfigError("this is no report of oncegate audit --json, or of another version")
    return report


def keep_report(session: Registry, report: KeptReport, *, at_ms: int, actor: str) -> None:
    """Keeps a report as the last one and adds it to the trend; inside a unit."""
    by_rule = {rule: count for rule, count in report.summary.by_rule.items() if rule in RULES}
    summary = msgspec.structs.replace(report.summary, by_rule=by_rule)
    short = KeptReport(
        summary,
        [_short(one) for one in report.findings[:FINDINGS_MAX]],
        [_short(one) for one in report.suppressed[:FINDINGS_MAX]],
        [_short_card(one) for one in report.cards[:CARDS_MAX]],
    )
    point = TrendPoint(at_ms, actor, summary)
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
    names = ("rule", "path", "message", "handler", "why", "fix", "reason")
    return msgspec.structs.replace(one, **{name: getattr(one, name)[:TEXT_MAX] for name in names})


def _short_card(one: KeptCard) -> KeptCard:
    answers = list(one.answers.items())[:ANSWERS_MAX]
    short = {question[:TEXT_MAX]: answer[:TEXT_MAX] for question, answer in answers}
    return KeptCard(one.handler[:TEXT_MAX], one.path[:TEXT_MAX], one.line, short)
