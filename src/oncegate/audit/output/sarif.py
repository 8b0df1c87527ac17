"""The report as SARIF 2.1.0, as code scanning services read it."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

import msgspec

from oncegate.audit.catalogue import RULES
from oncegate.audit.values import AuditFinding, AuditReport, SourcePlace

SCHEMA: Final = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
ROOT: Final = "SRCROOT"
HELP: Final = "https://github.com/oncegate/oncegate/blob/main/docs/audit.md"


def as_sarif(report: AuditReport, version: str, *, has_baseline: bool = False) -> str:
    """One run with rules, results, code flows, fixes, suppressions and what could not be read."""
    used = list(RULES)
    run: dict[str, Any] = {
        "tool": {
            "driver": {
                "name": "oncegate audit",
                "version": version,
                "semanticVersion": version,
                "rules": [_rule(name) for name in used],
            }
        },
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {ROOT: {"description": {"text": "the folder that the audit ran in"}}},
        "results": [_result(one, used, has_baseline) for one in (*report.findings, *report.suppressed)],
        "invocations": [
            {
                "executionSuccessful": True,
                "toolExecutionNotifications": [
                    {
                        "level": "warning",
                        "message": {"text": one.reason},
                        "locations": [{"physicalLocation": {"artifactLocation": _artifact(one.path)}}],
                    }
                    for one in report.skipped
                ],
            }
        ],
    }
    document = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def _rule(name: str) -> dict[str, Any]:
    rule = RULES[name]
    return {
        "id": name,
        "name": "".join(word.capitalize() for word in rule.title.replace(",", "").replace("'", "").split()),
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": f"{rule.why}. {rule.limits}"},
        "help": {
            "text": f"Fix: {rule.fix}",
            "markdown": f"**Why:** {rule.why}.\n\n**Fix:** {rule.fix}\n\n```python\n{rule.good}\n```",
        },
        "defaultConfiguration": {"level": "warning" if name == "OG900" else "error"},
        "properties": {"tags": ["correctness", "idempotency"], "precision": "high"},
    }


def _artifact(path: str) -> dict[str, Any]:
    if path.startswith("/"):
        return {"uri": f"file://{quote(path)}"}
    return {"uri": quote(path), "uriBaseId": ROOT}


def _location(place: SourcePlace, message: str = "") -> dict[str, Any]:
    region: dict[str, Any] = {"startLine": max(1, place.line), "startColumn": max(1, place.column)}
    if place.end_line >= place.line and place.end_column > 0:
        region |= {"endLine": place.end_line, "endColumn": max(1, place.end_column)}
    found: dict[str, Any] = {
        "physicalLocation": {"artifactLocation": _artifact(place.path), "region": region}
    }
    return {**found, "message": {"text": message}} if message else found


def _result(finding: AuditFinding, used: list[str], has_baseline: bool) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": finding.rule,
        "ruleIndex": used.index(finding.rule),
        "level": "warning" if finding.rule == "OG900" else "error",
        "message": {"text": f"{finding.message}: {finding.why}. Fix: {finding.fix}"},
        "locations": [_location(finding.place)],
        "partialFingerprints": {"oncegate/v1": finding.fingerprint},
    }
    if finding.handler:
        result["properties"] = {"handler": finding.handler}
    if len(finding.flow) > 1:
        steps = [
            {"location": _location(step, "calls on" if step is not finding.flow[-1] else "here")}
            for step in finding.flow
        ]
        result["codeFlows"] = [{"threadFlows": [{"locations": steps}]}]
    if finding.edits:
        result["fixes"] = [_fix(finding)]
    if finding.suppressed:
        result["suppressions"] = [{"kind": "inSource", "justification": finding.suppressed}]
    if has_baseline:
        result["baselineState"] = "new" if finding.is_new else "unchanged"
    return result


def _fix(finding: AuditFinding) -> dict[str, Any]:
    return {
        "description": {"text": finding.edits[0].summary},
        "artifactChanges": [
            {
                "artifactLocation": _artifact(edit.place.path),
                "replacements": [
                    {
                        "deletedRegion": _location(edit.place)["physicalLocation"]["region"],
                        "insertedContent": {"text": edit.text},
                    }
                ],
            }
            for edit in finding.edits
        ],
    }
