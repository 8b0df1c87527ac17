"""The page in a real Chromium: every page and action, wide and narrow, without errors, for everybody."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page, expect

from oncegate.dashboard.operators import Role
from oncegate.model.states import State
from oncegate.store import DestinationState, EntryFilter, LaneFilter, LaneState, LogKind
from oncegate.testing.waiting import wait_until
from tests.dashboard.conftest import Site
from tests.dashboard.scene import BIG, ERROR
from tests.dashboard.widths import DESK, PHONE, first

on_both = pytest.mark.parametrize("tab", [DESK, PHONE], indirect=True)
on_a_phone = pytest.mark.parametrize("tab", first(PHONE, DESK), indirect=True)
PAGES = [
    "/",
    "/waiting",
    "/doubled",
    "/entries",
    "/lanes?state=all",
    "/feed",
    "/surfaces",
    "/journal?all=1",
]


class Tab:
    """A browser's page that keeps what went wrong in it."""

    def __init__(self, site: Site, page: Page) -> None:
        self.site, self.page = site, page
        self.problems: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self._heard(message.type, message.text))
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("dialog", lambda dialog: self.problems.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: self._asked(request.url))

    def _heard(self, kind: str, text: str) -> None:
        # A status of 400, 403, 404 or 409 is an answer; the browser reports it all the same.
        if kind in ("error", "warning") and not re.search(r"status of (400|403|404|409)", text):
            self.problems.append(f"{kind}: {text}")

    def _asked(self, url: str) -> None:
        # The icon is fetched when the browser likes, after the page was shown as well.
        if "/static/" not in url:
            self.requests.append(url)

    def go(self, path: str) -> None:
        self.page.goto(f"{self.site.address}{path}")

    def wait_painted(self) -> None:
        """Waits until the page was shown: a browser may drop keys that come before its first picture."""
        self.page.evaluate(
            "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )

    def sign_in(self, role: Role, tenant: str | None = None, *, by_form: bool = False) -> None:
        """By the form, or as the one who has done so before and brings the cookie."""
        if not by_form:
            name, _, value = self.site.client(role, tenant).cookie.partition("=")
            self.page.context.add_cookies([{"name": name, "value": value, "url": self.site.address}])
            return
        self.go("/login")
        self.page.fill("input[name=token]", self.site.token(role, tenant))
        self.page.click(".login button")
        self.page.wait_for_url(lambda url: not url.endswith("/login"))

    def decide(self, verb: str, reason: str, within: str = "main") -> None:
        """Opens an action, gives a reason, presses its button."""
        self.decide_as(verb, verb, reason, within)

    def decide_as(self, verb: str, button: str, reason: str, within: str = "main") -> None:
        """The same, where the button has words of its own."""
        self.open_action(verb, reason, within).get_by_role("button", name=button, exact=True).click()

    def open_action(self, verb: str, reason: str, within: str = "main") -> Locator:
        """Up to its button: from here on the page does not renew itself."""
        action = self.page.locator(within).locator("details.action", has_text=f"{verb}…").first
        action.locator("summary").click()
        action.locator("input[name=reason]").fill(reason)
        return action


@pytest.fixture(params=first(DESK, PHONE))
def tab(request: pytest.FixtureRequest, site: Site, chromium: Browser) -> Iterator[Tab]:
    context = chromium.new_context(
        viewport={"width": request.param, "height": 800},
        color_scheme="light" if request.param == DESK else "dark",
    )
    context.set_default_timeout(60_000)
    tab = Tab(site, context.new_page())
    yield tab
    context.close()
    assert tab.problems == []


def log_kinds(site: Site, actor: str) -> list[tuple[LogKind, str | None]]:
    """What somebody has on record beside having signed in."""
    with site.gate.engine.store.look() as session:
        told = [r for r in session.read_log(0, 1_000) if r.actor == actor]
    return [(r.kind, r.note) for r in told if r.kind is not LogKind.SIGNED_IN]


def state_of(site: Site, entry: int) -> State:
    with site.gate.engine.store.look() as session:
        detail = session.detail(entry)
        assert detail is not None
        return detail.entry.state


def unfold(tab: Tab) -> None:
    """Opens the first of what is folded."""
    for summary in tab.page.locator("details > summary").all()[:6]:
        summary.click()


def check_for_everybody(tab: Tab) -> None:
    """No serious violation, and nothing is wider than the screen."""
    found = Axe().run(tab.page, options={"resultTypes": ["violations"]})
    grave = [v for v in found.response["violations"] if v["impact"] in ("serious", "critical")]
    assert [(tab.page.url, v["id"], v["nodes"][0]["html"]) for v in grave] == []
    width = tab.page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert width <= 0, f"{tab.page.url} is wider than the screen by {width} px"


@pytest.mark.slow
@on_both
def test_every_page_shows_without_errors_and_can_be_used_by_everybody(tab: Tab, site: Site) -> None:
    tab.sign_in(Role.APPROVER, by_form=True)
    entry = site.scene.waiting(State.UNKNOWN, "gate.in")
    lane = "/lane?destination=orders&tenant=acme&key=A-17"
    for path in [*PAGES, f"/entries/{entry}", lane, "/entries?q=state:nonsense"]:
        tab.go(path)
        unfold(tab)
        check_for_everybody(tab)


@on_a_phone
def test_now_says_at_once_that_something_waits(tab: Tab) -> None:
    tab.sign_in(Role.VIEWER, by_form=True)
    expect(tab.page.locator("#verdict")).to_contain_class("page")
    expect(tab.page.locator(".state strong")).to_have_text("10 events wait for you.")
    expect(tab.page.locator(".state")).to_contain_text("2 keys are blocked")
    expect(tab.page.locator(".state")).to_contain_text("Calls to orders fail (")
    expect(tab.page.locator(".tile.page", has_text="Waiting for you").locator(".value")).to_have_text("10")
    tab.page.click(".tile:has-text('Waiting for you') a")
    expect(tab.page.locator("h1")).to_have_text("Needs you")


@pytest.mark.parametrize("size", [(1440, 900)])
def test_now_shows_the_verdict_and_what_needs_a_person_without_scrolling(
    site: Site, chromium: Browser, size: tuple[int, int]
) -> None:
    site.scene.plan_twice()
    context = chromium.new_context(viewport={"width": size[0], "height": size[1]})
    tab = Tab(site, context.new_page())
    tab.sign_in(Role.APPROVER)
    tab.go("/")
    bottoms = tab.page.evaluate(
        "['#verdict', '.tiles.four', '.columns.now tbody'].map("
        "one => document.querySelector(one).getBoundingClientRect().bottom)"
    )
    assert max(bottoms) <= size[1]
    assert tab.page.locator("#verdict strong").inner_text() == "1 change ran twice."
    context.close()


def test_an_entry_is_approved_once_however_often_it_is_clicked(tab: Tab, site: Site) -> None:
    tab.sign_in(Role.APPROVER)
    tab.go("/waiting?q=PAY-0")
    action = tab.page.locator("details.action", has_text="Approve…")
    action.locator("summary").click()
    action.locator("input[name=reason]").fill("seen the invoice")
    action.get_by_role("button", name="Approve").dblclick()
    expect(tab.page.locator(".notice.good")).to_contain_text("approved by approver-all: seen the invoice")
    assert log_kinds(site, "approver-all") == [(LogKind.APPROVED, "seen the invoice")]


@on_a_phone
def test_two_operators_on_one_row_the_second_is_told_who_was_first(tab: Tab, site: Site) -> None:
    tab.sign_in(Role.APPROVER)
    entry = site.scene.waiting(State.HELD, "payouts")
    tab.go(f"/entries/{entry}")
    action = tab.open_action("Approve", "fine")
    site.gate.people.reject(entry, actor="Bob", reason="already paid")

    action.get_by_role("button", name="Approve", exact=True).click()

    expect(tab.page.locator(".notice.bad")).to_contain_text("Bob rejected it")
    assert state_of(site, entry) is State.FAILED
    assert log_kinds(site, "approver-all") == []


def test_a_doubt_is_settled_by_saying_what_happened(tab: Tab, site: Site) -> None:
    tab.sign_in(Role.APPROVER)
    entry = site.scene.waiting(State.UNKNOWN, "gate.in")
    tab.go(f"/entries/{entry}")
    action = tab.page.locator("details.action", has_text="Record what happened…")
    action.locator("summary").click()
    expect(action).to_contain_text("find out at the downstream", ignore_case=True)
    expect(action.locator("code")).to_contain_text(f"oncegate held approve {entry} --step")
    action.get_by_label("it happened there").check()
    action.get_by_label("and got").fill("S-4711")
    action.locator("input[name=reason]").fill("found it at the terminal")
    action.get_by_role("button", name="Record what happened").click()
    expect(tab.page.locator(".timeline").first).to_contain_text("claim_slot happened (S-4711)")
    assert state_of(site, entry) is State.RETRYABLE


@on_a_phone
def test_an_entry_tells_when_its_effect_was_started(tab: Tab, site: Site) -> None:
    tab.sign_in(Role.VIEWER)
    entry = site.scene.waiting(State.UNKNOWN, "gate.in")
    tab.go(f"/entries/{entry}")
    line = tab.page.locator(".timeline li", has_text="effect started").first
    expect(line.locator("time")).to_have_attribute("data-ms", re.compile(r"^\d{13}$"))
    lines = tab.page.locator(".timeline li strong").all_inner_texts()
    assert lines.index("reserved") < lines.index("effect started") < lines.index("left in doubt")
    expect(tab.page.locator("td[data-label=Started] time").first).to_be_visible()


@on_a_phone
def test_quarantined_entries_are_released_and_discarded(tab: Tab, site: Site) -> None:
    tab.sign_in(Role.APPROVER)
    tab.go("/waiting?q=R-0")
    tab.decide("Release", "their clock was wrong")
    expect(tab.page.locator(".notice.good")).to_contain_text("released by approver-all")
    tab.go("/waiting?q=R-1")
    tab.decide("Discard", "a test message")
    expect(tab.page.locator(".notice.good")).to_contain_text("discarded by approver-all")
    kinds = [kind for kind, _ in log_kinds(site, "approver-all")]
    assert kinds == [LogKind.RELEASED, LogKind.DISCARDED]


def test_a_pair_of_content_duplicates_is_decided(tab: Tab, site: Site) -> None:
    """Side by side, with what would undo the second; decided once, with a reason (E6)."""
    site.scene.plan_twice()
    tab.sign_in(Role.APPROVER)
    tab.go("/waiting")
    tab.page.click("text=1 pair of equal changes")
    tab.page.click("text=both ran (1)")
    pair = tab.page.locator("article", has_text="PLAN-1")
    expect(pair).to_contain_text("PLAN-2")
    expect(pair).to_contain_text("cancel route PLAN-2")
    tab.decide("Both were meant", "two visits were wanted", within="article:has-text('PLAN-1')")
    expect(tab.page.locator("article", has_text="PLAN-1")).to_have_count(0)
    assert [kind for kind, _ in log_kinds(site, "approver-all")] == [LogKind.DISMISSED]
    with site.gate.engine.store.look() as session:
        (found,) = session.duplicates(None, 10, dismissed=True)
    assert (found.dismissed_by, found.note) == ("approver-all", "both meant: two visits were wanted")


@on_a_phone
def test_content_is_hidden_until_it_is_revealed_and_that_is_on_record(tab: Tab, site: Site) -> None:
    tab.sign_in(Role.OPERATOR)
    entry = site.scene.waiting(State.HELD, "payouts")
    tab.go(f"/entries/{entry}")
    expect(tab.page.locator("main")).not_to_contain_text(str(BIG))
    tab.page.click("text=Reveal the content")
    expect(tab.page.locator("pre").first).to_contain_text(str(BIG))
    expect(tab.page.locator(".timeline")).to_contain_text("content looked at")
    assert log_kinds(site, "operator-all") == [(LogKind.REVEALED, "shown on the page")]


def test_hostile_text_stays_text_on_every_page(tab: Tab, site: Site) -> None:
    """Markup, escape codes and right-to-left overrides are shown as what they are; nothing runs."""
    tab.sign_in(Role.OPERATOR)
    with site.gate.engine.store.look() as session:
        entry = session.entries(EntryFilter(label_contains="R-2"), None, 1)[0].entry_id
    tab.go(f"/entries/{entry}")
    tab.page.click("text=Reveal the content")
    shown = tab.page.locator("pre").first
    expect(shown).to_contain_text("<script>alert(1)</script>")
    expect(shown).to_contain_text("javascript:alert(2)")
    tab.page.wait_for_load_state()
    assert "\u202e" not in tab.page.content()
    assert "\x1b" not in tab.page.content()
    tab.page.goto(f"{site.address}/lanes")
    expect(tab.page.locator("main")).to_contain_text(ERROR)
    for path in PAGES:
        tab.go(path)
        assert tab.page.locator("main script, main b:has-text('boom'), a[href^=javascript]").count() == 0
        assert "\u202e" not in tab.page.content()


@on_a_phone
def test_a_blocked_key_is_retried_and_another_skipped(tab: Tab, site: Site) -> None:
    tab.sign_in(Role.OPERATOR)
    tab.go("/waiting")
    tab.decide("Retry", "their server is back", within="article:has-text('A-17')")
    expect(tab.page.locator("article", has_text="A-17")).to_have_count(0)
    tab.decide("Skip", "cancelled by phone", within="article:has-text('B-2')")
    expect(tab.page.locator("article", has_text="B-2")).to_have_count(0)
    with site.gate.engine.store.look() as session:
        assert session.lanes(LaneFilter(states=(LaneState.BLOCKED,)), 0, 10) == []
    kinds = [kind for kind, _ in log_kinds(site, "operator-all")]
    assert kinds == [LogKind.HEAD_RETRIED, LogKind.HEAD_SKIPPED]


def test_a_destination_is_paused_and_resumed(tab: Tab, site: Site) -> None:
    tab.sign_in(Role.OPERATOR)
    for verb, state in (("Pause", DestinationState.PAUSED), ("Resume", DestinationState.ACTIVE)):
        tab.go("/lanes")
        tab.decide(verb, "their maintenance")
        expect(tab.page.locator("table .chip").first).to_have_text(state.label)
        with site.gate.engine.store.look() as session:
            assert [one.state for one in session.destinations()] == [state]


@on_a_phone
def test_past_events_of_a_lane_are_replayed(tab: Tab, site: Site) -> None:
    tab.sign_in(Role.OPERATOR)
    tab.go("/lane?destination=orders&tenant=acme&key=A-17")
    tab.decide("Skip", "never mind")
    action = tab.page.locator("details.action", has_text="Replay…")
    action.locator("summary").click()
    action.locator("input[name=reason]").fill("they lost a day")
    action.get_by_role("button", name="Replay").click()
    expect(tab.page.locator(".facts")).to_contain_text("Replaying")
    kinds = [kind for kind, _ in log_kinds(site, "operator-all")]
    assert kinds == [LogKind.HEAD_SKIPPED, LogKind.REPLAY_STARTED]


def test_many_entries_are_decided_by_plan_yes_and_job(tab: Tab, site: Site) -> None:
    tab.sign_in(Role.APPROVER)
    tab.go("/waiting?q=reason:skew")
    tab.page.click(".bulk summary")
    tab.page.select_option(".bulk select", "release")
    tab.page.fill(".bulk input[name=reason]", "clock repaired")
    tab.page.click("text=Show the plan")
    expect(tab.page.locator("main")).to_contain_text("Release 3 entries: 3 of routes")
    expect(tab.page.locator("code")).to_contain_text("oncegate quarantine release --reason-contains skew")
    planned = (LogKind.PLAN_MADE, "release 3 entries: clock repaired")
    assert log_kinds(site, "approver-all") == [planned]
    tab.page.click("text=Release all 3")
    expect(tab.page.locator("main")).to_contain_text("3 released of 3")
    told = sorted(kind for kind, _ in log_kinds(site, "approver-all"))
    assert told == [*[LogKind.RELEASED] * 3, LogKind.JOB_STARTED, LogKind.PLAN_MADE]


@on_a_phone
def test_all_blocked_keys_of_a_destination_are_retried_by_plan(tab: Tab, site: Site) -> None:
    tab.sign_in(Role.OPERATOR)
    tab.go("/lanes?destination=orders")
    bulk = tab.page.locator("details.bulk", has_text="all blocked keys of orders")
    bulk.locator("summary").click()
    bulk.locator("input[name=reason]").fill("their server is back")
    bulk.get_by_role("button").click()
    tab.page.click("text=Retry all 2")
    expect(tab.page.locator("main")).to_contain_text("2 retried of 2")


def test_the_filter_is_the_address_and_pages_are_stable_while_events_come(tab: Tab, site: Site) -> None:
    site.scene.quiet(events=70)
    tab.sign_in(Role.VIEWER)
    tab.go("/entries")
    tab.page.fill("input[type=search]", "surface:portbase.cis")
    with tab.page.expect_navigation():  # to the end of its loading: the rows are read at once
        tab.page.press("input[type=search]", "Enter")
    assert "q=surface%3Aportbase.cis" in tab.page.url
    first = tab.page.locator("tbody a").all_inner_texts()
    site.scene.admit("portbase.cis", id="LATE", terminal="Delta")
    with tab.page.expect_navigation():
        tab.page.click("text=Older entries")
    second = tab.page.locator("tbody a").all_inner_texts()
    assert len(first) == 50
    assert not set(first) & set(second)
    assert len(set(first) | set(second)) == 70


def test_live_update_brings_what_is_new_and_a_pause_stops_every_request(tab: Tab, site: Site) -> None:
    tab.page.clock.install()
    tab.sign_in(Role.VIEWER)
    tab.go("/entries")
    top = tab.page.locator("tbody tr").first
    was = top.inner_text().split()[0]
    site.scene.admit("portbase.cis", id="FRESH-1", terminal="Delta")
    tab.page.clock.run_for(6_000)
    expect(tab.page.locator("#new")).to_have_text("1 new")
    expect(top).to_contain_text(was)  # no row moves under a reader's hand
    tab.page.click("#new")
    expect(top).to_contain_text("FRESH-1")
    expect(tab.page.locator("#new")).to_be_hidden()
    tab.page.screenshot()  # keys that come before the first picture may be dropped
    tab.page.keyboard.press("p")
    expect(tab.page.locator("#pause")).to_have_text("resume")
    before = len(tab.requests)
    tab.page.clock.run_for(60_000)  # twelve times as long as it waits between two looks
    assert len(tab.requests) == before
    site.scene.admit("portbase.cis", id="FRESH-2", terminal="Delta")
    tab.page.click("#pause")
    expect(tab.page.locator("tbody")).to_contain_text("FRESH-2")


@on_a_phone
def test_live_update_leaves_an_open_action_alone(tab: Tab, site: Site) -> None:
    tab.page.clock.install()
    tab.sign_in(Role.APPROVER)
    tab.go("/waiting?q=PAY-0")
    action = tab.page.locator("details.action", has_text="Approve…")
    action.locator("summary").click()
    action.locator("input[name=reason]").fill("half a sen")
    tab.page.clock.run_for(60_000)
    expect(action.locator("input[name=reason]")).to_have_value("half a sen")


def test_keys_search_move_open_and_help(tab: Tab, site: Site) -> None:
    tab.sign_in(Role.VIEWER)
    tab.go("/entries")
    tab.wait_painted()
    for key, place in (("j", 0), ("j", 1), ("k", 0)):
        tab.page.keyboard.press(key)
        expect(tab.page.locator("tr[data-row]").nth(place)).to_contain_class("here")
        expect(tab.page.locator("tr.here")).to_have_count(1)
    tab.page.keyboard.press("/")
    expect(tab.page.locator("input[type=search]")).to_be_focused()
    tab.page.keyboard.type("j?")
    expect(tab.page.locator("input[type=search]")).to_have_value("j?")
    tab.page.locator("h1").click()
    tab.page.evaluate("document.activeElement.blur()")
    tab.page.keyboard.press("?")
    expect(tab.page.locator("dialog")).to_be_visible()
    tab.page.keyboard.press("Escape")
    expect(tab.page.locator("dialog")).to_be_hidden()
    expect(tab.page.locator("dialog[open]")).to_have_count(0)
    expect(tab.page.locator("tr.here [data-open]")).to_have_count(1)
    tab.page.keyboard.press("Enter")
    expect(tab.page.locator("h1")).to_contain_text("Entry")


@on_a_phone
def test_times_are_shown_relative_in_utc_and_local(tab: Tab) -> None:
    tab.sign_in(Role.VIEWER)
    tab.go("/entries")
    time = tab.page.locator("tbody time").first
    expect(time).to_contain_text("ago")
    tab.page.click("#times")
    expect(time).to_contain_text("UTC")
    tab.page.click("#times")
    expect(time).to_have_text(re.compile(r"\d"))
    expect(tab.page.locator("#times")).to_have_text("times: local")


@pytest.mark.slow
@pytest.mark.parametrize("width", first(PHONE, DESK))
def test_looking_and_acting_work_without_a_script(site: Site, chromium: Browser, width: int) -> None:
    context = chromium.new_context(viewport={"width": width, "height": 800}, java_script_enabled=False)
    context.set_default_timeout(60_000)
    tab = Tab(site, context.new_page())
    tab.sign_in(Role.APPROVER, by_form=True)
    tab.go("/waiting?q=PAY-1")
    tab.decide("Reject", "not ours")
    expect(tab.page.locator(".notice.good")).to_contain_text("rejected by approver-all: not ours")
    for path in PAGES:
        tab.go(path)
        expect(tab.page.locator("h1")).to_be_visible()
    context.close()
    wait_until(lambda: log_kinds(site, "approver-all") == [(LogKind.REJECTED, "not ours")])
