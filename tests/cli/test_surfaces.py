"""`oncegate surfaces`: what is kept, a plan before a change, and a record of who and why."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from oncegate import Gate, Verdict
from oncegate.errors import ConfigError
from oncegate.maintenance.pruner import Pruner
from tests.cli.conftest import Ended

Call = Callable[..., Ended]
REKEY = ("surfaces", "rekey", "orders", "--from", "{id}", "--to", "{id:str}", "--reason", "typed")


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A ledger where a surface and a function were used."""
    made = f"sqlite:///{tmp_path / 'orders.db'}"
    with _gate(made, "{id}") as gate:
        gate.admit_sync("orders", {"id": 1})
        gate.once(key="{order}", name="pay")(pay)(1)
    return made


def take(event: dict[str, int]) -> None:
    """Takes an event."""


def pay(order: int) -> None:
    """A function under a name."""


def _gate(url: str, key: str) -> Gate:
    gate = Gate(url)
    gate.handler("orders", key=key)(lambda event: None)
    return gate


def _notes(url: str) -> list[tuple[int, str]]:
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    found = connection.execute("SELECT kind, note FROM oncegate_log WHERE entry = 0").fetchall()
    connection.close()
    return found


def test_what_is_kept_is_listed(call: Call, url: str) -> None:
    listed = json.loads(call("surfaces", "list", "--json", "--url", url).out)["surfaces"]
    assert [(one["surface"], one["key"], one["origins"]) for one in listed] == [
        ("orders", "{id}", ["handler"]),
        ("pay", "{order}", [f"{__name__}:pay"]),
    ]
    assert "{id}" in call("surfaces", "list", "--url", url).out


def test_the_list_shows_by_which_retention_a_pruner_forgot(call: Call, url: str) -> None:
    """F8: nothing before one has run; then the surface's own, and those of single partners."""
    listed = json.loads(call("surfaces", "list", "--json", "--url", url).out)["surfaces"]
    assert [one["retention"] for one in listed] == [None, None]
    with Gate(url) as gate:
        gate.handler("orders", key="{id}", retention="30d", retention_by_partner={"acme": "90d"})(take)
        Pruner(gate).run_once()

    listed = json.loads(call("surfaces", "list", "--json", "--url", url).out)["surfaces"]
    assert [one["retention"] for one in listed] == ["30d; acme 90d", None]
    assert "30d; acme 90d" in call("surfaces", "list", "--url", url).out


def test_a_dry_run_tells_the_plan_and_changes_nothing(call: Call, url: str) -> None:
    ended = call(*REKEY, "--dry-run", "--url", url)
    assert (ended.code, ended.out) == (0, "")
    assert "1 entries are known" in ended.err
    assert "nothing was changed" in ended.err
    with _gate(url, "{id:str}") as gate, pytest.raises(ConfigError):
        gate.admit_sync("orders", {"id": "2"})


def test_a_change_is_recorded_and_lets_the_new_program_in(call: Call, url: str) -> None:
    assert call(*REKEY, "--yes", "--as", "ann", "--url", url).code == 0
    assert _notes(url) == [(30, "orders: key template '{id}' to '{id:str}': typed")]
    with _gate(url, "{id:str}") as gate, _gate(url, "{id}") as old:
        assert gate.admit_sync("orders", {"id": "2"}).verdict is Verdict.RUN
        assert old.admit_sync("orders", {"id": "2"}).verdict is Verdict.REPLAY
    assert "orders" in call("journal", "--url", url).out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--from", "{other}", "--to", "{id:str}"), "is '{id}', not what --from says"),
        (("--from", "{id}", "--to", "{id}"), "already"),
        (("--from", "{id}", "--to", "{id:str}", "--overlap", "5m"), "at least 30m"),
        (("--from", "{id}", "--to", "{message_id}"), "transport"),
    ],
)
def test_what_cannot_be_is_refused(call: Call, url: str, words: tuple[str, ...], told: str) -> None:
    ended = call("surfaces", "rekey", "orders", *words, "--reason", "r", "--yes", "--url", url)
    assert ended.code != 0
    assert told in ended.complaint
    assert _notes(url) == []


def test_a_surface_that_nobody_used_is_unknown(call: Call, url: str) -> None:
    words = ("--origin", "a:b", "--reason", "r", "--yes", "--url", url)
    assert "known: orders, pay" in call("surfaces", "accept", "other", *words).complaint


def test_a_function_that_moved_is_accepted_beside_the_old_one(call: Call, url: str) -> None:
    words = ("--origin", "billing:pay", "--reason", "moved", "--yes", "--json", "--url", url)
    told = json.loads(call("surfaces", "accept", "pay", *words).out)
    assert (told["done"], told["origins"]) == (True, [f"{__name__}:pay", "billing:pay"])
    assert _notes(url) == [(30, "pay: function billing:pay accepted: moved")]
