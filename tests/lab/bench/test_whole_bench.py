"""Everything in one run: measured for real in the smallest extent, judged, and written as one page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from lab.__main__ import main
from lab.bench.growth import Growth
from lab.bench.history import measure_history
from lab.bench.journal import measure_journal
from lab.bench.page import BEGIN, END, as_markdown, between_marks, pictures_of, write_page
from lab.bench.peers.environments import FOLDER_SETTING
from lab.bench.peers.roster import PEERS
from lab.bench.targets import Target, judge
from lab.bench.whole import Extent, WholeBench

TINY = Extent("tiny", 1, 0.05, (1, 4), (200, 600), (1, 5), cost_events=200, gate_scale=0.01, size_keys=200)


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One run without peers' environments, without PostgreSQL and without HTTP."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER_SETTING, str(tmp_path_factory.mktemp("none")))
        sections = ("cost", "streams", "gate", "growth")
        return WholeBench(TINY, peers=PEERS[:1], postgres=False, sections=sections).run()


@pytest.mark.slow
def test_run_measures_us_the_limits_growth_and_cost(document: dict[str, Any]) -> None:
    ours = document["subjects"][0]
    assert all(cell["rate"] > 0 for cell in ours["cells"])
    assert all(row["rate"] > 0 for row in document["limits"])
    assert [row["keys"] for row in document["growth"]["keys"]] == [200, 600]
    assert all(row["delivered_per_second"] > 0 for row in document["growth"]["lanes"])
    assert all(row["us"] > 0 for row in document["cost"])
    assert all(row["rate"] > 0 for row in document["gate"]["results"])


def test_peer_that_is_not_there_has_its_line_on_the_page(document: dict[str, Any], tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"

    write_page(document, page)

    lines = page.read_text("utf-8").splitlines()
    assert any(line.startswith("| exactly-once 0.2.1") and "not installed" in line for line in lines)


def test_page_is_written_again_between_its_marks(document: dict[str, Any], tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    page.write_text(f"# Ours\n\nbefore\n\n{BEGIN}\nold\n{END}\n\nafter\n", "utf-8")

    written = write_page(document, page)
    once = page.read_text("utf-8")
    write_page(document, page)

    assert page.read_text("utf-8") == once
    assert once.startswith("# Ours\n\nbefore\n")
    assert once.endswith("\nafter\n")
    assert "old" not in once
    assert json.loads((tmp_path / "benchmarks.json").read_text("utf-8"))["targets"]
    assert all(path.exists() for path in written)


def test_pictures_are_well_formed_and_know_dark_pages(document: dict[str, Any]) -> None:
    pictures = pictures_of(document)

    assert {"peers-sqlite", "growth-reserve", "growth-bytes", "growth-lanes"} <= set(pictures)
    for svg in pictures.values():
        ElementTree.fromstring(svg)
        assert "prefers-color-scheme:dark" in svg


def test_size_that_takes_too_long_to_fill_is_left_out_and_said_to_be() -> None:
    found = Growth(sizes=(100, 200), lanes=(), fill_seconds_max=0.0).run()

    assert [row["keys"] for row in found["keys"]] == [100]
    assert found["left_out"]
    assert "200 keys" in found["left_out"][0]


def test_page_without_marks_gets_them_at_its_end() -> None:
    assert between_marks("# A page\n", "tables") == f"# A page\n\n{BEGIN}\n\ntables\n{END}\n"


def test_what_was_not_measured_is_not_met(document: dict[str, Any]) -> None:
    judged = {one["what"]: one["met"] for one in document["targets"]}

    assert judged["PostgreSQL at 0: events/s over dbos at its best (0 at once)"] is None
    assert judged["faults: our stores with every cell right"] is None


@pytest.mark.parametrize(
    ("measured", "at_least", "met"),
    [(3.0, True, True), (2.9, True, False), (3.1, False, False), (None, True, None)],
)
def test_aim_is_met_or_missed(measured: float | None, at_least: bool, met: bool | None) -> None:
    assert Target("x", 3, measured, at_least=at_least).met is met


def test_service_is_judged_beside_the_bare_server_and_by_its_tail() -> None:
    """Given fresh keys on SQLite at a third of the bare server, with a long tail; then one is met."""
    ratios = {"sqlite, fresh / bare": 0.33, "sqlite, replay / bare": 0.9, "postgres x3 / postgres": 0.8}
    results = [{"name": "sqlite", "keys": "fresh", "p99_ms": 40.0}]
    found = {
        one.what: one.met
        for one in judge({"http": {"ratios": ratios, "results": results}})
        if one.what.startswith("service")
    }
    assert found == {
        "service, sqlite, fresh keys: requests/s over the bare server's": True,
        "service, sqlite, replay keys: requests/s over the bare server's": True,
        "service, postgres, fresh keys: requests/s over the bare server's": None,
        "service, sqlite, fresh keys: p99": False,
        "service, several processes: postgres x3 / postgres, requests/s": False,
    }


def test_gate_is_judged_beside_the_plain_baseline() -> None:
    """Given enough events a second, a quick median and a long tail; then only the tail is missed."""
    gate = {
        "ratios": {
            "fresh at 256: events/s against the baseline": 6.0,
            "fresh at 1: median latency against the baseline": 1.4,
            "fresh at 32: events/s against the baseline": 1.0,
        },
        "results": [{"name": "fresh", "concurrency": 1, "p99_ms": 2.5}],
        "size": {"bytes_per_key": 172.0},
    }
    found = {one.what: one.met for one in judge({"gate": gate}) if one.what.startswith("SQLite")}
    assert {name: met for name, met in found.items() if met is not None} == {
        "SQLite, fresh at 256: events/s against the baseline": True,
        "SQLite, fresh at 1: median latency against the baseline": True,
        "SQLite, fresh at 1: p99": False,
        "SQLite: on disk for a settled key": True,
    }


def test_ways_to_commit_on_postgres_are_judged_beside_pgbench() -> None:
    ratios = {
        "writes as data at 1: median latency, against one pgbench client's": 1.5,
        "tx= asyncpg at 32, against pgbench's best with two transactions": 0.61,
        "tx= psycopg at 32, against pgbench's best with two transactions": 0.4,
        "4 processes together, against one with as many callers as each": 1.2,
    }
    found = {one.what: one.met for one in judge({"modes": {"ratios": ratios}})}
    assert {name: met for name, met in found.items() if met is not None} == {
        "PostgreSQL, writes as data at 1: median latency, against one pgbench client's": False,
        "PostgreSQL, tx= asyncpg at 32, against pgbench's best with two transactions": True,
        "PostgreSQL, 4 processes together, against one with as many callers as each": True,
    }


def test_one_wrong_cell_of_ours_misses_the_aim() -> None:
    right, wrong = {"judgement": "right"}, {"judgement": "wrong"}
    rows = [
        {"name": "oncegate", "store": "sqlite", "cells": {"killed": right}},
        {"name": "oncegate", "store": "postgres", "cells": {"killed": wrong}},
        {"name": "a peer", "store": "postgres", "cells": {"killed": right}},
    ]

    judged = {one.what: one.met for one in judge({"faults": rows})}

    assert judged["faults: our stores with every cell right"] is False
    assert judged["faults: peers with every cell right"] is False


def test_page_that_cannot_be_written_is_refused_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "all", "--page", str(tmp_path)]) != 0

    assert "is a folder; name a file in it" in capsys.readouterr().err


def test_unknown_section_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "all", "--only", "nonsense"]) != 0

    assert "there is no section 'nonsense'" in capsys.readouterr().err


@pytest.mark.slow
def test_section_that_fails_does_not_take_the_others_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError("no room")

    monkeypatch.setattr("lab.bench.whole.Growth.run", fail)

    document = WholeBench(TINY, peers=(), postgres=False, sections=("cost", "growth")).run()

    assert document["cost"]
    assert document["failed"] == {"growth": "OSError: no room"}
    assert "growth could not be measured: OSError: no room" in as_markdown(document, [])


@pytest.mark.slow
def test_journal_snapshots_and_plans_are_measured_and_judged() -> None:
    found = {"journal": measure_journal(300, 90, 1), "history": measure_history(200, 20)}

    judged = {one.what: one.met for one in judge(found) if one.measured is not None}
    assert found["history"]["lines"] == 20
    assert judged["journal: a proof"] is not None
    assert judged["snapshot of 200 objects"]
    assert judged["plan for 200 objects, 20 changes"]
