"""An entry's history on one line of time: reserved, failed or crashed, asked, settled (E5)."""

from __future__ import annotations

import re

import pytest

from oncegate import Gate
from oncegate.cli.main import main
from oncegate.dashboard.operators import Role
from oncegate.model.states import State
from oncegate.review.wording import CRASHED, told
from oncegate.store import LogKind, LogRecord

WAY = [
    "first received", "reserved", "effect started", "attempt failed, may be tried again", "taken up again",
    "downstream asked", "committed",
]  # fmt: skip


@pytest.fixture
def asked(site) -> int:
    """An entry whose first call lost its answer; the second attempt asked the terminal."""
    gate = Gate(store=site.gate.engine.store, actor="worker 1")
    sold: list[str] = []
    ect = gate.downstream("ect", probe=lambda key: [{"id": slot} for slot in sold])

    def claim_slot():
        sold.append("slot-7")
        raise ConnectionResetError("the answer was lost")

    @gate.handler("slots", key="{id}")
    def book(event, once):
        return once.effect(ect, claim_slot)["id"]

    site.scene.gate, kept = gate, site.scene.gate
    for _ in range(2):
        site.scene.admit("slots", id=1)
    site.scene.gate = kept
    gate.close()
    number: int = site.scene.waiting(State.COMMITTED, "slots")
    return number


def test_the_page_goes_from_the_reservation_over_the_question_to_the_end(site, asked):
    text = site.client(Role.VIEWER).get(f"/entries/{asked}").text
    lines = text.partition('<ol class="timeline">')[2].partition("</ol>")[0]
    what = re.findall(r"<strong>(.*?)</strong>", lines)
    assert [one for one in what if not one.startswith("received again")] == WAY
    assert f"attempt 1 under fence {asked}" in lines
    assert "asked ect about claim_slot: holds slot-7" in lines


def test_the_terminal_tells_the_same_way(site, scene, asked, capsys):
    assert main(["entries", "show", str(asked), "--url", site.gate.engine.store.address]) == 0
    shown = capsys.readouterr().out.partition("history (UTC)")[2].partition("\n\n")[0]
    rows = shown.strip().splitlines()[1:]
    assert [what for what, row in zip(WAY, rows, strict=True) if what not in row] == []
    assert "asked ect about claim_slot: holds slot-7" in rows[5]
    assert "claim_slot at ect" in rows[2]


def test_what_was_parked_on_arrival_was_not_reserved(site):
    parked = site.scene.waiting(State.QUARANTINED, "routes")
    text = site.client(Role.VIEWER).get(f"/entries/{parked}").text
    assert "<strong>first received</strong>" in text
    assert "<strong>reserved</strong>" not in text


def test_a_take_over_says_that_the_attempt_before_may_have_started_its_effect():
    taken = LogRecord(1, 7, LogKind.RECOVERED, 1, "worker", "attempt 2 under fence 9")
    assert told(taken) == f"attempt 2 under fence 9; {CRASHED}"
    settled = LogRecord(2, 7, LogKind.COMMITTED, 2, "worker", None)
    assert told(settled) == ""
