"""The fence history on an entry's page and in the terminal: which attempt held it, when, how it ended."""

from __future__ import annotations

import json
import re

import pytest

from oncegate import Gate, NotApplied
from oncegate.cli.main import main
from oncegate.dashboard.operators import Role
from oncegate.model.states import State

HEADERS = ["Attempt", "Fence", "From", "Until", "By", "How it ended"]


@pytest.fixture
def tried(site) -> int:
    """An entry that failed once and was then done by another worker."""
    errors = [NotApplied("the port is closed")]
    for actor in ("worker 1", "worker 2"):
        gate = Gate(store=site.gate.engine.store, actor=actor)

        @gate.handler("tries", key="{id}")
        def run(event, once):
            if errors:
                raise errors.pop()
            return "done"

        site.scene.gate, kept = gate, site.scene.gate
        site.scene.admit("tries", id=1)
        site.scene.gate = kept
        gate.close()
    number: int = site.scene.waiting(State.COMMITTED, "tries")
    return number


def _rows(text: str) -> list[list[str]]:
    table = text.partition("<h2>Fences")[2].partition("</table>")[0]
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL) for row in table.split("<tr>")[2:]]
    return [[re.sub(r"<[^>]+>", "", cell).strip() for cell in row] for row in rows]


def test_an_entry_tells_who_held_it_under_which_fence(site, tried):
    text = site.client(Role.VIEWER).get(f"/entries/{tried}").text
    with site.gate.engine.store.look() as session:
        last = session.detail(tried).entry.fence
    first, second = _rows(text)
    assert re.findall(r'<th scope="col">(.*?)</th>', text.partition("<h2>Fences")[2])[:6] == HEADERS
    assert (first[0], first[1], first[4]) == ("1", str(tried), "worker 1")
    assert first[5] == "attempt failed, may be tried again"
    # What certainly did not happen uses up no attempt.
    assert (second[0], second[1], second[4:]) == ("1", str(last), ["worker 2", "committed"])
    assert all(first[2:4] + second[2:4])


def test_the_terminal_tells_the_same(site, scene, tried, capsys):
    url = site.gate.engine.store.address
    assert main(["entries", "show", str(tried), "--url", url]) == 0
    shown = capsys.readouterr().out.partition("fences (UTC)")[2]
    assert main(["entries", "show", str(tried), "--url", url, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert "worker 1" in shown
    assert [one["actor"] for one in facts["fences"]] == ["worker 1", "worker 2"]
    assert facts["fences"][1]["fence"] == facts["fence"] > facts["fences"][0]["fence"] == tried
    assert facts["fences"][0]["until"] <= facts["fences"][1]["since"]


def test_what_nobody_has_held_yet_has_no_fences_to_show(site):
    parked = site.scene.waiting(State.QUARANTINED, "routes")
    assert "<h2>Fences" not in site.client(Role.VIEWER).get(f"/entries/{parked}").text


def test_a_step_tells_what_holds_at_its_downstream_where_the_page_knows(site):
    doubtful = site.scene.waiting(State.UNKNOWN, "gate.in")
    text = site.client(Role.VIEWER).get(f"/entries/{doubtful}").text
    assert "at most once: what a crash leaves open is decided by a person" in text
    done = site.scene.waiting(State.COMMITTED, "portbase.cis")
    told = site.client(Role.VIEWER).get(f"/entries/{done}").text
    assert "exactly-once effect: the downstream recognises our key" in told


def test_a_page_without_handlers_leaves_out_what_it_cannot_know(site, stage):
    doubtful = site.scene.waiting(State.UNKNOWN, "gate.in")
    alone = Gate(store=site.gate.engine.store)
    with stage.showing(alone.dashboard()):
        text = site.client().get(f"/entries/{doubtful}").text
    alone.close()
    assert "<h2>Steps</h2>" in text
    assert "What holds there" not in text
