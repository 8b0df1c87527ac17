"""Code audit: the last report of `oncegate audit`, what was accepted, and the trend."""

from __future__ import annotations

from collections import Counter
from typing import Final

from msgspec import Struct

from oncegate.audit.catalogue import RULES
from oncegate.audit.kept import KeptFinding, KeptReport, last_report, trend
from oncegate.dashboard.request_context import PageResponse, RequestContext, Tools
from oncegate.store import Session

SHOWN_MAX: Final = 30  # of the kept reports, the newest


class RuleRow(Struct, frozen=True):
    """One rule with its findings in the last report."""

    name: str
    title: str
    count: int
    findings: list[KeptFinding]


def audit_page(tools: Tools, session: Session, visit: RequestContext) -> PageResponse:
    """The last report by rule, the most frequent first."""
    report, points = last_report(session), trend(session)
    rows = [] if report is None else _rows(report)
    curve = [float(point.summary.findings) for point in points]
    values = {"title": "Code audit", "report": report, "points": points[::-1][:SHOWN_MAX], "rows": rows}
    return PageResponse("audit.html", {**values, "curve": curve})


def _rows(report: KeptReport) -> list[RuleRow]:
    return [
        RuleRow(rule, RULES[rule].title, count, [one for one in report.findings if one.rule == rule])
        for rule, count in Counter(report.summary.by_rule).most_common()
        if count and rule in RULES
    ]
