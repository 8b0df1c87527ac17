"""Pages are short where thousands wait: on a desk and on a phone; nothing moves under a reader."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from oncegate.dashboard.operators import Role
from oncegate.sender.operator_actions import LaneDecision, OperatorActions
from oncegate.store import DestinationState
from tests.dashboard.conftest import Site
from tests.dashboard.test_thousands import filled, site
from tests.dashboard.widths import PHONE, first

__all__ = ["filled", "site"]

DESK = 1440
on_one = pytest.mark.parametrize("page", first(DESK, PHONE), indirect=True)

# The tallest that a page may be where 12,345 of everything wait: at 1440 px and at 390 px.
TALLEST = {
    "/": (1_300, 3_200),
    "/lanes?destination=orders": (1_600, 7_300),
    "/dead-letters": (1_000, 7_000),
}


@pytest.fixture(params=[DESK, PHONE])
def page(request: pytest.FixtureRequest, site: Site, chromium: Browser) -> Iterator[Page]:
    context = chromium.new_context(viewport={"width": request.param, "height": 844})
    context.set_default_timeout(60_000)
    name, _, value = site.client(Role.APPROVER).cookie.partition("=")
    context.add_cookies([{"name": name, "value": value, "url": site.address}])
    yield context.new_page()
    context.close()


@pytest.mark.slow
def test_pages_are_no_taller_than_a_few_screens(page: Page, site: Site) -> None:
    is_phone = page.viewport_size is not None and page.viewport_size["width"] < 500
    tall = {}
    for path, limits in TALLEST.items():
        page.goto(f"{site.address}{path}")
        height = page.evaluate("document.documentElement.scrollHeight")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        if height > limits[is_phone]:
            tall[path] = height
    assert tall == {}


@on_one
def test_what_to_do_about_a_raised_signal_is_one_click_away(page: Page, site: Site) -> None:
    page.goto(f"{site.address}/")
    raised = page.locator("#signals table")
    expect(raised).to_be_hidden()
    page.get_by_role("link", name="What to do").first.click()
    expect(raised).to_be_visible()


def test_forms_for_many_keys_are_at_the_top(page: Page, site: Site) -> None:
    page.goto(f"{site.address}/lanes?destination=orders")
    for form in page.locator("details.bulk").all():
        box = form.bounding_box()
        assert box is not None
        assert box["y"] < 400


@pytest.mark.slow
def test_no_word_is_broken_in_the_middle(page: Page, site: Site) -> None:
    """A word may break only where it is longer than its line."""
    for path in ("/", "/waiting", "/lanes", "/dead-letters", "/journal", "/entries", "/surfaces"):
        page.goto(f"{site.address}{path}")
        assert page.evaluate(BROKEN_WORDS) == [], path


# Words of up to 14 letters that stand on two lines.
BROKEN_WORDS = r"""
() => {
  const found = [];
  const walk = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode;
    if (node.parentElement.closest("details:not([open])")) continue;
    for (const word of node.textContent.matchAll(/[A-Za-z]{4,14}/g)) {
      const range = document.createRange();
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      const lines = [...range.getClientRects()].filter((one) => one.width > 0);
      const tops = new Set(lines.map((one) => Math.round(one.top)));
      if (tops.size > 1) found.push(word[0]);
    }
  }
  return found;
}
"""


@on_one
def test_the_journal_stays_where_it_is_and_tells_how_many_are_new(page: Page, site: Site) -> None:
    page.clock.install()
    page.goto(f"{site.address}/journal")
    top = page.locator("tbody tr").first
    was = top.get_attribute("data-name")
    desk = OperatorActions(site.gate.engine.commits, site.gate.engine.clock)
    for state in (DestinationState.PAUSED, DestinationState.ACTIVE):
        desk.steer("orders", state, LaneDecision("Bob", "maintenance"))
    page.clock.run_for(11_000)
    expect(page.locator("#new")).to_have_text("2 new")
    assert top.get_attribute("data-name") == was
    page.click("#new")
    expect(top).to_contain_text("maintenance")
    expect(page.locator("#new")).to_be_hidden()
    expect(page.locator("#fresh")).to_have_text(re.compile(r"^live, \d+ s old$"))


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/entries", "/lanes", "/dead-letters", "/journal?all=1"])
def test_the_head_of_a_long_list_stays_in_view(site: Site, chromium: Browser, path: str) -> None:
    context = chromium.new_context(viewport={"width": 1440, "height": 844})
    name, _, value = site.client(Role.VIEWER).cookie.partition("=")
    context.add_cookies([{"name": name, "value": value, "url": site.address}])
    page = context.new_page()
    page.goto(f"{site.address}{path}")
    box = page.locator(".scroll.list")
    box.evaluate("one => one.scrollTo(0, 400)")
    assert box.evaluate("one => one.scrollTop") > 0
    gap = box.evaluate(
        "one => one.querySelector('th').getBoundingClientRect().top - one.getBoundingClientRect().top"
    )
    assert abs(gap) <= 2
    context.close()
