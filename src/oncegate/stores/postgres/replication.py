"""What `oncegate doctor` says of standbys: whether commits wait for one, and whether one is there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import psycopg

from oncegate.store import Finding

WHAT: Final = "replication"
_ASKED: Final = (
    "SELECT current_setting('synchronous_standby_names'), current_setting('synchronous_commit'),"
    " pg_is_in_recovery()"
)
# A copy that is being made (pg_basebackup) is no standby. States are NULL to roles that may not see them.
_STANDBYS: Final = "SELECT sync_state FROM pg_stat_replication WHERE state IS DISTINCT FROM 'backup'"
_COUNT: Final = re.compile(r"^\s*(?:(?:FIRST|ANY)\s+)?(\d+)\s*\(", re.IGNORECASE)
_NOT_WAITING: Final = frozenset({"local", "off"})
_LACKS: Final = "a promoted standby may lack the last commits, and their events would run again"

Connection = psycopg.Connection[tuple[Any, ...]]


def examine_replication(connection: Connection) -> Finding:
    """Asks the server for its standbys and judges them."""
    names, commit, is_standby = connection.execute(_ASKED).fetchone() or ("", "", False)
    if is_standby:
        return Finding(
            True, WHAT, "this server is a standby itself; what commits wait for is the primary's"
        )
    states = [state for (state,) in connection.execute(_STANDBYS).fetchall()]
    return judge(names.strip(), commit, states)


def judge(names: str, commit: str, states: Sequence[str | None]) -> Finding:
    """`names` and `commit` are the server's settings, `states` how it regards each connected standby."""
    if names and commit not in _NOT_WAITING:
        return _judge_waiting(names, states)
    if not states:
        return Finding(True, WHAT, "no standby is connected, and no commit waits for one")
    if names:
        value = f"{_count(states)}, but synchronous_commit={commit}: no commit waits for them"
        return Finding(False, WHAT, value, f"{_LACKS}: set synchronous_commit=on")
    return Finding(
        False, WHAT, f"{_count(states)}, none synchronous", f"{_LACKS}: set synchronous_standby_names"
    )


def _judge_waiting(names: str, states: Sequence[str | None]) -> Finding:
    """Every commit waits for as many standbys as the setting asks for."""
    found = _COUNT.match(names)
    wanted = int(found.group(1)) if found else 1
    synchronous = sum(state in ("sync", "quorum") for state in states)
    if synchronous >= wanted:
        return Finding(True, WHAT, f"{_count(states)}, {synchronous} synchronous ({names})")
    if synchronous + list(states).count(None) >= wanted:
        value = f"{_count(states)}; this role may not see whether any is synchronous ({names})"
        return Finding(True, WHAT, value, "ask as a role with pg_monitor")
    value = (
        f"synchronous_standby_names ({names}) asks for {wanted}, {synchronous} of {_count(states)} "
        "connected: every commit waits, and no event is finished"
    )
    step = (
        "start the standby, with the application_name that the setting names, or take it out of "
        "synchronous_standby_names and reload the server"
    )
    return Finding(False, WHAT, value, step)


def _count(states: Sequence[str | None]) -> str:
    return f"{len(states)} standby{'' if len(states) == 1 else 's'}"
