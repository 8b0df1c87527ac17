"""The path of an event is counted by package, on both stores."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.path_of_an_event import EventPath, package_of, path_of_an_event


@pytest.mark.parametrize(
    ("module", "levels", "package"),
    [
        ("oncegate.gate.flows.admit", 1, "gate"),
        ("oncegate.gate.flows.admit", 2, "gate.flows"),
        ("oncegate.gate.gate", 2, "gate"),
        ("oncegate.stores.sqlite.claims", 1, "stores.sqlite"),
        ("oncegate.wiring", 2, "wiring"),
        ("oncegate.clock", 2, None),
        ("lab.path_of_an_event", 2, None),
        ("asyncio.tasks", 2, None),
    ],
)
def test_a_package_is_named_by_its_first_levels(module: str, levels: int, package: str | None) -> None:
    """A module at the root counts as a package; a leaf and what is not ours do not count."""
    assert package_of(module, levels) == package


def test_the_init_of_a_package_belongs_to_that_package() -> None:
    """`oncegate.gate` is the package, not a module at the root."""
    assert package_of("oncegate.stores.sqlite", is_package=True) == "stores.sqlite"


def test_changes_are_the_steps_between_packages() -> None:
    """A path through one package has none."""
    assert EventPath(("gate",)).changes == 0
    path = EventPath(("gate", "model", "gate", "store"))
    assert (path.changes, path.packages) == (3, {"gate": 2, "model": 1, "store": 1})


def test_an_event_on_sqlite_goes_from_the_gate_to_the_store(tmp_path: Path) -> None:
    """And through no other store."""
    path = path_of_an_event(f"sqlite:///{tmp_path}/ledger.db")

    assert path.steps[0] == "gate"
    assert {"gate", "model", "stores.sqlite"} <= path.packages.keys()
    assert "stores.postgres" not in path.packages
    assert path.changes >= len(path.packages) - 1


def test_an_event_on_postgresql_goes_from_the_gate_to_the_store(ledger_url: str) -> None:
    """The hook sees what runs in greenlets and in other threads too."""
    path = path_of_an_event(ledger_url)

    assert path.steps[0] == "gate"
    assert {"gate", "model", "stores.postgres"} <= path.packages.keys()
    assert "stores.sqlite" not in path.packages


def test_the_command_prints_a_line_for_each_store(call) -> None:
    """Without PostgreSQL, one."""
    ended = call("path", "--no-postgres")

    assert ended.code == 0
    assert ended.out.startswith("SQLite: ")
    assert " changes (gate " in ended.out
