"""`oncegate prune`: counts, forgets, and refuses what would let events run twice."""

from __future__ import annotations

import json
import sqlite3

OLD = ("prune", "--surface", "bookings", "--older-than", "90d", "--believe-clock")


def make_old(path) -> None:
    """Dates everything a hundred days back."""
    back = 100 * 86_400_000
    with sqlite3.connect(path) as connection:
        connection.execute(
            "UPDATE oncegate_entry SET received_at = received_at - ?, settled_at = settled_at - ?",
            (back, back),
        )
    connection.close()


def states(path) -> dict[str, int]:
    connection = sqlite3.connect(path)
    found = connection.execute("SELECT state, count(*) FROM oncegate_entries GROUP BY state").fetchall()
    connection.close()
    return dict(found)


def test_dry_run_counts_and_changes_nothing(call, ledger):
    """What it says is what the real run does."""
    make_old(ledger)
    before = states(ledger)
    ended = call(*OLD, "--dry-run", "--json")
    assert ended.code == 0
    told = json.loads(ended.out)
    assert (told["entries"], told["dry_run"], told["more"]) == (4, True, False)
    assert states(ledger) == before


def test_settled_entries_go_and_the_rest_stays(call, ledger):
    """Committed and failed ones of this surface; nothing else, and the log says so."""
    make_old(ledger)
    before = states(ledger)
    ended = call(*OLD)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("4 entries of bookings from before ")
    after = states(ledger)
    waiting = {"in_flight", "retryable", "unknown", "held", "quarantined"} & set(before)
    assert {state: after[state] for state in waiting} == {state: before[state] for state in waiting}
    assert before["committed"] - after["committed"] + before["failed"] - after.get("failed", 0) == 4
    connection = sqlite3.connect(ledger)
    ((note,),) = connection.execute("SELECT note FROM oncegate_log WHERE kind = 10").fetchall()
    connection.close()
    assert note.startswith("4 entries of bookings")
    assert call(*OLD).out.startswith("0 entries ")


def test_young_entries_stay(call, ledger):
    """Nothing is due: nothing happens."""
    before = states(ledger)
    assert call(*OLD).out.startswith("0 entries of bookings")
    assert states(ledger) == before


def test_limit_is_obeyed_and_told(call, ledger):
    """A person who wants less at a time gets less."""
    make_old(ledger)
    ended = call(*OLD, "--limit", "3")
    assert ended.out.startswith("3 entries ")
    assert "there are more; run it again" in ended.err
    assert call(*OLD, "--limit", "3").out.startswith("1 entry ")


def test_age_below_the_floor_is_refused(call, ledger):
    """Events are sent again that late."""
    make_old(ledger)
    before = states(ledger)
    ended = call("prune", "--surface", "bookings", "--older-than", "13d")
    assert ended.code == 2
    assert "is below 2w" in ended.complaint
    assert states(ledger) == before


def test_mistakes_are_one_line(call, ledger):
    """An unknown surface, a strange age, a missing option."""
    assert call("prune", "--surface", "nowhere", "--older-than", "90d").code == 2
    assert call("prune", "--surface", "bookings", "--older-than", "soon").code == 2
    assert call("prune", "--surface", "bookings").code == 2
    assert call("prune", "--surface", "bookings", "--older-than", "90d", "--limit", "0").code == 2


def test_no_ledger_is_made(call, tmp_path):
    """A wrong address must not become an empty ledger."""
    ended = call(*OLD)
    assert ended.code == 3
    assert not list(tmp_path.iterdir())
