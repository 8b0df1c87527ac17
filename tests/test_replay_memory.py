"""The memory of recent outcomes at its limits: small, or none at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncegate import Gate


@pytest.mark.parametrize("entries_max", [0, 1, 2])
def test_gate_works_with_a_memory_of_any_size(tmp_path: Path, entries_max: int) -> None:
    """With room for none, one or two outcomes, events run once and replays are right."""
    gate, ran = Gate(f"sqlite:///{tmp_path / 'ledger.db'}", replay_cache_max=entries_max), []
    gate.handler("orders", key="{id}")(lambda event, once: ran.append(event["id"]))
    try:
        for _ in range(2):
            for number in range(4):
                gate.admit_sync("orders", {"id": number})
    finally:
        gate.close()

    assert ran == [0, 1, 2, 3]
