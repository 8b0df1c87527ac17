"""`oncegate duplicates`: scanned, listed with what would undo it, dismissed once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oncegate import Content, Gate
from tests.cli.conftest import Ended, contents

ROUTES = Content(("date",), "{client}", compensation="cancel route {route_id}")


@pytest.fixture
def doubled(tmp_path: Path) -> Path:
    """A ledger with two pairs: one that ran twice, one of which the later has not run."""
    with Gate(f"sqlite:///{tmp_path / 'oncegate.db'}") as gate:

        @gate.handler("routes", key="{id}", content=ROUTES)
        def plan(event: Any, once: Any) -> Any:
            if event["id"] == "b2":
                raise RuntimeError("not now")
            return {"route_id": f"r-{event['id']}"}

        for client in ("a", "b"):
            for number in ("1", "2"):
                event = {"id": client + number, "client": client, "date": "2025-10-26"}
                try:
                    gate.admit_sync("routes", event)
                except RuntimeError:
                    continue
    return tmp_path


def test_scan_list_and_decide(doubled: Path, call: Callable[..., Ended]) -> None:
    """What a person does in the morning."""
    assert "no duplicates are known" in call("duplicates", "list").err
    scanned = call("duplicates", "scan")
    assert (scanned.code, scanned.out) == (0, "4 looked at, 2 new pairs, 1 stopped\n")
    assert call("duplicates", "scan").out == "0 looked at, 0 new pairs, 0 stopped\n"
    listed = call("duplicates", "list")
    assert "cancel route r-a2" in listed.out
    stopped, ran = (json.loads(line) for line in call("duplicates", "list", "--json").out.splitlines())
    assert (ran["state"], ran["other"], ran["compensation"]) == ("committed", 1, "cancel route r-a2")
    assert (stopped["state"], stopped["compensation"]) == ("quarantined", None)
    done = call("duplicates", "undone", str(ran["id"]), "--reason", "two carers", "--by", "ann")
    assert (done.code, done.err) == (0, f"pair {ran['id']} is decided: one undone\n")
    again = call("duplicates", "undone", str(ran["id"]), "--reason", "other", "--by", "bob")
    assert again.code == 1
    assert f"pair {ran['id']} was decided by ann before: one undone: two carers" in again.complaint
    assert len(call("duplicates", "list", "--json").out.splitlines()) == 1
    assert "decided by ann: one undone: two carers" in call("duplicates", "list", "--all").out
    assert "pair of equal changes decided" in call("entries", "show", str(ran["id"])).out


def test_the_first_is_kept_and_the_second_ends(doubled: Path, call: Callable[..., Ended]) -> None:
    """One commit: the second never runs and the pair is closed; what has run cannot be ended so."""
    call("duplicates", "scan")
    stopped, ran = (json.loads(line) for line in call("duplicates", "list", "--json").out.splitlines())
    assert (stopped["says"], ran["says"]) == (["keep-first", "meant"], ["undone", "meant"])
    refused = call("duplicates", "keep-first", str(ran["id"]), "--reason", "x")
    assert (refused.code, "say undone or meant" in refused.complaint) == (1, True)
    fences = ",".join(map(str, stopped["fences"]))
    changed = call("duplicates", "keep-first", str(stopped["id"]), "--reason", "x", "--fences", "1,1")
    assert (changed.code, "has changed since you saw it" in changed.complaint) == (1, True)
    assert call("duplicates", "keep-first", "4", "--reason", "x", "--fences", "soon").code == 2
    done = call("duplicates", "keep-first", str(stopped["id"]), "--reason", "a copy", "--fences", fences)
    assert (done.code, done.err) == (0, f"pair {stopped['id']} is decided: first kept\n")
    shown = json.loads(call("entries", "show", str(stopped["id"]), "--json").out)
    assert shown["state"] == "failed"
    assert [json.loads(line)["id"] for line in call("duplicates", "list", "--json").out.splitlines()] == [2]


def test_pages(doubled: Path, call: Callable[..., Ended]) -> None:
    """A long list comes a page at a time."""
    call("duplicates", "scan", "--json")
    first = call("duplicates", "list", "--limit", "1", "--json")
    assert "the next page: --before 4" in first.err
    assert json.loads(call("duplicates", "list", "--before", "4", "--json").out)["id"] == 2


def test_pairs_of_one_tenant_or_surface(tmp_path: Path, call: Callable[..., Ended]) -> None:
    """Whoever looks after one tenant sees that tenant's pairs, however many others there are."""
    with Gate(f"sqlite:///{tmp_path / 'oncegate.db'}") as gate:
        gate.handler("routes", key="{id}", tenant="{tenant}", content=ROUTES)(lambda event: None)
        gate.handler("visits", key="{id}", tenant="{tenant}", content=ROUTES)(lambda event: None)
        for surface, tenant in (("routes", "north"), ("routes", "south"), ("visits", "north")):
            for number in (1, 2):
                event = {"id": number, "tenant": tenant, "client": "a", "date": "2025-10-26"}
                gate.admit_sync(surface, event)
    call("duplicates", "scan")

    def listed(*options: str) -> list[int]:
        found = call("duplicates", "list", "--json", *options).out.splitlines()
        return [json.loads(line)["id"] for line in found]

    assert listed() == [6, 4, 2]
    assert listed("--tenant", "north") == [6, 2]
    assert listed("--surface", "routes") == [4, 2]
    assert listed("--surface", "routes", "--tenant", "north", "--limit", "1") == [2]
    assert "that fit" in call("duplicates", "list", "--tenant", "nobody").err


def test_mistakes_are_one_clear_line_and_change_nothing(doubled: Path, call: Callable[..., Ended]) -> None:
    """Unknown pairs, missing reasons, windows that are none."""
    call("duplicates", "scan")
    before = contents(doubled)
    assert "there is no pair 3;" in call("duplicates", "meant", "3", "--reason", "x").complaint
    assert call("duplicates", "meant", "99", "--reason", "x").code == 1
    assert call("duplicates", "meant", "2").code == 2
    assert call("duplicates", "meant", "2", "--reason", " ").code == 2
    assert call("duplicates", "meant", "2", "--reason", "a\x1b[31mb").code == 2
    assert call("duplicates", "meant", "2", "--reason", "x", "--as", "a\nb").code == 2
    assert call("duplicates", "list", "--surface", "routs").code == 2
    assert call("duplicates", "scan", "--window", "soon").code == 2
    assert call("duplicates").code == 2
    assert contents(doubled) == before


def test_no_ledger_is_made(tmp_path: Path, call: Callable[..., Ended]) -> None:
    """A wrong address is told, not filled."""
    for command in (("list",), ("scan",), ("meant", "1", "--reason", "x")):
        assert call("duplicates", *command).code == 3
    assert contents(tmp_path) == {}
