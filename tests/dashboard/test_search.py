"""One search finds what a person has in hand; a word that is no term is refused, never quietly searched."""

from __future__ import annotations

from typing import Any

import pytest

from oncegate.cli.main import main
from oncegate.dashboard import entries_page
from oncegate.dashboard.operators import Role
from oncegate.model.template import KeyTemplate
from oncegate.sender import entry_search
from oncegate.sender.entry_search import find_entries
from oncegate.store import EntryFilter
from tests.dashboard.conftest import Site
from tests.dashboard.test_doors import number_on


def names(site: Site) -> dict[str, str]:
    """Everything by which one entry and one emitted event may be known."""
    entry = number_on(site.scene, "MSKU0003")
    with site.gate.engine.store.look() as session:
        seen = session.detail(entry)
    assert seen is not None
    return {
        "label": "MSKU0003",
        "key": seen.entry.key.hex(),
        "beginning of a key": seen.entry.key.hex()[:10],
        "resource": "SLOT-MSKU0003",
        "lane key": "A-17",
        "event id": "evt-1",
    }


KINDS = ["label", "key", "beginning of a key", "resource", "lane key", "event id"]


@pytest.mark.parametrize("kind", KINDS)
def test_one_search_finds_an_event_by_whatever_names_it(site: Site, kind: str, capsys: Any) -> None:
    text = names(site)[kind]
    wanted = "A-17" if kind in ("lane key", "event id") else "MSKU0003"
    client = site.client(Role.VIEWER)
    for path in (f"/entries?q={text}", f"/trace?id={text}"):
        reply = client.get(path)
        main_part = reply.text.partition('<div id="live"')[2]
        assert (reply.status, wanted in main_part) == (200, True), path
        assert "No entry fits" not in main_part
    assert main(["trace", text, "--url", site.url]) == 0
    assert wanted in capsys.readouterr().out


@pytest.mark.parametrize("tenant", [None, "acme"])
def test_a_whole_label_is_found_in_the_whole_ledger_by_its_key(site, monkeypatch, tenant, capsys):
    """However many came later: the key template leads from the label to the key; nothing is scanned."""
    for name in ("LOOKED_BACK", "RESOURCES_LOOKED_BACK"):
        monkeypatch.setattr(entry_search, name, 2)
    monkeypatch.setattr(entries_page, "SEARCH_NUMBERS", 2)
    text = "MSKU0003" if tenant is None else "PAY-1"
    client = site.client(Role.VIEWER, tenant)
    for path in (f"/entries?q={text}", f"/trace?id={text}"):
        assert text in client.get(path).text.partition('<div id="live"')[2], path
    assert main(["trace", text, "--url", site.url]) == 0
    assert text in capsys.readouterr().out
    gone = client.get(f"/entries?q={text[1:]}")  # a part of a label: not among the latest two
    assert "No entry fits among the latest" in gone.text
    assert "Looked at entries back to" in gone.text
    assert "resources among the latest 2 entries" in gone.text.replace("20&#8239;000", "2")
    assert "Search further back" in gone.text
    assert main(["trace", "nowhere", "--url", site.url]) == 1
    assert "whole labels are looked up in the whole ledger" in capsys.readouterr().err


def test_a_conflict_is_found_beside_the_entry_of_its_label(site: Site) -> None:
    with site.gate.engine.store.look() as session:
        states = {entry.state.label for entry in entry_search.labelled(session, "MSKU0002")}
        assert entry_search.labelled(session, "MSKU0002", "globex") == []
    assert states == {"committed", "quarantined"}


def test_a_label_leads_back_to_the_parts_that_made_it() -> None:
    one, two = KeyTemplate.parse("{id}"), KeyTemplate.parse("100%/{client}-{number:int}")
    assert one.parts_of("MSKU0003") == [("MSKU0003",)]
    assert two.parts_of("100%/ada-7") == [("ada", "7")]
    assert two.parts_of("100%/a-b-7") == [("a", "b-7"), ("a-b", "7")]
    assert (two.parts_of("ada-7"), one.parts_of("x" * 120)) == ([], [])
    made = two.derive({"client": "a-b", "number": 7})
    assert made.parts in two.parts_of(made.label)


def test_an_entry_is_found_by_its_number_on_page_and_in_the_terminal(site: Site, capsys: Any) -> None:
    entry = number_on(site.scene, "MSKU0003")
    url = ["--url", site.url]
    assert site.client(Role.VIEWER).get(f"/entries?q={entry}").headers["location"].endswith(f"/{entry}")
    for text in (str(entry), "MSKU0003", "SLOT-MSKU0003"):
        assert main(["entries", "list", text, *url]) == 0
        assert "MSKU0003" in capsys.readouterr().out
    assert main(["entries", "list", "MSKU0003", "--state", "held", *url]) == 2


def test_a_search_stays_within_a_tenant(site: Site) -> None:
    client = site.client(Role.VIEWER, tenant="globex")
    for text in ("MSKU0003", "SLOT-MSKU0003", "A-17", "evt-1", "PAY-0"):
        assert "No entry fits" in client.get(f"/entries?q={text}").text
    with site.gate.engine.store.look() as session:
        assert find_entries(session, "PAY-0", "globex") == []
        assert [entry.label for entry in find_entries(session, "PAY-0", "acme")] == ["PAY-0"]
        assert len(session.entries(EntryFilter(tenant="acme"), None, 10)) == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("status:held", "write state:"),
        ("since>1h", "write age&lt;1h"),
        ("slot:S-1", "Write resource:"),
        ("colour:red", "is not a term; no label contains"),
        ("size>3", "Terms are surface:, tenant:, state:"),
        ("sate:held", "write state:"),
    ],
)
def test_a_word_that_is_no_term_is_refused_with_the_right_ones(site: Site, text: str, words: str) -> None:
    client = site.client(Role.VIEWER)
    for path in ("/entries", "/waiting"):
        reply = client.get(f"{path}?q={text}")
        assert reply.status == 400, path
        assert words in reply.text
        assert "No entry fits" not in reply.text
        assert "Nothing waits for you" not in reply.text


def test_a_label_with_a_colon_is_found_as_it_is_printed(site: Site) -> None:
    client = site.client(Role.VIEWER)
    assert client.get("/entries?q=ref:17").status == 400
    site.scene.admit("portbase.cis", id="ref:17", terminal="Delta")
    assert client.get("/entries?q=ref:17").status == 200
