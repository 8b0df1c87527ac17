"""The words that docs/style.md lists do not come back, and tables fit a screen."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.site.style import (
    beyond,
    debt,
    found_now,
    listed_words,
    wide_rows,
    words_in_pages,
    words_in_sources,
)

FOUND, DEBT = found_now(), debt()


@pytest.mark.parametrize("rule", FOUND)
def test_no_file_breaks_a_rule_more_often_than_before(rule: str) -> None:
    """Write another word, or a narrower table; `python -m lab.site.style` names the files."""
    assert beyond(FOUND[rule], DEBT[rule]) == {}


@pytest.mark.parametrize("rule", FOUND)
def test_a_file_that_breaks_no_rule_leaves_the_list(rule: str) -> None:
    """The list only shrinks: `python -m lab.site.style --shrink` removes it."""
    assert set(DEBT[rule]) - set(FOUND[rule]) == set()


def test_words_are_found_where_people_read_and_nowhere_else(tmp_path: Path) -> None:
    """In pages, docstrings, messages and templates; not in code, comments or names."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "src").mkdir()
    style = "<!-- words: begin -->\n| `whoever`, `is told` | the caller |\n<!-- words: end -->\n"
    (tmp_path / "docs" / "style.md").write_text(style, "utf-8")
    page = "Whoever is\ntold. `whoever`\n\n```text\nwhoever\n```\n| " + "x" * 160 + " |\n"
    (tmp_path / "docs" / "page.md").write_text(page, "utf-8")
    (tmp_path / "src" / "a.py").write_text(
        '"""A caller is told."""\nwhoever = "whoever"  # whoever\n', "utf-8"
    )

    assert listed_words(tmp_path) == ["whoever", "is told"]
    assert words_in_pages(tmp_path) == {"docs/page.md": 2}
    (tmp_path / "src" / "b.py").write_text('"""See `whoever` and a.whoever."""\n', "utf-8")
    (tmp_path / "src" / "page.html").write_text("<p>Whoever {# asks #}</p>", "utf-8")
    assert words_in_sources(tmp_path) == {"src/a.py": 1, "src/page.html": 1}
    assert wide_rows(tmp_path) == {"docs/page.md": 1}
