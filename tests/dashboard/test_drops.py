"""Now: what was not simply run in the last hour, by reason (E5)."""

from __future__ import annotations

import re

import pytest

from oncegate.dashboard.not_run_stats import NOT_CLASSIFIED, drops_of
from oncegate.dashboard.operators import Role
from oncegate.model.repeats import RepeatClass
from oncegate.model.surface import Reason
from oncegate.signals.snapshot import HOUR, Snapshot, by_surface
from oncegate.store import Tally, What
from oncegate.store.tallies import of_class, of_reason, reason_of


def snapshot(*tallies: tuple[str, int, int]) -> Snapshot:
    counted = [Tally(surface, 1, what, count) for surface, what, count in tallies]
    return Snapshot(60_000, 0, {HOUR: by_surface(counted)})


def shown(found: Snapshot) -> list[tuple[str, str, int, str]]:
    return [(drop.kind, drop.reason, drop.count, drop.where) for drop in drops_of(found)]


def test_the_page_says_why_events_were_put_in_quarantine_and_which_repeats_came(site):
    text = site.client(Role.VIEWER).get("/").text
    table = text.partition("Repeats, quarantines and holds of the last hour by reason")[2].partition(
        "</table>"
    )[0]
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL) for row in table.split("<tr>")[2:]]
    plain = [[re.sub(r"<[^>]+>", "", cell) for cell in row] for row in rows]
    assert ["quarantined", "skew", "3", "routes", "its own time is too far from ours"] in plain
    assert ["quarantined", "bad time", "1", "routes", "its own time cannot be read"] in plain
    assert ["held", "approval", "3", "payouts", "a person approves every event first"] in plain
    assert {("repeat", "expected replay"), ("repeat", "conflict")} <= {(row[0], row[1]) for row in plain}


def test_reasons_are_summed_over_surfaces_and_the_most_frequent_comes_first():
    found = snapshot(
        ("a", What.QUARANTINED, 2), ("a", of_reason("skew: 2h"), 2),
        ("b", What.QUARANTINED, 5), ("b", of_reason("skew: 9m"), 3), ("b", of_reason("key_input: x"), 2),
    )  # fmt: skip
    assert shown(found) == [("quarantined", "skew", 5, "b, a"), ("quarantined", "key input", 2, "b")]


def test_what_was_counted_without_a_reason_is_not_left_out():
    found = snapshot(("a", What.QUARANTINED, 3), ("a", of_reason("skew: 2h"), 1))
    assert shown(found) == [("quarantined", "other", 2, "a"), ("quarantined", "skew", 1, "a")]


def test_repeats_that_were_only_counted_are_told_as_that():
    replay = of_class(RepeatClass.EXPECTED_REPLAY)
    twin = of_class(RepeatClass.NEW_ID_PER_RETRY)  # under a new key: no repeat of a known one
    found = snapshot(("a", What.REPLAY, 10), ("a", replay, 4), ("a", twin, 3), ("a", What.FRESH, 9))
    assert shown(found) == [
        ("repeat", NOT_CLASSIFIED, 6, "a"),
        ("repeat", "expected replay", 4, "a"),
        ("repeat", "new id per retry", 3, "a"),
    ]


def test_many_surfaces_are_not_all_named():
    found = snapshot(*((name, What.HELD, 9 - place) for place, name in enumerate("abcde")))
    assert shown(found) == [("held", "approval", 35, "a, b, c and 2 more")]


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_of_the_gate_has_a_number(reason):
    assert reason_of(of_reason(f"{reason.value}: and so on")) == reason.value
    assert reason_of(of_reason("whatever else")) == reason_of(of_reason(None)) == "other"
    assert reason_of(What.HELD) is None
