"""What happens on that Monday: which notification is delivered how often, and where workers die.

Pure: the same seed tells the same story. Both runs of the demo are given the same one. Must never know how
the storm ends: nothing here says how many slots or bookings there will be.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from oncegate.demo.storm.containers import make_numbers

Event = dict[str, Any]

# The real Monday: 39 containers, 87 deliveries, 17 notifications delivered two to six times.
CONTAINERS: Final = 39
DELIVERIES: Final = 87
REPEATED: Final = 17
REPEATS_MIN: Final = 2
REPEATS_MAX: Final = 6

# How the trouble is dealt out. Enough of each kind that none can pass by luck, few enough for a short demo.
LOST_ONCE_DELIVERED: Final = 2  # killed at their only delivery, and the queue forgets them
LOST_REPEATED: Final = 1  # the same, but sent again two hours later
KILLED: Final = 3  # killed once, then delivered again
ERRORS: Final = 4  # the booking write fails once, then delivered again
LATE_EVERY: Final = 3  # of the remaining repeats every third comes two hours later

MONDAY: Final = "2026-03-02"
FIRST_WINDOW_HOUR: Final = 7
WINDOW_HOURS: Final = 9


class StormFault(Enum):
    """What befalls a worker between the slot claim and the booking."""

    KILL = "kill"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Message:
    """One message on the queue. Its first deliveries meet `faults`, in order; the next one meets none.

    A message that is `lost` is forgotten by the queue after its last fault and never delivered again.
    """

    event: Event
    faults: tuple[StormFault, ...] = ()
    lost: bool = False

    @property
    def deliveries(self) -> int:
        """How often the message is delivered, if nothing but its own faults goes wrong."""
        return len(self.faults) + (0 if self.lost else 1)

    def fault_at(self, delivery: int) -> StormFault | None:
        """The fault that the n-th delivery meets; 1 is the first."""
        return self.faults[delivery - 1] if delivery <= len(self.faults) else None


@dataclass(frozen=True, slots=True)
class Story:
    """The whole Monday, in the order in which the queue gets its messages."""

    events: tuple[Event, ...]
    storm: tuple[Message, ...]
    late: tuple[Message, ...]

    @property
    def deliveries(self) -> int:
        """How many deliveries there will be, if nothing but the told faults goes wrong."""
        return sum(message.deliveries for message in (*self.storm, *self.late))

    def faults(self, kind: StormFault) -> int:
        """How many faults of a kind the story has."""
        return sum(message.faults.count(kind) for message in self.storm)

    @property
    def lost(self) -> int:
        """How many messages the queue forgets while they are unfinished."""
        return sum(message.lost for message in self.storm)


def tell(seed: int) -> Story:
    """Make up the Monday that belongs to a seed."""
    generator = random.Random(seed)
    events = _make_events(generator)
    repeated, single = events[:REPEATED], events[REPEATED:]
    storm, late = _deal_repeated(repeated, _deal_counts(generator))
    storm += _deal_single(single)
    return Story(tuple(events), _in_order(storm, generator), _in_order(late, generator))


def _make_events(generator: random.Random) -> list[Event]:
    numbers = make_numbers(CONTAINERS, generator)
    sequence = generator.randrange(1_000, 9_000)
    return [
        {
            "notificationId": f"CIS-{MONDAY.replace('-', '')}-{sequence + 7 * place}",
            "equipment_number": number,
            "status": "AVAILABLE_FOR_PICKUP",
            "window": _window(generator),
        }
        for place, number in enumerate(numbers)
    ]


def _window(generator: random.Random) -> str:
    hour = FIRST_WINDOW_HOUR + generator.randrange(WINDOW_HOURS)
    return f"{MONDAY}T{hour:02d}:00:00Z/PT1H"


def _deal_counts(generator: random.Random) -> list[int]:
    """How often each repeated notification is delivered; the least often first."""
    counts = [REPEATS_MIN] * REPEATED
    left = DELIVERIES - (CONTAINERS - REPEATED) - sum(counts)
    while left:
        place = generator.randrange(REPEATED)
        if counts[place] < REPEATS_MAX:
            counts[place] += 1
            left -= 1
    return sorted(counts)


def _deal_single(events: list[Event]) -> list[Message]:
    lost = [Message(event, (StormFault.KILL,), lost=True) for event in events[:LOST_ONCE_DELIVERED]]
    return lost + [Message(event) for event in events[LOST_ONCE_DELIVERED:]]


def _deal_repeated(events: list[Event], counts: list[int]) -> tuple[list[Message], list[Message]]:
    """Give each repeated notification its trouble, and spread its further deliveries."""
    storm: list[Message] = []
    late: list[Message] = []
    extras = 0
    for event, count, first in zip(events, counts, _troubles(), strict=True):
        message = Message(event, *first)
        storm.append(message)
        for _ in range(count - message.deliveries):
            extras += 1
            # A copy beside a message that fails could finish its work before the fault is met.
            is_late = bool(message.faults) or extras % LATE_EVERY == 0
            (late if is_late else storm).append(Message(event))
    return storm, late


def _troubles() -> list[tuple[tuple[StormFault, ...], bool]]:
    """The faults of each repeated notification, and whether it is lost; the last is killed twice."""
    dealt = [((StormFault.KILL,), True)] * LOST_REPEATED
    dealt += [((StormFault.KILL,), False)] * KILLED
    dealt += [((StormFault.ERROR,), False)] * ERRORS
    untroubled: list[tuple[tuple[StormFault, ...], bool]] = [((), False)] * (REPEATED - len(dealt) - 1)
    return [*dealt, *untroubled, ((StormFault.KILL, StormFault.KILL), False)]


def _in_order(messages: list[Message], generator: random.Random) -> tuple[Message, ...]:
    """Shuffle, but leave about half of the copies right behind their first: workers must race for them."""
    first_place: dict[str, float] = {}
    placed: list[tuple[float, int, Message]] = []
    for number, message in enumerate(messages):
        anywhere, stays = generator.random(), generator.random() < 0.5
        first = first_place.setdefault(_name(message), anywhere)
        placed.append((first if stays else anywhere, number, message))
    return tuple(message for _, _, message in sorted(placed, key=lambda item: item[:2]))


def _name(message: Message) -> str:
    return str(message.event["notificationId"])
