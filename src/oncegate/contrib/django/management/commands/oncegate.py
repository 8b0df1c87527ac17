"""`manage.py oncegate …`: every command of oncegate, with the project's ledger and handlers."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from oncegate.cli import ledger
from oncegate.cli.main import COMMANDS, build_parser, main
from oncegate.config import LedgerAddress
from oncegate.contrib.django.addresses import address_of, database, ledger_alias
from oncegate.contrib.django.apps import django_gates
from oncegate.contrib.django.django_gate import DjangoGate
from oncegate.errors import OncegateError

GATE = "oncegate.contrib.django:gate"


class ManageCommand(BaseCommand):
    """Passes everything after `oncegate` on, so that `--help` and `--json` are oncegate's own."""

    help = "Runs a command of oncegate with the project's ledger; see: manage.py oncegate --help"
    requires_system_checks: list[str] = []  # noqa: RUF012  Django's own shape

    def run_from_argv(self, argv: list[str]) -> None:
        """Called by manage.py."""
        sys.exit(run(argv[2:]))

    def add_arguments(self, parser: Any) -> None:
        """For `call_command("oncegate", …)`."""
        parser.add_argument("--database")
        parser.add_argument("words", nargs=argparse.REMAINDER)

    def handle(self, *arguments: str, **options: Any) -> None:
        """Called by `call_command`; raises CommandError unless the command succeeds."""
        using = options.get("database")
        words = [*(("--database", using) if using else ()), *arguments, *options.get("words", ())]
        if code := run(words):
            raise CommandError(f"oncegate {' '.join(words)[:80]} ended with {code}", returncode=code)


def run(words: list[str]) -> int:
    """Runs a command on the ledger of `--database ALIAS`, else of the project's own gate."""
    using = None
    if words[:1] == ["--database"]:
        using, words = next(iter(words[1:2]), None), words[2:]
    try:
        alias = ledger_alias(using)
        found = LedgerAddress(address_of(database(alias)), f"DATABASES[{alias!r}]")
    except OncegateError as error:
        sys.stderr.write(f"oncegate: {error}\n")
        return error.exit_code
    DjangoGate.renews_connections = True
    with ledger.project_ledger(found):
        return main([*words, *_gate_for(words, alias)])


def _gate_for(words: list[str], alias: str) -> list[str]:
    """`--app` with the project's gate, for a command that runs handlers and was given none."""
    command = next((COMMANDS[word] for word in words if word in COMMANDS), None)
    has_handlers = any(one.using == alias and one._declarations.surfaces for one in django_gates())
    if command is None or not has_handlers or {"--app", "--url", "--config", "--help", "-h"} & set(words):
        return []
    parsers: list[Any] = [build_parser([command])]
    chosen = iter(words)
    while (sub := _subparsers(parsers[-1])) is not None:
        name = next((word for word in chosen if word in sub), None)
        if name is None:
            break
        parsers.append(sub[name])
    takes_app = any("--app" in action.option_strings for action in parsers[-1].actions)
    return ["--app", GATE] if takes_app else []


def _subparsers(parser: Any) -> dict[str, Any] | None:
    for action in parser.actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return None


Command = ManageCommand  # the name that Django looks for
