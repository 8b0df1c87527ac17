"""A gate on the database that DATABASES names, found when an event needs it.

Handlers are registered when modules are imported, before a test runner exchanges the databases. So
declarations are kept apart, and an engine is made for each database that is used. Inside a `TestCase`
the ledger is in the test's own transaction: see `nested`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any, Unpack

from django.db import close_old_connections, transaction

from oncegate.contrib.django.addresses import address_of, database, is_in_memory, is_testing, ledger_alias
from oncegate.contrib.django.nested import nested_engine, test_transaction
from oncegate.errors import ConfigError, UsageError
from oncegate.gate.facade import LIVE
from oncegate.gate.gate import GateEngine
from oncegate.gate.options import GateOptions
from oncegate.gate.registration import Declarations
from oncegate.gate.surface import Surface
from oncegate.wiring import Gate, open_store


class _Declared(Declarations):
    """Surfaces and downstreams of a gate whose ledger is not known yet."""

    def __init__(self) -> None:
        super().__init__()
        self.version = 0

    def _check(self, surface: Surface) -> None:
        if surface.same_database and surface.is_async:
            raise ConfigError(
                f"surface {surface.name}: Django has no async transactions; write the handler as a plain"
                " function, or leave same_database=True out"
            )
        super()._check(surface)
        self.version += 1

    def amend(self, *arguments: Any) -> None:
        super().amend(*arguments)
        self.version += 1

    def add_downstream(self, downstream: Any) -> Any:
        self.version += 1
        return super().add_downstream(downstream)


class _DjangoTransactions:
    """Django's transactions on the ledger's database, for the gate to join."""

    def __init__(self, gate: DjangoGate) -> None:
        self._gate = gate

    def open_one(self, surface: Surface, *, admitting: bool = False) -> object | None:
        """The thread's connection inside `transaction.atomic()`; None outside of it.

        The transaction around a `TestCase` does not count: a program would not have it.
        """
        connection = database(self._gate.using)
        block = test_transaction(connection)
        if not connection.in_atomic_block or (block is not None and connection.atomic_blocks[-1] is block):
            return None
        is_locked = admitting and block is None and connection.vendor == "sqlite"
        if is_locked and not surface.same_database and not is_in_memory(connection):
            raise UsageError(
                f"{surface.name} is admitted inside transaction.atomic(), which holds the lock of the"
                " ledger's SQLite file: admit it outside, or register it with same_database=True"
            )
        return connection  # type: ignore[no-any-return]

    def with_own(self, surface: Surface) -> Surface:
        """The surface with a handler that opens Django's transaction and joins it."""
        using, handler, takes_once = self._gate.using, surface.handler, surface.takes_once

        def run(event: Any, once: Any) -> Any:
            with transaction.atomic(using=using):
                value = handler(event, once) if takes_once else handler(event)
                once.commit(outcome=value)
            return value

        return replace(surface, handler=run, takes_once=True, same_database=False)


class DjangoGate(Gate):
    """The gate on a database of DATABASES: `using`, else ONCEGATE["DATABASE"], else "default"."""

    renews_connections = False  # set by `manage.py oncegate`: its threads serve no requests

    def __init__(self, using: str | None = None, **options: Unpack[GateOptions]) -> None:
        # Not the base's: it would open a store, and the database may still be exchanged.
        self._given, self._options = using, options
        self._declared = _Declared()
        self._fixed: GateEngine | None = None
        self._engines: dict[str, GateEngine] = {}
        self._adopted: dict[int, int] = {}
        self._here = threading.local()
        self._making = threading.Lock()
        self.sources = []
        LIVE.add(self)

    @property
    def using(self) -> str:
        """The alias in DATABASES that holds the ledger."""
        return ledger_alias(self._given)

    @property
    def _declarations(self) -> Declarations:
        """Surfaces and downstreams, whichever database is used later."""
        return self._declared

    @property
    def engine(self) -> GateEngine:  # type: ignore[override]
        """The engine on the database that this thread uses now."""
        found = self._fixed
        if found is None or is_testing():
            found = self._find()
        if self._adopted.get(id(found)) != self._declared.version:
            self._adopt(found)
        return found

    def _adopt(self, engine: GateEngine) -> None:
        engine.adopt(self._declared, self._renewing)
        self._adopted[id(engine)] = self._declared.version

    def _find(self) -> GateEngine:
        connection = database(self.using)
        if is_testing() and ((block := test_transaction(connection)) or is_in_memory(connection)):
            return self._find_nested(connection, block)
        address = address_of(connection)
        with self._making:
            if address not in self._engines:
                self._engines[address] = self._engine_on(address)
            if not is_testing():
                self._fixed = self._engines[address]
            return self._engines[address]

    def _engine_on(self, address: str) -> GateEngine:
        options: GateOptions = {**self._options, "ambient": _DjangoTransactions(self)}
        engine = self._new(GateEngine(open_store(address), **options))
        engine.driver.renew_thread = close_old_connections  # async views' calls run in threads of the gate
        return engine

    def _new(self, engine: GateEngine) -> GateEngine:
        self._adopted.pop(id(engine), None)  # the number of one that is gone
        return engine

    def _find_nested(self, connection: Any, block: object) -> GateEngine:
        """The engine in this thread's test; a new one for each test, so that no outcome is remembered."""
        connection.ensure_connection()
        place = (block, connection.connection)
        if getattr(self._here, "place", None) != place:
            self._here.place = place
            self._here.engine = self._new(nested_engine(connection, _DjangoTransactions(self)))
        return self._here.engine  # type: ignore[no-any-return]

    def _renewing(self, surface: Surface) -> Surface:
        """A surface whose handler begins with usable connections, as a request does."""
        return surface if surface.is_async else replace(surface, handler=_renewed(surface.handler))

    def forget_ledgers(self) -> None:
        """Closes every ledger of this process. Tests call it; the next event opens what it needs."""
        with self._making:
            engines, self._engines, self._fixed = list(self._engines.values()), {}, None
        self._here = threading.local()
        for engine in engines:
            self._adopted.pop(id(engine), None)
            engine.close()

    def close(self) -> None:
        """Lets running work finish and closes the ledger."""
        self.forget_ledgers()


def _renewed(handler: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(handler)
    def run(*arguments: Any, **keywords: Any) -> Any:
        if not DjangoGate.renews_connections:
            return handler(*arguments, **keywords)
        close_old_connections()
        try:
            return handler(*arguments, **keywords)
        finally:
            close_old_connections()

    return run


gate = DjangoGate()
"""The project's own gate, on the database that ONCEGATE["DATABASE"] names."""
