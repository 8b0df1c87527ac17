"""Writes the score of the mutation run into docs/proof.md, from lab/mutation/mutation.json."""

from __future__ import annotations

import sys
from pathlib import Path

from lab import ROOT
from lab.mutation.mutants import CORE, mutants
from lab.mutation.mutate import RESULTS, Results
from lab.mutation.trying import SURVIVED

PAGE = ROOT / "docs" / "proof.md"
BEGIN, END = "<!-- mutation -->", "<!-- /mutation -->"


def rendered(tree: Path, results: Results) -> str:
    """A row for each file, the survivors, and what was left out with its reason."""
    rows, survivors, alike = [], [], []
    tried = noticed = there = 0
    for file in CORE:
        found = mutants(file, tree)
        alike += [f"- `{mutant.name}`: {mutant.why_alike}" for mutant in found if mutant.why_alike]
        meant = [mutant for mutant in found if not mutant.why_alike]
        judged = [results.of(mutant) for mutant in meant]
        survivors += [f"- `{mutant.name}`" for mutant in meant if results.of(mutant) == SURVIVED]
        here, alive = sum(map(bool, judged)), judged.count(SURVIVED)
        rows.append(f"| `{file}` | {len(judged)} | {here} | {here - alive} |")
        there, tried, noticed = there + len(judged), tried + here, noticed + here - alive
    share = 100 * noticed / tried if tried else 0.0
    head = [f"{noticed} of {tried} mutants tried were noticed, {share:.1f} %; there are {there}.", ""]
    table = ["| file | mutants | tried | noticed |", "|---|---|---|---|", *rows, ""]
    return "\n".join([*head, *table, *_list("Survived:", survivors), *_list("Left out:", alike)])


def _list(title: str, lines: list[str]) -> list[str]:
    return [title, "", *lines, ""] if lines else []


def main() -> int:
    """Writes the page."""
    page = PAGE.read_text("utf-8")
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n{rendered(ROOT, Results(RESULTS))}{END}{after}", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
