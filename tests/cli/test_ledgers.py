"""The table of ledgers: one source for the doctor and the docs, and true of each store."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from oncegate import Gate
from oncegate.errors import ConfigError
from oncegate.store import Capabilities
from oncegate.testing import ManualClock
from oncegate.testing.simulation import Ledger
from oncegate.wiring.ledgers import COLUMNS, LEDGERS, LedgerKind, ledger_rows, open_store
from tests.support.claims_only_store import ClaimsOnlyStore

PAGE = Path(__file__).parents[2] / "docs" / "stores.md"


def test_docs_show_the_table_of_ledgers():
    """docs/stores.md holds the rows that the doctor prints."""
    text = PAGE.read_text("utf-8")
    shown = text.partition("<!-- ledgers: begin -->\n")[2].partition("<!-- ledgers: end -->")[0]
    lines = [COLUMNS, ("---",) * len(COLUMNS), *ledger_rows()]

    assert shown == "".join(f"| {' | '.join(line)} |\n" for line in lines)


def test_doctor_prints_the_table_without_a_ledger(call, tmp_path):
    """As a table and as one object a line; no ledger is created."""
    table, objects = call("doctor", "--ledgers"), call("doctor", "--ledgers", "--json")

    assert (table.code, objects.code) == (0, 0)
    assert [line.split()[0] for line in table.out.splitlines()] == ["ledger", *(k.name for k in LEDGERS)]
    assert [json.loads(line)["ledger"] for line in objects.out.splitlines()] == [k.name for k in LEDGERS]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", LEDGERS, ids=lambda kind: kind.name)
def test_table_is_true_of_each_store(kind: LedgerKind):
    """The store behind each address declares the name and the facets of its row."""
    said: Capabilities = open_store(kind.address).capabilities

    assert (said.name, said.facets) == (kind.name, kind.facets)


def test_surface_that_keeps_keys_longer_than_the_ledger_is_refused(monkeypatch):
    """In one line, with the setting and the ledgers that keep them; a shorter retention is taken."""
    store = ClaimsOnlyStore(Ledger(), ManualClock())
    short = replace(store.capabilities, retention_max=timedelta(hours=72))
    monkeypatch.setattr(ClaimsOnlyStore, "capabilities", short)
    with Gate(store=store) as gate:
        with pytest.raises(
            ConfigError, match="surface long: retention 90d is too long for this ledger"
        ) as error:
            gate.handler("long", key="{id}")(lambda event: None)
        gate.handler("short", key="{id}", retention="72h", retention_floor="72h")(lambda event: None)

    assert "give retention='3d' and retention_floor='3d'" in str(error.value)
    assert "\n" not in str(error.value)
