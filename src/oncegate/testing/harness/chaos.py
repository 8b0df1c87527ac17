"""The harness that users call: tries a handler under many plans, and shows the smallest that breaks it."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from oncegate.errors import ConfigError, StoreRejected
from oncegate.gate.facade import GateOnStore, live_gates
from oncegate.gate.surface import Surface
from oncegate.testing.harness.databases import Database, Databases, Server, Setups
from oncegate.testing.harness.names import replaced
from oncegate.testing.harness.plans import Mishap, PlannedArrival, crash_plans, random_plan
from oncegate.testing.harness.real_plans import Meanwhile, may_strike, random_real_plan, systematic_plans
from oncegate.testing.harness.real_trial import Deliver, RealTrial
from oncegate.testing.harness.trial import Trial
from oncegate.testing.harness.variants import near_duplicates
from oncegate.testing.simulation.loop import START_WALL_MS
from oncegate.testing.simulation.shrinking import shrink

PLANS_DEFAULT: Final = 150
REAL_PLANS_DEFAULT: Final = {"sqlite": 40, "postgres": 10}
AnyPlan = tuple[PlannedArrival | Mishap | Meanwhile, ...]
AnyTrial = Trial | RealTrial
Rows = Sequence[tuple[Any, ...]]
Check = Callable[[Database], object]

_QUIET: Final[AnyPlan] = (PlannedArrival(1.0, 0),)
_WRITES: Final = (
    "the handler writes to a database, and the simulated ledger has no tables of yours; give"
    " setup='CREATE TABLE …' or database='postgres', and trials run on a real one (docs/testing.md)"
)


class Chaos:
    """One handler and one event, to be tried.

    `counts` tells how to count effects in fakes of your own, by name; `before_each` makes them empty again.
    `plans` is how many random plans are played, `systematic` how many of the systematic ones (all of them).
    With `setup` or `database` trials run on a real SQLite file or PostgreSQL server, with a fresh database
    each: `setup` is SQL that makes your tables, a function of the database, or a list of these. `check` is
    called with the database after each trial. `deliver(gate, event, database)` admits an event your way.
    """

    def __init__(
        self,
        handler: Callable[..., Any],
        event: Any,
        *,
        gate: GateOnStore | None = None,
        counts: Mapping[str, Callable[[], int]] | None = None,
        before_each: Callable[[], Any] = lambda: None,
        plans: int | None = None,
        systematic: int | None = None,
        seed: int = 1,
        setup: Setups | None = None,
        database: str | None = None,
        check: Check | None = None,
        deliver: Deliver | None = None,
        server: Callable[[], Server] | None = None,
    ) -> None:
        self._gate, self._surface = _find(handler, gate)
        self._counters = dict(counts or {})
        self._before_each = before_each
        self._seed, self._systematic = seed, systematic
        self._reached: Counter[str] = Counter()
        self._check, self._deliver = check, deliver
        surface = self._surface
        is_real = (
            surface.same_database
            or surface.writes is not None
            or any(one is not None for one in (setup, database, check, deliver))
        )
        kind = database or (
            "postgres" if self._gate.engine.store.address.startswith("postgres") else "sqlite"
        )
        self._databases = Databases(kind, setup or (), server) if is_real else None
        if is_real and surface.lane is not None:
            raise ConfigError(
                f"{surface.name} accepts events and runs them later: its lanes are not played on a real"
                " database; register the handler with mode='inline' in this test"
            )
        self._plans = plans if plans is not None else REAL_PLANS_DEFAULT[kind] if is_real else PLANS_DEFAULT
        self._events = [event, *near_duplicates(self._surface.rule, event, START_WALL_MS)]

    def assert_effects(self, **expected: int) -> None:
        """Asserts that the named effects happen exactly so often, whatever goes wrong.

        A name is one of `counts`, a function that the handler calls, or the name of an effect or a step. An
        effect that can be neither repeated nor probed may be missing where the event waits for a person.
        """
        __tracebackhide__ = True
        if not expected and self._check is None:
            raise ConfigError("name what is counted: assert_effects(claim_slot=1)")
        self._assert(expected, {})

    def assert_rows(self, sql: str, rows: Rows, **expected: int) -> None:
        """Asserts that a query of your tables finds exactly these rows, in any order, whatever goes wrong.

        `expected` counts effects as `assert_effects` does. Rows may be missing where the event waits for a
        person.
        """
        __tracebackhide__ = True
        if self._databases is None:
            raise ConfigError("assert_rows needs a real database: give setup= with your tables")
        self._assert(expected, {sql: rows})

    def _assert(self, expected: dict[str, int], rows: Mapping[str, Rows]) -> None:
        __tracebackhide__ = True
        try:
            problem = self._problem(_QUIET, self._seed, expected, rows, is_quiet=True)
            assert problem is None, f"without any trouble: {problem}"
            for seed, plan, again in self._all_plans():
                problem = self._problem(plan, seed, expected, rows)
                if problem is not None:
                    raise AssertionError(f"{self._told(plan, seed, expected, rows)}\n{again}")
        finally:
            if self._databases is not None:
                self._databases.close()

    def _all_plans(self) -> Iterator[tuple[int, AnyPlan, str]]:
        """Each with its seed and what plays it again; the systematic ones are the same in every run."""
        is_real = self._databases is not None
        systematic: Sequence[AnyPlan] = systematic_plans() if is_real else crash_plans()
        step = max(1, len(systematic) // max(1, self._systematic or len(systematic)))
        for number, plan in list(enumerate(systematic, 1))[::step][: self._systematic]:
            if not is_real or may_strike(plan, self._reached):
                yield number, plan, "again: oncegate_chaos(…, plans=0)"
        for seed in range(self._seed, self._seed + self._plans):
            make: Callable[[int, int], AnyPlan] = random_real_plan if is_real else random_plan
            yield seed, make(seed, len(self._events) - 1), f"again: oncegate_chaos(…, seed={seed}, plans=1)"

    def _told(self, plan: AnyPlan, seed: int, expected: dict[str, int], rows: Mapping[str, Rows]) -> str:
        """The failing plan without anything that it does not need to fail."""

        def fails(items: AnyPlan) -> bool:
            arrivals = [item for item in items if isinstance(item, PlannedArrival)]
            arrives = any(self._databases is None or not item.variant for item in arrivals)
            return arrives and self._problem(items, seed, expected, rows) is not None

        small = shrink(plan, fails)
        lines = [
            f"{self._problem(small, seed, expected, rows)} (seed {seed}), when",
            *(f"  - {item}" for item in small),
        ]
        lines += self._changes(small)
        return "\n".join(lines)

    def _changes(self, plan: AnyPlan) -> list[str]:
        used = sorted({item.variant for item in plan if isinstance(item, PlannedArrival) and item.variant})
        return [f"  change {number}: {self._events[number]}" for number in used]

    def _problem(
        self,
        plan: Any,
        seed: int,
        expected: dict[str, int],
        rows: Mapping[str, Rows] | None = None,
        *,
        is_quiet: bool = False,
    ) -> str | None:
        """Plays a plan; tells what is wrong with it, if anything is."""
        with self._fresh() as database:
            self._before_each()
            trial = self._trial(plan, seed, database)
            wanted = [name for name in expected if name not in self._counters]
            with replaced(inspect.unwrap(self._surface.handler), wanted, trial.calls.counted) as found:
                trial.run()
            self._reached |= trial.mishaps.seen  # the most of each
            if is_quiet and trial.errors:
                raise self._quiet_error(trial.errors[0])
            if is_quiet:
                self._check_names(set(wanted) - found, trial, expected)
            problem = trial.unsettled or self._miscount(trial, expected, is_excused=not is_quiet)
            if problem or database is None:
                return problem
            is_excused = bool(trial.waits_for_a_person) and not is_quiet
            return self._misrows(database, rows or {}, is_excused) or self._unchecked(database)

    def _fresh(self) -> AbstractContextManager[Database | None]:
        return nullcontext() if self._databases is None else self._databases.fresh()

    def _trial(self, plan: Any, seed: int, database: Database | None) -> AnyTrial:
        given = (self._gate, self._surface, self._events, plan, seed)
        return (
            Trial(*given)
            if database is None
            else RealTrial(*given, database=database, deliver=self._deliver)
        )

    def _quiet_error(self, error: BaseException) -> BaseException:
        if self._databases is None and isinstance(error, StoreRejected):
            return ConfigError(_WRITES)
        return error

    def _check_names(self, unknown: set[str], trial: AnyTrial, expected: dict[str, int]) -> None:
        missing = sorted(name for name in unknown if expected[name] and not trial.calls.counts[name])
        if missing:
            seen = ", ".join(sorted(trial.calls.counts)) or "none"
            raise ConfigError(f"nothing called {missing[0]!r} was seen; effects and steps seen: {seen}")

    def _miscount(self, trial: AnyTrial, expected: dict[str, int], *, is_excused: bool) -> str | None:
        """What happened too often, or too seldom and no trouble has put the event before a person."""
        waits = trial.waits_for_a_person
        for name, wanted in expected.items():
            counter = self._counters.get(name)
            found = trial.calls.counts[name] if counter is None else counter()
            if found > wanted or (found < wanted and not (waits and is_excused)):
                why = f"; the event waits for a person: {waits}" if waits else ""
                return f"{name} happened {found} times, not {wanted}{why}"
        return None

    def _misrows(self, database: Database, wanted: Mapping[str, Rows], is_excused: bool) -> str | None:
        for sql, rows in wanted.items():
            found, expected = Counter(database.rows(sql)), Counter(tuple(row) for row in rows)
            if found != expected and not (is_excused and found <= expected):
                return f"{sql} finds {_told_rows(found)}, not {_told_rows(expected)}"
        return None

    def _unchecked(self, database: Database) -> str | None:
        try:
            if self._check is not None:
                self._check(database)
        except AssertionError as error:
            return str(error) or "the check of the database failed"
        return None


def _told_rows(rows: Counter[tuple[Any, ...]]) -> str:
    return ", ".join(repr(row) for row in rows.elements()) or "nothing"


def _find(handler: Callable[..., Any], gate: GateOnStore | None) -> tuple[GateOnStore, Surface]:
    for candidate in live_gates() if gate is None else (gate,):
        # Of what is declared: the engine of a gate on Django's databases may not be made before settings.
        for surface in candidate._declarations.surfaces:
            if surface.handler is handler or inspect.unwrap(surface.handler) is inspect.unwrap(handler):
                return candidate, next(one for one in candidate.engine.surfaces if one.name == surface.name)
    name = getattr(handler, "__name__", repr(handler))
    raise ConfigError(
        f"{name} is not registered with a gate; decorate it with @gate.handler(…), or give gate="
    )
