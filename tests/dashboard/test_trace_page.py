"""Journeys on the page: with what was called at downstreams, as `oncegate trace` tells them (D9)."""

from __future__ import annotations

from oncegate.dashboard.operators import Role
from oncegate.model.states import State
from oncegate.sender.trace import HopKind, journey
from oncegate.store import EntryFilter
from tests.dashboard.conftest import Site
from tests.dashboard.test_doors import number_on


def test_an_entrys_journey_has_the_effects_at_its_downstreams(site: Site) -> None:
    """The same hops as the command tells, with what each call came to."""
    entry = number_on(site.scene, "MSKU0003")
    with site.gate.engine.store.look() as session:
        detail = session.detail(entry)
        assert detail is not None
        told = journey(session, detail.entry.key.hex())
    assert [hop.kind for hop in told.hops] == [HopKind.ARRIVED, HopKind.CALLED]

    text = site.client(Role.VIEWER).get(f"/entries/{entry}").text.partition("Journey")[2]

    part = " ".join(text.partition("</section>")[0].split())
    assert part.count("<li>") == len(told.hops)
    assert "<strong>called</strong> ect-delta" in part
    assert "step claim_slot for MSKU0003" in part
    assert '<span class="muted">done</span>' in part
    assert f"oncegate trace {detail.entry.key.hex()}" in part


def test_an_effect_in_doubt_is_said_to_be_so(site: Site) -> None:
    entry = site.scene.waiting(State.UNKNOWN, "gate.in")
    text = site.client(Role.VIEWER).get(f"/entries/{entry}").text.partition("Journey")[2]
    assert "<strong>called</strong>  terminal" in text
    assert "started, not known to be done" in text


def test_a_journey_is_followed_by_whatever_names_it(site: Site) -> None:
    """An event's id leads from a lane; a key, an entry's key and what nobody knows are answered too."""
    client = site.client(Role.VIEWER)
    lane = client.get("/lane?destination=orders&tenant=acme&key=A-17").text
    assert f'href="{client.prefix}/trace?id=evt-1"' in lane
    found = client.get("/trace?id=evt-1").text
    assert "<strong>emitted</strong> to orders" in found
    assert "given up after 1 attempt" in found
    assert "HTTP 500: &lt;b&gt;boom&lt;/b&gt;" in found
    assert client.get("/trace?id=A-17").text.count("<li>") == 4
    with site.gate.engine.store.look() as session:
        key = session.entries(EntryFilter(label_contains="MSKU0003"), None, 1)[0].key.hex()
    assert "<strong>called</strong>" in client.get(f"/trace?id={key}").text
    assert "Nothing here has that id" in client.get("/trace?id=nobody").text
    assert client.get("/trace").status == 200
    assert f'href="{client.prefix}/trace"' in client.get("/entries").text
    assert "Nothing here has that id" in client.get("/trace?id=%3Cscript%3E").text


def test_one_tenant_follows_its_own_part_of_a_journey_only(site: Site) -> None:
    acme, globex = site.client(Role.VIEWER, "acme"), site.client(Role.VIEWER, "globex")
    assert "<strong>emitted</strong> to orders" in acme.get("/trace?id=evt-1").text
    hidden, unknown = globex.get("/trace?id=evt-1").text, globex.get("/trace?id=evt-0").text
    assert hidden.replace("evt-1", "evt-0") == unknown
