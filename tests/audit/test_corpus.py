"""The audit on its labelled corpus, on our own documentation, and on the broken-gate suite."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from lab.audit.measure import CORPUS, PARTS, RuleScore, labels, measure
from lab.broken_gates import batches, deployments, failovers, fences, keys, outcomes
from oncegate.audit import AuditSettings, audit

ROOT = Path(__file__).parents[2]
PRECISION_MIN, RECALL_MIN = 0.95, 0.9


@pytest.fixture(scope="module")
def scores() -> dict[str, RuleScore]:
    """Every rule on the whole corpus."""
    found, _ = measure(CORPUS)
    return found


@pytest.mark.slow
def test_each_rule_is_precise_and_finds_most(scores: dict[str, RuleScore]) -> None:
    """Precision comes before recall; both have a floor on the corpus."""
    assert {one.rule: one.false_alarms for one in scores.values() if one.precision < PRECISION_MIN} == {}
    assert {one.rule: one.missed for one in scores.values() if one.recall < RECALL_MIN} == {}


@pytest.mark.slow
def test_the_corpus_has_enough_of_everything(scores: dict[str, RuleScore]) -> None:
    """Eight bad and eight good examples of each rule, and 150 handlers."""
    assert {one.rule: (one.bad, one.good) for one in scores.values() if one.bad < 8 or one.good < 8} == {}
    _, report = measure(CORPUS / "rules")
    assert len(report.cards) >= 150


def test_a_third_of_the_corpus_is_written_without_regard_to_the_rules() -> None:
    """The services in `field/` measure more honestly than examples beside the rules."""
    counts = {part: sum(map(len, labels(CORPUS / part)[0].values())) for part in PARTS}
    near = {part: sum(labels(CORPUS / part)[1].values()) for part in PARTS}
    labelled = counts["field"] + near["field"]
    assert labelled >= (counts["rules"] + near["rules"]) / 3


@pytest.mark.slow
def test_a_rule_that_is_switched_off_is_missed() -> None:
    """The measurement can fail: without its rule every label of it is missed."""
    report = audit(AuditSettings(paths=(str(CORPUS / "rules"),), ignore=("OG001",), use_cache=False))
    assert not any(finding.rule == "OG001" for finding in report.findings)
    assert any(finding.rule == "OG005" for finding in report.findings)


def test_consumers_of_the_broken_gate_suite_are_found() -> None:
    """Mistakes of the suite that show in code have a consumer each, named after the broken gate."""
    modules = (batches, deployments, failovers, fences, keys, outcomes)
    tree = ast.parse((CORPUS / "broken_gates" / "consumers.py").read_text("utf-8"))
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert [name for name in names if not any(hasattr(module, name) for module in modules)] == []
    found, _ = measure(CORPUS / "broken_gates")
    assert sum(len(one.right) for one in found.values()) == len(names) >= 10
    assert not any(one.missed or one.false_alarms for one in found.values())


@pytest.mark.slow
def test_our_own_documentation_and_code_have_no_findings(tmp_path: Path) -> None:
    """Every Python block of the docs, and the parts of the package with handlers, pass their own audit."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    blocks = [
        block
        for page in pages
        for block in re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    ]
    assert len(blocks) > 20
    for number, block in enumerate(blocks):
        if "# audit: bad" not in block:
            (tmp_path / f"block_{number}.py").write_text(block, "utf-8")
    report = audit(
        AuditSettings(paths=(str(tmp_path), str(ROOT / "src"), str(ROOT / "examples")), use_cache=False)
    )
    assert [(one.place.path, one.place.line, one.rule) for one in report.findings] == []
    assert len(report.cards) > 20
