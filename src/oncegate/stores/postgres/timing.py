"""How long a claim takes on this server, and what makes it slow: for `oncegate doctor`.

The claim is the doctor's own rehearsal, which is undone. A record in the server's log is committed to time
its disk; it changes no table, and waits for no standby.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import psycopg
from msgspec import Struct

from oncegate.clock import SystemClock
from oncegate.store import Finding
from oncegate.stores.postgres import reserve_statements, settle_statements
from oncegate.stores.postgres.placeholders import to_numbered

WHAT: Final = "claim"
TURNS: Final = 3  # the quickest counts: what is slow once is chance
CLAIM_SLOW_MS: Final = 50.0
COMMIT_SLOW_MS: Final = 20.0
ROUND_TRIP_SLOW_MS: Final = 5.0
_CLOCK: Final = SystemClock()
_ROUND_TRIP: Final = "SELECT 1"
_RECORD: Final = "SELECT pg_logical_emit_message(true, 'oncegate', 'doctor')"
_PLANNED: Final = {"reservation": reserve_statements.RESERVE_ONE, "end": settle_statements.END_ONE}
_DATABASE: Final = "SELECT quote_ident(current_database())"

Connection = psycopg.Connection[tuple[Any, ...]]


class Times(Struct, frozen=True):
    """Milliseconds, and what stands out in the plans of a claim's statements."""

    claim: float
    commit: float
    round_trip: float
    compiled: tuple[str, ...] = ()
    whole_reads: tuple[str, ...] = ()
    database: str = ""


def examine_speed(connection: Connection, rehearse: Callable[[], object]) -> Finding:
    """Times a claim over the connection; `rehearse` makes one and undoes it."""
    plans = {name: _plan(connection, sql) for name, sql in _PLANNED.items()}
    (database,) = connection.execute(_DATABASE).fetchone() or ("",)
    return judge(
        Times(
            claim=_quickest(rehearse),
            commit=_quickest(lambda: _commit(connection)),
            round_trip=_quickest(lambda: connection.execute(_ROUND_TRIP)),
            compiled=tuple(name for name, plan in plans.items() if "JIT" in plan),
            whole_reads=tuple(
                sorted({name for plan in plans.values() for name in whole_reads(plan["Plan"])})
            ),
            database=str(database),
        )
    )


def judge(times: Times) -> Finding:
    """Says what a claim takes, and what to do about whatever is slow in it."""
    value = (
        f"{times.claim:.1f} ms, of which {times.round_trip:.1f} ms are a round trip to the server; "
        f"a commit takes {times.commit:.1f} ms more"
    )
    return Finding(True, WHAT, value, "; ".join(_slow(times)))


def _slow(times: Times) -> Iterator[str]:
    if times.compiled:
        yield (
            f"the server compiles the {' and the '.join(times.compiled)} of each claim (JIT): "
            f"ALTER DATABASE {times.database} SET jit = off"
        )
    if times.whole_reads:
        names = ", ".join(times.whole_reads)
        yield f"plans read {names} as a whole: ANALYZE {names}, and look above for a missing index"
    if times.commit > COMMIT_SLOW_MS:
        yield "commits are slow: look at the disk of the server's log (pg_wal), and at other work on it"
    if times.round_trip > ROUND_TRIP_SLOW_MS:
        yield "the server is far away: run the gate in its network"
    is_explained = times.compiled or times.whole_reads or times.round_trip > ROUND_TRIP_SLOW_MS
    if times.claim > CLAIM_SLOW_MS and not is_explained:
        yield "claims are slow: look at the load of the server, and for locks in pg_stat_activity"


def whole_reads(plan: dict[str, Any]) -> Iterator[str]:
    """The tables of the ledger that a plan reads from end to end."""
    table = str(plan.get("Relation Name", ""))
    if plan.get("Node Type") == "Seq Scan" and table.startswith("oncegate_"):
        yield table
    for part in plan.get("Plans", ()):
        yield from whole_reads(part)


def _plan(connection: Connection, sql: str) -> dict[str, Any]:
    """The plan that is kept for any values, as our own connections make it.

    Nothing is rolled back: the driver would forget every statement that the session has prepared.
    """
    unknown = ", ".join(["NULL"] * sql.count("%s"))
    connection.execute("SET plan_cache_mode = force_generic_plan", prepare=False)
    connection.execute(f"PREPARE oncegate_asked AS {to_numbered(sql)}".encode(), prepare=False)
    explain = f"EXPLAIN (FORMAT JSON) EXECUTE oncegate_asked ({unknown})".encode()
    ((found,),) = connection.execute(explain, prepare=False).fetchall()
    connection.execute("DEALLOCATE oncegate_asked", prepare=False)
    connection.execute("RESET plan_cache_mode", prepare=False)
    plan: dict[str, Any] = found[0]
    return plan


def _commit(connection: Connection) -> None:
    with connection.transaction():
        connection.execute("SET LOCAL synchronous_commit = local")
        connection.execute(_RECORD)


def _quickest(work: Callable[[], object]) -> float:
    times = []
    for _ in range(TURNS + 1):  # the first one plans
        begun = _CLOCK.elapsed_us()
        work()
        times.append((_CLOCK.elapsed_us() - begun) / 1000)
    return min(times[1:])
