"""Limits on the page: who may set them, what the form takes, and that no limit turns a double green."""

from __future__ import annotations

import pytest

from oncegate.dashboard.operators import Role
from oncegate.errors import UsageError
from oncegate.signals.definitions import BY_NAME, DEFINITIONS
from oncegate.signals.limits import decided_limits, limit_text, read_limit
from oncegate.store import LogKind
from tests.dashboard.conftest import Client, Reply, Site

FIELDS = {
    "signal": "quarantines",
    "place": "portbase.cis",
    "ticket": "5",
    "page": "never",
    "reason": "known storm",
}


def _set(site: Site, client: Client, **changed: str) -> Reply:
    return client.post("/limits/set", site.form(client, do="set", **{**FIELDS, **changed}))


def _decided(site: Site) -> dict[str, dict[str, tuple[float | None, float | None]]]:
    with site.gate.engine.store.look() as session:
        found = decided_limits(session)
    return {"": found.limits, **found.places} if found.limits else found.places


def test_an_approver_sets_the_limits_of_one_surface_and_takes_them_back(site: Site) -> None:
    """The journal keeps both, with the name and the reason; the page shows what holds now."""
    client = site.client(Role.APPROVER)
    assert f'href="{client.prefix}/limits"' in client.get("/").text
    assert f'href="{client.prefix}/limits"' in client.get("/surface?name=portbase.cis").text
    reply = _set(site, client)
    assert reply.status == 303
    assert _decided(site) == {"portbase.cis": {"quarantines": (5.0, None)}}
    shown = client.get(reply.headers["location"].removeprefix(client.prefix)).text
    assert "ticket 5, page never; set by an operator" in shown
    taken = client.post("/limits/set", site.form(client, do="take-back", **FIELDS))
    assert (taken.status, _decided(site)) == (303, {})
    with site.gate.engine.store.look() as session:
        notes = [one for one in session.read_log(0, 1000) if one.kind is LogKind.DOCUMENT_CHANGED]
    ours = [one for one in notes if "limits of quarantines" in (one.note or "")]
    assert [one.actor for one in ours] == ["approver-all", "approver-all"]
    assert all("known storm" in (one.note or "") for one in ours)


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR])
def test_others_than_approvers_see_limits_and_cannot_set_them(site: Site, role: Role) -> None:
    client = site.client(role)
    page = client.get("/limits?signal=quarantines").text
    assert "Needs the role approver" in page
    assert 'name="ticket"' not in page
    assert _set(site, client).status == 403
    assert _decided(site) == {}


def test_an_operator_of_one_tenant_sees_no_limits(site: Site) -> None:
    client = site.client(Role.APPROVER, "acme")
    assert client.get("/limits").status == 404
    assert (_set(site, client).status, _decided(site)) == (404, {})


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"ticket": "many"}, "a number above zero, or never, not &#39;many&#39;"),
        ({"page": "nan"}, "a number above zero"),
        ({"page": "-1"}, "a number above zero"),
        ({"reason": " "}, "a reason is needed"),
        ({"place": "nowhere"}, "there is no surface &#39;nowhere&#39;"),
        ({"signal": "watch_absent", "ticket": "5m"}, "there is no place"),
    ],
)
def test_a_limit_that_cannot_be_meant_is_refused_with_what_was_typed(site: Site, changed, told) -> None:
    client = site.client(Role.APPROVER)
    reply = _set(site, client, **changed)
    assert (reply.status, _decided(site)) == (409, {})
    assert told in reply.text
    assert "Nothing was changed" in reply.text
    assert f'value="{changed.get("ticket", "5")}"' in reply.text


def test_an_unknown_signal_is_not_there(site: Site) -> None:
    client = site.client(Role.APPROVER)
    assert client.get("/limits?signal=nothing").status == 404
    assert _set(site, client, signal="nothing").status == 404


@pytest.mark.slow
def test_raised_limits_make_nothing_green_that_doubled_or_waits(site: Site) -> None:
    """The verdict is grey and says what doubled and what waits (F7)."""
    client = site.client(Role.APPROVER)
    for signal in DEFINITIONS:
        reply = _set(site, client, signal=signal.name, place="", ticket="never", page="never")
        assert reply.status == 303, signal.name
    state = client.get("/").text.partition('id="verdict"')
    assert 'class="state unknown"' in state[0][-200:]
    assert "for you" in state[2][:600]
    assert "because limits were set higher" in state[2][:800]


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_what_a_limit_shows_is_read_back_as_the_same_limit(name: str) -> None:
    signal = BY_NAME[name]
    for value in (signal.ticket, signal.page, None):
        assert read_limit(limit_text(value, signal), signal) == (
            None if value is None else pytest.approx(value)
        )


def test_a_limit_is_written_in_its_own_unit() -> None:
    assert read_limit("10m", BY_NAME["overdue"]) == 600
    assert read_limit("20 %", BY_NAME["repeat_ratio_high"]) == pytest.approx(0.2)
    for text in ("10m", "20%", "inf", "0"):
        with pytest.raises(UsageError, match="a number above zero"):
            read_limit(text, BY_NAME["quarantines"])
