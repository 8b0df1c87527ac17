"""The Lanes page: how circuits stand, beside the lag of their destinations."""

from __future__ import annotations

import re

import pytest

from oncegate.cli.main import main
from oncegate.dashboard import doubled_page, lanes_page, waiting_page
from oncegate.dashboard.operators import Role
from oncegate.maintenance.content_scan import ContentScan
from oncegate.sender.operator_actions import LaneDecision, OperatorActions
from oncegate.store import Outgoing, Policy
from tests.dashboard.conftest import Client, Site


def test_the_lanes_page_tells_how_a_circuit_stands(site: Site) -> None:
    """Its state, its next try, the error and how fresh that is; text stays text."""
    site.scene.block("other", "C-1", "", events=1)
    site.scene.open_circuit("orders", rest_ms=3_600_000)
    text = site.client(Role.OPERATOR).get("/lanes").text
    cells = [cell.partition("</td>")[0] for cell in text.split('<td data-label="Circuit">')[1:]]

    assert len(cells) == 2
    assert 'class="chip open"' in cells[0]
    assert "next try in" in cells[0]
    assert "HTTP 500: &lt;b&gt;boom&lt;/b&gt;" in cells[0]
    assert " · told " in cells[0]
    assert 'class="chip closed"' in cells[1]


def test_a_replay_asked_for_twice_by_one_form_is_one_replay(site: Site) -> None:
    """Also where the first is over already; a form that was loaded anew is another wish (I20)."""
    client, lane = site.client(Role.OPERATOR), {"destination": "orders", "tenant": "acme", "key": "A-17"}
    skipped = client.post("/lanes/order/skip", site.form(client, **lane, seq="1", reason="x"))
    assert skipped.status == 303
    again = {**lane, "from": "1", "to": "1", "reason": "they lost it"}

    first = _loaded(client)
    assert client.post("/lanes/replay", site.form(client, **again, nonce=first)).status == 303
    assert _replaying(site) == 1
    word = LaneDecision("ada", "over")
    assert (
        OperatorActions(site.gate.engine.commits, site.gate.engine.clock).cancel_replay(int(first), word)
        == 1
    )
    twice = client.post("/lanes/replay", site.form(client, **again, nonce=first))
    assert (twice.status, _replaying(site)) == (303, None)

    second = _loaded(client)
    assert second != first
    assert client.post("/lanes/replay", site.form(client, **again, nonce=second)).status == 303
    assert _replaying(site) == 1
    refused = client.post("/lanes/replay", site.form(client, **again, nonce=_loaded(client)))
    assert (refused.status, "another replay" in refused.text) == (409, True)


def test_a_replay_of_nothing_says_so(site: Site) -> None:
    client, lane = site.client(Role.OPERATOR), {"destination": "orders", "tenant": "acme", "key": "A-17"}
    client.post("/lanes/order/skip", site.form(client, **lane, seq="1", reason="x"))
    none = {**lane, "from": "900", "to": "901", "reason": "x", "nonce": _loaded(client)}
    refused = client.post("/lanes/replay", site.form(client, **none))
    assert (refused.status, "no past event" in refused.text) == (409, True)
    for nonce in ("", "x", "9" * 40):
        form = site.form(client, **{**none, "from": "1", "to": "1", "nonce": nonce})
        assert client.post("/lanes/replay", form).status == 404
    assert _replaying(site) is None


def _loaded(client: Client) -> str:
    """The nonce of the replay form, as a freshly loaded page has it."""
    text = client.get("/lane?destination=orders&tenant=acme&key=A-17").text
    found = re.search(r'name="nonce" value="(\d+)"', text)
    assert found is not None
    return found[1]


def _replaying(site: Site) -> int | None:
    with site.gate.engine.store.look() as session:
        lane = session.find_lane("orders", "acme", "A-17")
    assert lane is not None
    return lane.replaying_seq


def test_what_needs_you_never_ends_silently(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given more blocked keys and pairs than are shown; then there is a way to the others."""
    monkeypatch.setattr(waiting_page, "PAGE_LANES", 1)
    monkeypatch.setattr(doubled_page, "PAGE_PAIRS", 1)
    site.scene.plan_twice()
    site.scene.admit("plans", id="PLAN-3", client="c-7", date="2026-10-25", stops=[1, 2])
    ContentScan(site.gate.engine.store, site.gate.engine.clock).run_once()
    client = site.client(Role.VIEWER)
    text = client.get("/waiting").text
    assert (text.count("/lane?"), "All blocked keys" in text) == (1, True)
    way = re.search(r'href="([^"]*)">2 pairs of equal changes', text)
    assert way is not None
    text = client.get(way[1].removeprefix(client.prefix)).text
    assert ("PLAN-1" in text, "PLAN-3" in text) == (True, False), "the oldest pair comes first"
    seen, link = "", re.search(r'href="([^"]*)">Later pairs', text)
    while link is not None:
        seen = client.get(link[1].removeprefix(client.prefix).replace("&amp;", "&")).text
        link = re.search(r'href="([^"]*)">Later pairs', seen)
    assert ("PLAN-3" in seen, "A-17" in seen) == (True, False)


def test_the_key_that_waits_longest_is_the_first_of_those_that_need_you(site: Site) -> None:
    """Whichever key was seen first: Z-1 had an event before Z-2, and is blocked by a later one."""
    now_ms = site.gate.engine.clock.wall_ms()
    site.scene.deliver("mail", "Z-1", "", 1)
    for key, age_ms in (("Z-2", 7_000), ("Z-1", 5_000)):
        event = Outgoing("mail", "", key, f"{key}-new", "t", b"{}", b"f" * 16, now_ms - 3_600_000 - age_ms)
        with site.gate.engine.commits.transaction() as session:
            session.enqueue([event])
        site.scene.give_up("mail", key, Policy.BLOCK)
    text = site.client(Role.VIEWER).get("/waiting").text
    places = [text.index(f">{key}</a>") for key in ("Z-2", "Z-1", "A-17")]
    assert places == sorted(places)


def test_idle_keys_are_listed_and_found_by_a_part_of_them(site, capsys, monkeypatch):
    """Every key of a destination can be found, whether it has something to send or not."""
    site.scene.deliver("orders", "IDLE-42", "acme", 2)
    client = site.client(Role.VIEWER)
    assert "IDLE-42" not in client.get("/lanes?state=all").text
    for path in ("/lanes?key=DLE-4", "/lanes?destination=orders&state=idle", "/lanes?key=IDLE-42"):
        text = client.get(path).text
        assert "IDLE-42" in text.partition('<div id="live"')[2], path
    assert "A-17" not in client.get("/lanes?destination=orders&state=idle").text
    assert "A-17" in client.get("/lanes?key=A-1").text
    other = site.client(Role.VIEWER, tenant="globex").get("/lanes?key=IDLE-42").text
    assert "IDLE-42</a>" not in other
    monkeypatch.setattr(lanes_page, "LANES_LOOKED_AT", 1)
    text = client.get("/lanes?key=IDLE-42").text
    assert "Search further" in text
    assert "IDLE-42</a>" not in text
    assert main(["lanes", "list", "--idle", "--key-contains", "DLE", "--url", site.url]) == 0
    assert "IDLE-42" in capsys.readouterr().out
    assert main(["lanes", "list", "--key-contains", "DLE", "--url", site.url]) == 0
    assert "none that fits" in capsys.readouterr().err
