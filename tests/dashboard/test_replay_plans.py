"""A replay of many keys on the page: plan, yes, job, cancel; and the list of what was given up (B6)."""

from __future__ import annotations

import re

import pytest

from oncegate.dashboard import dead_letters_page
from oncegate.dashboard.operators import Role
from oncegate.sender.operator_actions import LaneDecision, OperatorActions
from oncegate.store import LogKind, Policy, ReplayFilter, ReplayOrder
from oncegate.testing.waiting import wait_until
from tests.dashboard.conftest import Client, Reply, Site
from tests.dashboard.scene import HOSTILE


def plan(site: Site, client: Client, **fields: str) -> Reply:
    """Asks for a plan to replay a destination."""
    asked = {"destination": "billing", "from": "1", "to": "", "reason": "restored", **fields}
    return client.post("/plans/replay", site.form(client, **asked))


def page_of(reply: Reply, client: Client) -> str:
    assert reply.status == 303
    return reply.headers["location"].removeprefix(client.prefix)


def orders(site: Site) -> list[ReplayOrder]:
    with site.gate.engine.store.look() as session:
        return session.replay_orders(ReplayFilter(), None, 10)


@pytest.fixture
def billing(site: Site) -> Site:
    """A destination with three keys of two events each."""
    for key in ("X-1", "X-2", "X-3"):
        site.scene.deliver("billing", key, "acme", 2)
    return site


def test_all_keys_of_a_destination_are_replayed_by_plan_yes_and_job(billing: Site) -> None:
    """Nothing before the yes; once, however often it is said; the job leads to the replay."""
    client = billing.client(Role.OPERATOR)
    lanes = client.get("/lanes?destination=billing&state=all").text
    assert "Send past events of billing once more" in lanes
    job = page_of(plan(billing, client, reason=f"restored {HOSTILE}"), client)
    shown = client.get(job).text
    for words in ("Replay <strong>6</strong> deliveries: 6 of billing", "X-1", "2 events", "3 keys"):
        assert words in shown, words
    assert "oncegate dead-letters replay --endpoint billing --reason" in shown
    assert "<script>alert" not in shown
    assert orders(billing) == []

    for _ in range(2):
        assert client.post(f"{job}/start", billing.form(client)).status == 303
    wait_until(lambda: "6 on their way once more of 6" in client.get(job).text)

    (order,) = orders(billing)
    assert (order.deliveries, order.lanes, order.lane, order.actor) == (6, 3, None, "operator-all")
    wait_until(lambda: "Back</a>" in client.get(job).text)
    assert f"/replays/{order.name}" in client.get(job).text
    with billing.gate.engine.store.look() as session:
        kinds = [record.kind for record in session.read_log(0, 1_000) if record.actor == "operator-all"]
    assert kinds.count(LogKind.REPLAY_STARTED) == kinds.count(LogKind.JOB_STARTED) == 1


def test_a_plan_takes_a_range_or_dead_letters_only(billing: Site) -> None:
    client = billing.client(Role.OPERATOR)
    second = page_of(plan(billing, client, **{"from": "2", "to": "9"}), client)
    assert "Replay <strong>3</strong> deliveries" in client.get(second).text
    assert "--endpoint billing --from 2 --to 9 --reason" in client.get(second).text
    none = page_of(plan(billing, client, only_dead="yes"), client)
    assert "Nothing waits that fits" in client.get(none).text
    assert "--only-dead" in client.get(none).text
    for fields in ({"from": "x"}, {"from": "3", "to": "2"}, {"reason": " "}):
        assert plan(billing, client, **fields).status == 409, fields
    assert plan(billing, client, destination="nowhere").status == 404


def test_keys_that_are_in_another_replay_are_left(billing: Site) -> None:
    client = billing.client(Role.OPERATOR)
    with billing.gate.engine.store.look() as session:
        lane = session.find_lane("billing", "acme", "X-1")
    assert lane is not None
    billing.scene.replay("billing", 0xABC, lane_id=lane.lane_id)
    shown = client.get(page_of(plan(billing, client), client)).text
    assert "Replay <strong>4</strong> deliveries" in shown
    assert "in another replay: 1 key" in shown


def test_a_replay_of_many_is_for_operators_who_see_all_tenants(billing: Site) -> None:
    assert plan(billing, billing.client(Role.VIEWER)).status == 403
    acme = billing.client(Role.OPERATOR, "acme")
    assert plan(billing, acme).status == 404
    for client in (billing.client(Role.VIEWER), acme):
        assert "Send past events of" not in client.get("/lanes?destination=billing&state=all").text


def test_dead_letters_of_one_key_are_replayed_alone(site: Site) -> None:
    """The lane's form can be narrowed to them; where there are none it says so."""
    client, lane = site.client(Role.OPERATOR), {"destination": "orders", "tenant": "acme", "key": "C-3"}
    site.scene.deliver("orders", "C-3", "acme", 2)
    asked = {**lane, "from": "1", "to": "2", "reason": "x", "nonce": "77", "only_dead": "yes"}
    refused = client.post("/lanes/replay", site.form(client, **asked))
    assert (refused.status, "no dead letter has a seq" in refused.text) == (409, True)
    assert orders(site) == []


@pytest.mark.parametrize("verb", ["retry", "skip"])
def test_a_replayed_event_that_blocks_its_key_is_decided_where_it_is_shown(site: Site, verb: str) -> None:
    """On Needs you, on the lane's page and for all blocked keys: by the seq that is replayed (I20)."""
    client = site.client(Role.OPERATOR)
    for key in ("C-3", "D-4", "E-5"):
        lane = site.scene.deliver("mail", key, "", 3)
        site.scene.replay("mail", lane, lane_id=lane, seq_from=2)
        site.scene.give_up("mail", key, Policy.BLOCK)
    for path, key in (("/waiting", "C-3"), ("/lane?destination=mail&tenant=&key=D-4", "D-4")):
        text = client.get(path).text.partition(f">{key}<")[2]
        form = re.search(rf'action="[^"]*/lanes/order/{verb}".*?name="seq" value="(\d+)"', text, re.DOTALL)
        assert form is not None
        named = {"destination": "mail", "tenant": "", "key": key, "seq": form[1], "reason": "x"}
        assert client.post(f"/lanes/order/{verb}", site.form(client, **named)).status == 303, path
    many = client.post("/plans/lanes", site.form(client, destination="mail", verb=verb, reason="all"))
    job = page_of(many, client)
    client.post(f"{job}/start", site.form(client))
    past = {"retry": "retried", "skip": "skipped"}[verb]
    wait_until(lambda: f"1 {past} of 1" in client.get(job).text)


def test_a_job_that_is_cancelled_takes_back_what_has_not_gone(billing: Site) -> None:
    """Also where somebody cancels the replay itself before the job has planted anything else."""
    client = billing.client(Role.OPERATOR)
    job = page_of(plan(billing, client), client)
    assert client.post(f"{job}/cancel", billing.form(client)).status == 303
    client.post(f"{job}/start", billing.form(client))
    wait_until(lambda: 'class="chip cancelled"' in client.get(job).text)
    assert [order.left for order in orders(billing)] in ([], [0])
    assert (
        OperatorActions(billing.gate.engine.commits, billing.gate.engine.clock).cancel_replay(
            1, LaneDecision("x", "y")
        )
        == 0
    )


def test_dead_letters_are_listed_page_by_page_for_whoever_may_see_them(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = site.client(Role.OPERATOR)
    text = client.get("/dead-letters").text
    assert text.count("<tr data-row>") == 2
    for words in (
        "A-17</a>",
        "HTTP 500: &lt;b&gt;boom&lt;/b&gt;",
        "/trace?id=evt-1",
        'class="chip blocked"',
    ):
        assert words in text, words
    assert client.get("/dead-letters?destination=nowhere").text.count("<tr data-row>") == 0
    acme = site.client(Role.VIEWER, "acme").get("/dead-letters").text
    assert ("A-17" in acme, "B-2" in acme) == (True, False)
    monkeypatch.setattr(dead_letters_page, "PAGE_LETTERS", 1)
    more = re.search(r'href="([^"]*)">More dead letters', client.get("/dead-letters").text)
    assert more is not None
    rest = client.get(more[1].replace("&amp;", "&").removeprefix(client.prefix)).text
    assert ("A-17" in rest, "B-2" in rest, "More dead letters" in rest) == (False, True, False)
    assert client.get("/dead-letters?lane=x").status == 404
