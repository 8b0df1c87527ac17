"""Second resources on the page, in the badge, in doctor and in the terminal: red until decided (A9, F6)."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any

import pytest

from oncegate.cli.main import main
from oncegate.dashboard.operators import Role
from oncegate.model.states import State
from oncegate.store import EntryFilter, LateResource, Observations, ResourceSeen
from tests.dashboard.conftest import Client, Site
from tests.dashboard.test_thousands import text_of


def brought(site: Site, findings: int = 1) -> int:
    """A late worker's second slot for one key, and so many containers with two slots; returns an entry."""
    store = site.gate.engine.store
    with store.look() as session:
        found = session.entries(EntryFilter((State.COMMITTED,)), None, 2)
    first, second = (one.entry_id for one in found)
    session = store.connect()
    with session.unit():
        assert session.note_late([LateResource(first, b"key", "claim", "ect", "slot 77", 5)]) == [True]
        for number in range(findings):
            about, target = f"C-{number}".encode(), f"container C-{number}"
            for entry, slot in ((first, "slot 1"), (second, "slot 2")):
                seen = ResourceSeen(entry, about, target, "ect", f"{slot} of {number}", 5, 10**15)
                session.observe([Observations((), (), (seen,))])
    session.close()
    return first


def badge_of(page: str) -> int:
    found = re.search(r'<span class="badge">(\d+)<', page)
    return int(found[1]) if found else 0


def cards_of(client: Client, path: str = "/resources") -> int:
    return client.get(path).text.count("<article")


def decide(site: Site, client: Client, verb: str, number: str, reason: str = "called the terminal") -> int:
    return client.post(f"/resources/{number}/{verb}", site.form(client, reason=reason)).status


@pytest.mark.slow
def test_second_resources_are_red_counted_and_decided_on_a_page_of_their_own(site: Site) -> None:
    client = site.client(Role.APPROVER)
    before = badge_of(client.get("/").text)
    brought(site)
    page = client.get("/").text
    assert badge_of(page) == before + 2
    assert 'class="state page"' in page
    assert "2 second resources of a key or target" in re.sub(r"\s+", " ", page)
    links = re.findall(r'href="([^"]*)">Review resources<', page)
    assert sorted(cards_of(client, unescape(link).removeprefix(client.prefix)) for link in links) == [1, 1]
    shown = client.get("/resources").text
    for text in ("slot 77", "container C-0", "slot 1 of 0", "slot 2 of 0"):
        assert text in shown
    assert "2 second resources" in text_of(client, "/waiting")
    numbers = re.findall(r"/resources/(\d+)/undone", client.get("/resources").text)
    # When one is acknowledged, it stays open, with a name on it
    assert decide(site, client, "acknowledge", numbers[0]) == 303
    assert (cards_of(client), badge_of(client.get("/").text)) == (2, before + 2)
    assert "acknowledged: called the terminal" in text_of(client, "/resources")
    # When both are decided, the page is calm again, and a second word changes nothing
    assert decide(site, client, "undone", numbers[0]) == 303
    assert decide(site, client, "meant", numbers[1]) == 303
    assert decide(site, client, "meant", numbers[0]) == 409
    assert (cards_of(client), badge_of(client.get("/").text)) == (0, before)
    journal = text_of(client, "/journal")
    assert "one cancelled: called the terminal" in journal
    assert "both meant: called the terminal" in journal


def test_only_an_approver_who_gives_a_reason_decides_about_a_second_resource(site: Site) -> None:
    brought(site)
    approver = site.client(Role.APPROVER)
    (number, *_) = re.findall(r"/resources/(\d+)/undone", approver.get("/resources").text)
    assert decide(site, site.client(Role.VIEWER), "undone", number) == 403
    assert decide(site, approver, "undone", number, reason="") == 409
    assert decide(site, approver, "forget", number) == 404
    assert cards_of(approver) == 2


@pytest.mark.slow
def test_every_number_of_many_findings_is_true(site: Site) -> None:
    client = site.client(Role.VIEWER)
    brought(site, 1_234)
    assert "1,235 second resources" in text_of(client, "/").replace("\u202f", ",").replace("\u2009", ",")
    assert cards_of(client) == 20
    assert "Later findings" in client.get("/resources").text


def test_terminal_and_doctor_tell_the_same_of_second_resources(site: Site, capsys: Any) -> None:
    brought(site)
    url = ["--url", site.url]
    assert main(["resources", "list", "--json", *url]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["of"] for one in found] == ["key", "target"]
    main(["doctor", *url])
    told = capsys.readouterr().out
    assert "resources_per_target" in told
    assert "resources_per_key" in told
    for verb, number in (("acknowledge", 0), ("undone", 0), ("meant", 1)):
        assert main(["resources", verb, str(found[number]["id"]), "--reason", "by phone", *url]) == 0
    assert main(["resources", "meant", str(found[0]["id"]), "--reason", "no", *url]) == 1
    capsys.readouterr()
    assert main(["resources", "list", *url]) == 0
    assert "no second resources are known" in capsys.readouterr().err
