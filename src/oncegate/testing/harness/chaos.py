"""The harness that users call: tries a handler under many plans, and shows the smallest that breaks it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from oncegate.errors import ConfigError
from oncegate.gate.gate import Gate, live_gates
from oncegate.gate.surfaces import Surface
from oncegate.testing.harness.names import replaced
from oncegate.testing.harness.plans import Arrival, Plan, crash_plans, random_plan
from oncegate.testing.harness.trial import Trial
from oncegate.testing.harness.variants import near_duplicates
from oncegate.testing.simulation.loop import START_WALL_MS
from oncegate.testing.simulation.shrinking import shrink

PLANS_DEFAULT: Final = 150
_QUIET: Final[Plan] = (Arrival(1.0, 0),)


class Chaos:
    """One handler and one event, to be tried.

    `counts` tells how to count effects in fakes of your own, by name; `before_each` makes them empty again.
    """

    def __init__(
        self,
        handler: Callable[..., Any],
        event: Any,
        *,
        gate: Gate | None = None,
        counts: Mapping[str, Callable[[], int]] | None = None,
        before_each: Callable[[], Any] = lambda: None,
        plans: int = PLANS_DEFAULT,
        seed: int = 1,
    ) -> None:
        self._gate, self._surface = _find(handler, gate)
        self._counters = dict(counts or {})
        self._before_each = before_each
        self._plans = plans
        self._seed = seed
        self._events = [event, *near_duplicates(self._surface.rule, event, START_WALL_MS)]

    def assert_effects(self, **expected: int) -> None:
        """Asserts that the named effects happen exactly so often, whatever goes wrong.

        A name is one of `counts`, a function that the handler calls, or the name of an effect or a step. An
        effect that nobody can repeat or ask about may be missing where the event waits for a person.
        """
        __tracebackhide__ = True
        if not expected:
            raise ConfigError("name what is counted: assert_effects(claim_slot=1)")
        problem = self._problem(_QUIET, self._seed, expected, is_quiet=True)
        assert problem is None, f"without any trouble: {problem}"
        for seed, plan, again in self._all_plans():
            problem = self._problem(plan, seed, expected)
            if problem is not None:
                raise AssertionError(f"{self._told(plan, seed, expected)}\n{again}")

    def _all_plans(self) -> Iterator[tuple[int, Plan, str]]:
        """Each with its seed and what plays it again; the systematic ones are the same in every run."""
        for number, plan in enumerate(crash_plans(), 1):
            yield number, plan, "again: oncegate_chaos(…, plans=0)"
        for seed in range(self._seed, self._seed + self._plans):
            plan = random_plan(seed, len(self._events) - 1)
            yield seed, plan, f"again: oncegate_chaos(…, seed={seed}, plans=1)"

    def _told(self, plan: Plan, seed: int, expected: dict[str, int]) -> str:
        """The failing plan without anything that it does not need to fail."""

        def fails(items: Plan) -> bool:
            arrives = any(isinstance(item, Arrival) for item in items)
            return arrives and self._problem(items, seed, expected) is not None

        small = shrink(plan, fails)
        lines = [
            f"{self._problem(small, seed, expected)} (seed {seed}), when",
            *(f"  - {item}" for item in small),
        ]
        lines += self._changes(small)
        return "\n".join(lines)

    def _changes(self, plan: Plan) -> list[str]:
        used = sorted({item.variant for item in plan if isinstance(item, Arrival) and item.variant})
        return [f"  change {number}: {self._events[number]}" for number in used]

    def _problem(
        self, plan: Plan, seed: int, expected: dict[str, int], *, is_quiet: bool = False
    ) -> str | None:
        """Plays a plan; tells what is wrong with it, if anything is."""
        self._before_each()
        trial = Trial(self._gate, self._surface, self._events, plan, seed)
        wanted = [name for name in expected if name not in self._counters]
        with replaced(inspect.unwrap(self._surface.handler), wanted, trial.calls.counted) as found:
            trial.run()
        if is_quiet and trial.errors:
            raise trial.errors[0]
        if is_quiet:
            self._check_names(set(wanted) - found, trial, expected)
        return trial.unsettled or self._miscount(trial, expected, is_excused=not is_quiet)

    def _check_names(self, unknown: set[str], trial: Trial, expected: dict[str, int]) -> None:
        missing = sorted(name for name in unknown if expected[name] and not trial.calls.counts[name])
        if missing:
            seen = ", ".join(sorted(trial.calls.counts)) or "none"
            raise ConfigError(f"nothing called {missing[0]!r} was seen; effects and steps seen: {seen}")

    def _miscount(self, trial: Trial, expected: dict[str, int], *, is_excused: bool) -> str | None:
        """What happened too often, or too seldom and no trouble has put the event before a person."""
        waits = trial.waits_for_a_person
        for name, wanted in expected.items():
            counter = self._counters.get(name)
            found = trial.calls.counts[name] if counter is None else counter()
            if found > wanted or (found < wanted and not (waits and is_excused)):
                why = f"; the event waits for a person: {waits}" if waits else ""
                return f"{name} happened {found} times, not {wanted}{why}"
        return None


def _find(handler: Callable[..., Any], gate: Gate | None) -> tuple[Gate, Surface]:
    for candidate in live_gates() if gate is None else (gate,):
        for surface in candidate.surfaces:
            if surface.handler is handler or inspect.unwrap(surface.handler) is inspect.unwrap(handler):
                return candidate, surface
    name = getattr(handler, "__name__", repr(handler))
    raise ConfigError(
        f"{name} is not registered with a gate; decorate it with @gate.handler(…), or give gate="
    )
