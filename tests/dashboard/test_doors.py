"""Who gets in, and what is refused: sessions, forms, other sites, roles, other tenants (I20)."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest

from oncegate.dashboard.auth import FIELD, SESSION_MS, admit, is_own_page, issue, session_key
from oncegate.dashboard.operators import OperatorBook, Role, find_operator
from oncegate.dashboard.reading import BODY_BYTES_MAX
from oncegate.dashboard.request_context import Tools
from oncegate.model.states import State
from oncegate.model.trace import Context, encode_context
from oncegate.store import EntryFilter, LogKind, TraceLink
from oncegate.testing.waiting import wait_until
from tests.dashboard.conftest import Client, Site
from tests.dashboard.scene import BIG, Scene

PAGES = [
    "/",
    "/waiting",
    "/entries",
    "/lanes",
    "/replays",
    "/dead-letters",
    "/trace",
    "/feed",
    "/surfaces",
    "/journal",
]


def test_nobody_sees_a_page_before_signing_in(site):
    client = site.client()
    for page in [*PAGES, "/entries/1", "/lane?destination=orders&key=A-17", "/jobs/x"]:
        reply = client.get(page)
        there = "/login" if page == "/" else f"/login?next={quote(page, safe='/')}"
        assert (reply.status, reply.headers["location"]) == (303, f"{client.prefix}{there}"), page
        assert "MSKU" not in reply.text


def test_a_token_opens_a_session_that_scripts_and_other_sites_cannot_use(site):
    reply = site.client().sign_in(site.token(Role.VIEWER))
    cookie = reply.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert f"path={site.client().prefix}" in cookie
    assert site.tokens["viewer-all"] not in reply.headers["set-cookie"]


def test_a_wrong_token_gets_nothing(site):
    reply = site.client().sign_in("ogp_nobody")
    assert reply.status == 403
    assert "set-cookie" not in reply.headers


@pytest.mark.parametrize("change", ["flip", "other name", "empty", "garbage", "no signature"])
def test_a_forged_session_is_no_session(site, change):
    client = site.client(Role.VIEWER)
    site.token(Role.APPROVER)
    value = client.cookie
    name = "oncegate_page="
    client.cookie = {
        "flip": value[:-1] + ("0" if value[-1] != "0" else "1"),
        "other name": value.replace("dmlld2VyLWFsbA", "YXBwcm92ZXItYWxs"),
        "empty": name,
        "garbage": f"{name}\x00.é.".encode("latin-1", "replace").decode("latin-1").replace("\x00", "a"),
        "no signature": value.rpartition(".")[0],
    }[change]
    assert client.cookie != value
    assert client.get("/entries").status == 303


def test_a_session_ends_with_its_time_and_with_its_operator(site):
    client = site.client(Role.VIEWER)
    gate, now = site.gate, site.gate.engine.clock.wall_ms()
    with gate.engine.store.look() as session:
        known = find_operator(session, "viewer-all")
        assert known is not None
        value = issue(session_key(session), known, now)
        assert admit(session, value, now + SESSION_MS - 1) is not None
        assert admit(session, value, now + SESSION_MS) is None
    assert client.get("/entries").status == 200

    OperatorBook(gate.engine.commits, gate.engine.clock).remove("viewer-all", "setup")

    assert client.get("/entries").status == 303


def test_an_operator_who_is_added_again_needs_to_sign_in_again(site):
    client = site.client(Role.VIEWER)
    book = OperatorBook(site.gate.engine.commits, site.gate.engine.clock)
    book.remove("viewer-all", "setup")
    book.add("viewer-all", Role.APPROVER, None, "setup")
    assert client.get("/entries").status == 303


def act_paths(site) -> list[str]:
    entry = site.scene.waiting(State.HELD, "payouts")
    lanes = ["/lanes/steer/pause", "/lanes/replay", "/lanes/order/skip", "/plans/lanes"]
    lanes += ["/replays/abc/cancel", "/plans/replay"]
    jobs = ["/plans/entries", "/jobs/x/start", "/jobs/x/cancel"]
    return [f"/entries/{entry}/approve", f"/entries/{entry}/reveal", "/duplicates/1/meant", *lanes, *jobs]


def test_nothing_is_changed_by_following_a_link(site):
    client = site.client(Role.APPROVER)
    for path in [*act_paths(site), "/logout"]:
        assert client.get(path).status == 405, path


@pytest.mark.slow
def test_a_form_without_its_sessions_token_changes_nothing(site):
    client = site.client(Role.APPROVER)
    other = site.form(site.client(Role.OPERATOR))
    before = log_of(site)
    for path in act_paths(site):
        for form in ({}, {FIELD: ""}, {FIELD: "0" * 64}, other):
            reply = client.post(path, {**form, "reason": "x", "fence": "1"})
            assert reply.status == 403, (path, form)
    assert log_of(site) == before


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"origin": "http://[bad"},
    ],
)
def test_a_form_from_another_site_changes_nothing_even_with_the_token(site, headers):
    client = site.client(Role.APPROVER)
    entry = site.scene.waiting(State.HELD, "payouts")
    before = log_of(site)
    form = site.form(client, reason="x", fence=str(fence_of(site, entry)))

    assert client.post(f"/entries/{entry}/approve", form, **headers).status == 403
    assert client.post("/login", {"token": site.token(Role.APPROVER)}, **headers).status == 403
    assert client.post("/logout", {}, **headers).status == 403
    assert [record for record in log_of(site) if record.kind is LogKind.APPROVED] == []
    assert log_of(site) == before


def test_own_pages_are_recognised_behind_a_proxy_that_ends_tls():
    host = {"host": "ops.example"}
    assert is_own_page({**host, "origin": "https://ops.example"}, "http")
    assert is_own_page(
        {**host, "origin": "https://ops.example:443", "sec-fetch-site": "same-origin"}, "http"
    )
    assert is_own_page(host, "https")
    assert not is_own_page({**host, "origin": "https://ops.example:8443"}, "http")
    assert not is_own_page({**host, "origin": "https://ops.example.evil"}, "http")


def log_of(site):
    with site.gate.engine.store.look() as session:
        return session.read_log(0, 10_000)


def fence_of(site: Site, entry: int) -> int:
    with site.gate.engine.store.look() as session:
        detail = session.detail(entry)
    assert detail is not None
    return detail.entry.fence


@pytest.mark.parametrize(
    ("role", "path", "allowed"),
    [
        (Role.VIEWER, "reveal", False),
        (Role.OPERATOR, "reveal", True),
        (Role.VIEWER, "approve", False),
        (Role.OPERATOR, "approve", False),
        (Role.APPROVER, "approve", True),
    ],
)
def test_each_role_may_do_what_it_may_and_refusals_are_on_record(site, role, path, allowed):
    client = site.client(role)
    entry = site.scene.waiting(State.HELD, "payouts")
    form = site.form(client, reason="seen", fence=str(fence_of(site, entry)))

    reply = client.post(f"/entries/{entry}/{path}", form)

    assert reply.status == ((200 if path == "reveal" else 303) if allowed else 403)
    refusals = [record for record in log_of(site) if record.kind is LogKind.REFUSED]
    assert [record.actor for record in refusals] == ([] if allowed else [f"{role.label}-all"])


def test_a_viewer_may_not_steer_lanes_or_plan(site):
    client = site.client(Role.VIEWER)
    lane = {"destination": "orders", "tenant": "acme", "key": "A-17"}
    for path, fields in (
        ("/lanes/order/retry", {**lane, "seq": "1", "reason": "x"}),
        ("/lanes/replay", {**lane, "from": "1", "to": "1", "reason": "x"}),
        ("/lanes/steer/pause", {"destination": "orders", "reason": "x"}),
        ("/plans/lanes", {"destination": "orders", "verb": "retry", "reason": "x"}),
        ("/plans/entries", {"q": "", "verb": "approve", "reason": "x"}),
        ("/duplicates/1/meant", {"reason": "x", "fence": "1", "other-fence": "1"}),
    ):
        assert client.post(path, site.form(client, **fields)).status == 403, path


@pytest.mark.slow
def test_another_tenants_things_are_not_there(site):
    """Same answer as for what does not exist; nothing of the other tenant on any page."""
    client = site.client(Role.APPROVER, "globex")
    other = number_of(site, "PAY-0")
    unknown = 999_999
    theirs, missing = client.get(f"/entries/{other}"), client.get(f"/entries/{unknown}")
    assert theirs.status == missing.status == 404
    texts = [re.sub(r"as of [\d:]+ UTC", "", one.text) for one in (theirs, missing)]  # a clock may show it
    assert texts[0].replace(str(other), "N") == texts[1].replace(str(unknown), "N")
    for verb in ("approve", "reject", "reveal"):
        form = site.form(client, reason="x", fence="1")
        assert client.post(f"/entries/{other}/{verb}", form).status == 404
    assert client.get("/lane?destination=orders&tenant=acme&key=A-17").status == 404
    for page in ("/", "/surfaces", "/journal"):
        assert client.get(page).status == 404
    for page in (
        "/waiting",
        "/entries",
        "/lanes?state=all",
        "/feed",
        "/entries?q=tenant:acme",
        "/waiting?q=tenant:acme",
    ):
        text = client.get(page).text
        assert "PAY-0" not in text, page
        assert "A-17" not in text, page
        assert "exec-1" not in text, page
    assert "PAY-2" in client.get("/waiting").text
    assert "PAY-2" in client.get("/entries").text


def test_a_tenants_operator_acts_in_bulk_on_their_own_only(site):
    client = site.client(Role.APPROVER, "globex")
    planned = client.post("/plans/entries", site.form(client, q="", verb="reject", reason="x"))
    page = client.get(planned.headers["location"].removeprefix(client.prefix))
    assert "Reject <strong>1</strong> entries" in page.text
    stranger = site.client(Role.APPROVER, "acme")
    assert stranger.get(planned.headers["location"].removeprefix(client.prefix)).status == 404
    lanes = stranger.post(
        "/plans/lanes", site.form(stranger, destination="orders", verb="skip", reason="x")
    )
    text = stranger.get(lanes.headers["location"].removeprefix(client.prefix)).text
    assert "--endpoint orders --tenant acme" in text  # what is shown must not mean other tenants' lanes
    forged = client.post("/plans/entries", site.form(client, q="tenant:acme", verb="reject", reason="x"))
    assert forged.status == 409


def number_of(site: Site, label: str) -> int:
    with site.gate.engine.store.look() as session:
        return session.entries(EntryFilter(label_contains=label), None, 1)[0].entry_id


@pytest.mark.slow
def test_every_answer_carries_the_headers_that_keep_text_from_becoming_script(site):
    client = site.client(Role.APPROVER)
    replies = [
        client.get(page) for page in [*PAGES, "/entries/1", "/nothing", "/static/page.js", "/static/none"]
    ]
    replies += [
        client.get("/login"),
        client.post("/entries/1/approve", {}),
        client.get("/entries/1/approve"),
    ]
    for reply in replies:
        policy = reply.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "style-src 'self'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert "<script>" not in reply.text
        assert " style=" not in reply.text
        assert "onclick" not in reply.text


def test_a_form_that_is_too_large_is_refused(site):
    client = site.client(Role.APPROVER)
    form = site.form(client, reason="x" * BODY_BYTES_MAX)
    assert client.post("/entries/1/approve", form).status == 413


@pytest.mark.parametrize(
    "path",
    [
        "/entries/0",
        "/entries/-1",
        "/entries/x",
        "/entries/" + "9" * 40,
        "/entries/٣",
        "/entries?before=x",
        "/journal?before=-1",
        "/journal?before=" + "9" * 40,
        "/entries?before=" + "9" * 30,
        "/waiting?after=" + "9" * 30,
        "/waiting?done=" + "9" * 30,
        "/lanes?after=" + "9" * 30,
        "/lane?destination=orders&tenant=acme&key=A-17&from=" + "9" * 30,
    ],
)
def test_what_cannot_be_a_number_is_not_there(site, path):
    assert site.client(Role.VIEWER).get(quote(path, safe="/?=&")).status == 404


def test_a_place_in_the_journal_beyond_its_end_begins_at_its_end(site):
    client = site.client(Role.VIEWER)
    far = client.get(f"/journal?before={2**127 - 1}")
    assert far.status == 200
    assert far.text.count("<tr") == client.get("/journal").text.count("<tr") > 1


@pytest.mark.slow
def test_an_embedded_page_shows_and_never_acts(scene, stage):
    entry = scene.waiting(State.HELD, "payouts")
    with stage.showing(scene.gate.dashboard()) as address:
        client = Client(address)
        for page in [*PAGES, f"/entries/{entry}"]:
            reply = client.get(page)
            assert reply.status == 200, page
            assert 'method="post"' not in reply.text, page
        for path in (
            f"/entries/{entry}/approve",
            f"/entries/{entry}/reveal",
            "/lanes/steer/pause",
            "/plans/entries",
        ):
            assert client.post(path, {"reason": "x", "fence": "1", FIELD: ""}).status == 403
        assert client.get("/login").status == 303
        assert str(2**63 - 1) not in client.get(f"/entries/{entry}").text


def test_an_entry_shows_the_journey_it_belongs_to_but_not_another_tenants_part_of_it(scene, stage):
    first, second = number_on(scene, "PAY-1"), number_on(scene, "PAY-2")
    with scene.gate.engine.commits.transaction() as session:
        session.link([TraceLink(one, "4bf9" * 8, encode_context(Context())) for one in (first, second)])
    with stage.showing(scene.gate.dashboard(login=True)) as address:
        site = Site(scene, address)
        everything = site.client(Role.VIEWER).get(f"/entries/{first}").text
        part = site.client(Role.VIEWER, "acme").get(f"/entries/{first}").text
    assert "Journey" in everything
    assert "PAY-2" in everything
    assert "PAY-2" not in part
    assert "Journey" not in part  # not even that there is more


def test_two_contents_of_one_key_are_shown_linked_with_what_a_release_would_do(scene, stage):
    """Needs you: the one that waits names the one that has the key, and the other way round."""
    with scene.gate.engine.store.look() as session:
        kept, first = session.entries(EntryFilter(label_contains="MSKU0002"), None, 2)
    with stage.showing(scene.gate.dashboard(login=True)) as address:
        client = Site(scene, address).client(Role.VIEWER)
        card = client.get("/waiting?q=reason:conflict").text
        page, other = (
            client.get(f"/entries/{kept.entry_id}").text,
            client.get(f"/entries/{first.entry_id}").text,
        )
    for shown in (card, page):
        assert f'/entries/{first.entry_id}">entry {first.entry_id}</a>' in shown
        assert f"Entry {first.entry_id} has run, so both will have" in shown
    assert f'/entries/{kept.entry_id}">entry {kept.entry_id}</a>' in other


def number_on(scene: Scene, label: str) -> int:
    with scene.gate.engine.store.look() as session:
        return session.entries(EntryFilter(label_contains=label), None, 1)[0].entry_id


def test_content_is_not_shown_where_the_record_of_it_cannot_be_written(site, monkeypatch):
    client = site.client(Role.OPERATOR)
    entry = site.scene.waiting(State.HELD, "payouts")
    form = site.form(client)
    monkeypatch.setattr(Tools, "note", lambda *given: False)
    reply = client.post(f"/entries/{entry}/reveal", form)
    assert reply.status == 404
    assert str(BIG) not in reply.text


def test_raw_content_is_plain_text_and_on_record(site):
    client = site.client(Role.OPERATOR)
    entry = site.scene.waiting(State.HELD, "payouts")
    reply = client.post(f"/entries/{entry}/reveal", site.form(client, **{"as": "raw"}))
    assert reply.headers["content-type"].startswith("text/plain")
    assert str(BIG) in reply.text
    told = [record.kind for record in log_of(site) if record.actor == "operator-all"]
    assert told == [LogKind.SIGNED_IN, LogKind.REVEALED]


@pytest.mark.slow
def test_a_decision_without_the_fence_that_was_seen_is_refused(site):
    client = site.client(Role.APPROVER)
    entry = site.scene.waiting(State.HELD, "payouts")
    for fence in ("", "x", "-1"):
        form = site.form(client, reason="x", fence=fence)
        assert client.post(f"/entries/{entry}/approve", form).status == 404
    stale = site.form(client, reason="x", fence=str(fence_of(site, entry) + 1_000))
    assert client.post(f"/entries/{entry}/approve", stale).status == 409
    assert [record for record in log_of(site) if record.kind is LogKind.APPROVED] == []


def test_a_fault_of_the_page_tells_nothing_and_keeps_the_headers(site, monkeypatch):
    def broken(*given: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr("oncegate.dashboard.application.badge", broken)
    reply = site.client(Role.VIEWER).get("/entries")
    assert reply.status == 500
    assert "secret detail" not in reply.text
    assert "default-src 'none'" in reply.headers["content-security-policy"]


@pytest.mark.slow
def test_a_job_that_was_cancelled_stops_and_a_plan_is_carried_out_once(site):
    client = site.client(Role.APPROVER)
    planned = client.post("/plans/entries", site.form(client, q="reason:skew", verb="release", reason="x"))
    job = planned.headers["location"].removeprefix(client.prefix)
    assert "3" in client.get(job).text
    assert client.post(f"{job}/cancel", site.form(client)).status == 303
    for _ in range(2):
        assert client.post(f"{job}/start", site.form(client)).status == 303
    wait_until(lambda: "cancelled" in client.get(job).text)
    assert "0 released of 3" in client.get(job).text
    assert [record for record in log_of(site) if record.kind is LogKind.RELEASED] == []


def test_the_journal_tells_who_began_and_who_cancelled_a_job_once(site):
    """Saying it twice is one record; what was planned, by whom and why stands in it (I16, I20)."""
    client = site.client(Role.APPROVER)
    planned = client.post(
        "/plans/entries", site.form(client, q="reason:skew", verb="release", reason="late")
    )
    job = planned.headers["location"].removeprefix(client.prefix)
    for verb in ("cancel", "cancel", "start", "start"):
        assert client.post(f"{job}/{verb}", site.form(client)).status == 303
    told = [
        record for record in log_of(site) if record.kind in (LogKind.JOB_STARTED, LogKind.JOB_CANCELLED)
    ]
    assert [record.kind for record in told] == [LogKind.JOB_CANCELLED, LogKind.JOB_STARTED]
    assert {(record.entry_id, record.note) for record in told} == {
        (0, f"release 3 entries, planned by {told[0].actor}: late")
    }
    assert "a plan for many was carried out" in client.get("/journal").text


def test_surfaces_tell_what_has_just_arrived(site):
    """The first look must not keep later ones from seeing what came since."""
    client = site.client(Role.VIEWER)

    def arrivals() -> int:
        text = client.get("/surfaces").text.partition("portbase.cis</a>")[2]
        return int(re.search(r"(\d+) arrivals", text)[1])  # type: ignore[index]

    before = arrivals()
    site.scene.admit("portbase.cis", id="MSKU9999", terminal="Delta")
    site.gate.engine.sightings.flush()
    assert arrivals() == before + 1
