"""Replays on the command line: plan, confirm, progress, cancel (B6, I20)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from oncegate.clock import SystemClock
from oncegate.commit.group_commit import GroupCommit
from oncegate.sender.operator_actions import LaneDecision, OperatorActions
from oncegate.sender.sender import SenderOnCommits
from oncegate.store import Acknowledgement, GivenUp, HeadsWanted, Policy, ReplayFilter, ReplayWanted
from oncegate.wiring import open_store
from tests.cli.test_sending import ADD, emit, lines

REPLAY = ("dead-letters", "replay", "--endpoint", "orders", "--reason", "they lost a day")
CANCEL = ("dead-letters", "cancel", "--reason", "enough")

SAMPLE = [{"key": "A", "deliveries": 2}, {"key": "B", "deliveries": 2}]


@pytest.fixture
def sender(call: Any, ledger: Any) -> Iterator[SenderOnCommits]:
    """A sender on the ledger that the commands use, with one endpoint."""
    call(*ADD)
    commits = GroupCommit(open_store(f"sqlite:///{ledger}"))
    yield SenderOnCommits(commits)
    commits.close()


def deliver(sender: SenderOnCommits, rounds: int = 1) -> list[str]:
    """Lets heads be delivered, as many of each key as there are rounds; tells whose."""
    keys: list[str] = []
    session = sender.commits.store.connect()
    for _ in range(rounds):
        with session.unit():
            heads = session.lease_heads(HeadsWanted((("orders", 500),), 60_000, 1)).deliveries
            session.finish(
                [Acknowledgement(d.lane_id, d.seq, d.fence, d.holder, d.event_id, 1) for d in heads]
            )
        keys += [f"{d.key} {d.seq}" for d in heads]
    session.close()
    return keys


def give_up(sender: SenderOnCommits) -> None:
    """Blocks every lane."""
    session = sender.commits.store.connect()
    with session.unit():
        heads = session.lease_heads(HeadsWanted((("orders", 500),), 60_000, 1)).deliveries
        session.dead_letter(
            [
                GivenUp(
                    d.lane_id, d.seq, d.fence, d.holder, d.event_id, 1, "HTTP 500", Policy.BLOCK, "test"
                )
                for d in heads
            ]
        )
    session.close()


def test_a_replay_is_watched_and_cancelled_by_the_name_that_receivers_see(
    call: Any, sender: SenderOnCommits
) -> None:
    """Given a replay of two keys, half delivered; when it is cancelled, the rest never goes."""
    emit(sender, "A", "A", "B", "B")
    deliver(sender, 2)

    begun = lines(call(*REPLAY, "--yes", "--json").out)
    name = begun[1]["replay"]
    assert begun[0] == {"plan": {"deliveries": 4, "lanes": 2, "cut": False, "sample": SAMPLE}}
    assert deliver(sender) == ["A 1", "B 1"]
    under_way = lines(call("dead-letters", "replays", "--json").out)
    told = [(one["replay"], one["endpoint"], one["lanes"], one["gone"], one["left"]) for one in under_way]
    assert told == [(name, "orders", 2, 2, 2)]
    assert (under_way[0]["state"], under_way[0]["reason"]) == ("running", "they lost a day")
    assert name in call("dead-letters", "replays").out

    cancelled = call(*CANCEL, name)

    assert (cancelled.code, cancelled.out) == (0, "2 deliveries were taken back\n")
    assert deliver(sender) == []
    assert call("dead-letters", "replays").err == "no replay is under way\n"
    (over,) = lines(call("dead-letters", "replays", "--all", "--json").out)
    assert (over["state"], over["taken_back"], over["cancelled_why"]) == ("cancelled", 2, "enough")
    assert ": enough" in call("dead-letters", "replays", "--all", "--endpoint", "orders").out
    assert call("dead-letters", "replays", "--all", "--before", "1").err == "there was no replay\n"
    assert call("dead-letters", "replays", "--endpoint", "ordres").code == 2
    assert [call(*CANCEL, one).code for one in (name, "abc", "no name", "f" * 17)] == [1, 1, 2, 2]


def test_the_command_says_how_to_watch_a_replay_and_end_it(call: Any, sender: SenderOnCommits) -> None:
    emit(sender, "A")
    deliver(sender)
    done = call(*REPLAY, "--key", "A", "--yes")
    (name,) = [view.name for view in _replays(sender)]
    assert f"oncegate dead-letters cancel {name}" in done.err


def _replays(sender: SenderOnCommits) -> Any:
    with sender.commits.store.look() as reader:
        return reader.replay_orders(ReplayFilter(only_running=True), None, 10)


def test_a_key_with_too_many_events_for_one_replay_is_told(
    call: Any, sender: SenderOnCommits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given more past events of a key than one replay takes; then the plan says so, and how to go on."""
    emit(sender, "A", "A", "A")
    deliver(sender, 3)
    real = ReplayWanted

    def fewer(*words: Any, **options: Any) -> ReplayWanted:
        return real(*words, **{**options, "deliveries_max": 2})

    monkeypatch.setattr("oncegate.sender.operator_actions.ReplayWanted", fewer)
    plan = call(*REPLAY, "--dry-run")
    assert "the first 2 are meant; go on with --from" in plan.err
    assert "2 past events of 1 keys" in plan.err


def test_an_endpoint_that_nobody_knows_has_nothing_to_replay(call: Any, sender: SenderOnCommits) -> None:
    ended = call("dead-letters", "replay", "--endpoint", "ordres", "--reason", "x", "--yes")
    assert (ended.code, "no endpoint is called 'ordres'" in ended.err) == (2, True)


def test_dead_letters_are_listed_page_by_page(call: Any, sender: SenderOnCommits) -> None:
    emit(sender, "A", "B", "C")
    give_up(sender)
    first = call("dead-letters", "list", "--limit", "2")
    assert first.err == "there may be more; go on with --after 2:1\n"
    rest = lines(call("dead-letters", "list", "--limit", "2", "--after", "2:1", "--json").out)
    assert [letter["key"] for letter in rest] == ["C"]
    assert call("dead-letters", "list", "--after", "2").code == 2


def test_a_long_job_tells_how_far_it_is(
    call: Any, sender: SenderOnCommits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given thirty blocked keys; when they are retried, the bar gets every step, and a pipe shows none."""
    told: list[int] = []
    monkeypatch.setattr("oncegate.cli.dead_letters.ProgressBar.tell", lambda bar, done: told.append(done))
    emit(sender, *(f"k{number}" for number in range(30)))
    give_up(sender)

    done = call("dead-letters", "retry", "--endpoint", "orders", "--reason", "x", "--yes")

    assert done.out == "30 of 30 retried\n"
    assert told == sorted(told)
    assert told[-1] == 30
    assert " of 30" not in done.err


def test_a_replay_that_somebody_else_cancels_meanwhile_ends_and_says_so(
    call: Any, sender: SenderOnCommits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given three keys, planted one at a time; after the first, another person cancels the replay."""
    emit(sender, "A", "B", "C")
    deliver(sender)
    real = ReplayWanted

    def one_at_a_time(*words: Any, **options: Any) -> ReplayWanted:
        return real(*words, **{**options, "limit": 1})

    monkeypatch.setattr("oncegate.sender.operator_actions.ReplayWanted", one_at_a_time)
    told: list[int] = []

    def cancel_at_once(tenths: Any, done: int) -> None:
        told.append(done)
        (order,) = _replays(sender) or [None]
        if order is not None:
            OperatorActions(sender.commits, SystemClock()).cancel_replay(
                order.nonce, LaneDecision("bob", "wrong day")
            )

    monkeypatch.setattr("oncegate.cli.replays.ProgressBar.tell", cancel_at_once)
    ended = call(*REPLAY, "--yes")
    assert (ended.code, ended.out, told[0]) == (130, "", 1)
    assert "another operator cancelled this replay meanwhile" in ended.err
    assert deliver(sender) == []
