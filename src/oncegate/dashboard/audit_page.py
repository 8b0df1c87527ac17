"""Code audit: the last report of `oncegate audit`, what was accepted, and the trend."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from msgspec import Struct

from oncegate.audit.catalogue import RULES
from oncegate.audit.kept import KeptFinding, KeptReport, keep_report, last_report, read_report, trend
from oncegate.dashboard.operators import Role
from oncegate.dashboard.request_context import NotHere, PageResponse, RequestContext, Tools, need
from oncegate.errors import ConfigError, UsageError
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
    return PageResponse("audit.html", _values(session))


def keep_uploaded(tools: Tools, visit: RequestContext) -> PageResponse:
    """Keeps a report that an operator has chosen as a file."""
    if visit.tenant is not None:
        raise NotHere("there is no such action")
    need(tools, visit, Role.APPROVER, "keep a report of the audit")
    try:
        report = read_report(visit.form.get("report", "").encode())
        with tools.commits.transaction() as session:
            keep_report(session, report, at_ms=tools.clock.wall_ms(), actor=visit.visitor.name)
    except (ConfigError, UsageError) as refused:
        with tools.look() as session:
            values = {**_values(session), "refusal": f"{refused}. Nothing was kept."}
        return PageResponse("audit.html", values, 409)
    return PageResponse(go_to="/audit")


def _values(session: Session) -> dict[str, Any]:
    report, points = last_report(session), trend(session)
    rows = [] if report is None else _rows(report)
    curve = [float(point.summary.findings) for point in points]
    values = {"title": "Code audit", "report": report, "points": points[::-1][:SHOWN_MAX], "rows": rows}
    return {**values, "curve": curve}


def _rows(report: KeptReport) -> list[RuleRow]:
    return [
        RuleRow(rule, RULES[rule].title, count, [one for one in report.findings if one.rule == rule])
        for rule, count in Counter(report.summary.by_rule).most_common()
        if count and rule in RULES
    ]
