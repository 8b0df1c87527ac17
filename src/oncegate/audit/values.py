"""The values of an audit: places, findings, what was not judged, score cards, the report.

Plain immutable values. Rules make them, outputs read them, the cache stores them.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct


class SourcePlace(Struct, frozen=True, order=True):
    """A place in a file: lines count from one, columns from one."""

    path: str
    line: int
    column: int = 1
    end_line: int = 0
    end_column: int = 0


class TextEdit(Struct, frozen=True):
    """One replacement of text, mechanical enough to be applied without judgement."""

    place: SourcePlace
    text: str
    summary: str
    import_line: str = ""


class AuditFinding(Struct, frozen=True):
    """One fault: the rule, where it is, what happens, what to do."""

    rule: str
    place: SourcePlace
    message: str
    handler: str
    function: str
    subject: str
    why: str
    fix: str
    source: str = ""
    head: str = ""
    head_line: int = 0
    flow: tuple[SourcePlace, ...] = ()
    edits: tuple[TextEdit, ...] = ()
    fingerprint: str = ""
    is_new: bool = True
    suppressed: str = ""
    also: tuple[str, ...] = ()


class NotJudged(Struct, frozen=True):
    """Something on the way of an event that the audit cannot follow."""

    place: SourcePlace
    handler: str
    reason: str


class Skipped(Struct, frozen=True):
    """A file that could not be read as Python, and why, on one line."""

    path: str
    reason: str


class Verdict3(Enum):
    """An answer of the score card."""

    YES = "yes"
    NO = "no"
    CANNOT_TELL = "cannot tell"


class ScoreCard(Struct, frozen=True):
    """The four questions of the audit for one handler."""

    handler: str
    framework: str
    place: SourcePlace
    reserves_first: Verdict3
    business_key: Verdict3
    durable_before_ack: Verdict3
    repeats_visible: Verdict3

    def answers(self) -> tuple[Verdict3, Verdict3, Verdict3, Verdict3]:
        """The answers in the order of QUESTIONS."""
        return (self.reserves_first, self.business_key, self.durable_before_ack, self.repeats_visible)


QUESTIONS = (
    "Is a key reserved before the outside call?",
    "Is the key made of what the business knows?",
    "Is the work durable before the acknowledgement?",
    "Does a repeat leave a trace?",
)


class AuditReport(Struct, frozen=True):
    """All that an audit found."""

    findings: tuple[AuditFinding, ...]
    not_judged: tuple[NotJudged, ...]
    cards: tuple[ScoreCard, ...]
    skipped: tuple[Skipped, ...]
    files: int
    lines: int
    suppressed: tuple[AuditFinding, ...] = ()

    @property
    def new(self) -> tuple[AuditFinding, ...]:
        """Findings that no baseline has."""
        return tuple(finding for finding in self.findings if finding.is_new)
