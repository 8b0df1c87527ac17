"""`python -m lab incidents`: plays recorded incidents without the gate and with it, and compares.

Talk goes to stderr, tables and documents to stdout. Must never say that an incident passed unless the
gated side was right by the same rule by which every other side was wrong.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from oncegate.cli.demo import folder_for, orderly_end
from oncegate.cli.exitcodes import DONE, NOT_SO
from oncegate.cli.output import complain, print_json, tell
from oncegate.errors import ConfigError, OncegateError

if TYPE_CHECKING:
    from lab.incidents.incident import Incident

ALL: Final = "all"


_DESCRIPTION = """\
Play recorded incidents without the gate and with it, and compare. The exit code is 0 only if
the gate was right and everything else was not. The Monday storm is `oncegate demo`."""


def add_parser(commands: Any) -> None:
    """Registers the command."""
    parser = commands.add_parser("incidents", help="play recorded incidents", description=_DESCRIPTION)
    parser.add_argument("name", nargs="?", default=ALL, metavar="NAME", help="only this one (default: all)")
    parser.add_argument("--list", action="store_true", help="list the incidents and end")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave ledgers and records in DIR")
    parser.add_argument("--json", action="store_true", help="print one JSON object an incident")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Lists the incidents, or plays them."""
    if arguments.list:
        return _list(arguments)
    with orderly_end(), folder_for(arguments.keep) as folder:
        return _run(arguments, folder)


def _list(arguments: argparse.Namespace) -> int:
    """Names and titles, a line each."""
    from lab.incidents.catalogue import INCIDENTS, STORM, STORM_TITLE

    titles = {STORM: STORM_TITLE} | {name: one.title() for name, one in INCIDENTS.items()}
    width = max(map(len, titles)) + 2
    for name, title in titles.items():
        if arguments.json:
            print_json({"incident": name, "title": title, "recording": str(_recording(name))})
        else:
            print(f"{name:<{width}}{title}")
    return DONE


def _recording(name: str) -> Path:
    from lab.incidents import incident

    return Path(incident.__file__).parent / "fixtures" / f"{name}.jsonl"


def _run(arguments: argparse.Namespace, folder: Path) -> int:
    """Plays one incident or all of them; 0 only if every one ended as it must."""
    chosen = _chosen(arguments.name)
    with _servers(any(one.needs_postgres for one in chosen)) as new_server:
        passed = [_play(one, folder, new_server, arguments.json) for one in chosen]
    return DONE if all(passed) else NOT_SO


def _chosen(name: str) -> list[Incident]:
    from lab.incidents.catalogue import INCIDENTS, STORM

    if name == ALL:
        return list(INCIDENTS.values())
    if name == STORM:
        raise ConfigError("the Monday storm is the demo itself: run 'oncegate demo'")
    if name not in INCIDENTS:
        known = ", ".join((*INCIDENTS, ALL))
        raise ConfigError(f"there is no incident {name[:60]!r}; there are {known}")
    return [INCIDENTS[name]]


@contextlib.contextmanager
def _servers(is_needed: bool) -> Iterator[Callable[[], Any] | None]:
    """One PostgreSQL server for all that need one, with a database for each."""
    if not is_needed:
        yield None
        return
    from oncegate.testing.postgres import PostgresServer

    tell("starting a PostgreSQL server …")
    with PostgresServer(in_memory=True) as server:
        yield lambda: contextlib.nullcontext(server)


def _play(incident: Incident, folder: Path, new_server: Callable[[], Any] | None, as_json: bool) -> bool:
    from lab.incidents.incident import Place

    tell(f"{incident.name}: {incident.title()}")
    tell("")
    for line in incident.story().splitlines():
        tell(line)
    tell("")
    try:
        ending = incident.play(Place(folder / incident.name, new_server))
    except (OncegateError, TimeoutError) as error:
        complain(f"{incident.name} could not be played to its end: {error}")
        return False
    if as_json:
        print_json(ending.document())
    else:
        print(f"{ending.table()}\n", flush=True)
    for problem in ending.problems:
        complain(f"{incident.name} went wrong: {problem}")
    return ending.passed
