"""Outcomes: what the handler returned comes back from every replay, of the same type, never by pickle."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec
import pydantic
import pytest

from oncegate import UsageError, Verdict
from oncegate.gate.codec.values import Codec, codec_of
from tests.support.gates import Ledger, Style

EVENT = {"id": "N-1"}


class Berth(Enum):
    NORTH = "north"


@dataclass
class Window:
    start: datetime
    hours: tuple[int, int] = (7, 8)


@dataclass
class SlotRecord:
    id: str
    window: Window
    tags: set[str] = field(default_factory=set)
    price: Decimal = Decimal("12.50")


class SlotModel(pydantic.BaseModel):
    id: str
    berth: Berth
    at: datetime


class SlotStruct(msgspec.Struct):
    id: UUID
    berth: Berth


MOMENT = datetime(2026, 6, 1, 7, tzinfo=UTC)
TYPED: list[tuple[Any, Any]] = [
    (SlotRecord, SlotRecord("s-1", Window(MOMENT), {"reefer"})),
    (SlotModel, SlotModel(id="s-1", berth=Berth.NORTH, at=MOMENT)),
    (SlotStruct, SlotStruct(UUID(int=7), Berth.NORTH)),
    (list[SlotRecord], [SlotRecord("s-1", Window(MOMENT))]),
    (dict[str, SlotStruct], {"a": SlotStruct(UUID(int=7), Berth.NORTH)}),
    (SlotStruct | None, None),
    (datetime, MOMENT),
    (Decimal, Decimal("1.10")),
    (tuple[int, str], (1, "a")),
    (Berth, Berth.NORTH),
    (bytes, b"\x00\xff"),
]


@pytest.mark.parametrize(("declared", "value"), TYPED, ids=lambda value: getattr(value, "__name__", ""))
def test_a_typed_value_comes_back_as_it_was(
    ledger: Ledger, style: Style, declared: Any, value: Any
) -> None:
    """Declared by `returns=`: the first caller, a replay from memory and one from the ledger agree."""
    gate = ledger.gate()
    style.register(gate, "bookings", lambda event, once: value, returns=declared)
    fresh = ledger.gate()
    style.register(fresh, "bookings", lambda event, once: "never", returns=declared)
    answers = [style.admit(where, "bookings", EVENT) for where in (gate, gate, fresh)]
    assert [answer.replay for answer in answers] == [False, True, True]
    for answer in answers:
        assert answer.value == value
        assert type(answer.value) is type(value)


def test_the_return_annotation_declares_the_type(ledger: Ledger) -> None:
    """No `returns=` is needed where the handler says what it returns."""
    gate = ledger.gate()

    @gate.handler("bookings", key="{id}")
    def book(event: Any, once: Any) -> SlotStruct:
        return SlotStruct(UUID(int=7), Berth.NORTH)

    assert [gate.admit_sync("bookings", EVENT).value for _ in range(2)] == [
        SlotStruct(UUID(int=7), Berth.NORTH)
    ] * 2


UNTYPED: list[tuple[Any, Any]] = [
    (None, None),
    ({"a": [1, 2.5, True, None, "x"]}, {"a": [1, 2.5, True, None, "x"]}),
    ((1, 2), [1, 2]),
    ({1}, [1]),
    (MOMENT, "2026-06-01T07:00:00Z"),
    (Decimal("1.10"), "1.10"),
    (Berth.NORTH, "north"),
    (Window(MOMENT), {"start": "2026-06-01T07:00:00Z", "hours": [7, 8]}),
    (SlotModel(id="s", berth=Berth.NORTH, at=MOMENT),
     {"id": "s", "berth": "north", "at": "2026-06-01T07:00:00Z"}),
    (SlotStruct(UUID(int=7), Berth.NORTH), {"id": str(UUID(int=7)), "berth": "north"}),
    (2**70, 2**70),
    ({1: "a"}, {"1": "a"}),
]  # fmt: skip


@pytest.mark.parametrize(("value", "plain"), UNTYPED, ids=lambda value: type(value).__name__)
def test_an_untyped_value_is_plain_for_the_first_caller_too(
    ledger: Ledger, style: Style, value: Any, plain: Any
) -> None:
    """Nobody may come to rely on a type that only the first answer has."""
    gate, fresh = ledger.gate(), ledger.gate()
    for where in (gate, fresh):
        style.register(where, "bookings", lambda event, once: value)
    for where in (gate, gate, fresh):
        answer = style.admit(where, "bookings", EVENT).value
        assert answer == plain
        assert type(answer) is type(plain)


def test_a_value_of_another_type_than_declared_is_the_same_for_everybody(
    ledger: Ledger, style: Style
) -> None:
    """An annotation that is not quite true loses nothing, and first caller and replays still agree."""
    gate, fresh = ledger.gate(), ledger.gate()
    surfaces: dict[str, tuple[Any, Any]] = {
        "fits": (SlotStruct, {"id": str(UUID(int=7)), "berth": "north"}),
        "does not fit": (SlotStruct, {"something": "else"}),
        "wrong scalar": (int, "seven"),
    }
    for where in (gate, fresh):
        for name, (declared, value) in surfaces.items():
            style.register(where, name, lambda event, once, value=value: value, returns=declared)
    for name in surfaces:
        answers = [style.admit(where, name, EVENT).value for where in (gate, gate, fresh)]
        assert answers[0] == answers[1] == answers[2]
        assert len({type(answer) for answer in answers}) == 1


def test_values_inside_a_container_are_the_same_for_everybody_too(ledger: Ledger, style: Style) -> None:
    """A list of the declared type may hold plain values; first caller and replays still agree."""
    gate, plain = ledger.gate(), {"id": str(UUID(int=7)), "berth": "north"}
    style.register(gate, "bookings", lambda event, once: [plain], returns=list[SlotStruct])
    first, replay = (style.admit(gate, "bookings", EVENT).value for _ in range(2))
    assert first == replay
    assert type(first[0]) is type(replay[0])


class Unstorable:
    """A value that is no JSON."""


class Treacherous:
    """A value that looks like a pydantic model and fails in a way of its own."""

    def model_dump(self, mode: str) -> Any:
        """Fails."""
        raise KeyError("no such field")


def nested() -> Any:
    """A list that contains itself."""
    endless: list[Any] = []
    endless.append(endless)
    return endless


@pytest.mark.parametrize("opaque", [True, False], ids=["event", "event and once"])
@pytest.mark.parametrize(
    "make",
    [
        Unstorable,
        nested,
        lambda: {"a": object()},
        lambda: "\udcff",
        Treacherous,
    ],
    ids=["object", "endless", "inside", "surrogate", "fails on its own"],
)
def test_a_value_that_cannot_be_stored_is_told_after_the_effect_was_committed_once(
    ledger: Ledger, style: Style, make: Any, opaque: bool
) -> None:
    """The mistake is the program's; the effect has happened and is on record, without a value."""
    gate, runs = ledger.gate(), []

    def book(event):
        runs.append(event)
        return make()

    def book_with_once(event, once):
        return book(event)

    style.register(gate, "bookings", book if opaque else book_with_once)
    with pytest.raises(UsageError, match=r"cannot be stored.* is done and on record, without a value"):
        style.admit(gate, "bookings", EVENT)
    assert ledger.state() == "committed"
    replay = style.admit(gate, "bookings", EVENT)
    assert (replay.verdict, replay.value) == (Verdict.REPLAY, None)
    assert len(runs) == 1


def test_an_outcome_that_cannot_be_stored_is_refused_at_the_commit(ledger: Ledger, style: Style) -> None:
    """`commit(outcome=…)` tells before anything is committed, while the handler can still do something."""
    gate = ledger.gate()

    def body(event, once):
        try:
            once.commit(outcome=Unstorable())
        except UsageError:
            once.commit(outcome="plain")

    style.register(gate, "bookings", body)
    assert style.admit(gate, "bookings", EVENT).value == "plain"


def test_a_bulky_outcome_is_replayed_from_the_ledger(ledger: Ledger, style: Style) -> None:
    """The memory keeps small outcomes only; large ones are as good, from the file."""
    gate = ledger.gate()
    style.register(gate, "bookings", lambda event, once: "x" * 100_000)
    first = style.admit(gate, "bookings", EVENT)
    assert style.admit(gate, "bookings", EVENT).value == first.value
    assert len(gate.engine._context.cache) == 0


def test_a_stored_value_that_no_longer_fits_is_given_as_it_is(ledger: Ledger, style: Style) -> None:
    """A newer version of the program may declare another type; an old outcome is still an outcome."""
    gate, newer = ledger.gate(), ledger.gate()
    style.register(gate, "bookings", lambda event, once: {"slot": "s-1"})
    style.register(newer, "bookings", lambda event, once: None, returns=SlotStruct)
    style.admit(gate, "bookings", EVENT)
    assert style.admit(newer, "bookings", EVENT).value == {"slot": "s-1"}


def test_outcomes_are_stored_as_json(ledger: Ledger, style: Style) -> None:
    """Other tools can read them; nothing in the file can run code."""
    gate = ledger.gate()
    style.register(gate, "bookings", lambda event, once: Window(MOMENT), returns=Window)
    style.admit(gate, "bookings", EVENT)
    ((body,),) = ledger.rows("SELECT body FROM oncegate_outcome")
    assert json.loads(body)["value"] == {"start": "2026-06-01T07:00:00Z", "hours": [7, 8]}


def test_a_function_without_a_usable_annotation_has_the_plain_codec() -> None:
    """No annotation, a broken one, or a type that JSON cannot restore: plain JSON."""

    def bare():
        return 1

    def broken() -> NoSuchType:  # type: ignore[name-defined]  # noqa: F821
        return 1

    def foreign() -> threading_lock:  # type: ignore[name-defined]  # noqa: F821
        return 1

    for function in (bare, broken, foreign):
        assert not codec_of(function).is_typed
    assert Codec(int).is_typed


def test_an_unresolvable_parameter_annotation_does_not_lose_the_return_type() -> None:
    """`if TYPE_CHECKING: from oncegate import Once` is how many handlers are annotated."""

    def book(event: dict, once: OnlyForTypeCheckers) -> SlotStruct:  # type: ignore[name-defined]  # noqa: F821
        raise AssertionError

    assert codec_of(book).is_typed
