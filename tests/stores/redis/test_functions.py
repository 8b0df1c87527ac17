"""The server's functions: decisions as the model's, fences that outlive keys, a clock without steps."""

from __future__ import annotations

from itertools import count, product
from typing import Any

import pytest

from oncegate.model.states import Known, State, judge, why_given_up
from oncegate.store import Attachment, Reservation, Reserved, Settlement
from oncegate.stores.redis import RedisStore
from oncegate.stores.redis.functions import LIBRARY, SOURCE
from oncegate.stores.redis.open_entries import Layout
from oncegate.stores.redis.session import RedisSession
from tests.support.postgres_site import reservation, settlement
from tests.support.servers_valkey import ValkeyServer

_NUMBERS = count()
HOUR_MS = 3_600_000


@pytest.fixture
def prefix() -> str:
    return f"functions{next(_NUMBERS)}"


@pytest.fixture
def session(valkey: ValkeyServer, prefix: str):
    made = RedisStore(valkey.url(prefix=prefix)).connect()
    yield made
    made.close()


def clock_of(valkey: ValkeyServer, prefix: str, key: bytes) -> Any:
    return valkey.client().hgetall(Layout(prefix).keys(key)[1])


def reserve(session: RedisSession, number: int = 1, **changes: object) -> Reserved:
    (answer,) = session.reserve([reservation(number, **changes)])
    return answer


@pytest.mark.slow
def test_server_decides_as_the_model_does(valkey: ValkeyServer) -> None:
    """Every state, content, lease, wait, number of attempts and of deaths gets the decision of `judge`."""
    script = (
        f"{SOURCE}\nlocal n = {{}}\nfor i = 3, #ARGV do n[i] = tonumber(ARGV[i]) end\n"
        "return {judge(ARGV[1], ARGV[2] == '1', n[3], n[4], n[5], n[6], n[7], n[8], n[9]),"
        " why_given_up(ARGV[1], n[6], n[8], n[9])}"
    )
    near = (99, 100, 101)
    cases = list(product(State, (True, False), near, near, (1, 2, 3), (0, 1, 2)))
    pipeline = valkey.client().pipeline(transaction=False)
    for state, same, lease, retry, attempt, deaths in cases:
        pipeline.eval(script, 0, state.value, int(same), 100, lease, retry, attempt, 2, deaths, 2)

    answers = pipeline.execute()

    for case, (decision, reason) in zip(cases, answers, strict=True):
        state, same, lease, retry, attempt, deaths = case
        known = Known(state, b"a", attempt, lease, retry, deaths, 2)
        assert decision.decode() == judge(known, b"a" if same else b"b", 100, 2).value, case
        assert reason.decode() == why_given_up(known), case


def test_fence_grows_past_a_key_that_was_removed(session: RedisSession, valkey, prefix: str) -> None:
    """I4: the counter of a slot stays when an entry expires, is withdrawn or is deleted by a stranger."""
    first = reserve(session)
    session.withdraw([first.claim])
    second = reserve(session)
    valkey.client().delete(Layout(prefix).entry(second.key))
    third = reserve(session)

    assert first.fence < second.fence < third.fence
    assert session.settle([settlement(second)]) == [False]


def test_only_final_entries_expire(session: RedisSession, valkey, prefix: str) -> None:
    """I14: what is in flight, waits or is in doubt stays; a final entry goes when its time is over."""
    for number, state in enumerate(State):
        claim = reserve(session, number, keep_ms=HOUR_MS)
        if state is not State.IN_FLIGHT:
            session.settle([Settlement(*claim.claim, state, 1, "gate", retry_in_ms=5)])
        life = valkey.client().pttl(Layout(prefix).entry(claim.key))
        assert (0 < life <= HOUR_MS) if state.is_final else life == -1, state
    (recorded,) = session.record([reservation(99, keep_ms=HOUR_MS)], b"1")
    parked = reserve(session, 100, keep_ms=HOUR_MS, quarantine="skew")
    assert parked.fence == 0
    assert 0 < valkey.client().pttl(Layout(prefix).entry(recorded.key)) <= HOUR_MS
    assert valkey.client().pttl(Layout(prefix).entry(reservation(100).key)) == -1


def test_claim_that_fails_after_it_was_final_elsewhere_keeps_its_life(session, valkey, prefix) -> None:
    """An outcome that is attached later does not make a final entry eternal."""
    claim = reserve(session, keep_ms=HOUR_MS)
    session.settle([settlement(claim)])
    assert session.attach([Attachment(*claim.claim, b"1")]) == [True]
    assert 0 < valkey.client().pttl(Layout(prefix).entry(claim.key)) <= HOUR_MS


@pytest.mark.parametrize(("step_ms", "gained_ms"), [(HOUR_MS, 20_000), (-HOUR_MS, 0)])
def test_step_of_the_servers_clock_moves_the_ledgers_time_by_no_more_than_a_lease(
    session: RedisSession, valkey, prefix: str, step_ms: int, gained_ms: int
) -> None:
    """I15: a clock that is set ahead adds 20 s at most, one that is set back takes a second at most."""
    claim = reserve(session, lease_ms=30_000)
    clock = Layout(prefix).keys(claim.key)[1]
    wall = int(clock_of(valkey, prefix, claim.key)[b"w"])
    valkey.client().hset(clock, "w", wall - step_ms)  # as if the clock had been set by this much since

    again = reserve(session)

    assert abs(again.now_ticks - claim.now_ticks - gained_ms) <= 1_000
    assert again.decision.value == "busy"
    later = reserve(session)
    assert 0 <= later.now_ticks - again.now_ticks < 1_000


def test_working_process_keeps_the_time_of_every_slot(session: RedisSession, valkey, prefix: str) -> None:
    """A slot that no process uses goes on: its next lease lapses when it should."""
    store = RedisStore(valkey.url(prefix=prefix))
    idle, busy = reservation(1).key, reservation(2).key
    for key in (idle, busy):
        valkey.client().hset(Layout(prefix).keys(key)[1], "w", 0)
    working = store.connect()
    reserve(working, 2)
    working.close()

    assert int(clock_of(valkey, prefix, idle)[b"w"]) > 0


def test_functions_that_the_server_lost_are_loaded_again(session: RedisSession, valkey) -> None:
    """FUNCTION FLUSH between two calls is not noticed by anybody."""
    reserve(session)
    valkey.client().function_flush()

    assert reserve(session, 2).decision.value == "run"
    assert reserve(session).decision.value == "busy"
    assert any(LIBRARY.encode() in one[1] for one in valkey.client().function_list())


def test_scripts_stand_in_where_functions_are_not_allowed(valkey: ValkeyServer, prefix: str) -> None:
    """A user without FUNCTION works all the same, and a flushed script cache is filled again."""
    admin = valkey.client()
    admin.acl_setuser(
        f"u{prefix}", enabled=True, passwords=["+secret"], keys=["*"], commands=["+@all", "-function"]
    )
    url = valkey.url(prefix=prefix).replace("://", f"://u{prefix}:secret@")
    session = RedisStore(url).connect()
    claim = reserve(session)
    admin.script_flush()

    assert session.settle([settlement(claim)]) == [True]
    assert reserve(session).decision.value == "replay"
    session.close()


def test_same_batch_is_one_pipeline(session: RedisSession, valkey) -> None:
    """A hundred reservations are a hundred function calls and one exchange."""
    wanted: list[Reservation] = [reservation(number) for number in range(100, 200)]
    session.reserve([reservation(99)])
    before = valkey.client().info("stats")["total_reads_processed"]

    assert {answer.decision.value for answer in session.reserve(wanted)} == {"run"}

    reads = valkey.client().info("stats")["total_reads_processed"] - before
    assert reads < 20
