"""`oncegate import`: old keys from files and tables; their next arrival is a replay, whatever it holds."""

from __future__ import annotations

import csv
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from oncegate import Gate, Verdict
from oncegate.clock import SystemClock
from oncegate.store import EntryFilter
from tests.cli.conftest import Ended

Call = Callable[..., Ended]
KEYS = 15_000


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A ledger of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'ledger.db'}"
    return str(request.getfixturevalue("ledger_url"))


def gate_at(url: str) -> Gate:
    """A program with the surface that keys are imported for."""
    gate = Gate(url)
    gate.handler("orders", key="{shop}:{id}")(lambda event: "ran")
    return gate


def test_imported_keys_replay_with_any_content_and_their_outcome(
    call: Call, url: str, tmp_path: Path
) -> None:
    old = tmp_path / "old.jsonl"
    rows = [
        {"store": "a", "order_id": 1, "at": "2026-11-01T00:00:00", "result": {"slot": 7}},
        {"store": "a", "order_id": "2", "at": 1793000000, "result": None},
        {"store": "a", "order_id": 1, "at": "2026-11-02", "result": None},
        {"store": "", "order_id": 3, "at": 1793000000, "result": None},
    ]
    old.write_text("\n".join(map(json.dumps, rows)), "utf-8")
    words = ("import", str(old), "--surface", "orders", "--map", "id=order_id", "--map", "shop=store",
             "--time", "at", "--outcome", "result", "--key", "{shop}:{id}", "--json",
             "--url", url)  # fmt: skip
    call("migrate", "--url", url)
    plan = json.loads(call(*words, "--dry-run").out)
    assert call("surfaces", "list", "--json", "--url", url).out == '{"surfaces":[]}\n'
    assert (plan["imported"], plan["known"], plan["refused"]) == (2, 1, 1)
    done = call(*words)
    assert done.code == 1  # one row gave no key
    assert json.loads(done.out)["samples"] == [{"row": 4, "why": "shop: the row has no such value"}]
    again = json.loads(call(*words).out)
    assert (again["imported"], again["known"]) == (0, 3)
    with gate_at(url) as gate:
        found = gate.admit_sync("orders", {"shop": "a", "id": 1, "what": "ever"})
        assert (found.verdict, found.value) == (Verdict.REPLAY, {"slot": 7})
        for content in ("x", "y"):
            assert gate.admit_sync("orders", {"shop": "a", "id": 2, "c": content}).verdict is Verdict.REPLAY
        assert gate.admit_sync("orders", {"shop": "b", "id": 1}).verdict is Verdict.RUN
        with gate.engine.store.look() as session:
            entries = session.entries(EntryFilter(surface="orders"), None, 9)
    (old_one,) = [one for one in entries if one.label == "a:1"]
    assert old_one.received_at_ms == 1793491200000
    assert old_one.reason == "imported"


def test_an_import_that_was_interrupted_is_run_again(call: Call, url: str, tmp_path: Path) -> None:
    old = tmp_path / "old.jsonl"
    good = [json.dumps({"shop": "a", "id": number}) for number in range(1200)]
    words = ("import", str(old), "--surface", "orders", "--key", "{shop}:{id}", "--json", "--url", url)
    old.write_text("\n".join([*good[:1100], "no json", *good[1100:]]), "utf-8")
    assert "line 1101 is not a JSON object" in call(*words).err
    old.write_text("\n".join(good), "utf-8")
    done = json.loads(call(*words).out)
    assert (done["read"], done["imported"], done["known"]) == (1200, 200, 1000)


@pytest.mark.slow
def test_fifteen_thousand_keys_take_seconds(call: Call, url: str, tmp_path: Path) -> None:
    old = tmp_path / "old.csv"
    with old.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["shop", "order"])
        writer.writerows(("a", number) for number in range(KEYS))
    began_ms = SystemClock().ticks_ms()
    words = (
        "import",
        str(old),
        "--surface",
        "orders",
        "--map",
        "id=order",
        "--key",
        "{shop}:{id}",
        "--url",
        url,
    )
    done = call(*words)
    assert done.out.startswith("15,000 rows: 15,000 imported, 0 known before")
    assert "10,000 rows read" in done.err
    assert SystemClock().ticks_ms() - began_ms < 60_000  # on any machine; a quiet one takes five
    with gate_at(url) as gate:
        assert gate.admit_sync("orders", {"shop": "a", "id": KEYS - 1}).verdict is Verdict.REPLAY


def test_a_table_beside_the_ledger_is_imported(call: Call, url: str) -> None:
    with gate_at(url) as gate:
        gate.admit_sync("orders", {"shop": "z", "id": 0})
    connect: Any = sqlite3.connect if url.startswith("sqlite") else psycopg.connect
    with closing(connect(url.removeprefix("sqlite:///"))) as connection:
        connection.execute('CREATE TABLE "done orders" (shop text, id integer)')
        connection.execute("""INSERT INTO "done orders" VALUES ('a', 1), ('a', 2), ('z', 0)""")
        connection.commit()
    done = json.loads(
        call("import", "table:done orders", "--surface", "orders", "--json", "--url", url).out
    )
    assert (done["imported"], done["known"]) == (2, 1)
    assert "cannot be read" in call("import", "table:none", "--surface", "orders", "--url", url).complaint


def test_slips_are_named(call: Call, tmp_path: Path) -> None:
    url, rest = f"sqlite:///{tmp_path / 'ledger.db'}", ("--surface", "orders")
    old = tmp_path / "old.csv"
    old.write_text("id\n1\n", "utf-8")
    assert "give its --key" in call("import", str(old), *rest, "--url", url).complaint
    assert "neither FILE.csv" in call("import", "old.txt", *rest, "--url", url).complaint
    assert "FIELD=COLUMN" in call("import", str(old), *rest, "--map", "id", "--url", url).complaint
    for words, expected in (
        (("--key", "{no}"), "there is no column 'no'; there are id; write --map no=COLUMN"),
        (("--key", "{no}", "--map", "nu=id"), "has no field 'nu'; its fields are no"),
        (("--key", "{no}", "--map", "no=id", "--time", "at"), "there is no column 'at'; there are id."),
        (("--key", "{no}", "--map", "no=id", "--map", "no=id"), "names two columns for 'no'"),
    ):
        assert expected in call("import", str(old), *rest, *words, "--url", url).complaint
    assert call("import", str(old), *rest, "--key", "{id}", "--url", url).code == 0  # {no} left nothing
    assert "leave --key out" in call("import", str(old), *rest, "--key", "{no}", "--url", url).complaint
