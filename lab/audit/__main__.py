"""`python -m lab.audit`: precision and recall; `python -m lab.audit speed PATH`: time beside ruff."""

from __future__ import annotations

import sys

from lab.audit.measure import CORPUS, PARTS, as_table, measure
from lab.audit.speed import as_text, speed


def main(words: list[str]) -> int:
    """Prints one of the two reports."""
    if words[:1] == ["speed"] and len(words) == 2:
        print(as_text(speed(words[1])))
        return 0
    if words:
        print("usage: python -m lab.audit [speed PATH]", file=sys.stderr)
        return 2
    for part in PARTS:
        scores, report = measure(CORPUS / part)
        print(f"{part}: {len(report.cards)} handlers, {len(report.not_judged)} not judged")
        print(as_table(scores))
        print(*(f"not read: {one.path}: {one.reason}" for one in report.skipped), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
