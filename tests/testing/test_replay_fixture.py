"""`oncegate_replay`: a recording as a test of the user's own."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import lab.incidents.incident
from oncegate import ConfigError, Gate
from tests.testing.test_chaos_on_databases import JOINED, WAYS, Shop
from tests.testing.test_chaos_on_databases import TABLES as BOOKINGS

pytestmark = pytest.mark.slow

STORM = Path(lab.incidents.incident.__file__).parent / "fixtures" / "monday-storm.jsonl"


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


TABLES = "CREATE TABLE bookings (slot text, equipment text)"


def writing_app() -> Gate:
    gate = Gate("sqlite:///never-opened.db")
    terminal = gate.downstream("terminal", honours_key="7d")

    def claim_slot(number: str, idempotency_key: str = "") -> dict[str, str]:
        return {"id": number}

    @gate.handler("demo.container-notifications", key="{notificationId}:{equipment_number}")
    def book(event: Any, once: Any) -> Any:
        slot = once.effect(terminal, claim_slot, event["equipment_number"])
        with once.commit(resource=slot["id"]) as tx:
            tx.execute("INSERT INTO bookings VALUES (?, ?)", (slot["id"], event["equipment_number"]))
        return slot

    return gate


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_mondays_traffic_is_39_rows_of_a_handler_that_writes(oncegate_replay: Any, kind: str) -> None:
    """On a real database, whose tables the test gives."""
    seen: list[Any] = []
    with writing_app() as gate:
        report = oncegate_replay(gate, STORM, setup=[TABLES, seen.append], database=kind)
    report.assert_counts(effects=39, run=39, replay=48)

    assert oncegate_replay.database.rows("SELECT count(*) FROM bookings") == [(39,)]
    assert [database.url for database in seen] == [oncegate_replay.database.url]


def boxes(folder: Path) -> Path:
    """The first five notifications of Monday, each twice, as events of the surface `bookings`."""
    text = STORM.read_text().replace("demo.container-notifications", "bookings")
    text = text.replace('"equipment_number"', '"box"').replace('"notificationId"', '"id"')
    head, surface, *arrivals = (json.loads(line) for line in text.splitlines())
    first = list({one["payload"]["id"]: one for one in arrivals if one["line"] == "arrival"}.values())[:5]
    lines = [{**one, "n": place, "at_ms": place} for place, one in enumerate([*first, *first], 1)]
    place = folder / "boxes.jsonl"
    end = {"line": "end", "arrivals": len(lines)}
    place.write_text("".join(f"{json.dumps(one)}\n" for one in [head, surface, *lines, end]))
    return place


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.soak)])
def test_each_way_to_write_is_replayed_on_a_real_database(
    oncegate_replay: Any, kind: str, tmp_path: Path
) -> None:
    """All six, and transactions of the user's own by each library (D7)."""
    recording, shop = boxes(tmp_path), Shop()
    ways: list[Callable[[Gate], Any]] = [*WAYS]
    ways += [partial(way, shop=shop) for way, where in JOINED if where == kind]
    for way in ways:
        with Gate("sqlite:///never-opened.db") as gate:
            way(gate)
            report = oncegate_replay(gate, recording, setup=[BOOKINGS, shop.use], database=kind)
        report.assert_counts(run=5, replay=5)
        found = oncegate_replay.database.rows("SELECT count(*), count(DISTINCT box) FROM bookings")
        assert found == [(5, 5)], way


def test_the_guides_examples_run(
    oncegate_replay: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "recording.md").read_text("utf-8")
    (example,) = re.findall(r"```python\n(def test_mondays.+?)```", guide, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "monday.jsonl").write_bytes(STORM.read_bytes())
    with app() as plain, writing_app() as writing:
        variables: dict[str, Any] = {"gate": plain}
        exec(example, variables)  # the guide's own code, which this test is about
        variables["test_mondays_traffic_is_39_slots"](oncegate_replay)
        variables["gate"] = writing
        variables["test_mondays_traffic_is_39_rows"](oncegate_replay)
