"""The guide to the broken gates, docs/broken-gates.md: the story of each, its code, and what catches it.

Regenerate with: python -m lab.broken_gates.guide > docs/broken-gates.md
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Iterator
from typing import Final

from lab.broken_gates import BROKEN_GATES
from lab.broken_gates.broken_gate import BrokenGate

_HEAD: Final = """\
# The broken-gate suite

Mistakes that are made in public, again and again, each as a few changed lines of the gate that this
project ships. `make check` plays seeded schedules of duplicates, crashes, stalls and lost replies against
every one of them: the harness must catch each, and the true gate passes the same harness. What the
numbers mean is in proof.md.

`make broken-gates` catches them all while you watch; `python -m lab broken-gates NAME` prints the smallest
schedule that shows what is wrong with one.

*This page is made from the code by `python -m lab.broken_gates.guide`.*
"""


def guide() -> str:
    """The whole page."""
    return "\n".join(
        [_HEAD, *(line for name, broken in BROKEN_GATES.items() for line in _entry(name, broken))]
    )


def _entry(name: str, broken: type[BrokenGate]) -> Iterator[str]:
    yield f"## {broken.title()}\n"
    yield textwrap.fill(broken.story(), 118) + "\n"
    yield f"`{name}`, caught by {', '.join(broken.caught_as)}.\n"
    yield f"```python\n{_code(broken)}\n```\n"


def _code(broken: type[BrokenGate]) -> str:
    """What is changed: the parts of the class after its docstring and its labels."""
    source = textwrap.dedent(inspect.getsource(broken)).replace("  # noqa: N801", "")
    body = source.split("    class ", 1)[1].replace("  # noqa: BLE001", "  #")
    return textwrap.dedent(f"    class {body}").strip()


if __name__ == "__main__":
    sys.stdout.write(guide())
