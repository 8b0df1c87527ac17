"""What mkdocs calls while it builds the site: adds the pages that stand at the root of the repository.

ARCHITECTURE.md and CONTRIBUTING.md stay where contributors expect them. The site shows them as
`architecture.md` and `contributing.md`, with their links turned to the site's pages.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT_PAGES: Final = {"architecture.md": "ARCHITECTURE.md", "contributing.md": "CONTRIBUTING.md"}
_LINK: Final = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")


def turned(text: str) -> str:
    """A page of the repository's root, with links as a page in docs/ would have them."""
    pages = {original: name for name, original in ROOT_PAGES.items()} | {"README.md": "index.md"}

    def link(found: re.Match[str]) -> str:
        target = pages.get(found[1], found[1].removeprefix("docs/"))
        return f"]({target}{found[2] or ''})"

    return _LINK.sub(link, text)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages before mkdocs reads the navigation."""
    from mkdocs.structure.files import File

    root = Path(config.config_file_path).parent
    for name, original in ROOT_PAGES.items():
        text = turned((root / original).read_text("utf-8"))
        files.append(File.generated(config, name, content=text))
    return files
