"""Any value of a declared type comes back from the ledger as it was, never as another one."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncegate.gate.codec.declared_types import TypedFields, TypeKind, declared_type, to_json
from oncegate.gate.codec.values import declared_codec
from oncegate.model.canonical import canonical_json
from oncegate.model.same_values import plain_decimal, plain_instant


class Colour(enum.Enum):
    """Of texts."""

    RED = "red"
    BLUE = "blue"


class Size(enum.IntEnum):
    """Of numbers."""

    SMALL = 1
    LARGE = 2


@dataclass
class Part:
    """A dataclass that contains itself."""

    name: str
    price: Decimal
    parts: list[Part] = field(default_factory=list)


class Fields(msgspec.Struct):
    """A struct with most types in it."""

    when: datetime
    raw: bytes
    colour: Colour
    by_day: dict[date, Decimal]
    pair: tuple[UUID, timedelta]


class Model(pydantic.BaseModel):
    """A pydantic model with the same."""

    amount: Decimal
    at: datetime
    colour: Colour | None = None


decimals = st.decimals(allow_nan=False, allow_infinity=False)
offsets = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
moments = st.datetimes(timezones=st.one_of(st.none(), st.just(UTC), offsets))
parts = st.recursive(
    st.builds(Part, st.text(), decimals),
    lambda below: st.builds(Part, st.text(), decimals, st.lists(below, max_size=2)),
    max_leaves=4,
)
YEARS = (datetime.fromisoformat("1000-01-02"), datetime.fromisoformat("9998-01-01"))
CASES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (Decimal, decimals),
    (UUID, st.uuids()),
    (date, st.dates()),
    (time, st.times()),
    (datetime, moments),
    (timedelta, st.timedeltas(timedelta(days=-9999), timedelta(days=9999))),
    (bytes, st.binary(max_size=40)),
    (Colour, st.sampled_from(Colour)),
    (Size, st.sampled_from(Size)),
    (set[int], st.sets(st.integers(), max_size=5)),
    (frozenset[str], st.frozensets(st.text(), max_size=5)),
    (dict[int, Decimal], st.dictionaries(st.integers(), decimals, max_size=4)),
    (tuple[Decimal, ...], st.lists(decimals, max_size=4).map(tuple)),
    (Decimal | None, st.none() | decimals),
    (Part, parts),
    (
        Fields,
        st.builds(
            Fields,
            moments,
            st.binary(max_size=9),
            st.sampled_from(Colour),
            st.dictionaries(st.dates(), decimals, max_size=3),
            st.tuples(st.uuids(), st.timedeltas(timedelta(days=-9999), timedelta(days=9999))),
        ),
    ),
    (Model, st.builds(Model, amount=decimals, at=moments, colour=st.none() | st.sampled_from(Colour))),
]


@pytest.mark.parametrize(("declared", "values"), CASES, ids=[str(case[0]) for case in CASES])
def test_arguments_and_outcomes_come_back_as_they_were(
    declared: Any, values: st.SearchStrategy[Any]
) -> None:
    """The same value of the same type, spelled the same, through the JSON that the ledger keeps."""
    assert declared_type(declared).kind is TypeKind.TYPED
    fields, codec = TypedFields({"value": declared}), declared_codec(declared)

    @settings(max_examples=25, deadline=None)
    @given(values)
    def check(value: Any) -> None:
        stored = msgspec.json.decode(canonical_json({"value": to_json(value)}))
        restored = fields.read(stored)["value"]
        replayed = codec.decode(codec.encode(value))
        assert restored == value == replayed
        assert type(restored) is type(value) is type(replayed)
        assert canonical_json(to_json(restored)) == canonical_json(to_json(value))

    check()


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(decimals, decimals, st.integers(0, 5))
def test_decimals_are_spelled_alike_exactly_if_they_are_equal(
    one: Decimal, other: Decimal, zeros: int
) -> None:
    """Python's equality decides, for any exponent, sign and number of zeros."""
    sign, digits, exponent = one.as_tuple()
    padded = Decimal((sign, (*digits, *[0] * zeros), int(exponent) - zeros))

    assert plain_decimal(str(padded)) == plain_decimal(str(one))
    assert (plain_decimal(str(one)) == plain_decimal(str(other))) is (one == other)


@settings(max_examples=100, deadline=None)
@given(st.datetimes(*YEARS, timezones=offsets), offsets)
def test_one_moment_is_spelled_alike_in_every_offset(moment: datetime, offset: timezone) -> None:
    """And another moment never is."""
    there, later = moment.astimezone(offset), moment + timedelta(microseconds=1)

    assert (
        plain_instant(to_json(moment)) == plain_instant(to_json(there)) == to_json(moment.astimezone(UTC))
    )
    assert plain_instant(to_json(later)) != plain_instant(to_json(there))
