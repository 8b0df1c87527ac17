"""Lost replies, requests that are repeated below us, throttling: through a front that does so (I5)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from oncegate import Gate
from oncegate.errors import ClaimLost, StoreUnavailable, StoreUnknown
from oncegate.gate.admission import Verdict
from oncegate.gate.once import Once
from oncegate.model.states import Decision, State
from oncegate.store import Reservation, Reserved, Settlement, StepRecord, StepRecords, StepState
from oncegate.stores.dynamodb import DynamoStore
from oncegate.stores.dynamodb.session import DynamoSession
from oncegate.testing import ManualClock
from tests.support.dynamodb_front import DynamoFront, FrontFault

LOSE, TWICE, THROTTLE = FrontFault.LOSE_REPLY, FrontFault.TWICE, FrontFault.THROTTLE


class Bank:
    """A process with one handler that charges at a bank, and the charges that were made."""

    def __init__(self, address: str, clock: ManualClock) -> None:
        self.gate = Gate(store=DynamoStore(address, clock=clock), clock=clock)
        self.bank = self.gate.downstream("bank", honours_key="1d")
        self.charges: list[str] = []
        self.gate.handler("orders", key="{id}")(self.run)

    def run(self, event: Any, once: Once) -> str:
        return once.effect(self.bank, self.charge, event["id"])

    def charge(self, order: str, idempotency_key: str = "") -> str:
        self.charges.append(idempotency_key)
        return f"paid {order}"

    def admit(self, name: str = "o-1") -> Any:
        return self.gate.admit_sync("orders", {"id": name})


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def bank(fronted: str, clock: ManualClock) -> Iterator[Bank]:
    made = Bank(fronted, clock)
    with made.gate:
        made.admit("warm")
        made.charges.clear()
        yield made


@pytest.fixture
def session(fronted: str, clock: ManualClock) -> DynamoSession:
    return DynamoStore(fronted, clock=clock).connect()


def reservation(name: str, token: int) -> Reservation:
    key = name.encode().ljust(32, b".")
    return Reservation(key, "", "orders", name, b"content", b"", 1_780_000_000_000, 20_000, 8, token)


def settlement(claim: Reserved, **changes: Any) -> Settlement:
    return Settlement(*claim.claim, **{"state": State.COMMITTED, "at_ms": 5, "actor": "test", **changes})


def test_reservation_whose_reply_was_lost_runs_once(bank: Bank, front: DynamoFront) -> None:
    """It is read back by its token: the process that made it holds it, and calls the bank once."""
    front.do("PutItem", LOSE)

    answer = bank.admit()

    assert front.happened[LOSE] == 1
    assert answer.verdict is Verdict.RUN
    assert len(bank.charges) == 1
    assert bank.admit().verdict is Verdict.REPLAY


def test_settlement_whose_reply_was_lost_is_told_as_done(bank: Bank, front: DynamoFront) -> None:
    """The write is never sent a second time, and the outcome is there."""
    front.do("UpdateItem", LOSE)
    front.seen.clear()

    answer = bank.admit()

    assert (answer.verdict, answer.value) == (Verdict.RUN, "paid o-1")
    assert front.seen["UpdateItem"] == 1
    assert bank.admit().verdict is Verdict.REPLAY


def test_request_that_failed_inside_the_service_is_read_back(bank: Bank, front: DynamoFront) -> None:
    """An internal error may have written: what is not there is refused, and nothing was run."""
    front.do("PutItem", FrontFault.FAIL)

    with pytest.raises(StoreUnavailable):
        bank.admit()

    assert bank.charges == []
    assert bank.admit().verdict is Verdict.RUN


def test_no_effect_starts_while_an_unknown_reservation_cannot_be_read_back(
    bank: Bank, front: DynamoFront
) -> None:
    """The outcome stays unknown, and the caller learns that (I5)."""
    front.do("PutItem", LOSE)
    front.do("GetItem", *[FrontFault.REFUSE] * 4)

    with pytest.raises(StoreUnknown):
        bank.admit()

    assert bank.charges == []


def test_reservation_that_is_sent_twice_below_us_is_ours(
    session: DynamoSession, front: DynamoFront
) -> None:
    """The second copy fails against the first one's item, which carries the number of this request."""
    front.do("PutItem", TWICE)

    (claim,) = session.reserve([reservation("a", 7)])

    assert front.happened[TWICE] == 1
    assert claim.decision is Decision.RUN
    assert session.settle([settlement(claim)]) == [True]


def test_batch_that_is_sent_twice_below_us_is_ours(session: DynamoSession, front: DynamoFront) -> None:
    """Both the inserts and the settlements of many."""
    front.do("BatchExecuteStatement", TWICE, TWICE)

    claims = session.reserve([reservation(name, place) for place, name in enumerate("abc", 1)])
    ended = session.settle([settlement(claim) for claim in claims])

    assert [claim.decision for claim in claims] == [Decision.RUN] * 3
    assert ended == [True] * 3
    assert front.happened[TWICE] == 2


def test_settlement_that_is_sent_twice_below_us_is_done(session: DynamoSession, front: DynamoFront) -> None:
    """It is reported as done, with one log record; another one of the same claim is not."""
    (claim,) = session.reserve([reservation("a", 7)])
    front.do("UpdateItem", TWICE)

    assert session.settle([settlement(claim, outcome=b"1")]) == [True]
    assert session.settle([settlement(claim, outcome=b"1")]) == [False]
    (found,) = session.details([claim.key])
    assert found is not None
    assert len(found.records) == 1


def test_takeover_that_is_sent_twice_below_us_is_ours(
    session: DynamoSession, front: DynamoFront, clock: ManualClock
) -> None:
    """A stranded claim is taken over once, under one fence."""
    (first,) = session.reserve([reservation("a", 7)])
    clock.advance(21)
    front.do("UpdateItem", TWICE)

    (second,) = session.reserve([reservation("a", 8)])

    assert front.happened[TWICE] == 1
    assert (second.decision, second.attempt) == (Decision.RECOVER, 2)
    assert second.fence > first.fence
    assert session.settle([settlement(second)]) == [True]


def test_throttled_request_is_sent_again_with_growing_waits(
    session: DynamoSession, front: DynamoFront, clock: ManualClock
) -> None:
    """Nothing was changed by a throttled request: it is safe to repeat."""
    front.do("PutItem", *[THROTTLE] * 4)
    before = clock.ticks_ms()

    (claim,) = session.reserve([reservation("a", 7)])

    assert claim.decision is Decision.RUN
    assert front.happened[THROTTLE] == 4
    assert 0.05 * 1000 * 7 <= clock.ticks_ms() - before < 1_000


def test_throttling_without_end_is_refused_within_seconds(
    session: DynamoSession, front: DynamoFront, clock: ManualClock
) -> None:
    """One line that says what to raise; nothing was changed (I26)."""
    front.do("PutItem", *[THROTTLE] * 100)
    before = clock.ticks_ms()

    with pytest.raises(StoreUnavailable, match=r"is throttled .* nothing was changed"):
        session.reserve([reservation("a", 7)])

    assert clock.ticks_ms() - before < 7_000
    front.plans.clear()
    assert session.read([reservation("a", 7).key]) == [None]


def test_statements_of_a_batch_that_are_throttled_are_sent_again_alone(
    session: DynamoSession, front: DynamoFront
) -> None:
    """Those that were carried out are not repeated."""
    front.do("BatchExecuteStatement", FrontFault.THROTTLE_SOME, FrontFault.THROTTLE_SOME)

    claims = session.reserve([reservation(name, place) for place, name in enumerate("abcde", 1)])

    assert [claim.decision for claim in claims] == [Decision.RUN] * 5
    assert front.happened[FrontFault.THROTTLE_SOME] == 2
    assert session.settle([settlement(claim) for claim in claims]) == [True] * 5


def test_batch_that_fails_after_some_were_written_is_unknown(
    session: DynamoSession, front: DynamoFront
) -> None:
    """Each item is read back then: nothing is believed undone that was written."""
    front.do("BatchExecuteStatement", FrontFault.THROTTLE_SOME, FrontFault.REFUSE)

    with pytest.raises(StoreUnknown, match="were written before it failed"):
        session.reserve([reservation(name, place) for place, name in enumerate("abcd", 1)])


def test_step_result_that_was_lost_on_its_way_is_recalled(
    session: DynamoSession, front: DynamoFront
) -> None:
    """A lost reply to a step's record is unknown, and the record is there."""
    (claim,) = session.reserve([reservation("a", 7)])
    step = StepRecord("pay", StepState.DONE, "bank", b"1")
    front.do("UpdateItem", LOSE)

    with pytest.raises(StoreUnknown):
        session.progress([StepRecords(*claim.claim, (step,), 5)])

    (found,) = session.details([claim.key])
    assert found is not None
    assert found.steps == (step,)


def test_worker_that_was_overtaken_hears_that_its_claim_is_lost(
    bank: Bank, fronted: str, clock: ManualClock
) -> None:
    """A fence on every write: the late settlement changes nothing (I4)."""
    other = Bank(fronted, clock)

    def stall(order: str, idempotency_key: str = "") -> str:
        clock.advance(60)
        assert other.admit().verdict is Verdict.RUN
        return "late"

    bank.charge = stall  # type: ignore[method-assign]
    with pytest.raises(ClaimLost):
        bank.admit()
    assert other.admit().value == "paid o-1"
    other.gate.close()
