"""Services that die under load while events with nothing to call are recorded (I1, I2, I3, I6)."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psycopg
import pytest

from oncegate.model.states import State
from oncegate.store import LogKind
from oncegate.testing.waiting import DEADLINE_SECONDS, wait_until
from tests.service.fleet import Member, hook_of, tried
from tests.service.site import BEARER, HOOKS, settings

pytestmark = pytest.mark.slow

CALLERS = 6
TRIES = 3
# Of every key: its state, and how many outcomes, payloads, leases and records there are of it.
LEFT = """
SELECT one.state, (SELECT count(*) FROM oncegate_outcome WHERE entry = one.id),
       (SELECT count(*) FROM oncegate_payload WHERE entry = one.id),
       (SELECT count(*) FROM oncegate_open WHERE entry = one.id),
       ARRAY(SELECT kind FROM oncegate_log WHERE entry = one.id)
FROM oncegate_entry AS one
"""
WHOLE = (State.COMMITTED.value, 1, 1, 0, [LogKind.COMMITTED.value])


class EqualCallers:
    """Callers that all send the same events, each to any member: one event arrives at several at once."""

    def __init__(self, members: list[Member]) -> None:
        self._members = members
        self._stopping = threading.Event()
        self.told: list[tuple[str, bool]] = []  # who was answered 200, and whether as a replay
        self.sent: set[str] = set()

    @contextmanager
    def running(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._call, args=(seed,)) for seed in range(CALLERS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            for thread in threads:
                thread.join(2 * DEADLINE_SECONDS)
                assert not thread.is_alive(), "a caller hangs"

    def _call(self, seed: int) -> None:
        choose, number = random.Random(seed), 0
        while not self._stopping.is_set():
            number += 1
            for _ in range(TRIES):
                if self._stopping.is_set() or self._send(f"e-{number}", choose.choice(self._members)):
                    break

    def _send(self, event_id: str, member: Member) -> bool:
        self.sent.add(event_id)
        answer = tried(lambda: member.caller.call("POST", "/in/hooks", hook_of(event_id), BEARER))
        if answer is None or answer.status != 200:
            return False
        self.told.append((event_id, answer.document["replay"]))
        return True


@pytest.mark.parametrize(
    ("kills", "seed"), [(3, 1), *[pytest.param(60, seed, marks=pytest.mark.soak) for seed in (2, 3)]]
)
def test_what_three_processes_recorded_is_there_once_whoever_was_killed(
    ledger_url: str, kills: int, seed: int
) -> None:
    """Every event that was answered is on record, whole, and was new to one caller at most."""
    choose = random.Random(seed)
    # Given three processes on one ledger, and callers who send the same events to all of them
    with ExitStack() as stack:
        members = [Member(ledger_url, settings(surfaces={"hooks": HOOKS})) for _ in range(3)]
        for member in members:
            stack.callback(member.close)
            member.start()
        callers = EqualCallers(members)
        # When one after the other is killed in the middle of it
        with callers.running():
            for _ in range(kills):
                enough = len(callers.told) + choose.randint(20, 60)
                wait_until(lambda enough=enough: len(callers.told) >= enough, what="answers")  # type: ignore[misc]
                victim = choose.choice(members)
                victim.kill()
                victim.start()
        # Then all that was answered is a replay everywhere, and nothing was new twice
        answered = sorted({event_id for event_id, _ in callers.told})
        for place, event_id in enumerate(answered):
            caller = members[place % len(members)].caller
            again = caller.call("POST", "/in/hooks", hook_of(event_id), BEARER)
            assert (again.status, again.document["replay"]) == (200, True)
    new = Counter(event_id for event_id, is_replay in callers.told if not is_replay)
    assert max(new.values()) == 1
    assert any(is_replay for _, is_replay in callers.told), "a run without repeats shows nothing"
    # And the ledger has every event whole, and none in flight
    with psycopg.connect(ledger_url) as connection:
        found = connection.execute(LEFT.encode()).fetchall()
    assert set(map(repr, found)) == {repr(WHOLE)}
    assert len(answered) <= len(found) <= len(callers.sent)
