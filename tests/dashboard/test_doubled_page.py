"""Changes that ran twice, and releases that would make them: on the page and in the terminal (E5, I20)."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from oncegate.cli.main import main
from oncegate.dashboard.operators import Role
from oncegate.model.states import State
from oncegate.store import EntryFilter, Flag
from oncegate.testing.waiting import wait_until
from tests.dashboard.conftest import Client, Reply, Site
from tests.dashboard.test_thousands import text_of

PLANS = "surface:plans state:quarantined"


def numbered(site: Site, state: State = State.QUARANTINED) -> dict[str, tuple[int, int]]:
    """Entries of the surface by label, with their fences."""
    with site.gate.engine.store.look() as session:
        found = session.entries(EntryFilter((state,), "plans"), None, 100)
    return {entry.label: (entry.entry_id, entry.fence) for entry in found}


def plan_of(site: Site, client: Client, verb: str = "release", q: str = PLANS) -> str:
    """The path of a plan's page."""
    reply = client.post("/plans/entries", site.form(client, q=q, verb=verb, reason="their clock was wrong"))
    assert reply.status == 303, reply.text
    return reply.headers["location"].removeprefix(client.prefix)


def start(site: Site, client: Client, plan: str, **fields: str) -> Reply:
    return client.post(f"{plan}/start", site.form(client, **fields))


def wait_for_end(client: Client, plan: str) -> str:
    """The plan's page once its job has ended."""
    wait_until(lambda: "ended" in text_of(client, plan))
    return re.sub(r"\s+", " ", text_of(client, plan))


@pytest.mark.slow
def test_one_change_that_ran_twice_makes_the_page_red_and_counts_in_the_badge(site: Site) -> None:
    client = site.client(Role.APPROVER)
    before = re.search(r'<span class="badge">(\d+)<', client.get("/").text)
    site.scene.plan_twice()
    page = client.get("/").text
    after = re.search(r'<span class="badge">(\d+)<', page)
    assert before is not None
    assert after is not None
    assert int(after[1]) == int(before[1]) + 1
    assert 'class="state page"' in page
    assert "<strong>1 change ran twice.</strong>" in page
    link = re.search(r'href="([^"]*)">Review pairs<', page)
    assert link is not None
    pairs = client.get(link[1].removeprefix(client.prefix)).text
    assert 'class="chip page">ran twice<' in pairs
    assert "1 change ran twice</a>, under two keys, and is not decided." in client.get("/waiting").text
    nothing = client.get("/waiting?q=no-such-label").text
    assert ("No entry that waits fits this filter" in nothing, "Nothing waits" in nothing) == (True, False)
    assert (pairs.count("<article"), "PLAN-1" in pairs, "PLAN-2" in pairs) == (1, True, True)


@pytest.mark.slow
def test_a_link_that_says_how_many_opens_as_many(site: Site) -> None:
    """Every cause on the pages Now and Needs you: its count, and what its link lists."""
    client = site.client(Role.APPROVER)
    site.scene.stop_pairs(2, singles=3)
    states = "(quarantined|held|unknown)<"
    rows = re.findall(rf'class="short">(\d+) {states}.*?href="([^"]*)"', client.get("/").text)
    found = re.findall(
        rf'<a href="([^"]*)"><span class="mark.*?<b>(\d+) {states}', client.get("/waiting").text
    )
    assert len(rows) >= 6
    assert {link: count for count, _, link in rows} == {link: count for link, count, _ in found}
    for count, state, link in rows:
        path = link.removeprefix(client.prefix).replace("&amp;", "&")
        text = client.get(path).text
        assert text.count("<article") == int(count), (state, path)
        assert f'<a href="{link}" aria-current="true">' in text, "its cause is marked"


def test_a_plan_says_how_many_are_the_same_change_and_runs_one_of_each(site: Site) -> None:
    site.scene.stop_pairs(3, singles=2)
    client = site.client(Role.APPROVER)
    plan = plan_of(site, client)
    text = re.sub(r"\s+", " ", text_of(client, plan))
    assert "3 of 8 are the same change as another one" in text
    assert "one of each: 5 released, no change runs twice" in text
    assert "none of them: 2 released" in text
    assert start(site, client, plan, doubles="one").status == 303
    assert "5 released of 5" in wait_for_end(client, plan)
    assert sorted(numbered(site)) == ["S-0b", "S-1b", "S-2b"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [({}, "say whether one of each"), ({"doubles": "all"}, "confirm that 3 changes run twice")],
)
def test_nothing_runs_twice_without_a_choice_and_a_second_confirmation(
    site: Site, fields: dict[str, str], words: str
) -> None:
    site.scene.stop_pairs(3)
    client = site.client(Role.APPROVER)
    plan = plan_of(site, client)
    refused = start(site, client, plan, **fields)
    assert (refused.status, words in refused.text) == (409, True)
    assert len(numbered(site)) == 6


@pytest.mark.parametrize(("choice", "left"), [("none", 6), ("all", 0)])
def test_none_or_all_run_as_chosen(site: Site, choice: str, left: int) -> None:
    site.scene.stop_pairs(3, singles=1)
    client = site.client(Role.APPROVER)
    plan = plan_of(site, client)
    assert start(site, client, plan, doubles=choice, confirm="all").status == 303
    wait_for_end(client, plan)
    assert len(numbered(site)) == left


def test_a_discard_asks_nothing_about_equal_changes(site: Site) -> None:
    site.scene.stop_pairs(1)
    client = site.client(Role.APPROVER)
    plan = plan_of(site, client, "discard")
    assert "are the same change" not in text_of(client, plan)
    assert start(site, client, plan).status == 303
    wait_for_end(client, plan)
    assert numbered(site) == {}


def test_a_pair_found_after_the_plan_was_made_is_not_run_twice(site: Site) -> None:
    """The plan showed no equal changes, so no person has confirmed any."""
    site.scene.stop_pairs(0, singles=3)
    client = site.client(Role.APPROVER)
    plan = plan_of(site, client)
    assert "are the same change" not in text_of(client, plan)
    found = numbered(site)
    with site.gate.engine.commits.transaction() as session:
        session.flag([Flag(found["T-1"][0], found["T-0"][0], 5, "content scan")])
    assert start(site, client, plan).status == 303
    text = wait_for_end(client, plan)
    assert "2 released, 1 cannot be decided so and were left of 3" in text
    assert f"entry {found['T-1'][0]} was found to be the same change" in text
    assert list(numbered(site)) == ["T-1"]


def test_the_second_half_of_a_pair_is_released_only_with_a_confirmation(site: Site) -> None:
    site.scene.stop_pairs(1)
    client = site.client(Role.APPROVER)
    (first, fence), (second, other) = numbered(site)["S-0a"], numbered(site)["S-0b"]
    form = site.form(client, reason="once", fence=str(fence))
    assert client.post(f"/entries/{first}/release", form).status == 303
    page = client.get(f"/entries/{second}").text
    assert f"the same change runs twice: entry {first} is retryable" in page
    assert 'name="doubles" value="all" required' in page
    assert f"release {second} --doubles all" in page
    refused = client.post(f"/entries/{second}/release", site.form(client, reason="x", fence=str(other)))
    assert (refused.status, "both will have run" in refused.text) == (409, True)
    form = site.form(client, reason="both are wanted", fence=str(other), doubles="all")
    assert client.post(f"/entries/{second}/release", form).status == 303
    assert numbered(site) == {}


def test_a_decision_about_a_pair_that_has_changed_meanwhile_changes_nothing(site: Site) -> None:
    site.scene.stop_pairs(1)
    client = site.client(Role.APPROVER)
    (first, fence), (second, other) = numbered(site)["S-0a"], numbered(site)["S-0b"]
    path, seen = f"/duplicates/{second}/keep-first", {"fence": str(other), "other-fence": str(fence)}
    stale = client.post(path, site.form(client, reason="x", **{**seen, "other-fence": str(fence + 1)}))
    assert (stale.status, "has changed since you saw it" in stale.text) == (409, True)
    assert client.post(path, site.form(client, reason="", **seen)).status == 409
    assert client.post(path, site.form(client, reason="x")).status == 404
    assert client.post(path, site.form(client, reason="a copy", **seen)).status == 303
    assert list(numbered(site)) == ["S-0a"]
    assert client.post(path, site.form(client, reason="again", **seen)).status == 409
    records = [r for r in _log(site) if r.actor == "approver-all" and r.entry_id == second]
    assert [(r.kind.name, r.note) for r in records] == [
        ("DISCARDED", "a copy"),
        ("DISMISSED", "first kept: a copy"),
    ]
    assert first != second


def _log(site: Site) -> list[Any]:
    with site.gate.engine.store.look() as session:
        return session.read_log(0, 1_000)


def test_the_terminal_says_and_asks_the_same(site: Site, capsys: Any) -> None:
    site.scene.stop_pairs(3, singles=2)
    url = ["--url", site.url]
    command = ["quarantine", "release", "--surface", "plans", "--reason", "their clock", *url]
    assert main([*command, "--dry-run"]) == 0
    told = capsys.readouterr().err
    assert "3 of 8 are the same change as another one" in told
    assert "--doubles one    5 run" in told
    assert main([*command, "--dry-run", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)["plan"]
    assert (facts["same_change"], facts["doubles"]) == (3, {"one": 5, "all": 8, "none": 2})
    assert main([*command, "--yes"]) == 1
    assert "say which of them run with --doubles" in capsys.readouterr().err
    assert len(numbered(site)) == 8
    assert main([*command, "--yes", "--doubles", "one"]) == 0
    assert "5 released" in capsys.readouterr().out
    left = numbered(site)
    assert sorted(left) == ["S-0b", "S-1b", "S-2b"]
    one = ["quarantine", "release", str(left["S-0b"][0]), "--reason", "x", *url]
    assert main(one) == 1
    assert "both will have run" in capsys.readouterr().err
    assert main(["quarantine", "show", str(left["S-0b"][0]), *url]) == 0
    assert "note: it is the same change as entry" in capsys.readouterr().out
    assert main([*one, "--doubles", "all"]) == 0
