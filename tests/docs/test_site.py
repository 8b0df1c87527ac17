"""The site is complete without being built: navigation, links, generated pages, public names, ids."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml  # type: ignore[import-untyped]

import oncegate
import oncegate.testing
from lab.site.error_words import ADVICE
from lab.site.errors_page import error_classes
from lab.site.hook import ROOT_PAGES, turned
from lab.site.pages import GENERATED
from lab.site.settings_page import VARIABLES, settings_of, variable_of
from lab.site.state_diagram import WHY, state_diagram
from oncegate.cli.main import COMMANDS, build_parser
from oncegate.model.states import TRANSITIONS, State
from oncegate.service.settings import Settings
from tests.support.guides import ROOT, check_install
from tests.test_public_names import DOCUMENTED

DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
SITE: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
LINK = re.compile(r"(?<!`)\[(?:[^\[\]]|`[^`]*`)*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
ID = re.compile(r"(?<![\w.$/'\"`%&#-])([A-FI][1-9]\d?)(?![\w.:'\"%-]|\()|(?<=\()([A-FI][1-9]\d?)(?=[,)])")


def listed(nav: Any) -> Iterator[str]:
    """The pages of the navigation."""
    if isinstance(nav, str):
        yield nav
    for part in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from listed(part)


def text_of(page: str) -> str:
    """A page of the site as mkdocs sees it."""
    if page in ROOT_PAGES:
        return turned((ROOT / ROOT_PAGES[page]).read_text("utf-8"))
    return (DOCS / page).read_text("utf-8")


def anchors(page: str) -> set[str]:
    """The anchors of a page: its headings as the site names them, and its API objects."""
    text = FENCE.sub("", text_of(page))
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    slugs = {re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", title.lower()).strip()) for title in titles}
    return slugs | set(re.findall(r"^::: (\S+)$", text, re.MULTILINE))


def test_every_page_is_in_the_navigation_once() -> None:
    """A new page needs a line under `nav` in mkdocs.yml."""
    pages = list(listed(SITE["nav"]))
    assert sorted(pages) == sorted([*PAGES, *ROOT_PAGES])


def test_the_navigation_has_five_parts() -> None:
    """Start, How-to, Reference, Understand, Contribute."""
    assert [name for part in SITE["nav"] for name in part] == [
        "Start", "How-to", "Reference", "Understand", "Contribute",
    ]  # fmt: skip


@pytest.mark.parametrize("page", [*PAGES, *ROOT_PAGES])
def test_every_internal_link_resolves(page: str) -> None:
    """To a file in docs/ and, where it names one, to a heading there."""
    folder = Path(page).parent
    for link in LINK.findall(FENCE.sub("", text_of(page))):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        there = (
            (DOCS / folder / target).resolve().relative_to(DOCS.resolve()).as_posix() if target else page
        )
        assert (DOCS / there).is_file() or there in ROOT_PAGES, f"{page}: {link}"
        assert not anchor or anchor in anchors(there), f"{page}: {link}"


def test_links_of_the_readme_resolve() -> None:
    """In a clone, where it is read first."""
    for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"):
        for link in LINK.findall(FENCE.sub("", (ROOT / name).read_text("utf-8"))):
            assert re.match(r"[a-z]+:|#", link) or (ROOT / link.partition("#")[0]).exists(), (
                f"{name}: {link}"
            )


def test_nothing_is_fetched_from_elsewhere() -> None:
    """No fonts, scripts or inventories of other servers, at build time or in a browser."""
    text = (ROOT / "mkdocs.yml").read_text("utf-8")
    assert SITE["theme"]["font"] is False
    assert "://" not in text
    assert "url(" not in (DOCS / "site.css").read_text("utf-8")


@pytest.mark.parametrize("name", GENERATED)
def test_a_generated_page_is_up_to_date(name: str) -> None:
    """Renew it with: python -m lab.site."""
    assert (DOCS / name).read_text("utf-8") == GENERATED[name](), f"docs/{name}: run python -m lab.site"


def test_every_error_has_cause_and_next_step() -> None:
    """A new error needs its line in lab/site/error_words.py."""
    assert list(ADVICE) == [one.__name__ for one in error_classes()]
    assert all(advice.cause.endswith(".") and advice.next_step.endswith(".") for advice in ADVICE.values())


def test_the_diagram_has_exactly_the_transitions_of_the_model() -> None:
    """One arrow for each pair of states, with two tips where both ways are possible; one reason each."""
    pairs = {(before, after) for before in State for after in TRANSITIONS[before]}
    assert set(WHY) == pairs
    drawn = set()
    for start, end, rest in re.findall(r'<path data-from="(\w+)" data-to="(\w+)"([^>]*)', state_diagram()):
        before, after = State[start.upper()], State[end.upper()]
        drawn |= {(before, after), (after, before)} if "marker-start" in rest else {(before, after)}
    assert drawn == pairs


@pytest.mark.slow
def test_every_setting_and_variable_is_on_the_page() -> None:
    """Each with its default and meaning; a new variable of the program needs its line."""
    page = (DOCS / "settings.md").read_text("utf-8")
    for one in settings_of(Settings):
        assert f"| `{one.name}` |" in page
    named = set(re.findall(r"\bONCEGATE_[A-Z_]+[A-Z]\b", "".join(_sources())))
    assert {name for name in named if f"`{name}`" not in page} == set()
    assert variable_of("server", "port") == "ONCEGATE_SERVER_PORT"
    assert f"`{variable_of('server', 'port')}`" in page
    assert set(VARIABLES) <= set(re.findall(r"`(\w+)`", page))


def test_a_setting_without_a_comment_is_an_error() -> None:
    """Its meaning would be missing on the page."""

    class Undocumented(msgspec.Struct):
        depth: int = 1

    with pytest.raises(KeyError, match="depth"):
        settings_of(Undocumented)


def test_the_api_reference_has_every_public_name() -> None:
    """And no other: what is shown there is public."""
    shown = set(re.findall(r"^::: (\S+)$", "\n".join(text_of(page) for page in PAGES), re.MULTILINE))
    public = {f"oncegate.{name}" for name in oncegate.__all__}
    public |= {f"{module}.{name}" for module, names in DOCUMENTED.items() for name in names}
    public |= {f"oncegate.testing.{name}" for name in oncegate.testing.__all__}
    assert shown == public


def test_the_page_of_extras_has_every_extra_for_users() -> None:
    """Those for development are in CONTRIBUTING.md."""
    page = (DOCS / "install.md").read_text("utf-8")
    extras = re.findall(r"^\| `oncegate\[(\w+)\]`", page, re.MULTILINE)
    check_install(f"pip install 'oncegate[{','.join(extras)}]'")
    assert {"postgres", "server", "sender", "metrics", "otel", "test"} <= set(extras)


@pytest.mark.slow
def test_every_id_of_a_requirement_or_invariant_is_defined() -> None:
    """On one page; a new id needs its row there."""
    page = (DOCS / "requirements.md").read_text("utf-8")
    defined = set(re.findall(r"^\| ([A-FI]\d+) \|", page, re.MULTILINE))
    used: dict[str, str] = {}
    for name, text in _prose():
        for found in ID.finditer(text):
            used.setdefault(found[1] or found[2], name)
    assert {one: where for one, where in used.items() if one not in defined} == {}
    assert len(used) > 50


@pytest.mark.parametrize("path", sorted((DOCS / "decisions").glob("0*.md")), ids=lambda path: path.stem[:4])
def test_every_decision_record_follows_the_template(path: Path) -> None:
    """Number and sentence, status, then four sections in order; measurements may stand anywhere."""
    text = path.read_text("utf-8")
    assert re.match(rf"# {path.stem[:4]}\. [A-Zp][^\n]*[^.\n]\n\nStatus: (accepted|replaced by)", text)
    sections = [name for name in re.findall(r"^## (.+)$", text, re.MULTILINE) if name != "Measured"]
    assert sections == ["Situation", "Decision", "Instead of", "Consequences"]


def test_the_changelog_can_be_read_in_a_minute() -> None:
    """At most 60 lines, by Added, Changed and Fixed."""
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert len(text.splitlines()) <= 60
    assert re.findall(r"^### (\w+)$", text, re.MULTILINE) == ["Added", "Changed", "Fixed"]


@pytest.mark.slow
def test_files_that_the_pages_name_exist() -> None:
    """A moved file takes its name on the pages and in docstrings along."""
    path = re.compile(r"`((?:[\w*.-]+/)+[\w*-]+\.(?:py|pml))`")
    roots = (ROOT, ROOT / "src" / "oncegate", ROOT / "lab")
    missing = {
        (name, found)
        for name, text in _prose()
        if not name.startswith(("tests/", "examples/"))
        for found in path.findall(text)
        if not any(any(root.glob(found)) for root in roots)
    }
    assert missing == set()


def test_the_command_line_takes_every_command_on_the_pages() -> None:
    """None of them is run: names of commands, options and their values are checked."""
    parser, count = build_parser(list(COMMANDS.values())), 0
    for page in (path for folder in ("docs", "examples", "deploy", ".") for path in _markdown(folder)):
        for words in _commands(page.read_text("utf-8")):
            try:
                _, unknown = parser.parse_known_args(words)
            except SystemExit as ended:
                unknown = [str(ended.code)]
            assert unknown == [], f"{page.relative_to(ROOT)}: oncegate {shlex.join(words)}"
            count += 1
    assert count > 90


def _sources() -> Iterator[str]:
    for path in sorted((ROOT / "src").rglob("*.py")):
        yield path.read_text("utf-8")


def _prose() -> Iterator[tuple[str, str]]:
    """The docs, and docstrings and comments of all programs."""
    for path in (*ROOT.glob("*.md"), *DOCS.rglob("*.md")):
        yield path.name, path.read_text("utf-8")
    for folder in ("src", "lab", "tests", "examples"):
        for path in (ROOT / folder).rglob("*.py"):
            found = re.findall(r'(?ms)"""[^"].*?"""|(?:^|  )# [^\n]*$', path.read_text("utf-8"))
            yield path.relative_to(ROOT).as_posix(), "\n".join(found)


def _markdown(folder: str) -> list[Path]:
    found = (ROOT / folder).glob("*.md") if folder == "." else (ROOT / folder).rglob("*.md")
    return sorted(path for path in found if path.name != "cli.md")


def _commands(text: str) -> Iterator[list[str]]:
    """The `oncegate` commands of the code blocks of a page, up to a comment, a pipe or a redirection."""
    for block in re.findall(r"^ *```(?:console|bash|text|)\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL):
        for line in re.sub(r"\\\n\s*| 2>.*", " ", block).splitlines():
            if found := re.match(
                r"(?:\$ )?(?:\w+=\S+ )*oncegate (?=[a-z][\w-]* ?)(?![a-z]+:)", line.strip()
            ):
                words = shlex.shlex(line.strip()[found.end() :], posix=True, punctuation_chars="|;&<>")
                words.whitespace_split = True
                yield list(takewhile(lambda word: not set(word) <= set("|;&<>"), words))
