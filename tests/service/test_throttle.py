"""How much is done at once: beyond a bound a request is refused, and what was counted is given back."""

from __future__ import annotations

import pytest

from oncegate.service.messages import RequestDenied
from oncegate.service.throttle import ConcurrencyLimiter


def statuses(room: ConcurrencyLimiter, tenants: str) -> list[int]:
    """What each of these tenants' requests is told, none of which ends."""
    found = []
    for tenant in tenants:
        try:
            room.take(tenant)
            found.append(200)
        except RequestDenied as refused:
            found.append(refused.problem.status)
    return found


@pytest.mark.parametrize(
    ("total_max", "tenant_max", "expected"),
    [(9, 2, [200, 200, 429, 200]), (3, 9, [200, 200, 200, 503]), (2, 2, [200, 200, 503, 503])],
)
def test_the_bounds_hold_for_each_tenant_and_altogether(
    total_max: int, tenant_max: int, expected: list[int]
) -> None:
    room = ConcurrencyLimiter(total_max, tenant_max)

    assert statuses(room, "aaab") == expected

    assert room.total == expected.count(200)
    assert room.shed == len(expected) - room.total


def test_what_was_given_back_can_be_taken_again() -> None:
    room = ConcurrencyLimiter(2, 1)
    for _ in range(3):
        assert statuses(room, "ab") == [200, 200]
        for tenant in "ab":
            room.give_back(tenant)
    assert room.total == 0
    with room.entered(), room.tenant("a"):
        assert statuses(room, "a") == [429]
        assert room.total == 1
    assert statuses(room, "a") == [200]
