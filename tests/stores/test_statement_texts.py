"""The SQL texts of both stores, frozen: a change of the code that changes no statement changes no text.

After a change that is meant, write the files again: `python -m tests.stores.test_statement_texts`.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oncegate.stores.postgres.wire import WireCommand

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parent / "golden"
PACKAGES = ("postgres", "sqlite", "shared")
BETWEEN = "\n-- ====\n"
STATEMENT = re.compile(
    r"\s*(WITH|SELECT|INSERT|UPDATE|DELETE|SET|RESET|LOCK|BEGIN|COMMIT|SAVEPOINT|RELEASE)\s"
)


def texts_in(value: Any) -> Iterator[str]:
    """The statements that a constant is or holds."""
    if isinstance(value, WireCommand):
        value = value.sql
    if isinstance(value, str) and STATEMENT.match(value):
        yield value
    elif isinstance(value, dict):
        yield from texts_in(tuple(value.values()))
    elif isinstance(value, tuple | list | set | frozenset):
        for item in value:
            yield from texts_in(item)


def statements_of(package: str) -> str:
    """Every statement that the modules of a package keep in constants, each once and in order."""
    folder = importlib.import_module(f"oncegate.stores.{package}")
    names = [one.name for one in pkgutil.iter_modules(folder.__path__, f"{folder.__name__}.")]
    modules = [importlib.import_module(name) for name in names]
    found = {
        text
        for module in modules
        for name, value in vars(module).items()
        if name.isupper()
        for text in texts_in(value)
    }
    return BETWEEN.join(sorted(found, key=lambda text: (" ".join(text.split()), text)))


@pytest.mark.parametrize("package", PACKAGES)
def test_statements_are_sent_as_they_were(package: str) -> None:
    """Every constant with a statement has the very text that is kept for it."""
    kept, now = (GOLDEN / f"{package}.sql").read_text("utf-8"), statements_of(package)
    changed = difflib.unified_diff(kept.splitlines(), now.splitlines(), "kept", "now", lineterm="")
    assert kept == now, "\n".join(changed)


if __name__ == "__main__":
    for each in PACKAGES:
        (GOLDEN / f"{each}.sql").write_text(statements_of(each), "utf-8")
