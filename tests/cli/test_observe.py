"""`oncegate observe report` and `oncegate surfaces switch`, as an operator uses them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from oncegate import Gate, Verdict
from tests.cli.conftest import Ended

Call = Callable[..., Ended]


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A ledger at which a surface observed seven arrivals of four events."""
    made = f"sqlite:///{tmp_path / 'orders.db'}"
    with _gate(made) as gate:
        gate.engine.store.connect().close()
        for number in (1, 1, 2, 2, 2, 3):
            gate.admit_sync("orders", {"id": number})
        gate.admit_sync("orders", {"order": 4})
    return made


def _gate(url: str) -> Gate:
    gate = Gate(url)
    gate.handler("orders", key="{id}", mode="observe")(lambda event: None)
    return gate


def test_the_report_counts_what_would_have_been_stopped(call: Call, url: str) -> None:
    (found,) = map(json.loads, call("observe", "report", "--json", "--url", url).out.splitlines())
    counts = {name: found[name] for name in ("arrivals", "new", "repeats", "quarantines", "would_stop")}
    assert counts == {"arrivals": 7, "new": 3, "repeats": 3, "quarantines": 1, "would_stop": 4}
    assert found["reasons"] == {"key_input": 1}
    text = call("observe", "report", "--url", url).out
    assert "every arrival ran" in text
    assert "key_input 1" in text
    assert "id: missing" in text
    assert not call("observe", "report", "--surface", "none", "--json", "--url", url).out


def test_a_surface_is_switched_and_its_known_keys_replay(call: Call, url: str) -> None:
    words = ("surfaces", "switch", "orders", "on", "--reason", "a quiet week", "--as", "ann", "--url", url)
    plan = call(*words, "--dry-run")
    assert (plan.code, "obey within" in plan.err) == (0, True)
    assert call(*words, "--yes").out == "orders: on\n"
    assert "already" in call(*words, "--yes").err
    with _gate(url) as gate:
        assert gate.admit_sync("orders", {"id": 1}).verdict is Verdict.REPLAY
    (listed,) = json.loads(call("surfaces", "list", "--json", "--url", url).out)["surfaces"]
    assert (listed["mode"], listed["ignore"]) == ("on", [])
    assert "a quiet week" in call("journal", "--url", url).out


def test_slips_are_named(call: Call, url: str) -> None:
    rest = ("--reason", "why", "--yes", "--url", url)
    assert "known: orders" in call("surfaces", "switch", "order", "on", *rest).complaint
    assert "choose observe, on or paused" in call("surfaces", "switch", "orders", "off", *rest).complaint
    assert "known: orders" in call("observe", "report", "--surface", "order", "--url", url).complaint
    assert call("surfaces", "ignore", "orders", "payload.id", *rest).code == 0
    assert "ignored already" in call("surfaces", "ignore", "orders", "payload.id", *rest).complaint
