"""The ledger's time on several machines: no wall clock of a client moves it (I15)."""

from __future__ import annotations

from email.utils import formatdate
from typing import Any

import pytest

from oncegate.stores.dynamodb.failures import ConditionFailed
from oncegate.stores.dynamodb.ledger_time import FENCE_BITS, LOOK_AFTER_MS, PAUSE_MAX_MS, LedgerTime
from oncegate.testing import ManualClock

START_S = 1_790_000_000


class Service:
    """The item of the ledger's time, and the service's own clock."""

    def __init__(self) -> None:
        self.item: dict[str, Any] | None = None
        self.seconds = float(START_S)
        self.writes = 0


class Machine:
    """A machine with clocks of its own, and a process on it. Plays the client of the table."""

    place, table = "table", "ledger"

    def __init__(self, service: Service, boot: str, ticks_ms: int = 1_000) -> None:
        self.service, self.clock = service, ManualClock(ticks_ms=ticks_ms)
        self.clock.reboot(boot, ticks_ms)
        self.time = LedgerTime(self)  # type: ignore[arg-type]

    def read(self, operation: str, **_: Any) -> dict[str, Any]:
        date = formatdate(int(self.service.seconds), usegmt=True)
        answer: dict[str, Any] = {"ResponseMetadata": {"HTTPHeaders": {"date": date}}}
        return answer if self.service.item is None else {**answer, "Item": dict(self.service.item)}

    def write(self, operation: str, **arguments: Any) -> dict[str, Any]:
        service = self.service
        if operation == "put_item":
            if service.item is not None:
                raise ConditionFailed(service.item)
            service.item = arguments["Item"]
            return {}
        values = arguments["ExpressionAttributeValues"]
        assert service.item is not None
        if service.item["n"] != values[":o"]:
            raise ConditionFailed(service.item)
        names = {"tm": ":t", "w": ":w", "n": ":n"}
        service.item = {**service.item, **{name: values[value] for name, value in names.items()}}
        service.writes += 1
        return {}


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def machines(service: Service) -> tuple[Machine, Machine]:
    first, second = Machine(service, "one"), Machine(service, "two", 77_000_000)
    first.time.begin()
    return first, second


def passes(service: Service, seconds: float, *machines: Machine) -> None:
    """Lets time pass everywhere."""
    service.seconds += seconds
    for machine in machines:
        machine.clock.advance(seconds)


def test_machines_with_other_clocks_tell_the_same_time(
    service: Service, machines: tuple[Machine, Machine]
) -> None:
    """Within the second in which the service tells its own."""
    first, second = machines
    start = first.time.now()
    for _ in range(200):
        passes(service, 0.73, *machines)
        told = (first.time.now(), second.time.now())
        assert abs(told[0] - told[1]) <= 1_100
    assert abs(first.time.now() - start - 146_000) <= 1_100
    assert abs(second.time.now() - start - 146_000) <= 1_100


def test_wall_clocks_of_clients_move_nothing(machines: tuple[Machine, Machine]) -> None:
    """A year ahead and two hours back."""
    first, second = machines
    before = (first.time.now(), second.time.now())
    for seconds in (365 * 86_400, -7_200):
        first.clock.step_wall(seconds)
        second.clock.step_wall(seconds)
        assert (first.time.now(), second.time.now()) == before


def test_step_of_the_services_clock_moves_the_time_by_the_default_lease_at_most(
    service: Service, machines: tuple[Machine, Machine]
) -> None:
    """A year ahead adds 20 s once; a step back adds nothing and takes nothing."""
    first, second = machines
    start = first.time.now()
    second.time.now()
    service.seconds += 365 * 86_400
    passes(service, LOOK_AFTER_MS / 1000 + 1, *machines)
    assert second.time.now() - start <= PAUSE_MAX_MS + LOOK_AFTER_MS + 1_000

    before = second.time.now()
    service.seconds -= 2 * 365 * 86_400
    passes(service, LOOK_AFTER_MS / 1000 + 1, *machines)
    assert second.time.now() >= before
    assert first.time.now() >= start


def test_pause_in_which_nobody_worked_lets_a_default_lease_lapse(
    service: Service, machines: tuple[Machine, Machine]
) -> None:
    """Processes that live for a moment only, as functions do: an hour later a dead one's lease is over."""
    first, _ = machines
    start = first.time.now()
    passes(service, 3_600)

    later = Machine(service, "three", 5)

    assert later.time.now() == start + PAUSE_MAX_MS


def test_clones_with_one_boot_id_do_not_compare_their_clocks(service: Service) -> None:
    """A resumed snapshot, or a container with clocks of its own: the other's number says nothing here."""
    first, clone = Machine(service, "same", 1_000), Machine(service, "same", 9_000_000)
    first.time.begin()
    start = first.time.now()

    assert clone.time.now() - start <= 1_000
    passes(service, 6, first, clone)
    assert first.time.now() - start <= 7_000


def test_frozen_process_adds_the_default_lease_at_most(
    service: Service, machines: tuple[Machine, Machine]
) -> None:
    """An hour in which it did not run: others may have held their leases for all it knows."""
    first, _ = machines
    start = first.time.now()
    passes(service, 3_600, first)

    assert first.time.now() - start <= PAUSE_MAX_MS


def test_time_is_written_seldom(service: Service, machines: tuple[Machine, Machine]) -> None:
    """A busy process looks every ten seconds and writes as often; it costs nothing for each event."""
    first, _ = machines
    for _ in range(6_000):
        passes(service, 0.01, first)
        first.time.now()

    assert 4 <= service.writes <= 7


def test_numbers_grow_with_time_and_above_what_is_given(machines: tuple[Machine, Machine]) -> None:
    """Fences of a key grow also after the key was forgotten, on any machine."""
    first, second = machines
    now = first.time.now()

    numbers = [first.time.numbers(now) for _ in range(3)]
    later = second.time.numbers(now + 1_000)
    above = first.time.numbers(now, above=now + 10**6 << FENCE_BITS)

    assert numbers == sorted(set(numbers))
    assert later > numbers[-1]
    assert above > now + 10**6 << FENCE_BITS
