"""The sender's commands: endpoints, lanes, dead letters (B5, B6, I20)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.json import encode as json_of

from oncegate.commit.group_commit import GroupCommit
from oncegate.commit.notice_operations import PostNotice
from oncegate.lanes.circuit_status import CircuitWord
from oncegate.sender.addresses import AddressPolicy
from oncegate.sender.endpoints import new_endpoint
from oncegate.sender.sender import SenderOnCommits
from oncegate.sender.urls import parse_endpoint_url
from oncegate.store import GivenUp, HeadsWanted, Outgoing, Policy, Posting
from oncegate.wiring import open_store

ADD = (
    "endpoints",
    "add",
    "orders",
    "https://shop.example/hooks",
    "--reason",
    "new customer",
    "--as",
    "ann",
)


@pytest.fixture
def sender(ledger: Any) -> Iterator[SenderOnCommits]:
    """A sender on the ledger that the commands use."""
    commits = GroupCommit(open_store(f"sqlite:///{ledger}"))
    yield SenderOnCommits(commits)
    commits.close()


def give_up_heads(sender: SenderOnCommits, policy: Policy = Policy.BLOCK) -> None:
    """Lets every head be leased and given up."""
    session = sender.commits.store.connect()
    with session.unit():
        heads = session.lease_heads(HeadsWanted((("orders", 10),), 60_000, 1))
        session.dead_letter(
            [
                GivenUp(d.lane_id, d.seq, d.fence, d.holder, d.event_id, 1, "HTTP 500", policy, "test")
                for d in heads.deliveries
            ]
        )
    session.close()


def emit(sender: SenderOnCommits, *keys: str) -> None:
    for key in keys:
        sender.emit_sync("orders", key=key, type="t", payload={})


def lines(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (["10.0.0.7"], (2, "shop.example resolves to an address that may not be called: 10.0.0.7")),
        (["93.184.215.14", "168.63.129.16"], (2, "168.63.129.16 hands out a cloud's credentials")),
        ([], (0, "warning: shop.example cannot be resolved here")),
        (["93.184.215.14"], (0, "")),
    ],
)
def test_a_name_is_resolved_when_its_endpoint_is_added(
    call: Any, ledger: Any, monkeypatch: pytest.MonkeyPatch, answers: list[str], expected: tuple[int, str]
) -> None:
    """A blocked answer refuses it, with the reason; no answer is a warning."""
    code, said = expected
    found = [(0, 0, 0, "", (answer, 443)) for answer in answers]
    monkeypatch.setattr("oncegate.sender.connector.socket.getaddrinfo", lambda *_, **__: found)
    ended = call(*ADD)
    assert (ended.code, said in ended.err, "warning" in ended.err) == (code, True, not answers)
    assert call("endpoints", "list", "--json").out.count('"orders"') == (1 if code == 0 else 0)


def test_an_added_endpoint_is_listed_and_its_secret_shown_once(call: Any, ledger: Any) -> None:
    """Adding prints the new secret; nothing prints it again."""
    added = call(*ADD)
    listed, shown = call("endpoints", "list", "--json"), call("endpoints", "show", "orders")

    assert added.code == 0
    secret = added.out.splitlines()[-1]
    assert secret.startswith("whsec_")
    assert lines(listed.out)[0]["name"] == "orders"
    assert secret not in listed.out + shown.out + added.err


def test_what_may_be_a_secret_in_an_address_is_shown_only_when_asked_for(call: Any, ledger: Any) -> None:
    """A canary in the path and the query of an endpoint: in no list, sheet, record or repr."""
    canary = "Zk3hXw9QpL2mN8vB"
    address = f"https://shop.example/hooks/{canary}?token={canary}"
    added = call("endpoints", "add", "orders", address, "--reason", "new", "--as", "Ada")
    told = [call("endpoints", what, *more) for what, *more in _LOOKS]
    for ended in (added, *told):
        assert ended.code == 0, ended.err
        assert canary not in ended.out + ended.err
    assert "https://shop.example/hooks/…?token=…" in told[0].out
    for what, *more in _LOOKS:
        assert address in call("endpoints", what, *more, "--full-url").out
    url = parse_endpoint_url(address, AddressPolicy.of())
    assert canary not in f"{url!r} {new_endpoint('orders', address)!r}"


_LOOKS = (("list",), ("list", "--json"), ("show", "orders"), ("show", "orders", "--json"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("https://127.0.0.1/",), "not a public address"),
        (("http://shop.example/",), "https"),
        (("https://shop.example/", "--secret", "whsec_c2hvcnQ="), "bytes"),
        (("https://shop.example/", "--header", "Host: x"), "host is set by the sender"),
        (("https://shop.example/", "--timeout", "5m"), "timeout"),
    ],
)
def test_a_bad_endpoint_is_one_clear_line(call: Any, ledger: Any, change: Any, message: str) -> None:
    """Exit code 2, and nothing stored."""
    ended = call("endpoints", "add", "bad", *change, "--reason", "x")
    assert ended.code == 2
    assert message in ended.err
    assert len(ended.err.splitlines()) == 1
    assert call("endpoints", "list", "--json").out == ""


def test_pausing_twice_says_so(call: Any, ledger: Any) -> None:
    """The second pause changes nothing."""
    call(*ADD)
    first = call("endpoints", "pause", "orders", "--reason", "their maintenance")
    again = call("endpoints", "pause", "orders", "--reason", "their maintenance")
    resumed = call("endpoints", "resume", "orders", "--reason", "done")

    assert first.out == "endpoint orders is now paused\n"
    assert again.out == "endpoint orders was already paused\n"
    assert resumed.out == "endpoint orders is now active\n"


def test_a_reason_is_needed(call: Any, ledger: Any) -> None:
    """Neither missing nor blank."""
    call(*ADD)
    assert call("endpoints", "pause", "orders").code == 2
    blank = call("endpoints", "pause", "orders", "--reason", "  ")
    assert (blank.code, "say why" in blank.err) == (2, True)


def test_blocked_lanes_are_listed_and_retried_by_filter(
    call: Any, ledger: Any, sender: SenderOnCommits
) -> None:
    """The plan names them, --yes carries it out, and they wait to be sent again."""
    call(*ADD)
    emit(sender, "A", "A", "B")
    give_up_heads(sender)

    blocked = lines(call("lanes", "blocked", "--json").out)
    letters = lines(call("dead-letters", "list", "--json").out)
    plan = call("dead-letters", "retry", "--endpoint", "orders", "--reason", "x", "--dry-run", "--json")
    done = call("dead-letters", "retry", "--endpoint", "orders", "--reason", "back", "--yes", "--json")

    assert [(one["key"], one["head_seq"], one["waiting_behind"]) for one in blocked] == [
        ("A", 1, 1),
        ("B", 1, 0),
    ]
    assert [one["blocks"] for one in letters] == [True, True]
    assert lines(plan.out) == [{"plan": {"verb": "retry", "lanes": 2, "behind": 1}}]
    assert lines(done.out)[-1] == {"done": 2, "changed": 0, "cancelled": False}
    assert call("lanes", "blocked", "--json").out == ""


def test_skipping_leaves_the_head_out_and_the_next_event_goes(
    call: Any, ledger: Any, sender: SenderOnCommits
) -> None:
    """The skipped one stays a dead letter; its successor is the head."""
    call(*ADD)
    emit(sender, "A", "A")
    give_up_heads(sender)

    ended = call("dead-letters", "skip", "--endpoint", "orders", "--key", "A", "--reason", "x", "--yes")
    shown = lines(call("lanes", "show", "orders", "A", "--json").out)[0]

    assert ended.out == "1 of 1 skipped\n"
    assert (shown["head_seq"], shown["events"][0]["dead_letter"]) == (2, True)


def test_a_seq_that_is_not_the_head_cannot_be_skipped(
    call: Any, ledger: Any, sender: SenderOnCommits
) -> None:
    """One clear line; nothing is changed."""
    call(*ADD)
    emit(sender, "A", "A")
    give_up_heads(sender)
    ended = call(
        "dead-letters", "skip", "--endpoint", "orders", "--key", "A", "--seq", "2", "--reason", "x", "--yes"
    )
    assert (ended.code, "not the head" in ended.err) == (2, True)
    assert len(lines(call("lanes", "blocked", "--json").out)) == 1


def test_a_head_that_waits_for_its_next_try_can_be_skipped_by_its_seq(
    call: Any, ledger: Any, sender: SenderOnCommits
) -> None:
    """As on the page; a filter alone means blocked ones."""
    call(*ADD)
    emit(sender, "A", "A")
    by_filter = call("dead-letters", "skip", "--endpoint", "orders", "--reason", "x", "--yes")
    by_seq = call(
        "dead-letters", "skip", "--endpoint", "orders", "--key", "A", "--seq", "1", "--reason", "x", "--yes"
    )
    assert "nothing to do" in by_filter.err
    assert by_seq.out == "1 of 1 skipped\n"
    assert lines(call("lanes", "show", "orders", "A", "--json").out)[0]["head_seq"] == 2


def test_what_a_surface_has_accepted_can_be_paused(call: Any, ledger: Any, sender: SenderOnCommits) -> None:
    """By the name that the page and `lanes list` show."""
    at_ms = sender.clock.wall_ms()
    event = Outgoing("surface:notes", "", "A", "e-1", "notes", b"{}", b"f" * 16, at_ms)
    with sender.commits.transaction() as session:
        session.enqueue([event])
    assert call("endpoints", "pause", "surface:notes", "--reason", "x").code == 0
    assert call("endpoints", "pause", "surface:nobody", "--reason", "x").code == 2


def test_dead_letters_are_replayed_in_order(call: Any, ledger: Any, sender: SenderOnCommits) -> None:
    """With `advance` they lie behind; a replay puts them before anything newer."""
    call(*ADD)
    emit(sender, "A", "A", "A")
    give_up_heads(sender, Policy.ADVANCE)
    give_up_heads(sender, Policy.ADVANCE)

    done = call("dead-letters", "replay", "--endpoint", "orders", "--only-dead", "--reason", "x", "--yes")

    assert done.out == "2 deliveries of 1 keys wait to be sent once more\n"
    session = sender.commits.store.connect()
    with session.unit():
        heads = session.lease_heads(HeadsWanted((("orders", 10),), 60_000, 2))
    session.close()
    assert [d.seq for d in heads.deliveries] == [1]
    assert heads.deliveries[0].nonce is not None


def test_nobody_to_ask_means_nothing_is_changed(call: Any, ledger: Any, sender: SenderOnCommits) -> None:
    """Without --yes and without a terminal."""
    call(*ADD)
    emit(sender, "A")
    give_up_heads(sender)
    ended = call("dead-letters", "retry", "--endpoint", "orders", "--reason", "x")
    assert (ended.code, "--yes" in ended.err) == (2, True)
    assert len(lines(call("lanes", "blocked", "--json").out)) == 1


@pytest.mark.parametrize(
    "words",
    [
        ("lanes", "list", "--endpoint", "ordres"),
        ("dead-letters", "list", "--endpoint", "ordres"),
        ("dead-letters", "skip", "--endpoint", "ordres", "--key", "A", "--reason", "x", "--yes"),
    ],
)
def test_an_endpoint_that_nobody_knows_is_a_mistake_and_not_an_empty_answer(
    call: Any, ledger: Any, words: tuple[str, ...]
) -> None:
    ended = call(*words)

    assert ended.code == 2
    assert "no endpoint is called 'ordres'" in ended.err


def test_an_open_circuit_is_told_wherever_its_endpoint_is_listed(
    call: Any, sender: SenderOnCommits
) -> None:
    """State, next try and how fresh that is; closed where nobody has spoken."""
    call(*ADD)
    emit(sender, "A-17")
    before = lines(call("endpoints", "list", "--json").out)[0]["circuit"]
    word = CircuitWord(sender.clock.wall_ms(), 2, 3_600_000, 7, "HTTP 500")
    posting = Posting("circuit", "orders", "host, process 1", json_of(word), sender.clock.wall_ms(), 60_000)
    sender.commits.submit(PostNotice(posting))

    after = lines(call("endpoints", "list", "--json").out)[0]["circuit"]
    table, shown = call("endpoints", "list").out, call("endpoints", "show", "orders").out
    listed = call("lanes", "list")

    assert before == {"state": "closed"}
    assert (after["state"], after["openings"], after["failing_keys"]) == ("open", 2, 7)
    assert (after["error"], after["told_by"]) == ("HTTP 500", "host, process 1")
    assert after["next_try_in_ms"] > 3_000_000
    assert after["told_ago_ms"] < 600_000
    assert "open, next try in" in table
    assert "the last with: HTTP 500" in shown
    assert "the circuit of orders is open, next try in" in listed.err
    assert lines(call("lanes", "list", "--json").out)[0]["circuit"]["state"] == "open"
