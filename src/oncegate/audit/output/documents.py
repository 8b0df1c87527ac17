"""The report as JSON, GitHub annotations, Markdown and JUnit."""

from __future__ import annotations

from xml.sax.saxutils import escape, quoteattr

import msgspec

from oncegate.audit.catalogue import RULES
from oncegate.audit.output.text import summary
from oncegate.audit.values import QUESTIONS, AuditFinding, AuditReport, NotJudged, ScoreCard

JSON_VERSION = 1


def as_json(report: AuditReport) -> str:
    """One document: findings, what was not judged, cards, files that were not read."""
    document = {
        "version": JSON_VERSION,
        "tool": "oncegate audit",
        "summary": {
            "findings": len(report.findings),
            "new": len(report.new),
            "handlers": len(report.cards),
            "not_judged": len(report.not_judged),
            "suppressed": len(report.suppressed),
            "files": report.files,
            "lines": report.lines,
            "by_rule": {rule: sum(one.rule == rule for one in report.findings) for rule in RULES},
        },
        "findings": [_finding(one) for one in report.findings],
        "suppressed": [{**_finding(one), "reason": one.suppressed} for one in report.suppressed],
        "not_judged": [_not_judged(one) for one in report.not_judged],
        "cards": [_card(card) for card in report.cards],
        "skipped": [{"path": one.path, "reason": one.reason} for one in report.skipped],
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def _not_judged(one: NotJudged) -> dict[str, object]:
    place = one.place
    return {
        "path": place.path,
        "line": place.line,
        "column": place.column,
        "handler": one.handler,
        "reason": one.reason,
    }


def _card(card: ScoreCard) -> dict[str, object]:
    answers = zip(QUESTIONS, card.answers(), strict=True)
    return {
        "handler": card.handler,
        "framework": card.framework,
        "path": card.place.path,
        "line": card.place.line,
        "answers": {question: answer.value for question, answer in answers},
    }


def _finding(finding: AuditFinding) -> dict[str, object]:
    place = finding.place
    return {
        "rule": finding.rule,
        "path": place.path,
        "line": place.line,
        "column": place.column,
        "end_line": place.end_line,
        "end_column": place.end_column,
        "message": finding.message,
        "why": finding.why,
        "fix": finding.fix,
        "handler": finding.handler,
        "function": finding.function,
        "source": finding.source.strip(),
        "fingerprint": finding.fingerprint,
        "new": finding.is_new,
        "flow": [{"path": step.path, "line": step.line, "column": step.column} for step in finding.flow],
        "fixable": bool(finding.edits),
    }


def as_github(report: AuditReport) -> str:
    """Workflow commands: one annotation for each new finding."""
    lines = [
        f"::error file={_property(one.place.path)},line={one.place.line},endLine={one.place.end_line or one.place.line},"
        f"col={one.place.column},title={_property(f'{one.rule} {RULES[one.rule].title}')}::"
        f"{_data(f'{one.message}: {one.why}. Fix: {one.fix}')}"
        for one in report.new
    ]
    lines += [f"::warning file={_property(one.path)}::{_data(one.reason)}" for one in report.skipped]
    return "\n".join([*lines, f"::notice::{_data(summary(report))}"])


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def as_markdown(report: AuditReport) -> str:
    """A comment for a pull request."""
    lines = ["### oncegate audit", "", summary(report), ""]
    if report.findings:
        lines += ["| place | rule | what | fix |", "|---|---|---|---|"]
        lines += [
            f"| `{_cell(one.place.path)}:{one.place.line}` | {one.rule}{'' if one.is_new else ' (known)'} | {_cell(one.message)};"
            f" {_cell(one.why)} | {_cell(one.fix)} |"
            for one in report.findings
        ]
    if report.cards:
        lines += [
            "",
            "<details><summary>Score cards</summary>",
            "",
            f"| handler | {' | '.join(QUESTIONS)} |",
            "|---|---|---|---|---|",
        ]
        lines += [
            f"| `{_cell(card.handler)}` | {' | '.join(answer.value for answer in card.answers())} |"
            for card in report.cards
        ]
        lines += ["", "</details>"]
    if report.not_judged:
        lines += ["", "<details><summary>Not judged</summary>", ""]
        lines += [
            f"- `{_cell(one.place.path)}:{one.place.line}` {_cell(one.reason)}" for one in report.not_judged
        ]
        lines += ["", "</details>"]
    return "\n".join(lines)


def _cell(text: str) -> str:
    return escape(" ".join(text.split())).replace("|", "\\|").replace("`", "'")


def as_junit(report: AuditReport) -> str:
    """One test case for each handler, and one for each finding outside all of them."""
    by_handler: dict[str, list[AuditFinding]] = {card.handler: [] for card in report.cards}
    for finding in report.new:
        by_handler.setdefault(finding.handler or finding.place.path, []).append(finding)
    failed = sum(bool(found) for found in by_handler.values())
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuites tests="{len(by_handler)}" failures="{failed}">',
    ]
    lines.append(
        f'<testsuite name="oncegate audit" tests="{len(by_handler)}" failures="{failed}" errors="0">'
    )
    for handler, found in by_handler.items():
        name, _, rest = handler.rpartition(".")
        lines.append(f"<testcase classname={_attribute(name or 'audit')} name={_attribute(rest)}>")
        if found:
            text = "\n".join(
                f"{one.place.path}:{one.place.line}: {one.rule} {one.message}: {one.why}" for one in found
            )
            lines.append(
                f"<failure message={_attribute(found[0].message)} type={_attribute(found[0].rule)}>{escape(_clean(text))}</failure>"
            )
        lines.append("</testcase>")
    return "\n".join([*lines, "</testsuite>", "</testsuites>"])


def _clean(text: str) -> str:
    """XML has no place for control characters and lone surrogates."""
    return "".join(
        one
        if one in "\n\t" or (one >= " " and not "\ud800" <= one <= "\udfff" and one not in "\ufffe\uffff")
        else "?"
        for one in text
    )


def _attribute(text: str) -> str:
    return quoteattr(_clean(text))
