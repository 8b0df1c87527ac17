"""Snapshots and roll-back on the page: the first wrong snapshot, a long plan, one yes (E9, I20)."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser

from oncegate.dashboard import journal_page
from oncegate.dashboard.operators import Role
from oncegate.dashboard.rollback_page import MASKED, _numbers, selection_of
from oncegate.errors import UsageError
from oncegate.journal.keys import PrivateKey
from oncegate.journal.rollback.plans import (
    LeftAlone,
    PlanBook,
    PlanLines,
    PlanState,
    RollbackLine,
    RollbackPlan,
)
from oncegate.journal.sealer import Sealer
from oncegate.journal.snapshots.suspicion import SnapshotFacts
from oncegate.journal.snapshots.timeline import change_timeline
from oncegate.store import LogKind, Note
from tests.dashboard.conftest import Client, Reply, Site

LINES = 1_000


def book(site: Site) -> PlanBook:
    return PlanBook(site.gate.engine.commits, site.gate.engine.clock)


def proposed(site: Site, count: int = LINES, second_above: int = 5_000) -> RollbackPlan:
    """A plan with a conflict in every tenth line and one line of hand work."""
    lines = tuple(
        RollbackLine(
            number, "routes", f'"route-{number}"', "route.add",
            b'{"carer":"<b>Anna</b>","day":"monday","id":"route"}', None,
            (f"made with the content of route-{number - 1}", "route.add by entry 7 of visits"), (7,),
            "changed since: carer" if number % 10 == 0 else None,
            "no compensation: remove it" if number == count else None,
        )
        for number in range(1, count + 1)
    )  # fmt: skip
    made = PlanLines(lines, (LeftAlone("routes", '"own"', "added"),))
    now_ms = site.gate.engine.clock.wall_ms()
    conflicts = tuple(line.number for line in lines if line.conflict and line.hand is None)
    plan = RollbackPlan(
        "abcd1234", 41, "f" * 64, now_ms, "anna", now_ms + 3_600_000, PlanState.PROPOSED, second_above,
        made.digest, count, count // 10, 1, 3, 1, count, conflicts,
    )  # fmt: skip
    book(site).propose(plan, made)
    return plan


def timeline(site: Site, count: int = 120) -> None:
    """Snapshots of which the 100th is the first that looks wrong."""
    store, clock = site.gate.engine.store, site.gate.engine.clock
    for number in range(1, count + 1):
        same = max(0, number - 98) * 4
        facts = SnapshotFacts(number, f"{number:064x}", clock.wall_ms(), 0, {"routes": (312 + same, same)})
        place = {"vault": "s3://care", "promise": "Object Lock, COMPLIANCE", "every_ms": 900_000}
        change_timeline(store, clock, facts, "", **place)


def approve(site: Site, client: Client, plan: RollbackPlan, **changed: str) -> Reply:
    fields = {"hash": plan.digest, "selection": selection_of(plan), "reason": "doubled", **changed}
    return client.post(f"/rollback/{plan.name}/approve", site.form(client, **fields))


def stands(site: Site) -> RollbackPlan:
    with site.gate.engine.store.look() as session:
        return book(site).read(session, "abcd1234")


@pytest.mark.slow
def test_timeline_names_the_first_wrong_snapshot_and_asks_for_a_plan(site: Site) -> None:
    """The worker finds the wish; a viewer cannot have one."""
    client = site.client(Role.OPERATOR)
    assert "No snapshot was taken yet" in client.get("/snapshots").text
    timeline(site)
    page = client.get("/snapshots").text
    assert "Snapshot 99 is the first that looks wrong." in page
    assert "Snapshot 98 is the last good one" in page
    assert "Older snapshots" in page
    reply = client.post("/rollback/want", site.form(client, snapshot="98"))
    assert reply.status == 303
    with site.gate.engine.store.look() as session:
        (plan,) = book(site).all(session)
    assert (plan.snapshot, plan.state, plan.made_by) == (98, PlanState.WANTED, "operator-all")
    assert client.post("/rollback/want", site.form(client, snapshot="9999")).status == 404
    viewer = site.client(Role.VIEWER)
    assert viewer.post("/rollback/want", site.form(viewer, snapshot="98")).status == 403


@pytest.mark.slow
def test_lines_are_unticked_and_exactly_these_are_approved(site: Site) -> None:
    """One click each; then one yes, which the journal keeps."""
    plan = proposed(site)
    operator, approver = site.client(Role.OPERATOR), site.client(Role.APPROVER)
    page = operator.get(f"/rollback/{plan.name}").text
    assert "&lt;b&gt;Anna&lt;/b&gt;" in page
    assert "Conflict: changed since: carer" in page
    assert "Needs the role approver" in page
    assert "Lines 1 to 100 of 1&#8239;000" in page
    toggled = operator.post(f"/rollback/{plan.name}/choose", site.form(operator, line="3"))
    assert toggled.status == 303
    stale = approve(site, approver, plan)
    assert (stale.status, stands(site).state) == (409, PlanState.PROPOSED)
    assert "another operator chose other lines" in stale.text
    chosen = stands(site)
    assert 3 in chosen.unticked
    assert approve(site, operator, chosen).status == 403
    assert approve(site, approver, chosen).status == 303
    ended = stands(site)
    assert (ended.state, ended.chosen) == (PlanState.APPROVED, LINES - 1 - 99 - 1)
    assert approve(site, approver, ended).status == 409
    late = operator.post(f"/rollback/{plan.name}/choose", site.form(operator, line="4"))
    assert late.status == 409
    with site.gate.engine.store.look() as session:
        started = [one for one in session.read_log(0, 5000) if one.kind is LogKind.JOB_STARTED]
    assert [one.actor for one in started if "abcd1234" in (one.note or "")] == ["approver-all"]


def test_many_lines_are_left_out_at_once_and_a_plan_is_cancelled(site: Site) -> None:
    """By numbers and ranges; what is not a line is refused."""
    plan = proposed(site, 50)
    client = site.client(Role.OPERATOR)
    reply = client.post(f"/rollback/{plan.name}/choose", site.form(client, without="1-48, 50"))
    assert reply.status == 303
    assert stands(site).chosen == 1
    assert client.post(f"/rollback/{plan.name}/cancel", site.form(client, reason="no")).status == 303
    assert stands(site).state is PlanState.CANCELLED
    with pytest.raises(UsageError, match="write numbers such as 4, 7-9"):
        _numbers("4, x")


def test_second_person_and_another_hash(site: Site) -> None:
    """A large plan needs two; the form of another plan counts for none."""
    plan = proposed(site, 50, second_above=10)
    client = site.client(Role.APPROVER)
    assert approve(site, client, plan, hash="0" * 64).status == 409
    assert approve(site, client, plan).status == 303
    assert stands(site).state is PlanState.PROPOSED
    assert "a second person has to" in approve(site, client, stands(site)).text


def test_values_are_hidden_from_viewers_and_plans_from_tenants(site: Site) -> None:
    """What objects hold is content."""
    plan = proposed(site, 50)
    page = site.client(Role.VIEWER).get(f"/rollback/{plan.name}").text
    assert MASKED in page
    assert "Anna" not in page
    tenant = site.client(Role.OPERATOR, "acme")
    assert tenant.get(f"/rollback/{plan.name}").status == 404
    assert tenant.get("/snapshots").status == 404
    assert site.client(Role.VIEWER).get("/rollback/none").status == 404


def sealed_journal(site: Site, count: int = 3_000) -> None:
    """Thousands of records, of two people, sealed."""
    engine = site.gate.engine
    with engine.commits.transaction() as session:
        session.add_notes(
            [
                Note(0, LogKind.REVEALED, engine.clock.wall_ms(), f"person-{number % 2}", f"=1+{number}")
                for number in range(count)
            ]
        )
    Sealer(engine.store, engine.clock, [PrivateKey("page", b"k" * 32)]).run_once(at_once=True)


def test_exported_journal_says_where_it_broke_off(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter without a match in what was looked at, and a file that is full; the next file goes on."""
    with site.gate.engine.commits.transaction() as session:
        session.add_notes([Note(0, LogKind.REVEALED, 1, f"p{number}", "w") for number in range(9)])
    client = site.client(Role.OPERATOR)
    whole = client.get("/journal/export?kind=revealed").text.splitlines()
    monkeypatch.setattr(journal_page, "LOOKED_MAX", 4)
    monkeypatch.setattr(journal_page, "LOOKED_STEP", 2)
    found = client.get("/journal/export?kind=revealed&q=none-such").text.splitlines()
    told = "# older records were not looked at; the next file: before="
    assert (len(whole), len(found), found[1].startswith(told)) == (10, 2, True)
    people: list[str] = []
    before: object = ""
    while before is not None:
        path = f"/journal/export?kind=revealed&format=json{before and f'&before={before}'}"
        rows = [json.loads(line) for line in client.get(path).text.splitlines()]
        people += [row["who"] for row in rows if "who" in row]
        before = rows[-1].get("before") if rows else None
    assert people == [f"p{number}" for number in reversed(range(9))]
    monkeypatch.setattr(journal_page, "EXPORTED_MAX", 3)
    full = client.get("/journal/export?all=1").text.splitlines()
    assert (len(full), full[-1].startswith(told)) == (5, True)
    assert full[-1].endswith(f",,,,,{full[-2].rpartition(',')[2]}")


@pytest.mark.slow
def test_journal_is_filtered_exported_and_verified(site: Site) -> None:
    """The filter leads through pages, files and the check; a changed record is named."""
    client = site.client(Role.OPERATOR)
    assert "changes of the log would not show" in client.get("/journal").text
    sealed_journal(site)
    page = client.get("/journal?q=person-1&kind=revealed").text
    assert "person-0" not in page
    assert "<dd>3&#8239;" in page  # thousands are sealed
    assert client.get("/journal?kind=nonsense").status == 404
    assert "No record fits" in client.get("/journal?q=nobody-at-all").text
    table = client.get("/journal/export?q=person-1&kind=revealed").text.splitlines()
    assert (len(table), table[0]) == (1_501, "at,who,what,entry,why,position")
    assert ",'=1+" in table[1]
    (first, *_) = client.get("/journal/export?kind=revealed&format=json").text.splitlines()
    assert json.loads(first)["why"] == "=1+2999"
    good = client.post("/journal/verify", site.form(client))
    assert "<strong>intact</strong>" in good.text
    assert "No head from outside was compared" in good.text
    with closing(site.gate.engine.store.connect()) as session, session.unit():
        session.execute("UPDATE oncegate_log SET note = 'x' WHERE note = '=1+7'", ())
    bad = client.post("/journal/verify", site.form(client)).text
    assert "NOT intact" in bad
    assert "was changed" in bad
    viewer = site.client(Role.VIEWER)
    assert viewer.post("/journal/verify", site.form(viewer)).status == 403
    tenant = site.client(Role.OPERATOR, "acme")
    assert tenant.get("/journal/export").status == 404
    assert tenant.post("/journal/verify", site.form(tenant)).status == 404


@pytest.mark.slow
@pytest.mark.parametrize("width", [1440, 390])
def test_plan_of_a_thousand_lines_in_a_browser(
    site: Site, chromium: Browser, width: int, tmp_path: Path
) -> None:
    """No sideways scrolling, no axe violation; a line is unticked and the plan approved by clicking."""
    plan = proposed(site)
    timeline(site)
    sealed_journal(site)
    page = chromium.new_page(viewport={"width": width, "height": 900})
    name, _, value = site.client(Role.APPROVER).cookie.partition("=")
    page.context.add_cookies([{"name": name, "value": value, "url": site.address}])
    for path in ("/journal", "/snapshots", f"/rollback/{plan.name}"):
        page.goto(f"{site.address}{path}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert Axe().run(page).response["violations"] == []
        page.screenshot(path=tmp_path / f"{path.split('/')[1]}-{width}.png")
    page.click("button[name=line][value='2']")
    page.fill("input[name=reason]", "doubled on Tuesday")
    page.click("button.danger:has-text('Approve')")
    page.wait_for_selector("text=Approved.")
    page.close()
    assert 2 in stands(site).unticked
    assert stands(site).state is PlanState.APPROVED
