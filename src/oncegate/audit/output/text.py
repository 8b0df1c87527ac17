"""The report for people: place, source line, why, fix, and a summary."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from oncegate.audit.catalogue import RULES, AuditRule
from oncegate.audit.values import QUESTIONS, AuditFinding, AuditReport, Verdict3
from oncegate.model.escape import visible

Paint = Callable[[str, str], str]


def plain(text: str, style: str) -> str:
    """No colour."""
    return text


def as_text(
    report: AuditReport, paint: Paint = plain, *, details: bool = False, cards: bool = False
) -> str:
    """The whole report. `details` lists what was not judged; `cards` adds the score cards."""
    lines: list[str] = []
    for finding in report.findings:
        lines += [*_finding(finding, paint), ""]
    if details:
        lines += [
            f"{_place(one.place.path, one.place.line)}  not judged: {visible(one.reason)}"
            for one in report.not_judged
        ]
    lines += [f"{visible(one.path)}: {visible(one.reason)}" for one in report.skipped]
    if cards:
        lines += ["", *_cards(report, paint)]
    return "\n".join([*lines, summary(report)])


def _place(path: str, line: int) -> str:
    return f"{visible(path)}:{line}"


def _finding(finding: AuditFinding, paint: Paint) -> Iterator[str]:
    known = "" if finding.is_new else paint("  (known)", "dim")
    where = f"{visible(finding.place.path)}:{finding.place.line}:{finding.place.column}"
    yield f"{paint(where, 'bold')}  {paint(finding.rule, 'red')}  {visible(finding.message)}{known}"
    width = len(str(finding.place.line))
    if finding.head and finding.head_line < finding.place.line:
        yield f"    {finding.head_line:>{width}}  {paint(visible(finding.head), 'dim')}"
    if finding.source:
        yield f"  {paint('▸', 'red')} {finding.place.line:>{width}}  {visible(finding.source)}"
    if len(finding.flow) > 1:
        steps = " → ".join(_place(step.path.rsplit("/", 1)[-1], step.line) for step in finding.flow)
        yield f"    {paint(f'called by way of {steps}', 'dim')}"
    yield f"    {finding.why}"
    yield f"    {paint('fix:', 'green')} {finding.fix}"


def summary(report: AuditReport) -> str:
    """One line: findings, handlers, what was not judged."""
    count, new = len(report.findings), len(report.new)
    fresh = f" ({new} new)" if new != count else ""
    aside = f", {len(report.suppressed)} suppressed" if report.suppressed else ""
    unread = f", {len(report.skipped)} files not read" if report.skipped else ""
    said = f"{count} finding{'s' if count != 1 else ''}{fresh} in {len(report.cards)} handlers{aside}, {len(report.not_judged)} not judged{unread}."
    first = report.findings[0].rule if report.findings else ""
    return f"{said} Explain one: oncegate audit --explain {first}" if first else said


def _cards(report: AuditReport, paint: Paint) -> Iterator[str]:
    colours = {Verdict3.YES: "green", Verdict3.NO: "red", Verdict3.CANNOT_TELL: "dim"}
    for number, question in enumerate(QUESTIONS, 1):
        yield f"{number}. {question}"
    for card in report.cards:
        answers = "  ".join(paint(f"{answer.value:<11}", colours[answer]) for answer in card.answers())
        yield f"{answers}  {visible(card.handler)} ({card.framework}, {_place(card.place.path, card.place.line)})"


def explained(rule: AuditRule) -> str:
    """A rule as `--explain` shows it."""

    def block(text: str) -> str:
        return "\n".join(f"    {line}" for line in text.split("\n"))

    return (
        f"{rule.id}  {rule.title}\n\nWhy: {rule.why}.\nFix: {rule.fix}.\n\nBad:\n{block(rule.bad)}\n\nGood:\n{block(rule.good)}\n\n"
        f"{rule.limits}\nSuppress one: # oncegate: ignore[{rule.id}] the reason"
    )


def listed() -> str:
    """All rules, one a line."""
    return "\n".join(f"{rule.id}  {rule.title}" for rule in RULES.values())
