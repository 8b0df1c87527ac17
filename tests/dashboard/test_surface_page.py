"""The operator's page for one kind of event: which repeats are normal, what to do about each (D10)."""

from __future__ import annotations

from contextlib import closing

import pytest

from oncegate.dashboard.operators import Role
from oncegate.model.repeats import RepeatClass
from oncegate.model.surface_decisions import SurfaceMode
from oncegate.review.surface_decisions import DecidedView, decided_about
from oncegate.sources.status import SourceStatus, posting_of
from tests.dashboard.conftest import Client, Reply, Site


def test_a_surface_tells_of_every_kind_of_repeats_whether_it_is_normal(site: Site) -> None:
    """Those that were never seen too: whoever is called at night knows them before they come."""
    client = site.client(Role.VIEWER)
    assert f'href="{client.prefix}/surface?name=portbase.cis"' in client.get("/surfaces").text
    text = client.get("/surface?name=portbase.cis").text
    rows = {kind: text.partition(f">{kind.label.replace('_', ' ')}</td>")[2] for kind in RepeatClass}
    for kind, row in rows.items():
        assert kind.advice in row.partition("</tr>")[0], kind
    expected, conflict, late = (
        rows[kind].partition("</tr>")[0]
        for kind in (RepeatClass.EXPECTED_REPLAY, RepeatClass.CONFLICT, RepeatClass.LATE_REPLAY)
    )
    assert ('>1</td><td data-label="In 7 d">1</td>' in expected, ">normal<" in expected) == (True, True)
    assert 'class="redtext">a fault of the sender<' in conflict
    assert ">worth a question<" in late
    assert 'data-label="Normal?">' in late  # never seen, so not in red
    assert "{id}" in text  # the rule
    assert "oncegate signals repeats --surface portbase.cis" in text


def test_the_latest_repeats_that_point_at_the_sender_are_shown_with_their_evidence(site: Site) -> None:
    client = site.client(Role.VIEWER)
    text = client.get("/surface?name=portbase.cis").text
    assert "Latest that point at the sender" in text
    assert "/entries/3" in text.partition("Latest that point at the sender")[2]
    assert "Latest that point at the sender" not in client.get("/surface?name=payouts").text


@pytest.mark.parametrize("path", ["/surface", "/surface?name=nowhere", "/surface?name=%00"])
def test_a_surface_that_nobody_knows_is_not_there(site: Site, path: str) -> None:
    assert site.client(Role.VIEWER).get(path).status == 404


def test_a_surface_is_not_for_those_who_see_one_tenant(site: Site) -> None:
    assert site.client(Role.VIEWER, "acme").get("/surface?name=payouts").status == 404


def test_what_is_normal_is_no_fault_of_a_sender() -> None:
    """Each kind is one of normal, a fault, or worth a question."""
    assert not [kind for kind in RepeatClass if kind.is_normal and kind.is_sender_bug]
    assert [kind.label for kind in RepeatClass if not kind.is_normal and not kind.is_sender_bug] == [
        "late_replay"
    ]


def test_the_sources_of_a_surface_are_shown_with_their_state(site: Site) -> None:
    """Lag, in flight, poison and the last error, escaped; a surface without sources has no table."""
    client = site.client(Role.VIEWER)
    assert "Sources" not in client.get("/surface?name=payouts").text
    engine = site.scene.gate.engine
    status = SourceStatus(
        surface="payouts",
        kind="sqs",
        queue="payouts",
        state="unreachable",
        lag=12,
        last_error="<b>no</b>",
    )
    with closing(engine.store.connect()) as session, session.unit():
        session.post(posting_of("sqs:payouts", status, engine.clock.wall_ms()))
    for path in ("/surface?name=payouts", "/surfaces"):
        row = client.get(path).text.partition("sqs:payouts")[2].partition("</tr>")[0]
        assert ">unreachable<" in row
        assert ">12<" in row
        assert "&lt;b&gt;no&lt;/b&gt;" in row
    assert "sqs:payouts" not in client.get("/surface?name=portbase.cis").text


def _decide(site: Site, client: Client, **fields: str) -> Reply:
    given = {"name": "portbase.cis", "version": "0", "reason": "wrong prices", **fields}
    return client.post("/surface/decide", site.form(client, **given))


def _decided(site: Site) -> DecidedView:
    with site.gate.engine.store.look() as session:
        return decided_about(session, "portbase.cis")


@pytest.mark.slow
def test_an_approver_switches_a_surface_once(site: Site) -> None:
    """A second click, or a tab that is behind, changes nothing; the journal has the reason."""
    client = site.client(Role.APPROVER)
    reply = _decide(site, client, do="switch", mode="paused")
    assert reply.status == 303
    assert _decided(site).decided.mode is SurfaceMode.PAUSED
    shown = client.get(reply.headers["location"].removeprefix(client.prefix)).text
    assert "obey within" in shown
    assert "wrong prices" in shown
    again = _decide(site, client, do="switch", mode="on")
    assert (again.status, _decided(site).version) == (409, 1)
    assert "Nothing was changed" in again.text
    assert _decide(site, client, do="ignore", path="payload.id", version="1").status == 303
    assert _decided(site).decided.ignore == ("payload.id",)
    assert "paused" in client.get("/surfaces").text
    assert "is switched to <strong>paused</strong>" in client.get("/").text
    with site.gate.engine.store.look() as session:
        notes = [
            one.note or "" for one in session.read_log(0, 1000) if "surface portbase" in (one.note or "")
        ]
    assert [note.rpartition("; ")[2] for note in notes] == ["wrong prices", "wrong prices"]


@pytest.mark.parametrize(
    "fields",
    [
        {"mode": "off"},
        {"mode": "on", "reason": ""},
        {"do": "ignore", "path": ""},
        {"mode": "on", "version": ""},
    ],
)
def test_a_form_that_cannot_be_read_changes_nothing(site: Site, fields: dict[str, str]) -> None:
    client = site.client(Role.APPROVER)
    assert _decide(site, client, **{"do": "switch", **fields}).status == 409
    assert _decided(site).version == 0


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR])
def test_others_than_approvers_switch_nothing(site: Site, role: Role) -> None:
    client = site.client(role)
    assert "/surface/decide" not in client.get("/surface?name=portbase.cis").text
    assert _decide(site, client, do="switch", mode="paused").status == 403
    assert _decided(site).version == 0
