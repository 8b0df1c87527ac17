"""Replays on the page: listed, watched and cancelled, by whoever may, once (B6, I20)."""

from __future__ import annotations

import re
from typing import Any

import pytest

from oncegate.dashboard import replays_page
from oncegate.dashboard.auth import FIELD
from oncegate.dashboard.operators import Role
from oncegate.store import HeadsWanted, LogKind, ReplayFilter, ReplayOrder, ReplayState
from tests.dashboard.conftest import Client, Site
from tests.dashboard.scene import HOSTILE, Scene
from tests.dashboard.serving import Stage, add_operator

RUNNING, OF_MANY, ENDED, CANCELLED = "abc", "b16", "e4d", "c0de"  # as the scene has them


@pytest.fixture
def replaying(site: Site) -> Site:
    """A page with replays in every state."""
    site.scene.replaying()
    return site


def order(site: Site, name: str) -> ReplayOrder:
    with site.gate.engine.store.look() as session:
        (found,) = session.replay_orders(ReplayFilter(nonce=int(name, 16)), None, 1)
    return found


def records(site: Site, kind: LogKind) -> list[tuple[str, str | None]]:
    with site.gate.engine.store.look() as session:
        return [(r.actor, r.note) for r in session.read_log(0, 1_000) if r.kind is kind]


def listed(client: Client, path: str) -> list[str]:
    """The names of the replays that a page lists."""
    return re.findall(r"<a data-open href=\"[^\"]*/replays/([0-9a-f]+)\"", client.get(path).text)


def cancel(site: Site, client: Client, name: str, **changes: str) -> Any:
    return client.post(f"/replays/{name}/cancel", site.form(client, **{"reason": "enough", **changes}))


@pytest.mark.slow
def test_replays_are_listed_with_whose_what_why_and_how_far(replaying: Site) -> None:
    client = replaying.client(Role.VIEWER)
    assert listed(client, "/replays") == [OF_MANY, RUNNING, CANCELLED, ENDED]
    assert listed(client, "/replays?state=running") == [OF_MANY, RUNNING]
    assert listed(client, "/replays?destination=orders&state=running") == [RUNNING]
    assert listed(client, "/lanes") == [OF_MANY, RUNNING]
    now = client.get("/").text.partition("Replays under way")[2].partition("</ul>")[0]
    assert re.findall(r"/replays/([0-9a-f]+)", now) == [OF_MANY, RUNNING]
    assert listed(client, "/lanes?destination=billing") == [OF_MANY]
    assert listed(client, "/lane?destination=orders&tenant=acme&key=C-3") == [RUNNING, ENDED]
    assert listed(client, "/lane?destination=billing&tenant=acme&key=X-1") == [OF_MANY]
    rows = client.get("/replays").text.split("<tr data-row>")[1:]
    for words in ("3 keys", "seq 1 and on", "3 of 6 gone", "Bob", "their database was restored"):
        assert words in rows[0], words
    for words in ("C-3</a> to orders", "seq 2 to 5", "0 of 4 gone", "tenant acme", "they lost a day"):
        assert words in rows[1], words
    for words in ("0 of 3 gone, 3 taken back", "cancelled by Ada", "the wrong customer"):
        assert words in rows[2], words
    assert "2 of 2 gone" in rows[3]


@pytest.mark.slow
def test_very_many_replays_are_shown_page_by_page(replaying: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replays_page, "PAGE_REPLAYS", 3)
    monkeypatch.setattr(replays_page, "SHOWN_BESIDE_LANES", 1)
    client = replaying.client(Role.VIEWER)
    assert listed(client, "/replays") == [OF_MANY, RUNNING, CANCELLED]
    older = re.search(r'href="([^"]*)">Older replays', client.get("/replays").text)
    assert older is not None
    path = older[1].replace("&amp;", "&").removeprefix(client.prefix)
    assert listed(client, path) == [ENDED]
    assert "Older replays" not in client.get(path).text
    assert listed(client, "/lanes") == [OF_MANY]
    assert "More replays under way" in client.get("/lanes").text


def test_a_replay_is_cancelled_once_and_the_second_is_told_who_was_first(replaying: Site) -> None:
    """Also by a double click; the journal has one record, with who and why."""
    site, client = replaying, replaying.client(Role.OPERATOR)
    page = client.get(f"/replays/{RUNNING}").text
    assert f"oncegate dead-letters cancel {RUNNING} --reason" in page
    assert "4 deliveries by now" in page

    done = cancel(site, client, RUNNING)
    again = cancel(site, client, RUNNING)
    other = cancel(site, site.client(Role.APPROVER), RUNNING, reason="me too")

    assert [done.status, again.status, other.status] == [303, 409, 409]
    assert done.headers["location"] == f"{client.prefix}/replays/{RUNNING}"
    for late in (again, other):
        assert "operator-all cancelled it already: enough. Nothing was changed" in late.text
        assert "Cancel…" not in late.text
    found = order(site, RUNNING)
    assert (found.state, found.taken_back, found.cancelled_by) == (ReplayState.CANCELLED, 4, "operator-all")
    told = [note for actor, note in records(site, LogKind.REPLAY_CANCELLED) if actor == "operator-all"]
    assert told == ["abc: 4 deliveries taken back: enough"]
    assert records(site, LogKind.REPLAY_CANCELLED)[-1][0] == "operator-all"


def test_what_is_over_or_in_flight_cannot_be_cancelled(replaying: Site) -> None:
    site, client = replaying, replaying.client(Role.OPERATOR)
    over = cancel(site, client, ENDED)
    assert (over.status, "its last delivery has gone" in over.text) == (409, True)
    lane = site.scene.deliver("orders", "E-5", "", 1)
    site.scene.replay("orders", 0xF1, lane_id=lane)
    with site.gate.engine.commits.transaction() as session:
        session.lease_heads(HeadsWanted((("orders", 10),), 60_000, 7))
    flying = cancel(site, client, "f1")
    assert (flying.status, "is in flight and ends by itself" in flying.text) == (409, True)
    assert [actor for actor, _ in records(site, LogKind.REPLAY_CANCELLED)] == ["Ada"]


@pytest.mark.slow
def test_a_reason_is_needed_and_stays_text(replaying: Site) -> None:
    site, client = replaying, replaying.client(Role.OPERATOR)
    assert cancel(site, client, RUNNING, reason="  ").status == 409
    assert order(site, RUNNING).state is ReplayState.RUNNING
    assert cancel(site, client, RUNNING, reason=HOSTILE).status == 303
    for path in (
        f"/replays/{RUNNING}",
        "/replays",
        "/journal",
        "/lane?destination=orders&tenant=acme&key=C-3",
    ):
        text = client.get(path).text
        assert "&lt;script&gt;alert(1)" in text
        assert not set("\u202e\x1b").intersection(text)
        assert "<script>alert" not in text


def test_viewers_and_strangers_cancel_nothing(replaying: Site) -> None:
    """Without the role, the session's token or the page's own address: refused, and it goes on."""
    site = replaying
    viewer, operator = site.client(Role.VIEWER), site.client(Role.OPERATOR)
    path = f"/replays/{RUNNING}/cancel"
    assert "Needs the role operator" in viewer.get(f"/replays/{RUNNING}").text
    assert cancel(site, viewer, RUNNING).status == 403
    assert operator.get(path).status == 405
    for form in ({}, {FIELD: "0" * 64}, site.form(viewer)):
        assert operator.post(path, {**form, "reason": "x"}).status == 403
    full = site.form(operator, reason="x")
    assert operator.post(path, full, origin="https://evil.example").status == 403
    assert operator.post(path, full, sec_fetch_site="cross-site").status == 403
    assert site.client().post(path, full).status == 401  # the sign-in, with the form kept
    assert order(site, RUNNING).state is ReplayState.RUNNING
    assert records(site, LogKind.REFUSED) == [
        ("viewer-all", f"cancel replay {RUNNING}: needs the role operator")
    ]


def test_a_page_that_is_read_only_shows_replays_and_cancels_none(scene: Scene, stage: Stage) -> None:
    scene.replaying()
    with stage.showing(scene.gate.dashboard()) as address:
        client = Client(address)
        assert "This page only shows" in client.get(f"/replays/{RUNNING}").text
        assert client.post(f"/replays/{RUNNING}/cancel", {"reason": "x", FIELD: ""}).status == 403


def timeless(page: str) -> str:
    """A page without its form token (random digits, in which any short name may stand) and its time."""
    return re.sub(r'name="form_token" value="[0-9a-f]+"|as of [0-9:]+ UTC', "", page)


@pytest.mark.slow
def test_one_tenants_operator_sees_and_cancels_replays_of_its_lanes_only(replaying: Site) -> None:
    """Another's, and one of many keys, are as unknown as one that never was (I8)."""
    site = replaying
    add_operator(site.gate, "glob", Role.OPERATOR, "globex")
    acme = site.client(Role.OPERATOR, "acme")
    globex = site.client(Role.OPERATOR, "globex")
    assert listed(acme, "/replays") == listed(acme, "/replays?destination=orders") == [RUNNING, ENDED]
    assert listed(acme, "/lanes") == [RUNNING]
    assert listed(globex, "/replays") == [CANCELLED]
    unknown = timeless(acme.get("/replays/1234").text)
    for name in (OF_MANY, CANCELLED):
        hidden = acme.get(f"/replays/{name}")
        assert (hidden.status, timeless(hidden.text)) == (404, unknown.replace("1234", name)), name
        assert cancel(site, acme, name).status == 404
    assert cancel(site, globex, RUNNING).status == 404
    part = timeless(acme.get("/lane?destination=billing&tenant=acme&key=X-1").text)
    assert "Replaying" in part
    assert OF_MANY not in part.replace(acme.prefix, "")
    assert "their database was restored" not in part
    assert order(site, RUNNING).state is order(site, OF_MANY).state is ReplayState.RUNNING

    assert cancel(site, acme, RUNNING).status == 303


def test_what_cannot_be_a_replays_name_is_not_there(replaying: Site) -> None:
    client = replaying.client(Role.OPERATOR)
    for name in ("x", "0x1", "-1", "f" * 16, "f" * 17, "%00", "%20abc"):
        assert client.get(f"/replays/{name}").status == 404, name
        assert cancel(replaying, client, name).status == 404, name
    assert client.get(f"/replays/{RUNNING.upper()}").status == 200
    assert client.get("/replays?before=x").status == 404


def test_the_journal_leads_to_a_replay_of_many_keys(replaying: Site) -> None:
    client = replaying.client(Role.VIEWER)
    assert f'href="{client.prefix}/replays/{OF_MANY}">replay {OF_MANY}' in client.get("/journal").text
