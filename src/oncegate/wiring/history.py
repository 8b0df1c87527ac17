"""What a gate declares for snapshots and roll-back, and the worker's jobs that come of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar
from weakref import WeakKeyDictionary, ref

from msgspec import Struct

from oncegate.errors import ConfigError, SnapshotError
from oncegate.gate.codec.introspection import refuse_generator
from oncegate.gate.facade import GateOnStore
from oncegate.journal.keys import Signer, Verifier, load_signers, load_verifiers
from oncegate.journal.rollback.applying import RollbackWork, register_surfaces
from oncegate.journal.rollback.mutations import Mutation, MutationRule, mutation_rule
from oncegate.journal.rollback.planning import Planner
from oncegate.journal.snapshots.beliefs import LEDGER, Belief
from oncegate.journal.snapshots.taking import SnapshotTaker
from oncegate.journal.snapshots.vault import Vault, open_vault
from oncegate.maintenance.schedule import JobKind, PeriodicJob
from oncegate.model.surface import check_name
from oncegate.store import Facet, require

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[[], Any])
ROLLBACK_EVERY: Final = timedelta(seconds=5)


class SnapshotSettings(Struct, frozen=True):
    """Where snapshots go, who signs them and how often; what a roll-back plan needs."""

    to: str
    signed_by: str
    every: timedelta
    second_above: int
    expires: timedelta
    known_keys: str | None = None


class History:
    """The declarations of one gate."""

    def __init__(self, gate: GateOnStore) -> None:
        self._gate_ref = ref(gate)
        self.beliefs: dict[str, Belief] = {}
        self.rules: dict[str, MutationRule] = {}
        self.settings: SnapshotSettings | None = None
        self._taker: SnapshotTaker | None = None

    @property
    def _gate(self) -> GateOnStore:
        gate = self._gate_ref()
        assert gate is not None
        return gate

    def belief(self, name: str, id_field: str, content: Sequence[str] | None) -> Callable[[F], F]:
        """Declares a belief of a new name."""
        require(self._gate.engine.store, Facet.REVIEW, "beliefs")
        check_name("belief", name)
        if name == LEDGER or name in self.beliefs:
            raise ConfigError(f"belief {name!r} is declared twice; give each a name of its own")
        if isinstance(content, str):
            raise ConfigError(f"belief {name}: content= is a list of fields, such as ['carer', 'day']")

        def register(function: F) -> F:
            fields = None if content is None else tuple(content)
            self.beliefs[name] = Belief(name, function, id_field, fields)
            return function

        return register

    def mutation(
        self, name: str, belief: str | None, **functions: Callable[..., Any] | None
    ) -> Callable[[Callable[P, R]], Mutation[P, R]]:
        """Declares a mutation of a new name; the first one brings the surfaces of compensations."""
        engine = self._gate.engine
        if name in self.rules:
            raise ConfigError(f"mutation {name!r} is declared twice; give each a name of its own")

        def register(apply: Callable[P, R]) -> Mutation[P, R]:
            refuse_generator(apply)
            rule = mutation_rule(engine, name, apply, belief, **functions)
            if not self.rules:
                register_surfaces(self._gate, self.rules)
            self.rules[name] = rule
            return Mutation(engine, rule, apply)

        return register

    def keep(self, settings: SnapshotSettings) -> None:
        """Declares where snapshots go."""
        require(self._gate.engine.store, Facet.REVIEW, "snapshots")
        if self.settings is not None:
            raise ConfigError("gate.snapshots(…) is declared twice; one place is supported")
        self.settings = settings

    def _declared(self) -> SnapshotSettings:
        if self.settings is None:
            raise ConfigError(
                "the program does not say where snapshots go; add"
                ' gate.snapshots("file:///var/lib/snapshots", signed_by="file:snapshots.key")'
            )
        return self.settings

    def vault(self) -> Vault:
        """The place of the snapshots, unchecked."""
        return open_vault(self._declared().to, self._gate.engine.clock)

    def signers(self) -> tuple[Signer, ...]:
        """The keys that sign."""
        return load_signers(self._declared().signed_by)

    def taker(self) -> SnapshotTaker:
        """Takes snapshots; the place is checked before the first one."""
        if self._taker is None:
            settings, vault = self._declared(), self.vault()
            for rule in self.rules.values():
                if rule.belief is not None and rule.belief not in self.beliefs:
                    raise ConfigError(f"mutation {rule.name}: no belief is called {rule.belief!r}")
            beliefs = list(self.beliefs.values())
            self._taker = SnapshotTaker(
                self._gate.engine,
                vault,
                self.signers(),
                beliefs,
                every=settings.every,
                known=self._known_keys(settings),
            )
        return self._taker

    def _known_keys(self, settings: SnapshotSettings) -> tuple[Verifier, ...]:
        """Keys that signed earlier snapshots."""
        if settings.known_keys is None:
            return ()
        try:
            return load_verifiers(Path(settings.known_keys).read_text("utf-8"))
        except OSError as error:
            raise ConfigError(f"known_keys: {settings.known_keys}: {error.strerror}") from None

    def planner(self) -> Planner:
        """Makes roll-back plans."""
        settings = self._declared()
        return Planner(
            self._gate.engine,
            self.taker().archive,
            self.beliefs,
            self.rules,
            second_above=settings.second_above,
            expires=settings.expires,
        )

    def rollback(self) -> RollbackWork:
        """Makes and applies plans."""
        return RollbackWork(self._gate, self.rules, self.planner(), self.taker())


_histories: WeakKeyDictionary[GateOnStore, History] = WeakKeyDictionary()


def history_of(gate: GateOnStore) -> History:
    """What a gate declares for snapshots and roll-back."""
    if gate not in _histories:
        _histories[gate] = History(gate)
    return _histories[gate]


def declared_snapshots(gate: GateOnStore) -> SnapshotSettings:
    """Raises ConfigError where the program declares no place for snapshots."""
    settings = history_of(gate).settings
    if settings is None:
        raise ConfigError("no snapshots are declared; add gate.snapshots(…) to the program")
    return settings


def history_jobs(gate: GateOnStore, left_out: Collection[JobKind] = ()) -> list[PeriodicJob]:
    """Snapshots and roll-backs; raises ConfigError where the declared place cannot be used."""
    history = history_of(gate)
    if "snapshots" in left_out:
        return []
    settings = declared_snapshots(gate)
    with suppress(SnapshotError):  # cannot be reached now: the first run says so, and is tried again
        history.vault().check()
    taker, work = history.taker(), history.rollback()
    return [
        PeriodicJob(
            "snapshots",
            settings.every,
            run_once_async=taker.run_once,
            run_once_apart=taker.run_once,
            kind="snapshots",
        ),
        PeriodicJob(
            "roll-back",
            ROLLBACK_EVERY,
            run_once_async=work.run_once,
            run_once_apart=work.run_once,
            kind="snapshots",
        ),
    ]
