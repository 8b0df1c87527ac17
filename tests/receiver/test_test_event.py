"""`oncegate endpoints test`: one signed event to a receiver that keeps order, as often as one likes."""

from __future__ import annotations

from datetime import timedelta

from oncegate.sender.addresses import AddressPolicy
from oncegate.sender.endpoints import new_endpoint
from oncegate.sender.responses import Result
from oncegate.sender.testing import send_test
from tests.receiver.requests import SECRET, Inbox
from tests.receiver.test_over_http import application, served
from tests.support.gates import Ledger

POLICY = AddressPolicy(allow_http=True, allow_loopback=True)


async def test_an_endpoint_is_tested_twice_without_touching_the_order_of_any_key(ledger: Ledger) -> None:
    """Given an ordered receiver; when its endpoint is tested twice, both events are taken, each in a lane
    of its own, and the first real event of a key called test comes after them as the first."""
    inbox = Inbox(ledger)
    async with served(application(inbox.receiver)) as url:
        endpoint = new_endpoint("orders", str(url), secret=SECRET.reveal(), timeout=timedelta(seconds=30))
        found = [await send_test(endpoint, POLICY, ledger.clock) for _ in range(2)]
    assert [one.result for one in found] == [Result.DELIVERED] * 2
    assert inbox.send(1, "test") == 200
    assert [seq for _, seq in inbox.applied] == [1, 1, 1]
    assert len({key for key, _ in inbox.applied}) == 3
