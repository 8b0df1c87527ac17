"""The Django app: finds handlers, brings the ledger up to date after `migrate`, registers checks."""

from __future__ import annotations

import gc
from typing import Any

from django.apps import AppConfig
from django.core.checks import Tags, register
from django.core.management.base import CommandError
from django.db import connections
from django.db.backends.signals import connection_created
from django.db.models.signals import post_migrate
from django.utils.module_loading import autodiscover_modules

from oncegate.contrib.django.addresses import address_of, is_in_memory, is_testing
from oncegate.contrib.django.checks import check_database, check_settings
from oncegate.contrib.django.django_gate import DjangoGate
from oncegate.contrib.django.nested import NestedSqliteStore, empty_ledger
from oncegate.errors import OncegateError
from oncegate.gate.facade import live_gates
from oncegate.wiring import open_store

HANDLERS = "oncegate_handlers"  # the module of each app that registers its handlers


class OncegateConfig(AppConfig):
    """`oncegate.contrib.django` in INSTALLED_APPS."""

    name = "oncegate.contrib.django"
    label = "oncegate"
    verbose_name = "oncegate"

    def ready(self) -> None:
        """Connects signals and checks, and imports every app's handlers."""
        post_migrate.connect(_migrate, sender=self, dispatch_uid="oncegate.migrate")
        connection_created.connect(_let_go, dispatch_uid="oncegate.let_go")
        register(check_settings, Tags.compatibility)
        register(check_database, Tags.database)
        autodiscover_modules(HANDLERS)


def django_gates() -> list[DjangoGate]:
    """Every gate of this process that follows DATABASES."""
    return [one for one in live_gates() if isinstance(one, DjangoGate)]


def _migrate(*, using: str, verbosity: int = 1, **more: Any) -> None:
    """Brings the ledger up to date; after a test's `flush` it empties it as well."""
    if using not in {one.using for one in django_gates()}:
        return
    connection = connections[using]
    if is_testing():
        for one in django_gates():
            one.forget_ledgers()
        if "plan" not in more:  # `flush`, which every TransactionTestCase ends with
            empty_ledger(connection)
            return
    try:
        applied = _store(connection).migrate()
    except OncegateError as error:
        raise CommandError(f"oncegate: {error}") from error
    if verbosity >= 1:
        for migration in applied:
            print(f"  Applying oncegate ledger {migration.number:04}_{migration.name}... OK")  # noqa: T201  as `migrate` does


def _store(connection: Any) -> Any:
    if is_in_memory(connection):
        connection.ensure_connection()
        return NestedSqliteStore(connection)
    return open_store(address_of(connection))


def _let_go(*, connection: Any, **more: Any) -> None:
    """The test runner is about to drop a test database: no connection to it may be open."""
    if connection.alias == "__no_db__" and is_testing():
        for one in django_gates():
            one.forget_ledgers()
        gc.collect()  # Django's connections of threads that have ended are in cycles
