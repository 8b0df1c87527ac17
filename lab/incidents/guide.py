"""The page of the incidents, docs/incidents.md: every story, and what it came to when it was played.

Regenerate with: python -m lab.incidents.guide > docs/incidents.md
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from lab.incidents.catalogue import INCIDENTS
from lab.incidents.incident import Ending, Incident, Place
from oncegate.testing.postgres import PostgresServer

_HEAD: Final = """\
# Incidents

Each of these happened somewhere, more than once. Here each is a small recording (recording.md) that is
played twice or more often: the way it went wrong, and through the production gate on a real ledger. Every
side is judged by the same rule, which is part of the incident. In a clone, `python -m lab incidents NAME`
plays one and ends with 0 only if the gate was right and everything else was not. `make incidents` plays
them all, and the tests do so on every change. `python -m lab incidents --list` lists them.

Time is virtual where a story takes hours or months. Where a process is killed or stopped, it is a real
process and a real signal; where the network fails, it is a real server behind a proxy. The figures are
what the tests find.

`monday-storm` is `oncegate demo` itself: 87 deliveries of 39 notifications, with processes and a terminal
of its own. Its deliveries are a recording too, to be replayed against handlers of your own:
`python -m lab incidents --list --json` tells where the recordings are.

*This page is made from the code by `python -m lab.incidents.guide`.*
"""


def guide(endings: Mapping[str, Ending]) -> str:
    """The whole page."""
    return "\n".join([_HEAD, *(told(one, endings[name]) for name, one in INCIDENTS.items())])


def told(incident: Incident, ending: Ending) -> str:
    """One incident of the page."""
    story = textwrap.fill(" ".join(incident.story().split()), 118)
    command = f"`python -m lab incidents {incident.name}`"
    return f"## {incident.title()}\n\n{story}\n\n{command}\n\n```text\n{ending.table()}\n```\n"


def main() -> None:
    """Plays everything and prints the page."""
    with tempfile.TemporaryDirectory() as folder, PostgresServer(in_memory=True) as server:
        endings = {
            name: one.play(Place(Path(folder) / name, lambda: contextlib.nullcontext(server)))
            for name, one in INCIDENTS.items()
        }
    sys.stdout.write(guide(endings))


if __name__ == "__main__":
    main()
