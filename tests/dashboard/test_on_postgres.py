"""The same page on PostgreSQL: every page, a decision, a reveal, an order, a bulk job, the journal."""

from __future__ import annotations

import re

import pytest

from oncegate.dashboard.operators import Role
from oncegate.model.states import State
from oncegate.store import LogKind
from oncegate.testing.postgres import GivenServer, PostgresServer
from oncegate.testing.proxy import Proxy
from oncegate.testing.waiting import wait_until
from oncegate.wiring import Gate
from tests.dashboard.conftest import Client, Site
from tests.dashboard.scene import BIG, Scene
from tests.dashboard.serving import Stage


@pytest.fixture
def postgres_site(ledger_url, stage):
    scene = Scene(ledger_url)
    scene.quiet()
    scene.incident()
    with stage.showing(scene.gate.dashboard(login=True)) as address:
        yield Site(scene, address)
    scene.gate.close()


@pytest.mark.slow
def test_every_page_and_kind_of_action_works_there_too(postgres_site):
    site = postgres_site
    client = site.client(Role.APPROVER)
    entry = site.scene.waiting(State.HELD, "payouts")
    lane = {"destination": "orders", "tenant": "acme", "key": "A-17"}
    for path in (
        "/",
        "/waiting",
        "/entries",
        "/lanes?state=all",
        "/replays",
        "/dead-letters",
        "/trace?id=A-17",
        "/feed",
        "/surfaces",
        "/journal?all=1",
    ):
        assert client.get(path).status == 200, path
    with site.gate.engine.store.look() as session:
        fence = session.detail(entry).entry.fence

    decided = client.post(f"/entries/{entry}/approve", site.form(client, reason="seen", fence=str(fence)))
    again = client.post(f"/entries/{entry}/approve", site.form(client, reason="seen", fence=str(fence)))
    revealed = client.post(f"/entries/{entry}/reveal", site.form(client))
    ordered = client.post("/lanes/order/retry", site.form(client, **lane, seq="1", reason="back"))
    asked = site.form(client, q="reason:skew", verb="discard", reason="old")
    planned = client.post("/plans/entries", asked)
    job = planned.headers["location"].removeprefix(client.prefix)
    assert client.post(f"{job}/start", site.form(client)).status == 303
    wait_until(lambda: "3 discarded" in client.get(job).text)

    assert [decided.status, again.status, revealed.status, ordered.status] == [303, 409, 200, 303]
    assert str(BIG) in revealed.text
    with site.gate.engine.store.look() as session:
        kinds = [record.kind for record in session.log_before(None, 20, by_people=True)]
    told = [LogKind.APPROVED, LogKind.REVEALED, LogKind.HEAD_RETRIED, LogKind.JOB_STARTED]
    told += [LogKind.SIGNED_IN, LogKind.PLAN_MADE]
    assert sorted(kinds[:9]) == sorted([*told, *[LogKind.DISCARDED] * 3])
    assert "approver-all" in client.get("/journal").text


def test_journal_pages_follow_each_other_by_very_large_positions(postgres_site, monkeypatch):
    monkeypatch.setattr("oncegate.dashboard.journal_page.PAGE_RECORDS", 4)
    client = postgres_site.client(Role.VIEWER)
    with postgres_site.gate.engine.store.look() as session:
        total = len(session.read_log(0, 1_000))
    seen, path = 0, "/journal?all=1"
    while path:
        text = client.get(path).text
        seen += text.count("<tr data-row")
        link = text.partition('<p class="more"><a href="')[2].partition('"')[0]
        path = link.replace("&amp;", "&").removeprefix(client.prefix)
    assert seen == total


def test_text_that_the_ledger_cannot_hold_is_not_there(postgres_site):
    """Not a failure of the ledger: nothing can be called so."""
    client = postgres_site.client(Role.APPROVER)
    for path in ("/entries?q=%00", "/waiting?q=reason:%00", "/lanes?key=%00", "/lane?key=%00", "/jobs/%00"):
        assert client.get(path).status == 404, path
    form = postgres_site.form(client, destination="a\0", tenant="", key="k", seq="1", reason="x")
    assert client.post("/lanes/order/retry", form).status == 404


def test_a_replay_form_sent_twice_is_one_replay_there_too(postgres_site):
    client, lane = postgres_site.client(Role.OPERATOR), {"destination": "orders", "tenant": "acme"}
    skip = postgres_site.form(client, **lane, key="A-17", seq="1", reason="x")
    assert client.post("/lanes/order/skip", skip).status == 303
    fields = {**lane, "key": "A-17", "from": "1", "to": "1", "nonce": "77", "reason": "x"}
    form = postgres_site.form(client, **fields)
    answers = [client.post("/lanes/replay", form).status for _ in range(2)]
    with postgres_site.gate.engine.store.look() as session:
        kinds = [record.kind for record in session.log_before(None, 20, by_people=True)]
    assert (answers, kinds.count(LogKind.REPLAY_STARTED)) == ([303, 303], 1)


def test_a_server_that_is_gone_is_grey_and_heals_by_itself(
    postgres: PostgresServer | GivenServer, ledger_url: str, stage: Stage
) -> None:
    """Pages and fragments say since when; nothing advises what would destroy (I28)."""
    if not isinstance(postgres, PostgresServer):
        pytest.skip("a proxy stands before a server of our own only")
    with Proxy(postgres.folder) as proxy:
        gate = Gate(proxy.url(ledger_url))
        with stage.showing(gate.dashboard()) as address:
            client, fragment = Client(address), {"x-oncegate-fragment": "1"}
            assert client.get("/").status == 200
            proxy.refuse()
            for path in ("/", "/waiting"):
                reply = client.get(path)
                assert reply.status == 503
                assert re.search(r"No connection to the ledger since \d\d:\d\d:\d\d UTC", reply.text)
                assert "oncegate migrate" not in reply.text
                assert 'class="state ok"' not in reply.text
                assert ">postgresql://" in reply.text.replace("\n", ""), "an address is no sentence"
                assert client.get(path, **fragment).status == 503
            proxy.allow()
            assert client.get("/").status == 200
            assert 'id="verdict"' in client.get("/", **fragment).text
        gate.close()
