"""Replays and journeys in a real Chromium, wide and narrow: read, cancelled, without a script too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from oncegate.dashboard.operators import Role
from oncegate.model.states import State
from oncegate.sender.operator_actions import LaneDecision, LaneVerb, OperatorActions
from oncegate.store import LogKind
from tests.dashboard.conftest import Site
from tests.dashboard.scene import HOSTILE
from tests.dashboard.test_in_a_browser import (
    Tab,
    check_for_everybody,
    log_kinds,
    on_a_phone,
    on_both,
    unfold,
)
from tests.dashboard.widths import DESK, PHONE, first

LANE = "/lane?destination=orders&tenant=acme&key=C-3"


@pytest.fixture
def replaying(site: Site) -> Site:
    """A page with replays in every state, one of them for a hostile reason."""
    site.scene.replaying()
    other = site.scene.deliver("mail", "F-6", "", 2)
    site.scene.replay("mail", 0xEE1, HOSTILE, lane_id=other)
    return site


@pytest.fixture(params=first(DESK, PHONE))
def tab(request: pytest.FixtureRequest, replaying: Site, chromium: Browser) -> Iterator[Tab]:
    context = chromium.new_context(viewport={"width": request.param, "height": 800})
    context.set_default_timeout(60_000)
    tab = Tab(replaying, context.new_page())
    yield tab
    context.close()
    assert tab.problems == []


@pytest.mark.slow
@on_both
def test_pages_about_replays_and_journeys_can_be_used_by_everybody(tab: Tab, replaying: Site) -> None:
    """And stored text stays text on each of them."""
    tab.sign_in(Role.OPERATOR)
    entry = replaying.scene.waiting(State.UNKNOWN, "gate.in")
    replays = ["/replays", "/replays/abc", "/replays/b16", "/replays/c0de", "/replays/ee1", "/lanes", LANE]
    replays += ["/lanes?destination=billing&state=all", "/dead-letters", "/surface?name=portbase.cis"]
    for path in [*replays, "/trace", "/trace?id=A-17", f"/entries/{entry}"]:
        tab.go(path)
        unfold(tab)
        check_for_everybody(tab)
        assert not set("\u202e\x1b").intersection(tab.page.content())
        assert tab.page.locator("main script, a[href^=javascript]").count() == 0


def test_a_replay_is_found_from_the_lanes_and_cancelled_once_by_a_double_click(
    tab: Tab, replaying: Site
) -> None:
    tab.sign_in(Role.OPERATOR)
    tab.go("/lanes")
    tab.page.locator("a[data-open]", has_text="abc").click()
    expect(tab.page.locator("h1")).to_have_text("Replay abc")
    expect(tab.page.locator("[role=status]")).to_have_text("0 of 4 gone, 4 to go.")
    action = tab.page.locator("details.action", has_text="Cancel…")
    action.locator("summary").click()
    expect(action).to_contain_text("4 deliveries by now")
    expect(action.locator("code")).to_contain_text("oncegate dead-letters cancel abc --reason")
    action.locator("input[name=reason]").fill(HOSTILE)
    action.get_by_role("button", name="Cancel the rest").dblclick()
    expect(tab.page.locator("h1 + div, .facts").last).to_contain_text("<script>alert(1)</script>")
    expect(tab.page.locator(".lead .chip")).to_have_text("cancelled")
    expect(tab.page.locator("[role=status]")).to_have_text("0 of 4 gone, 4 taken back.")
    assert [kind for kind, _ in log_kinds(replaying, "operator-all")] == [LogKind.REPLAY_CANCELLED]


@on_a_phone
def test_the_second_of_two_is_told_who_cancelled_it(tab: Tab, replaying: Site) -> None:
    tab.sign_in(Role.OPERATOR)
    tab.go("/replays/abc")
    action = tab.page.locator("details.action", has_text="Cancel…")
    action.locator("summary").click()
    action.locator("input[name=reason]").fill("enough")
    OperatorActions(replaying.gate.engine.commits, replaying.gate.engine.clock).cancel_replay(
        0xABC, LaneDecision("Ada", "wrong day")
    )
    action.get_by_role("button", name="Cancel the rest").click()
    expect(tab.page.locator(".notice.bad")).to_contain_text("Ada cancelled it already: wrong day")
    expect(tab.page.locator("details.action")).to_have_count(0)
    assert log_kinds(replaying, "operator-all") == []


@on_a_phone
def test_all_keys_of_a_destination_are_replayed_by_plan_and_the_replay_is_cancelled(
    tab: Tab, replaying: Site
) -> None:
    for key in ("Y-1", "Y-2"):
        replaying.scene.deliver("depot", key, "", 2)
    tab.sign_in(Role.OPERATOR)
    tab.go("/lanes?destination=depot&state=all")
    again = tab.page.locator("details.bulk", has_text="Send past events of")
    again.locator("summary").click()
    again.get_by_label("only dead letters").uncheck()
    again.locator("input[name=reason]").fill("restored")
    again.get_by_role("button", name="Show the plan").click()
    expect(tab.page.locator("main")).to_contain_text("Replay 4 deliveries: 4 of depot")
    check_for_everybody(tab)
    tab.page.click("text=Replay all 4")
    expect(tab.page.locator("main")).to_contain_text("4 on their way once more of 4")
    check_for_everybody(tab)
    tab.page.locator("main a", has_text="replay ").click()
    tab.decide_as("Cancel", "Cancel the rest", "enough")
    expect(tab.page.locator("[role=status]")).to_have_text("0 of 4 gone, 4 taken back.")


def test_progress_is_renewed_while_a_replay_runs(tab: Tab, replaying: Site) -> None:
    tab.page.clock.install()
    tab.sign_in(Role.VIEWER)
    tab.go("/replays/b16")
    expect(tab.page.locator("[role=status]")).to_have_text("3 of 6 gone, 3 to go.")
    replaying.scene.finish_replay("billing", 1)
    tab.page.clock.run_for(3_000)
    expect(tab.page.locator("[role=status]")).to_have_text("6 of 6 gone.")


def test_an_event_is_followed_from_its_lane(tab: Tab) -> None:
    tab.sign_in(Role.VIEWER)
    tab.go("/lane?destination=orders&tenant=acme&key=A-17")
    tab.page.get_by_role("link", name="evt-1", exact=True).click()
    expect(tab.page.locator("h1")).to_have_text("Trace")
    expect(tab.page.locator(".timeline")).to_contain_text("emitted to orders")
    tab.page.wait_for_load_state()  # with the script that hears keys
    tab.wait_painted()
    tab.page.keyboard.press("/")
    expect(tab.page.locator("input[type=search]")).to_be_focused()


def test_a_lane_and_an_entry_that_is_not_done_renew_themselves(tab: Tab, replaying: Site) -> None:
    """But not a page that answers a form: its address is none to look at."""
    tab.page.clock.install()
    tab.sign_in(Role.APPROVER)
    tab.go("/lane?destination=orders&tenant=acme&key=A-17")
    with replaying.gate.engine.store.look() as session:
        lane = session.find_lane("orders", "acme", "A-17")
    assert lane is not None
    OperatorActions(replaying.gate.engine.commits, replaying.gate.engine.clock).order(
        LaneVerb.RETRY, lane.lane_id, 1, LaneDecision("Bob", "up")
    )
    tab.page.clock.run_for(6_000)
    expect(tab.page.locator(".lead .chip")).to_have_text("waiting")
    entry = replaying.scene.waiting(State.HELD, "payouts")
    tab.go(f"/entries/{entry}")
    replaying.gate.people.reject(entry, actor="Bob", reason="already paid")
    tab.page.clock.run_for(6_000)
    expect(tab.page.locator(".lead .chip")).to_have_text("failed")
    tab.go("/lane?destination=orders&tenant=acme&key=A-17")
    action = tab.page.locator("details.action", has_text="Skip…")
    action.locator("summary").click()
    action.locator("input[name=reason]").fill("x")
    OperatorActions(replaying.gate.engine.commits, replaying.gate.engine.clock).order(
        LaneVerb.SKIP, lane.lane_id, 1, LaneDecision("Bob", "gone")
    )
    action.get_by_role("button", name="Skip", exact=True).click()
    expect(tab.page.locator(".notice.bad")).to_contain_text("not the head")
    before = len(tab.requests)
    tab.page.clock.run_for(60_000)
    assert len(tab.requests) == before


@pytest.mark.slow
@pytest.mark.parametrize("width", first(DESK, PHONE))
def test_a_replay_is_cancelled_without_a_script(replaying: Site, chromium: Browser, width: int) -> None:
    context = chromium.new_context(viewport={"width": width, "height": 800}, java_script_enabled=False)
    context.set_default_timeout(60_000)
    tab = Tab(replaying, context.new_page())
    tab.sign_in(Role.OPERATOR, by_form=True)
    tab.go(LANE)
    tab.page.locator("a[data-open]", has_text="abc").click()
    action = tab.page.locator("details.action", has_text="Cancel…")
    action.locator("summary").click()
    action.locator("input[name=reason]").fill("enough")
    action.get_by_role("button", name="Cancel the rest").click()
    expect(tab.page.locator(".facts")).to_contain_text("by operator-all")
    expect(tab.page.locator(".lead .chip")).to_have_text("cancelled")
    context.close()
    assert [kind for kind, _ in log_kinds(replaying, "operator-all")] == [LogKind.REPLAY_CANCELLED]
