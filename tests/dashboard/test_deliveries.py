"""Deliveries on the page: how endpoints do, attempts of an event, past events again (B6)."""

from __future__ import annotations

import pytest

from oncegate.cli.main import main
from oncegate.commit.operations import Observe
from oncegate.dashboard.operators import Role
from oncegate.store import Attempt, Observations, Outgoing, ReplayFilter, Tally
from oncegate.store.tallies import of_delivery, of_duration
from oncegate.testing.waiting import wait_until
from tests.dashboard.conftest import Client, Site
from tests.dashboard.test_replay_plans import orders, page_of, plan

HOUR_MS = 3_600_000
LANE = "/lane?destination=orders&tenant=acme&key=A-17"


@pytest.fixture
def mixed(site: Site) -> Site:
    """One key with four delivered events: of two types, two of them from yesterday."""
    now_ms = site.gate.engine.clock.wall_ms()
    for number, (kind, age_h) in enumerate((("paid", 30), ("sent", 30), ("paid", 1), ("sent", 1))):
        event = Outgoing(
            "mail", "acme", "M-1", f"m-{number}", kind, b"{}", b"f" * 16, now_ms - age_h * HOUR_MS
        )
        with site.gate.engine.commits.transaction() as session:
            session.enqueue([event])
        site.scene.finish_replay("mail", 1)
    return site


def wanted(site: Site, client: Client, **fields: str) -> str:
    """The page of a plan."""
    return page_of(plan(site, client, destination="mail", **fields), client)


def test_past_events_are_sent_again_by_time_and_type_as_a_plan(mixed: Site) -> None:
    """Count and sample first, then the yes, then in the order of the key; the command means the same."""
    client = mixed.client(Role.OPERATOR)
    shown = client.get(wanted(mixed, client, since="2h")).text
    assert "Replay <strong>2</strong> deliveries: 2 of mail" in shown
    assert "emitted since" in shown
    assert "M-1" in shown
    assert "--since 20" in shown
    shown = client.get(wanted(mixed, client, since="2d", until="2h", type="sent")).text
    assert "Replay <strong>1</strong> deliveries" in shown
    assert "--type sent" in shown
    job = wanted(mixed, client, type="paid")
    assert "past events of type paid" in client.get(job).text
    assert client.post(f"{job}/start", mixed.form(client)).status == 303
    wait_until(lambda: "2 on their way once more of 2" in client.get(job).text)
    (order,) = orders(mixed)
    assert (order.type, order.deliveries) == ("paid", 2)
    assert "type paid" in client.get(f"/replays/{order.name}").text
    assert "type paid" in client.get("/journal").text
    with mixed.gate.engine.store.look() as session:
        lane = session.find_lane("mail", "acme", "M-1")
    assert lane is not None
    assert lane.replaying_seq == 1  # the first of the two goes first


@pytest.mark.parametrize("fields", [{"since": "yesterday"}, {"since": "1h", "until": "2h"}, {"until": "x"}])
def test_a_time_that_cannot_be_meant_is_refused_with_the_way_to_write_it(
    mixed: Site, fields: dict[str, str]
) -> None:
    client = mixed.client(Role.OPERATOR)
    reply = plan(mixed, client, destination="mail", **fields)
    assert reply.status == 409
    assert "2026-11-18T02:00Z" in reply.text or "ends before it begins" in reply.text
    assert orders(mixed) == []


def test_the_terminal_sends_again_by_time_and_type(mixed: Site, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["dead-letters", "replay", "--endpoint", "mail", "--reason", "x", "--url", mixed.url]
    assert main([*command, "--since", "2h", "--type", "sent", "--dry-run"]) == 0
    told = capsys.readouterr().err
    assert "1 past events of 1 keys" in told
    assert "M-1: 1 event" in told
    assert main([*command, "--since", "1h", "--until", "3h", "--yes"]) == 2
    assert main([*command, "--since", "soon", "--yes"]) == 2
    assert "how long ago" in capsys.readouterr().err
    assert main([*command, "--until", "2h", "--yes"]) == 0
    with mixed.gate.engine.store.look() as session:
        (order,) = session.replay_orders(ReplayFilter(), None, 10)
    assert (order.deliveries, order.until_ms is not None) == (2, True)
    capsys.readouterr()
    assert main(["dead-letters", "replays", "--json", "--url", mixed.url]) == 0
    assert '"until":"20' in capsys.readouterr().out.replace(" ", "")


@pytest.mark.slow
def test_the_last_attempts_of_an_event_are_shown_and_responses_masked_by_role(site: Site) -> None:
    """Status, duration and the beginning of the response; text stays text (hostile input)."""
    with site.gate.engine.commits.transaction() as session:
        lane = session.find_lane("orders", "acme", "A-17")
        assert lane is not None
        attempts = [
            Attempt(lane.lane_id, 1, 7, 1_000, 31, 503, "HTTP 503: <i>token s3cret</i>"),
            Attempt(lane.lane_id, 1, 8, 2_000, 15_000, None, "timed out while connecting: x"),
        ]
        session.note_attempts(attempts)
    for path in (LANE, f"{LANE}&seq=1"):
        text = site.client(Role.OPERATOR).get(path).text
        for words in ("Last attempts", ">503<", ">31 ms<", ">15 s<"):
            assert words in text, words
        assert "&lt;i&gt;token s3cret&lt;/i&gt;" in text
        assert "<i>token" not in text
    assert "Last attempts" not in site.client(Role.OPERATOR).get(f"{LANE}&seq=2").text
    viewer = site.client(Role.VIEWER)
    text = viewer.get(LANE).text
    assert ("s3cret" in text, ">503<" in text, "timed out while" in text) == (False, True, True)
    for path in (LANE, "/lanes?state=all", "/dead-letters", "/waiting", "/journal", "/"):
        assert "boom" not in viewer.get(path).text, path
        assert "boom" in site.client(Role.OPERATOR).get(path).text, path


def test_every_destination_shows_its_success_rate_and_p95(site: Site) -> None:
    """From the tallies of the last hour; what is older does not count."""
    minute = site.gate.engine.clock.wall_ms() // 60_000
    counts = [
        Tally("orders", minute - 3, of_delivery(succeeded=True), 1_997),
        Tally("orders", minute - 3, of_delivery(succeeded=False), 3),
        Tally("orders", minute - 3, of_duration(30), 1_900),
        Tally("orders", minute - 3, of_duration(700), 97),
        Tally("orders", minute - 90, of_delivery(succeeded=False), 5_000),
    ]
    site.gate.engine.commits.submit(Observe(Observations(tuple(counts))))
    text = site.client(Role.VIEWER).get("/lanes").text
    assert ("99.8 %" in text, "of 2&#8239;000" in text, "32 ms" in text) == (True, True, True)
    assert "orders" not in site.client(Role.VIEWER).get("/surfaces").text
