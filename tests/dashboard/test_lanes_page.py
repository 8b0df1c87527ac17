"""The Lanes page: how circuits stand, beside the lag of their destinations."""

from __future__ import annotations

from oncegate.dashboard.operators import Role
from tests.dashboard.conftest import Site


def test_the_lanes_page_tells_how_a_circuit_stands(site: Site) -> None:
    """Its state, its next try, the error and how fresh that is; text stays text."""
    site.scene.block("other", "C-1", "", events=1)
    text = site.client(Role.VIEWER).get("/lanes").text
    cells = [cell.partition("</td>")[0] for cell in text.split('<td data-label="Circuit">')[1:]]

    assert len(cells) == 2
    assert 'class="chip open"' in cells[0]
    assert "next try in" in cells[0]
    assert "HTTP 500: &lt;b&gt;boom&lt;/b&gt;" in cells[0]
    assert " · told " in cells[0]
    assert 'class="chip closed"' in cells[1]
