"""The guide to the museum, docs/museum.md: every exhibit's story, its code, and what it is caught by.

Regenerate with: python -m oncegate.chaos.museum.guide > docs/museum.md
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Iterator
from typing import Final

from oncegate.chaos.museum import EXHIBITS
from oncegate.chaos.museum.exhibit import Exhibit

_HEAD: Final = """\
# The museum of broken gates

Mistakes that are made in public, again and again, each as a few changed lines of the gate that this
project ships. `make test` plays seeded schedules of duplicates, crashes, stalls and lost replies against
every one of them: the harness must catch each, and the true gate passes the same harness. What the
numbers mean is in proof.md.

`oncegate chaos museum` catches them all while you watch; `oncegate chaos museum NAME` shows the smallest
schedule that shows what is wrong with one.

*This page is made from the code by `python -m oncegate.chaos.museum.guide`.*
"""


def guide() -> str:
    """The whole page."""
    return "\n".join(
        [_HEAD, *(line for name, exhibit in EXHIBITS.items() for line in _entry(name, exhibit))]
    )


def _entry(name: str, exhibit: type[Exhibit]) -> Iterator[str]:
    yield f"## {exhibit.title()}\n"
    yield textwrap.fill(exhibit.story(), 118) + "\n"
    yield f"`{name}`, caught by {', '.join(exhibit.caught_as)}.\n"
    yield f"```python\n{_code(exhibit)}\n```\n"


def _code(exhibit: type[Exhibit]) -> str:
    """What is changed: the parts of the class after its docstring and its labels."""
    source = textwrap.dedent(inspect.getsource(exhibit)).replace("  # noqa: N801", "")
    body = source.split("    class ", 1)[1].replace("  # noqa: BLE001", "  #")
    return textwrap.dedent(f"    class {body}").strip()


if __name__ == "__main__":
    sys.stdout.write(guide())
