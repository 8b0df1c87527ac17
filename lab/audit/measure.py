"""Precision and recall of every rule on the labelled corpus.

A line with `# bad: OG001` must be reported by OG001; every other report of a rule is a false alarm.
A function with `# good: OG001` is a near miss of the rule. `rules/` holds examples by rule, written beside
the rules. `field/` holds small services, written without regard to them.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from oncegate.audit import AuditReport, AuditSettings, audit
from oncegate.audit.catalogue import RULES

CORPUS: Final = Path(__file__).parent / "corpus"
PARTS: Final = ("rules", "field", "broken_gates")
_BAD: Final = re.compile(r"# bad: (.*)$")
_GOOD: Final = re.compile(r"# good: (.*)$")
_RULE: Final = re.compile(r"OG\d{3}")

Mark = tuple[str, int]


@dataclass
class RuleScore:
    """One rule: what was expected, found and missed."""

    rule: str
    bad: int = 0
    good: int = 0
    right: set[Mark] = field(default_factory=set)
    false_alarms: set[Mark] = field(default_factory=set)
    missed: set[Mark] = field(default_factory=set)

    @property
    def precision(self) -> float:
        """The share of reports that are right; 1 where there are none."""
        reported = len(self.right) + len(self.false_alarms)
        return len(self.right) / reported if reported else 1.0

    @property
    def recall(self) -> float:
        """The share of faults that are reported; 1 where there are none."""
        return len(self.right) / self.bad if self.bad else 1.0


def measure(folder: Path = CORPUS) -> tuple[dict[str, RuleScore], AuditReport]:
    """Audits a folder and compares the report with the labels."""
    report = audit(AuditSettings(paths=(str(folder),), base=str(folder), use_cache=False, jobs=1))
    bad, good = labels(folder)
    scores = {rule: RuleScore(rule, len(bad[rule]), good[rule]) for rule in RULES if rule != "OG900"}
    for finding in report.findings:
        place = finding.place
        lines = range(place.line, max(place.line, place.end_line) + 1)
        expected = next(
            ((place.path, line) for line in lines if (place.path, line) in bad[finding.rule]), None
        )
        if expected is None:
            scores[finding.rule].false_alarms.add((place.path, place.line))
        else:
            scores[finding.rule].right.add(expected)
    for rule, score in scores.items():
        score.missed = bad[rule] - score.right
    return scores, report


def labels(folder: Path) -> tuple[dict[str, set[Mark]], Counter[str]]:
    """The faulty lines of each rule, and how many near misses it has."""
    bad: dict[str, set[Mark]] = defaultdict(set)
    good: Counter[str] = Counter()
    for path in sorted(folder.rglob("*.py")):
        shown = path.relative_to(folder).as_posix()
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            found = _BAD.search(line)
            for rule in _RULE.findall(found[1]) if found else []:
                bad[rule].add((shown, number))
            near = _GOOD.search(line)
            good.update(_RULE.findall(near[1]) if near else [])
    return bad, good


def as_table(scores: dict[str, RuleScore]) -> str:
    """The scores for people."""
    lines = [f"{'rule':<6} {'bad':>4} {'good':>5} {'precision':>10} {'recall':>7}"]
    for score in scores.values():
        lines.append(
            f"{score.rule:<6} {score.bad:>4} {score.good:>5} {score.precision:>10.2f} {score.recall:>7.2f}"
        )
        lines += [f"       false alarm: {path}:{line}" for path, line in sorted(score.false_alarms)]
        lines += [f"       missed: {path}:{line}" for path, line in sorted(score.missed)]
    return "\n".join(lines)
