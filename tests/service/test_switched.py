"""Surfaces of the service that observe, and that an operator pauses while it runs (F1)."""

from __future__ import annotations

from pathlib import Path

from oncegate.commit.registry_operations import ChangeDocument
from oncegate.model.surface_decisions import KIND, SurfaceDecisions, SurfaceMode
from oncegate.service.settings import Mode
from oncegate.store import DocumentChange
from tests.service.site import Site, TeamHandler, forwarding


def test_the_teams_handler_gets_every_arrival_and_a_pause_stops_all(tmp_path: Path) -> None:
    """Each arrival is forwarded with its own key while the surface observes; then 503 with a wait."""
    team = TeamHandler()
    wanted = {"mode": Mode.OBSERVE}
    with team.serving() as url, Site(tmp_path, forwarding(url, wanted, honours_key="7d")).serving() as site:
        first, again, other = (
            site.hook(event) for event in ({"id": "a"}, {"id": "a"}, {"id": "a", "b": 1})
        )
        body = SurfaceDecisions(SurfaceMode.PAUSED).encoded()
        change = DocumentChange(KIND, "hooks", 0, body, 1, "ann", "why")
        assert site.gate.engine.commits.submit(ChangeDocument(change))
        site.gate.engine._context.decided.read()
        refused = site.hook({"id": "z"})
    assert [answer.status for answer in (first, again, other)] == [200, 200, 200]
    assert [answer.document["replay"] for answer in (first, again, other)] == [False] * 3
    assert len(team.got) == 3
    assert (refused.status, refused.headers["retry-after"]) == (503, "30")
    assert refused.document["type"] == "urn:oncegate:problem:paused"
