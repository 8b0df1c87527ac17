"""Services that die under load: nothing answered is lost, nothing is done twice (I1, I2, I3, I6)."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from oncegate import Gate
from oncegate.feed import Feed
from oncegate.sender.addresses import AddressPolicy
from oncegate.sender.endpoint_registry import EndpointChange
from oncegate.sender.endpoints import OnDeadLetter, new_endpoint
from oncegate.sender.sender import SenderOnCommits
from oncegate.service.settings import Mode, Settings
from oncegate.store import LaneFilter
from oncegate.testing.crashing import ArmedCrashPoints
from oncegate.testing.waiting import wait_until
from tests.service.fleet import PUSH, HonouringTeam, Load, Member, add_partner, follow, hook_of
from tests.service.site import BEARER, forwarding

pytestmark = pytest.mark.slow


def _settings(url: str) -> Settings:
    return forwarding(url, honours_key="7d")


@contextmanager
def _members(url: str, settings: Settings, count: int) -> Iterator[list[Member]]:
    with ExitStack() as stack:
        members = [Member(url, settings) for _ in range(count)]
        for member in members:
            stack.callback(member.close)
        yield members


def _check(members: list[Member], token: str, load: Load, team: HonouringTeam) -> None:
    """Every answer stands, from whichever process; every event has one key and one slot."""
    for number, (event_id, outcome) in enumerate(load.hooks.items()):
        answer = members[number % len(members)].caller.call("POST", "/in/hooks", hook_of(event_id), BEARER)
        assert (answer.status, answer.document["replay"]) == (200, True)
        assert answer.document["outcome"] == outcome
    assert all(len(keys) == 1 for keys in team.keys.values())
    assert len(team.slots) == len(team.keys)
    _check_feed(follow(members[0].caller, token), load.published)


def _check_feed(events: list[dict[str, object]], published: dict[str, tuple[str, int]]) -> None:
    seqs: dict[object, list[object]] = defaultdict(list)
    for event in events:
        seqs[event["key"]].append(event["seq"])
    assert all(found == list(range(1, len(found) + 1)) for found in seqs.values())
    by_id = {event["id"]: (event["key"], event["seq"]) for event in events}
    assert len(by_id) == len(events)
    assert published.items() <= by_id.items()


def _kill_at_random(members: list[Member], load: Load, kills: int, choose: random.Random) -> None:
    """Each kill waits for work to have been done since the last."""
    for _ in range(kills):
        enough = load.answered + choose.randint(10, 40)
        wait_until(lambda enough=enough: load.answered >= enough, what="answers")  # type: ignore[misc]
        victim = choose.choice(members)
        victim.kill()
        victim.start()


@pytest.mark.parametrize(
    ("kills", "seed"), [(4, 1), *[pytest.param(60, seed, marks=pytest.mark.soak) for seed in range(2, 6)]]
)
def test_three_processes_on_one_ledger_killed_at_random(ledger_url: str, kills: int, seed: int) -> None:
    team = HonouringTeam()
    token = add_partner(ledger_url)
    with team.serving() as url, _members(ledger_url, _settings(url), 3) as members:
        for member in members:
            member.start()
        load = Load(members, token)
        with load.running():
            _kill_at_random(members, load, kills, random.Random(seed))
        _check(members, token, load, team)

    assert load.hooks
    assert load.published


@pytest.mark.soak
@pytest.mark.timeout(420)
def test_what_was_accepted_is_run_and_what_was_published_is_pushed(ledger_url: str) -> None:
    """After kills at random: all of it, each event under one key, pushes of a key in order (I2, I10)."""
    team, token = HonouringTeam(), add_partner(ledger_url)
    in_order = {"mode": Mode.ACCEPT, "lane": "{order}"}
    with team.serving() as url:
        _follow(ledger_url, url + PUSH)
        with _members(ledger_url, forwarding(url, in_order, honours_key="7d"), 2) as members:
            for member in members:
                member.start()
            load = Load(members, token)
            with load.running():
                _kill_at_random(members, load, 8, random.Random(7))
            # A lane that was under way waits for its lease, and then for its entry's.
            wait_until(lambda: load.accepted <= set(team.keys), what="accepted events", seconds=200)
            wait_until(lambda: load.published.keys() <= _pushed_ids(team), what="pushes", seconds=200)

    assert load.accepted
    assert all(len(keys) == 1 for keys in team.keys.values())
    for came in team.pushed.values():
        first = list(dict.fromkeys(came))
        assert [seq for seq, _ in first] == list(range(1, len(first) + 1))


def _follow(ledger_url: str, url: str, **changes: Any) -> None:
    with Gate(ledger_url) as gate:
        sender = SenderOnCommits(
            gate.engine.commits, policy=AddressPolicy.of(allow_http=True, allow_loopback=True)
        )
        sender.endpoints.add(
            new_endpoint("team", url, follows="acme", **changes), EndpointChange("ann", "a test")
        )


def _pushed_ids(team: HonouringTeam) -> set[str]:
    return {event_id for came in list(team.pushed.values()) for _, event_id in list(came)}


@pytest.mark.parametrize(
    "point",
    ["reserve.before", "reserve.after", "effect.before", "effect.after", "settle.before", "settle.after",
     "commit.before", "commit.after"],
)  # fmt: skip
def test_a_server_killed_at_a_crash_point_under_load(tmp_path: Path, point: str) -> None:
    """The crash point fires in the middle of the load; the next process finds everything as it was told."""
    team, url = HonouringTeam(), f"sqlite:///{tmp_path}/ledger.db"
    token = add_partner(url)
    with team.serving() as handler, _members(url, _settings(handler), 1) as (member,):
        crashed = member.start(ArmedCrashPoints(point, occurrence=25))
        load = Load([member], token, callers=4)
        with load.running():
            code = crashed.wait()
            member.kill()
            member.start()
            before = load.answered
            wait_until(lambda: load.answered > before + 5, what="answers of the next process")
        _check([member], token, load, team)

    assert code == -9  # it was the crash point


LATER_SECONDS = 1_000  # all leases of a process that died have lapsed by then
REFUSED_LAST = 40


@pytest.mark.parametrize(
    "point",
    [
        "lane.lease.after",
        "lane.deliver.before",
        "lane.deliver.after",
        "lane.finish.after",
        "lane.fail.after",
    ],
)
def test_a_server_killed_in_the_middle_of_accepted_work(tmp_path: Path, point: str) -> None:
    """What was answered 202 is run, each event under one key; nothing is lost, nothing doubled (I1, I2)."""
    team, url = HonouringTeam(), f"sqlite:///{tmp_path}/ledger.db"
    team.refuses = lambda event_id, turn: turn == 1 and _is_to_be_refused(event_id)
    in_order = {"mode": Mode.ACCEPT, "lane": "{order}"}
    token = add_partner(url)
    with team.serving() as handler:
        wanted = forwarding(handler, in_order, honours_key="7d")
        with _members(url, wanted, 1) as (member,):
            load = _killed_at(member, point, Load([member], token, callers=4, hooks=1.0))
            wait_until(lambda: load.accepted <= set(team.keys), what="accepted events", seconds=200)
            wait_until(lambda: _all_settled(member, load), what="outcomes", seconds=200)

    assert all(len(keys) == 1 for keys in team.keys.values())
    assert len(team.slots) == len(team.keys)


def _is_to_be_refused(event_id: str) -> bool:
    """Some of the first: each of them holds up its lane, and so does every one behind it once more."""
    number = int(event_id[2:])
    return number % 4 == 0 and number <= REFUSED_LAST


def _killed_at(member: Member, point: str, load: Load) -> Load:
    """Loads a process until a lane's crash point kills it, and the one that comes after it."""
    # Heads are leased many at a time: a fifth time may take long, and all that came till then is delivered.
    crashed = member.start(ArmedCrashPoints(point, occurrence=2 if point == "lane.lease.after" else 5))
    with load.running():
        code = crashed.wait(seconds=200)
        member.kill()
        member.start(seconds_later=LATER_SECONDS)
        before = load.answered
        wait_until(lambda: load.answered > before + 5, what="answers of the next process")
    assert code == -9  # it was the crash point
    return load


def _all_settled(member: Member, load: Load) -> bool:
    answers = [member.caller.call("POST", "/in/hooks", hook_of(one), BEARER) for one in load.accepted]
    return all(answer.status == 200 and answer.document["replay"] for answer in answers)


@pytest.mark.parametrize(
    "point",
    ["lane.lease.after", "lane.deliver.before", "lane.deliver.after", "lane.finish.after",
     "lane.fail.after", "lane.dead.after"],
)  # fmt: skip
def test_a_server_killed_in_the_middle_of_delivery(tmp_path: Path, point: str) -> None:
    """What was published arrives or is a dead letter; in order, and repeats bear the same id (B1, I10)."""
    team, url = HonouringTeam(), f"sqlite:///{tmp_path}/ledger.db"
    is_last = point == "lane.dead.after"
    team.refuses = lambda event_id, turn: _is_to_be_refused(event_id) and (is_last or turn == 1)
    token = add_partner(url)
    with team.serving() as handler:
        _follow(url, handler + PUSH, attempts_max=1 if is_last else 20, on_dead_letter=OnDeadLetter.ADVANCE)
        with _members(url, _settings(handler), 1) as (member,):
            load = _killed_at(member, point, Load([member], token, callers=4, hooks=0.0))
            ids = load.published.keys()
            wait_until(lambda: ids <= _pushed_ids(team) | _dead_ids(url), what="pushes", seconds=200)

    assert bool(_dead_ids(url)) is is_last
    _check_order(team, url)


def _check_order(team: HonouringTeam, url: str) -> None:
    """Of every key: seqs in order, without gaps but for dead letters."""
    with Gate(url) as gate, gate.engine.store.look() as session:
        dead = {(one.key, one.seq) for one in session.dead_letters(LaneFilter(), (0, 0), 10_000)}
    for key, came in team.pushed.items():
        seqs = [seq for seq, _ in dict.fromkeys(came)]
        given_up = [seq for name, seq in dead if name == key and seq not in seqs]
        assert seqs == sorted(seqs)
        assert sorted(seqs + given_up) == list(range(1, max(seqs + given_up) + 1))


def _dead_ids(url: str) -> set[str]:
    with Gate(url) as gate, gate.engine.store.look() as session:
        return {one.event_id for one in session.dead_letters(LaneFilter(), (0, 0), 10_000)}


def test_a_reader_sees_every_committed_event_once_and_in_order(ledger_url: str) -> None:
    """While emitters commit, roll back and lose their connections in the middle of a transaction (I12)."""
    token = add_partner(ledger_url)
    committed: set[str] = set()
    done = threading.Event()

    def emit(number: int) -> None:
        choose = random.Random(number)
        with Gate(ledger_url) as gate:
            feed = Feed(gate)
            for turn in range(25):
                event_id = f"{number}-{turn}"
                with psycopg.connect(ledger_url) as connection, suppress(psycopg.Error):
                    connection.execute("SELECT 1")  # the transaction is open
                    # In one order, so that no two emitters wait for each other's keys.
                    for part, key in enumerate(sorted(choose.choices("1234", k=choose.randint(1, 3)))):
                        place: dict[str, Any] = {"event_id": f"{event_id}-{part}", "key": key}
                        feed.publish_sync(tenant="acme", data=turn, tx=connection, **place)
                    end = choose.random()
                    if end < 0.6:
                        connection.commit()
                        committed.update(f"{event_id}-{one}" for one in range(part + 1))
                    elif end < 0.8:
                        connection.rollback()
                    else:
                        connection.close()  # gone without a word, in the middle

    emitters = [threading.Thread(target=emit, args=(number,)) for number in range(3)]
    with _members(ledger_url, forwarding("http://127.0.0.1:9/"), 1) as (member,):
        member.start()
        for emitter in emitters:
            emitter.start()
        events: list[dict[str, object]] = []
        while any(emitter.is_alive() for emitter in emitters) or not done.is_set():
            if not any(emitter.is_alive() for emitter in emitters):
                done.set()  # one more round for what was committed last
            events += follow(member.caller, token, str(events[-1]["cursor"]) if events else None)

    assert {event["id"] for event in events} == committed
    _check_feed(events, {})
    assert committed
