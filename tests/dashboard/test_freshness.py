"""What the page shows is of this moment, or it says how old it is and why; lost contact is grey (I28)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from oncegate.clock import SystemClock
from oncegate.dashboard.operators import Role
from oncegate.errors import StoreUnavailable
from oncegate.stores.sqlite import SqliteStore
from oncegate.wiring import Gate
from tests.dashboard.conftest import Client, Site
from tests.dashboard.test_in_a_browser import check_for_everybody as check
from tests.dashboard.widths import PHONE, first

DESK = 1440
on_both = pytest.mark.parametrize("look", [DESK, PHONE], indirect=True)
on_a_phone = pytest.mark.parametrize("look", first(PHONE, DESK), indirect=True)


class Look:
    """A tab of somebody who is signed in, with a clock that only the test moves."""

    def __init__(self, site: Site, page: Page, client: Client) -> None:
        self.site, self.page, self.client = site, page, client
        name, _, value = client.cookie.partition("=")
        page.context.add_cookies([{"name": name, "value": value, "url": site.address}])
        page.clock.install()

    def go(self, path: str) -> None:
        self.page.goto(f"{self.site.address}{path}")

    @property
    def fresh(self) -> Locator:
        return self.page.locator("#fresh")

    @property
    def icon(self) -> Locator:
        """The picture in the browser's tab."""
        return self.page.locator("link[rel=icon]")


@pytest.fixture(params=first(DESK, PHONE))
def look(request: pytest.FixtureRequest, site: Site, chromium: Browser) -> Iterator[Look]:
    context = chromium.new_context(
        viewport={"width": request.param, "height": 900},
        color_scheme="light" if request.param == DESK else "dark",
    )
    context.set_default_timeout(60_000)
    yield Look(site, context.new_page(), site.client(Role.APPROVER))
    context.close()


def moved_away(site: Site) -> tuple[Path, Path]:
    """Where the ledger's file is, and where the test puts it."""
    assert isinstance(site.gate.engine.store, SqliteStore)
    path = site.gate.engine.store.path
    return path, path.with_suffix(".away")


def test_the_age_of_what_is_shown_is_always_visible_and_ticks(look: Look) -> None:
    look.page.clock.pause_at(SystemClock().wall_ms() / 1000 + 5)  # a slow machine is no second look
    look.go("/")
    expect(look.fresh).to_have_text(re.compile(r"^live, \d+ s old$"))
    look.page.route("**/*", lambda route: None)  # no answer comes any more, and none is refused
    look.page.clock.run_for(4_000)
    expect(look.fresh).to_have_text(re.compile(r"^live, [4-6] s old$"))
    look.page.keyboard.press("p")
    look.page.clock.fast_forward(200_000)
    expect(look.fresh).to_have_text("paused, 3 min old")
    expect(look.page.locator("body")).to_contain_class("old")


@on_a_phone
def test_relative_times_go_on(look: Look) -> None:
    look.go("/entries")
    time = look.page.locator("tbody time").first
    before = time.inner_text()
    look.page.keyboard.press("p")
    look.page.clock.fast_forward(300_000)
    expect(time).not_to_have_text(before)
    expect(time).to_have_text(re.compile(r"\d+ (min|h) ago"))


def test_an_open_detail_stays_open_and_the_page_goes_on(look: Look, site: Site) -> None:
    look.go("/")
    detail = look.page.locator("#live details", has_text="quiet").first
    detail.locator("summary").click()
    title = look.page.title()
    site.scene.admit("payouts", id="PAY-NEW", tenant="acme", amount=1)
    site.scene.gate.engine.sightings.flush()
    look.page.clock.run_for(6_000)
    expect(look.page.locator("main")).to_contain_text("4 held")
    expect(look.page.locator("#live details[open]")).to_have_count(1)
    expect(look.page.locator("#live details[open] summary")).to_be_focused()
    assert look.page.title() != title
    assert f"({look.page.locator('nav .badge').inner_text()}) Now" in look.page.title()
    expect(look.icon).to_have_attribute("href", re.compile("/icon-red.svg$"))


def test_selected_text_is_left_alone_and_the_page_says_so(look: Look, site: Site) -> None:
    look.go("/")
    look.page.locator("h2").first.evaluate("one => getSelection().selectAllChildren(one)")
    site.scene.admit("payouts", id="PAY-NEW", tenant="acme", amount=1)
    badge = look.page.locator("nav .badge").inner_text()
    look.page.clock.run_for(31_000)
    expect(look.fresh).to_have_text(re.compile(r"^held while text is selected, 3\d s old$"))
    expect(look.page.locator("nav .badge")).not_to_have_text(badge)
    expect(look.page.locator("body")).to_contain_class("old")
    look.page.evaluate("getSelection().removeAllRanges()")
    look.page.clock.run_for(6_000)
    expect(look.fresh).to_have_text(re.compile(r"^live, \d s old$"))
    expect(look.page.locator("main")).to_contain_text("4 held")


@on_a_phone
def test_an_ended_session_says_so_and_leads_back(look: Look, site: Site) -> None:
    look.go("/entries?q=state%3Aheld")
    look.client.post("/logout", {})
    look.page.clock.run_for(6_000)
    expect(look.page.locator("#lost")).to_contain_text("Your session is over")
    expect(look.fresh).to_have_text("session over")
    expect(look.page.locator("main")).not_to_contain_text("No connection since")
    look.page.locator("#lost a").click()
    look.page.fill("input[name=token]", site.tokens["approver-all"])
    look.page.click(".login button")
    expect(look.page).to_have_url(f"{site.address}/entries?q=state%3Aheld")


@on_both
def test_a_ledger_that_is_gone_turns_the_page_grey_and_back(look: Look, site: Site) -> None:
    """The old verdict goes at once; a reload says since when and advises nothing that destroys."""
    look.go("/")
    path, away = moved_away(site)
    path.rename(away)
    look.page.clock.run_for(6_000)
    expect(look.page.locator("#lost")).to_have_text(re.compile(r"No connection since \d\d:\d\d:\d\d"))
    expect(look.page.locator("#lost")).to_contain_text("is from then")
    expect(look.page.locator("#verdict")).to_contain_class("unknown")
    expect(look.page.locator("#verdict")).not_to_contain_text(re.compile("wait for you|ran once"))
    expect(look.fresh).to_have_text(re.compile(r"no connection since \d\d:\d\d:\d\d"))
    expect(look.icon).to_have_attribute("href", re.compile("/icon-grey.svg$"))
    check(look)  # type: ignore[arg-type]  # it needs the page only

    look.page.reload()
    main = look.page.locator("main")
    expect(main).to_contain_text(re.compile(r"No connection to the ledger since \d\d:\d\d:\d\d UTC"))
    expect(main).to_contain_text("was here and is gone")
    expect(main).not_to_contain_text("oncegate migrate")
    check(look)  # type: ignore[arg-type]
    assert not path.exists(), "nothing has made an empty ledger in its place"

    away.rename(path)
    look.page.clock.run_for(6_000)
    expect(look.page.locator("h1")).to_have_text("Now")
    expect(look.fresh).to_have_text(re.compile(r"^live, \d+ s old$"))


@on_a_phone
def test_a_server_that_is_gone_turns_the_page_grey(look: Look) -> None:
    look.go("/")
    look.page.route("**/*", lambda route: route.abort())
    look.page.clock.run_for(6_000)
    expect(look.page.locator("#verdict")).to_contain_text("No connection since")
    look.page.unroute("**/*")
    look.page.clock.run_for(6_000)
    expect(look.page.locator("#lost")).to_be_hidden()
    expect(look.icon).to_have_attribute("href", re.compile("/icon-red.svg$"))
    expect(look.page.locator("#verdict")).not_to_contain_text("No connection since")


@on_a_phone
def test_a_form_of_a_dead_session_is_kept_in_a_browser(look: Look, site: Site) -> None:
    look.go("/waiting?q=PAY-0")
    action = look.page.locator("details.action", has_text="Approve…")
    action.locator("summary").click()
    action.locator("input[name=reason]").fill("two of us saw the truck")
    look.client.post("/logout", {})
    action.get_by_role("button", name="Approve", exact=True).click()
    expect(look.page.locator("main")).to_contain_text("nothing was changed")
    check(look)  # type: ignore[arg-type]
    look.page.fill("input[name=token]", site.tokens["approver-all"])
    look.page.click(".login button")
    expect(look.page.locator("input[name=reason]")).to_have_value("two of us saw the truck")
    check(look)  # type: ignore[arg-type]
    look.page.get_by_role("button", name="Send it now").click()
    expect(look.page.locator("main")).to_contain_text(re.compile("approved", re.IGNORECASE))


def test_without_a_script_the_page_says_of_when_it_is(site: Site, chromium: Browser) -> None:
    context = chromium.new_context(java_script_enabled=False)
    client = site.client(Role.VIEWER)
    name, _, value = client.cookie.partition("=")
    context.add_cookies([{"name": name, "value": value, "url": site.address}])
    page = context.new_page()
    page.goto(f"{site.address}/")
    expect(page.locator("#fresh")).to_have_text(re.compile(r"as of \d\d:\d\d:\d\d UTC"))
    context.close()


@pytest.fixture(params=["sqlite", "postgres"])
def gate(request, tmp_path) -> Iterator[Gate]:
    if request.param == "sqlite":
        made = Gate(f"sqlite:///{tmp_path / 'ledger.db'}")
    else:
        made = Gate(request.getfixturevalue("ledger_url"))
    yield made
    made.close()


def lose(gate: Gate) -> None:
    """Takes the ledger away, as a dropped schema or a deleted file does."""
    if isinstance(gate.engine.store, SqliteStore):
        for file in gate.engine.store.path.parent.glob(f"{gate.engine.store.path.name}*"):
            file.unlink()
        return
    session = gate.engine.store.connect()
    session._connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")  # type: ignore[attr-defined]
    session.close()


def test_no_process_makes_an_empty_ledger_where_it_had_one(gate: Gate) -> None:
    """Nor advises to: each event that comes again would run again."""
    gate.engine.store.connect().close()
    lose(gate)
    for reach in (gate.engine.store.connect, gate.engine.store.look().__enter__):
        with pytest.raises(StoreUnavailable, match="was here and is gone") as refused:
            reach()
        assert "oncegate migrate" not in str(refused.value)
    assert gate.engine.store.pending_migrations()[0].number == 1, "nothing was made"


@pytest.mark.slow
def test_a_new_address_is_told_how_to_begin(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "new.db")
    with pytest.raises(StoreUnavailable, match="if there never was one, run `oncegate migrate`"):
        store.look().__enter__()
    store.connect().close()
