"""Checks docs, docstrings, messages and page texts against docs/style.md, and tables for their width.

Files that still break a rule are listed in style_debt.json with how often. A number may only become
smaller: `python -m lab.site.style` names what is too much, `python -m lab.site.style --shrink` lowers
the numbers.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from lab import ROOT

TABLE_WIDTH_MAX: Final = 160
DEBT: Final = Path(__file__).with_name("style_debt.json")
_CODE: Final = re.compile(r"^( *)```.*?^\1```$|`[^`\n]*`|<!--.*?-->|\]\([^)]*\)", re.MULTILINE | re.DOTALL)

Counts = dict[str, int]


def listed_words(root: Path = ROOT) -> list[str]:
    """The words to avoid, from the table in docs/style.md."""
    page = (root / "docs" / "style.md").read_text("utf-8")
    table = page.split("<!-- words: begin -->")[1].split("<!-- words: end -->")[0]
    return [
        word
        for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
        for word in re.findall(r"`(.+?)`", row)
    ]


def pattern_of(words: list[str]) -> re.Pattern[str]:
    """Finds any of the words, also at the end of a line; not as the name of a module."""
    spelled = "|".join(re.escape(word).replace(r"\ ", r"\s+") for word in words)
    return re.compile(rf"(?<!\.)\b(?:{spelled})\b", re.IGNORECASE)


def words_in_pages(root: Path = ROOT) -> Counts:
    """How often each page has a listed word, outside of code."""
    pattern = pattern_of(listed_words(root))
    return _counted((name, pattern.findall(_CODE.sub(" ", text))) for name, text in _pages(root))


def words_in_sources(root: Path = ROOT) -> Counts:
    """How often docstrings and messages of a module, or the text of a template, have a listed word."""
    pattern = pattern_of(listed_words(root))
    return _counted(
        (path.relative_to(root).as_posix(), pattern.findall(_CODE.sub(" ", _read_by_people(path, text))))
        for path in sorted([*(root / "src").rglob("*.py"), *(root / "src").rglob("*.html")])
        if pattern.search(text := path.read_text("utf-8"))
    )


def wide_rows(root: Path = ROOT) -> Counts:
    """How many rows of tables in each page are too wide."""
    return _counted(
        (name, [row for row in text.splitlines() if row.startswith("|") and _width(row) > TABLE_WIDTH_MAX])
        for name, text in _pages(root)
    )


def _width(row: str) -> int:
    """Characters as a reader sees them, without the targets of links."""
    return len(re.sub(r"\]\([^)]*\)", "]", row))


def found_now() -> dict[str, Counts]:
    """What breaks a rule at the moment."""
    return {"words": {**words_in_pages(), **words_in_sources()}, "wide rows": wide_rows()}


def debt() -> dict[str, Counts]:
    """What may still break a rule."""
    known: dict[str, Counts] = json.loads(DEBT.read_text("utf-8"))
    return known


def beyond(found: Counts, allowed: Counts) -> Counts:
    """What breaks a rule more often than it may."""
    return {name: count for name, count in found.items() if count > allowed.get(name, 0)}


def _counted(found: Iterator[tuple[str, list[str]]]) -> Counts:
    return {name: len(hits) for name, hits in found if hits}


def _pages(root: Path) -> Iterator[tuple[str, str]]:
    for path in (*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md")), *_readmes(root)):
        yield path.relative_to(root).as_posix(), path.read_text("utf-8")


def _readmes(root: Path) -> list[Path]:
    return sorted((root / "examples").rglob("*.md"))


def _read_by_people(path: Path, text: str) -> str:
    if path.suffix == ".html":
        return text
    nodes = ast.walk(ast.parse(text))
    found = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return "\n".join(one for one in found if " " in one)


def main(arguments: list[str]) -> int:
    """Names what is too much; with `--shrink` lowers the numbers that can be lowered."""
    found, allowed, code = found_now(), debt() if DEBT.exists() else {}, 0
    for rule, counts in found.items():
        for name, count in beyond(counts, allowed.get(rule, {})).items():
            print(
                f"{name}: {count} {rule}, allowed {allowed.get(rule, {}).get(name, 0)}; see docs/style.md"
            )
            code = 1
    if "--shrink" in arguments:
        smaller = {
            rule: {
                name: min(count, found[rule][name])
                for name, count in allowed[rule].items()
                if name in found[rule]
            }
            for rule in found
        }
        DEBT.write_text(json.dumps(smaller, indent=1) + "\n", "utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
