"""`oncegate_replay`: a recording as a test of the user's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import oncegate.chaos.incidents.incident
from oncegate import ConfigError, Gate

STORM = Path(oncegate.chaos.incidents.incident.__file__).parent / "fixtures" / "monday-storm.jsonl"


def app(key: str = "{notificationId}:{equipment_number}") -> Gate:
    gate = Gate("sqlite:///never-opened.db")
    terminal = gate.downstream("terminal", honours_key="7d")

    def claim_slot(number: str, idempotency_key: str = "") -> dict[str, str]:
        return {"id": number}

    @gate.handler("demo.container-notifications", key=key)
    def book(event: Any, once: Any) -> Any:
        return once.effect(terminal, claim_slot, event["equipment_number"])

    return gate


def test_mondays_traffic_is_39_slots_in_any_order(oncegate_replay: Any) -> None:
    with app() as gate:
        for seed in (None, 1, 2):
            oncegate_replay(gate, STORM, shuffle_seed=seed).assert_counts(effects=39, run=39, replay=48)


def test_a_key_that_was_broken_is_seen(oncegate_replay: Any) -> None:
    """Two containers of one window would be taken for one."""
    with (
        app(key="{window}") as gate,
        pytest.raises(AssertionError, match="expected effects=39, but it is: "),
    ):
        oncegate_replay(gate, STORM).assert_counts(effects=39)


def test_a_surface_that_the_gate_does_not_have_is_told(oncegate_replay: Any, tmp_path: Path) -> None:
    text = STORM.read_text().replace("demo.container-notifications", "demo.other")
    (tmp_path / "other.jsonl").write_text(text)
    with app() as gate, pytest.raises(ConfigError, match=r"the gate has no surface 'demo\.other'"):
        oncegate_replay(gate, tmp_path / "other.jsonl")
