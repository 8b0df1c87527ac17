"""Values as they are stored and restored: the same again, or told, and never silently another."""

from __future__ import annotations

import dataclasses
import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pydantic
import pytest

from oncegate import UsageError
from oncegate.gate.codec.values import Codec, declared_codec
from tests.support.gates import Ledger, Style


class Aliased(pydantic.BaseModel):
    """Read and written under another name than in Python."""

    slot_id: int = pydantic.Field(0, alias="slotId")


class TwoNames(pydantic.BaseModel):
    """Written under another name than it is read."""

    slot_id: int = pydantic.Field(0, validation_alias="slot", serialization_alias="slotId")


class Computed(pydantic.BaseModel):
    """Refuses what it wrote itself, unless it writes less."""

    model_config = pydantic.ConfigDict(extra="forbid")
    a: int

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def twice(self) -> int:
        """Nothing that is kept."""
        return 2 * self.a


class Strict(pydantic.BaseModel):
    """Takes a time as text from JSON only."""

    model_config = pydantic.ConfigDict(strict=True, extra="allow")
    at: datetime
    amount: Decimal
    inner: Aliased | None = None


class Wrapped(pydantic.RootModel[list[int]]):
    """A list with a name."""


class Cached(pydantic.BaseModel):
    """Has something of its own beside what it says, and something that is not to be written."""

    a: int
    note: str = pydantic.Field(default="", exclude=True)
    _seen: list[int] = pydantic.PrivateAttr(default_factory=list)


class Secret(pydantic.BaseModel):
    """Writes asterisks."""

    password: pydantic.SecretStr


class Number(pydantic.BaseModel):
    """Any number."""

    a: float


@dataclasses.dataclass
class Booked:
    """One of two outcomes."""

    slot: str


@dataclasses.dataclass
class Refused:
    """The other."""

    slot: str
    reason: str | None = None


@dataclasses.dataclass
class Waiting:
    """Looks in JSON as `Booked` does."""

    slot: str


class Keeps(msgspec.Struct):
    """A struct with a model in it."""

    one: Aliased
    more: float | None = None


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SAME: list[tuple[Any, Any]] = [
    (Aliased, Aliased(slotId=7)),
    (TwoNames, TwoNames.model_validate({"slot": 7})),
    (Computed, Computed(a=2)),
    (Strict, Strict(at=NOON, amount=Decimal("1.10"), inner=Aliased(slotId=1), more=[1])),  # type: ignore[call-arg]
    (Wrapped, Wrapped([1, 2])),
    (list[Aliased], [Aliased(slotId=7)]),
    (Aliased | None, Aliased(slotId=7)),
    (Aliased | None, None),
    (Keeps, Keeps(Aliased(slotId=7))),
    (Booked | Refused, Booked("s-1")),
    (Booked | Refused, Refused("s-1")),
    (Booked | Refused | None, Refused("s-1", "full")),
    (Booked | Refused | None, None),
    (Booked | Waiting, Booked("s-1")),
    (Booked | Aliased, Aliased(slotId=7)),
    (Booked | dict[str, int], {"a": 1}),
    (list[Booked | Refused], []),
    (dict[str, float | None], {"a": 1.5, "b": None}),
    (None, [None, 10**40, 0xCB7FF8]),
]
CHANGED: list[tuple[Any, Any]] = [
    (Secret, Secret(password=pydantic.SecretStr("hunter2"))),
    (list[Secret], [Secret(password=pydantic.SecretStr("hunter2"))]),
    (Number, Number(a=math.nan)),
    (Number, Number(a=math.inf)),
    (float, math.nan),
    (None, math.nan),
    (None, {"deep": [{"er": (1, -math.inf)}]}),
    (Keeps, Keeps(Aliased(slotId=1), math.nan)),
    (None, [10**40, math.inf]),
    (Booked | Waiting, Waiting("s-1")),
    (list[Booked | Refused], [Booked("s-1")]),
]


@pytest.mark.parametrize(("declared", "value"), SAME, ids=range(len(SAME)))
def test_value_comes_back_as_it_was(declared: Any, value: Any) -> None:
    """The same value of the same type, from its JSON."""
    codec = declared_codec(declared)
    restored = codec.decode(codec.encode(value))

    assert restored == value
    assert type(restored) is type(value)


@pytest.mark.parametrize(("declared", "value"), CHANGED, ids=range(len(CHANGED)))
def test_value_that_would_come_back_changed_is_told(declared: Any, value: Any) -> None:
    """As for every other value that cannot be stored; and a secret is not repeated."""
    with pytest.raises(UsageError, match="cannot be stored") as told:
        declared_codec(declared).encode(value)

    assert "hunter2" not in str(told.value)


def test_what_a_model_does_not_write_is_not_missed() -> None:
    """Private attributes and excluded fields are, by the model's own word, no part of what is stored."""
    value = Cached(a=1)
    value.note = "for this process"
    value._seen.append(1)
    codec = declared_codec(Cached)

    assert codec.decode(codec.encode(value)) == Cached(a=1)


def test_model_that_was_stored_under_its_fields_names_is_restored() -> None:
    """As earlier versions wrote it."""
    assert declared_codec(Aliased).decode(b'{"slot_id":7}') == Aliased(slotId=7)


def test_model_that_nobody_declared_is_plain_json_with_all_it_shows() -> None:
    """Nobody restores it: whoever reads it gets what it shows."""
    codec = Codec()

    assert codec.decode(codec.encode(Computed(a=2))) == {"a": 2, "twice": 4}


def test_first_caller_and_replay_get_the_same_model(ledger: Ledger, style: Style) -> None:
    """Also from another process, which has nothing in memory."""
    answers = []
    for _ in range(2):
        gate = ledger.gate()
        style.register(gate, "bookings", lambda event: Aliased(slotId=7), returns=Aliased)
        answers.append(style.admit(gate, "bookings", {"id": "N-1"}).value)

    assert answers == [Aliased(slotId=7)] * 2
