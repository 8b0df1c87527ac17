"""The tutorials and quickstarts work as written, from an empty folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.guides import ROOT, Reader, free_port
from tests.support.wheel import wheel_environment

pytestmark = pytest.mark.slow

TUTORIALS = ROOT / "docs" / "tutorials"
QUICKSTARTS = ROOT / "docs" / "quickstarts"


def test_charge_a_card_once(tmp_path: Path) -> None:
    """Every file and command of tutorial 1, with the output that it shows."""
    Reader(TUTORIALS / "charge-a-card-once.md", tmp_path).follow()


def test_a_webhook_on_postgresql(tmp_path: Path, ledger_url: str) -> None:
    """Every file and command of tutorial 2, at another address and port."""
    replaced = {"postgresql://postgres:secret@127.0.0.1:5432/shop": f"'{ledger_url}'"}
    replaced["8000"] = str(free_port())
    Reader(TUTORIALS / "webhook-on-postgresql.md", tmp_path, replaced).follow()


def test_send_in_order(tmp_path: Path) -> None:
    """Every file and command of tutorial 3, on another port."""
    Reader(TUTORIALS / "send-in-order.md", tmp_path, {"8000": str(free_port())}).follow()


@pytest.mark.parametrize("name", ["webhook-in-fastapi", "your-own-api"])
def test_a_quickstart_with_a_server(name: str, tmp_path: Path) -> None:
    """Every file and command of the page, on another port."""
    Reader(QUICKSTARTS / f"{name}.md", tmp_path, {"8000": str(free_port())}).follow()


def test_an_agents_tool(tmp_path: Path) -> None:
    """Every file and command of the page."""
    Reader(QUICKSTARTS / "agent-tool.md", tmp_path).follow(wheel=wheel_environment())


def test_a_roll_back(tmp_path: Path) -> None:
    """Every file and command of the page: doubled routes go, a person's changes stay."""
    Reader(ROOT / "docs" / "roll-back.md", tmp_path).follow()


def test_every_page_with_runnable_blocks_is_run() -> None:
    """A new page needs a test of its own; so does any page whose blocks are files of a reader."""
    pages = {path.stem for folder in (TUTORIALS, QUICKSTARTS) for path in folder.glob("*.md")}
    pages |= {path.stem for path in (ROOT / "docs").rglob("*.md") if ' title="' in path.read_text("utf-8")}
    text = Path(__file__).read_text("utf-8")
    assert {page for page in pages if page not in text} == set()


def test_a_page_that_shows_another_output_is_caught(tmp_path: Path) -> None:
    """Wrong output and a failing command are errors."""
    page = tmp_path / "page.md"
    for block in ("$ echo one\ntwo", "$ false", "$ pip install 'oncegate[nothing]'"):
        page.write_text(f"```console\n{block}\n```\n", "utf-8")
        with pytest.raises(AssertionError):
            Reader(page, tmp_path).follow()
    page.write_text("```console\n$ echo one more\none …\n```\n", "utf-8")
    Reader(page, tmp_path).follow()
