"""`oncegate signals limits`: by which limits signals are judged, and what operators have set."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from oncegate.cli.exitcodes import DONE
from oncegate.cli.ledger import open_ledger, reading
from oncegate.cli.output import Cell, print_json, print_table, tell
from oncegate.cli.parser import add_json, add_url, read_text
from oncegate.cli.people import actor_of
from oncegate.clock import SystemClock
from oncegate.model.decisions import check_actor, check_reason
from oncegate.store import Facet

if TYPE_CHECKING:
    from oncegate.signals.definitions import Limit


def add_limits(commands: Any) -> None:
    """Adds the commands for limits."""
    listing: argparse.ArgumentParser = commands.add_parser(
        "limits",
        help="show the limits of every signal, and where they differ",
        description="Show by which limits signals are judged: those of the watch that looked last, under"
        " those that operators have set.",
    )
    add_url(listing)
    add_json(listing)
    listing.set_defaults(run=run_limits)
    setting: argparse.ArgumentParser = commands.add_parser(
        "limit",
        help="set the limits of a signal, for all or for one surface",
        description="Set the limits of a signal. They go before those in code and settings, for every watch"
        " of this ledger, and the journal keeps who set them and why. Without --ticket and --page they are"
        " taken back.",
    )
    setting.add_argument("signal", type=read_text, metavar="SIGNAL", help="its name, such as quarantines")
    setting.add_argument("--surface", type=read_text, default="", help="only on this one")
    for level in ("ticket", "page"):
        setting.add_argument(
            f"--{level}", metavar="LIMIT", help=f"from where on it is a {level}: 5, 10m, 20%%, or never"
        )
    setting.add_argument("--reason", type=read_text, required=True, help="why, for the next person")
    setting.add_argument(
        "--as", "--by", dest="actor", metavar="NAME", type=read_text,
        help="who you are (default: your login)",
    )  # fmt: skip
    add_url(setting)
    setting.set_defaults(run=run_limit)


def run_limits(arguments: argparse.Namespace) -> int:
    """Prints every signal with its limits."""
    from oncegate.signals.definitions import DEFINITIONS
    from oncegate.signals.measures import measure

    with reading(open_ledger(arguments.url, needs=Facet.STATS), arguments.url) as session:
        snapshot = measure(session, SystemClock(), windows=())
    thresholds, decided = snapshot.thresholds, snapshot.decided
    rows = []
    for one in DEFINITIONS:
        for place in ("", *sorted(name for name, found in thresholds.places.items() if one.name in found)):
            by = decided.places.get(place, {}) if place else decided.limits
            rows.append((one.name, place, thresholds.of(one, place), one.name in by))
    if arguments.json:
        for name, place, (ticket, page), is_set in rows:
            print_json(
                {"signal": name, "place": place or None, "ticket": ticket, "page": page, "set": is_set}
            )
        return DONE
    print_table(("SIGNAL", "WHERE", "TICKET", "PAGE", "SET BY"), [_row(*row) for row in rows])
    return DONE


def _row(name: str, place: str, limit: Limit, is_set: bool) -> list[Cell]:
    shown = ["never" if value is None else f"{value:g}" for value in limit]
    return [Cell.of(text) for text in (name, place or "all", *shown, "an operator" if is_set else "")]


def run_limit(arguments: argparse.Namespace) -> int:
    """Sets or takes back limits."""
    from oncegate.signals.definitions import BY_NAME, Thresholds
    from oncegate.signals.limits import read_limit, set_limit

    actor, reason = check_actor(actor_of(arguments)), check_reason(arguments.reason)
    Thresholds({arguments.signal: (None, None)})  # refuses a name that is none
    signal = BY_NAME[arguments.signal]
    given = (read_limit(arguments.ticket or "never", signal), read_limit(arguments.page or "never", signal))
    limit = None if arguments.ticket is None and arguments.page is None else given
    store = open_ledger(arguments.url, needs=Facet.STATS)
    with reading(store, arguments.url):
        pass  # a ledger that is missing or out of date is refused, not made
    session = store.connect()
    try:
        with session.unit():
            set_limit(
                session, arguments.signal, arguments.surface, limit,
                at_ms=SystemClock().wall_ms(), actor=actor, reason=reason,
            )  # fmt: skip
    finally:
        session.close()
    tell(f"the limits of {arguments.signal} are {'as declared' if limit is None else 'set'}")
    return DONE
