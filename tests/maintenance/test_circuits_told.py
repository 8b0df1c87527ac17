"""A downstream that rests is told to other processes: commands, page and signals read it (I26)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oncegate import Gate
from oncegate.cli.main import main
from oncegate.lanes.circuit_status import read_circuits
from oncegate.maintenance.reconciler import Reconciler
from oncegate.model.circuit import CircuitState
from tests.support.gates import Ledger

pytestmark = pytest.mark.waits


def _down(ledger: Ledger) -> tuple[Gate, list[bool]]:
    gate, is_down = ledger.gate(), [True]
    bank = gate.downstream("bank", honours_key="7d")

    @gate.handler("orders", key="{id}")
    def order(event: Any, once: Any) -> str:
        return str(once.effect(bank, pay))

    def pay(idempotency_key: str) -> str:
        if is_down[0]:
            raise ConnectionRefusedError(111, "refused")
        return "paid"

    with pytest.raises(ConnectionRefusedError):
        gate.admit_sync("orders", {"id": 1})
    return gate, is_down


def _told(gate: Gate) -> dict[str, CircuitState]:
    with gate.engine.store.look() as session:
        return {name: view.state for name, view in read_circuits(session).items()}


def test_a_reconciler_tells_which_downstreams_rest_and_when_they_are_back(ledger: Ledger) -> None:
    """Under a name that no endpoint has."""
    gate, is_down = _down(ledger)
    reconciler = Reconciler(gate)
    reconciler.run_once()
    assert _told(gate) == {"downstream bank": CircuitState.OPEN}
    is_down[0] = False
    ledger.clock.advance(5)
    assert reconciler.run_once().finished == 1
    assert _told(gate) == {"downstream bank": CircuitState.CLOSED}


def test_circuits_are_listed(ledger: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    """With what the last call met; `--json` for programs."""
    gate, _ = _down(ledger)
    Reconciler(gate).run_once()
    assert main(["circuits", "--url", ledger.url]) == 0
    shown = capsys.readouterr().out
    assert "downstream bank" in shown
    assert "refused" in shown
    assert main(["circuits", "--url", ledger.url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["circuit"] == "downstream bank"
