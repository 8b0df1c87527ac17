"""Functions and handlers with real types: values come back exactly, and equal values are repeats."""

from __future__ import annotations

import enum
import inspect
import re
import sys
import warnings
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, get_type_hints
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
import msgspec
import pydantic
import pytest

from oncegate import (
    AnnotationWarning,
    ConfigError,
    Conflict,
    EventError,
    Gate,
    InjectedKey,
    Quarantined,
    RecordedFailure,
    UsageError,
    Verdict,
)
from oncegate.errors import BadTemplate
from oncegate.maintenance.reconciler import Reconciler
from oncegate.testing import CrashReached
from tests.support.gates import LEASE, DeadAfter, Ledger

if TYPE_CHECKING:
    from http.client import HTTPConnection

ORDER = UUID("6f9619ff-8b86-4011-b42d-00c04fc964ff")


class Currency(enum.Enum):
    """Money of two places."""

    EUR = "eur"
    USD = "usd"


@dataclass(frozen=True)
class Card:
    """A dataclass with types of its own."""

    number: str
    expires: date
    limit: Decimal


class Line(msgspec.Struct):
    """A struct inside a list."""

    sku: str
    price: Decimal


class Buyer(pydantic.BaseModel):
    """A model whose field has another name in JSON."""

    buyer_id: UUID = pydantic.Field(alias="buyerId")
    since: datetime


class Session:
    """What no ledger can keep."""

    def __init__(self) -> None:
        self.seen: list[Any] = []


@dataclass
class Receipt:
    """What a charge returns."""

    order_id: UUID
    amount: Decimal
    at: datetime


def _reconcile(gate: Gate) -> None:
    Reconciler(gate).run_once()


CARD = Card("4242", date(2030, 1, 31), Decimal("100.00"))
NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)


def test_a_function_with_real_types_gets_and_returns_them_exactly(ledger: Ledger) -> None:
    """Now, on a replay from memory, and on a replay in another process."""
    calls: list[Any] = []

    def process() -> Any:
        @ledger.gate().once(key="{order_id}", name="charge")
        def charge(order_id: UUID, amount: Decimal, card: Card, session: Session) -> Receipt:
            calls.append((order_id, str(amount), card, session))
            return Receipt(order_id, amount, NOON)

        return charge

    first, session = process(), Session()
    answers = [first(ORDER, Decimal("1.10"), CARD, session) for _ in range(2)]
    answers.append(process()(ORDER, Decimal("1.10"), CARD, Session()))

    assert answers == [Receipt(ORDER, Decimal("1.10"), NOON)] * 3
    assert [str(one.amount) for one in answers] == ["1.10"] * 3
    assert calls == [(ORDER, "1.10", CARD, session)]


def test_every_supported_type_reaches_the_function_as_it_was_given(ledger: Ledger) -> None:
    """Also in containers, by default and as further arguments."""
    seen: dict[str, Any] = {}

    @ledger.gate().once(key="{key}", name="all")
    def take(  # noqa: PLR0917  arguments by place, as users have them
        key: UUID,
        when: datetime,
        at: time,
        data: bytes,
        money: Currency,
        lines: list[Line],
        buyer: Buyer,
        *more: Decimal,
        wait: timedelta = timedelta(seconds=90),
        tags: frozenset[str] = frozenset(),
        pair: tuple[int, Decimal] = (1, Decimal("2.50")),
        **named: date,
    ) -> None:
        seen.update(locals())

    given: dict[str, Any] = {
        "key": ORDER,
        "when": datetime(2026, 7, 1, 12, tzinfo=ZoneInfo("Europe/Berlin")),
        "at": time(8, 30, 0, 5),
        "data": b"\x00\xff",
        "money": Currency.EUR,
        "lines": [Line("a", Decimal("0.10")), Line("b", Decimal("1E+2"))],
        "buyer": Buyer(buyerId=ORDER, since=NOON),
    }
    rest = {"tags": frozenset({"b", "a"}), "first": date(2026, 1, 1)}
    take(*given.values(), Decimal("1.0"), Decimal(2), **rest)  # type: ignore[arg-type]

    assert {name: seen[name] for name in given} == given
    assert (seen["more"], seen["named"]) == ((Decimal("1.0"), Decimal(2)), {"first": date(2026, 1, 1)})
    assert (seen["tags"], seen["pair"]) == ({"a", "b"}, (1, Decimal("2.50")))
    assert type(seen["tags"]) is frozenset


def test_attrs_classes_are_arguments_and_outcomes(ledger: Ledger) -> None:
    """As dataclasses are."""
    made = attrs.make_class("Parcel", {"weight": attrs.field(type=Decimal), "to": attrs.field(type=str)})
    seen = []

    def send(parcel: Any) -> Any:
        seen.append(parcel)
        return parcel

    send.__annotations__ = {"parcel": made, "return": made}
    once = ledger.gate().once(key="{parcel.to}", name="send")(send)
    parcel = made(Decimal("1.50"), "Ulm")

    assert [once(parcel), once(parcel)] == [parcel, parcel]
    assert seen == [parcel]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Decimal("1.10"), Decimal("1.1")),
        (Decimal(10), Decimal("1E+1")),
        (Decimal(0), Decimal("-0.00")),
        (Decimal("5.0"), 5),
        (NOON, NOON.astimezone(timezone(timedelta(hours=5, minutes=30)))),
        ({"b", "a"}, {"a", "b"}),
    ],
    ids=["trailing zero", "exponent", "minus zero", "integer", "offset", "set"],
)
def test_equal_values_are_a_repeat(ledger: Ledger, first: Any, second: Any) -> None:
    """A number that comes back from a database with other zeros is the same number."""
    calls = []

    def pay(order: str, value: Any, lines: Any) -> None:
        calls.append(order)

    pay.__annotations__ |= {"value": Decimal if isinstance(second, (int, Decimal)) else type(first)}
    if pay.__annotations__["value"] is set:
        pay.__annotations__["value"] = set[str]
    pay.__annotations__ |= {"lines": list[Line]}
    once = ledger.gate().once(key="{order}", name="pay")(pay)
    once("o-1", first, [Line("a", Decimal("1.0"))])
    once("o-1", second, [Line("a", Decimal("1.00"))])

    assert calls == ["o-1"]


@pytest.mark.parametrize(
    ("first", "second"),
    [(Decimal("1.10"), Decimal("1.01")), (Decimal("0.1"), Decimal("0.10000000000000000000000000001"))],
    ids=str,
)
def test_other_numbers_are_a_conflict(ledger: Ledger, first: Decimal, second: Decimal) -> None:
    """Nothing is rounded before it is compared."""

    @ledger.gate().once(key="{order}", name="pay")
    def pay(order: str, amount: Decimal) -> None: ...

    pay("o-1", first)
    with pytest.raises(Conflict):
        pay("o-1", second)


def test_text_that_looks_like_a_number_is_text(ledger: Ledger) -> None:
    """Only what is declared as a number is compared as one."""

    @ledger.gate().once(key="{order}", name="pay")
    def pay(order: str, parts: tuple[str, Decimal]) -> None: ...

    pay("o-1", ("1.10", Decimal(1)))
    pay("o-1", ("1.10", Decimal("1.0")))
    with pytest.raises(Conflict):
        pay("o-1", ("1.1", Decimal(1)))


def test_a_default_that_is_spelled_otherwise_is_the_default(ledger: Ledger) -> None:
    """A parameter that is added later changes no call made before."""

    def version(*, has_fee: bool) -> Any:
        def pay(order: str) -> str:
            return "paid"

        def pay_more(order: str, fee: Decimal = Decimal("0.00")) -> str:
            return "paid twice"

        function: Any = pay_more if has_fee else pay
        function.__qualname__ = "pay"
        return ledger.gate().once(key="{order}", name="pay")(function)

    version(has_fee=False)("o-1")

    assert version(has_fee=True)("o-1") == "paid"
    assert version(has_fee=True)("o-1", Decimal(0)) == "paid"
    with pytest.raises(Conflict):
        version(has_fee=True)("o-1", Decimal("0.01"))


def test_methods_leave_themselves_out(ledger: Ledger) -> None:
    """Two objects of one class make the same call, and the method keeps its receiver."""
    gate = ledger.gate()

    class Shop:
        def __init__(self) -> None:
            self.charged: list[str] = []

        @gate.once(key="{order}", name="shop.charge")
        def charge(self, order: str) -> str:
            self.charged.append(order)
            return order

        @classmethod
        @gate.once(key="{order}", name="shop.refund")
        def refund(cls, order: str) -> str:
            return f"{cls.__name__} {order}"

    one, other = Shop(), Shop()
    assert (one.charge("o-1"), other.charge("o-1")) == ("o-1", "o-1")
    assert (one.charged, other.charged) == (["o-1"], [])
    assert (Shop.refund("o-1"), Shop.refund("o-1")) == ("Shop o-1", "Shop o-1")


async def test_async_methods_take_the_same(ledger: Ledger) -> None:
    """From a task, with a session and a decimal."""
    gate = ledger.gate()
    seen: list[Any] = []

    class Shop:
        @gate.once(key="{order}", name="shop.charge")
        async def charge(self, order: UUID, amount: Decimal, session: Session) -> Decimal:
            seen.append((self, order, amount, session))
            return amount

    shop, session = Shop(), Session()
    answers = [await shop.charge(ORDER, Decimal("1.50"), session) for _ in range(2)]

    assert list(map(str, answers)) == ["1.50", "1.50"]
    assert seen == [(shop, ORDER, Decimal("1.50"), session)]


def test_ignored_arguments_without_a_type_reach_the_call_and_not_the_ledger(ledger: Ledger) -> None:
    """A client without an annotation is left out by name."""
    seen = []

    @ledger.gate().once(key="{order}", name="pay", ignore=["client"])
    def pay(order, client):
        seen.append(client)

    one, other = object(), object()
    pay("o-1", one)
    pay("o-1", client=other)

    assert seen == [one]
    assert ledger.rows("SELECT count(*) FROM oncegate_entries") == [(1,)]


def test_a_crashed_call_with_a_session_is_finished_by_its_caller_only(ledger: Ledger) -> None:
    """Recovery has no session to give, says so, and the next call brings one."""
    seen = []

    def process(crashpoints: Any = None) -> tuple[Gate, Any]:
        gate = ledger.gate(crashpoints)
        bank = gate.downstream("bank", honours_key="7d")

        @gate.once(key="{order}", name="pay", downstream=bank, lease=LEASE)
        def pay(order: UUID, session: Session, idempotency_key: str = "") -> UUID:
            seen.append((order, session, idempotency_key))
            return order

        return gate, pay

    with pytest.raises(CrashReached):
        process(DeadAfter("effect.after"))[1](ORDER, Session())
    ledger.lapse()
    gate, pay = process()
    _reconcile(gate)

    assert len(seen) == 1
    assert ledger.state() == "retryable"
    ledger.clock.advance(3600)
    again = Session()
    assert pay(ORDER, again) == ORDER
    assert [one[0] for one in seen] == [ORDER, ORDER]
    assert seen[1][1] is again
    assert seen[0][2] == seen[1][2] != ""


def test_a_crashed_call_with_types_is_recovered_with_them(ledger: Ledger) -> None:
    """The worker makes the same call from the ledger; a left-out argument has its default."""
    seen: list[Any] = []

    def process(crashpoints: Any = None) -> tuple[Gate, Any]:
        gate = ledger.gate(crashpoints)
        bank = gate.downstream("bank", honours_key="7d")

        @gate.once(key="{order}", name="pay", downstream=bank, lease=LEASE)
        def pay(
            order: UUID,
            amount: Decimal,
            card: Card,
            idempotency_key: str = "",
            session: Session | None = None,
        ) -> Decimal:
            seen.append((order, str(amount), card, session is None))
            return amount

        return gate, pay

    with pytest.raises(CrashReached):
        process(DeadAfter("effect.after"))[1](ORDER, Decimal("1.10"), CARD, session=Session())
    ledger.lapse()
    _reconcile(process()[0])

    assert ledger.state() == "committed"
    assert seen == [(ORDER, "1.10", CARD, False), (ORDER, "1.10", CARD, True)]


def test_what_would_come_back_changed_is_refused_and_leaves_nothing(ledger: Ledger) -> None:
    """A subclass with more fields, a text for a UUID, a time with seconds in its offset."""

    @dataclass(frozen=True)
    class Gold(Card):
        bonus: int = 1

    calls = []

    @ledger.gate().once(key="{order}", name="pay")
    def pay(order: UUID, card: Card, at: datetime) -> None:
        calls.append(order)

    odd = datetime(2026, 1, 1, tzinfo=timezone(timedelta(seconds=3601)))
    gold = Gold("4242", date(2030, 1, 1), Decimal(1))
    for wrong in [(str(ORDER), CARD, NOON), (ORDER, gold, NOON), (ORDER, CARD, odd), (ORDER, None, NOON)]:
        with pytest.raises(EventError, match="pay: "):
            pay(*wrong)  # type: ignore[arg-type]

    assert calls == []
    assert ledger.rows("SELECT count(*) FROM oncegate_entries") == [(0,)]


def test_an_argument_that_cannot_be_stored_says_what_to_write(ledger: Ledger) -> None:
    """Without a type, with one that only a type checker sees, and with one inside a dataclass."""
    gate = ledger.gate()

    @gate.once(key="{order}", name="one")
    def one(order, client):
        return order

    @gate.once(key="{order}", name="two")
    def two(order: str, client: HTTPConnection) -> str:
        return order

    @dataclass
    class Bad:
        session: Session

    with pytest.raises(EventError, match=r"annotate it with its type .* ignore=\['client'\]"):
        one("o-1", object())
    with pytest.raises(EventError, match=r"import its type at run time .* ignore=\['client'\]"):
        two("o-1", object())  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"three, parameter bad: .*Session in it"):

        @gate.once(key="{order}", name="three")
        def three(order: str, bad: Bad) -> str:
            return order


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{amount}", "1.10 and 1.1 would be two keys"),
        ("{card.limit}", "two keys"),
        ("{at}", "write {at:timestamp}"),
        ("{session}", "not part of the event"),
    ],
)
def test_a_key_of_values_with_several_spellings_is_refused(ledger: Ledger, template: str, why: str) -> None:
    """Two keys for one number would be two effects."""
    with pytest.raises(BadTemplate, match=why):

        @ledger.gate().once(key=template, name="pay")
        def pay(amount: Decimal, card: Card, at: datetime, session: Session) -> None: ...


def test_a_session_cannot_wait_in_a_lane(ledger: Ledger) -> None:
    """Events that run later run without their caller."""
    with pytest.raises(ConfigError, match="cannot run without session"):

        @ledger.gate().once(key="{order}", name="pay", mode="accept")
        def pay(order: str, session: Session) -> None: ...


def test_a_decorator_without_parentheses_says_what_to_write(ledger: Ledger) -> None:
    """The first thing that everybody tries."""
    gate: Any = ledger.gate()

    def charge(self: Any, order_id: str) -> None: ...

    with pytest.raises(UsageError, match=r'write @gate.once\(key="{order_id}"\) above charge'):
        gate.once(charge)
    with pytest.raises(UsageError, match=r'write @gate.handler\("charge", key="{id}"\) above charge'):
        gate.handler(charge)
    with pytest.raises(ConfigError, match=r"write @classmethod above @gate\.once"):
        gate.once(key="{order_id}", name="x")(classmethod(charge))


def test_the_injected_key_is_not_in_the_signature(ledger: Ledger) -> None:
    """Neither for callers nor for tools that read types; the function itself gets it."""
    seen = []

    @ledger.gate().once(key="{order}", name="pay")
    def pay(order: str, cents: int, *, idempotency_key: str = "") -> None:
        seen.append(idempotency_key)

    pay("o-1", 5)

    assert list(inspect.signature(pay).parameters) == ["order", "cents"]
    assert list(get_type_hints(pay)) == ["order", "cents", "return"]
    assert len(seen[0]) > 20


def test_a_key_of_its_own_type_comes_first_and_is_hidden(ledger: Ledger) -> None:
    """In functions and methods, by place and by name."""
    gate = ledger.gate()
    seen: list[Any] = []

    class Shop:
        @gate.once(key="{order}", name="shop.pay")
        def pay(self, idempotency_key: InjectedKey, order: str, amount: Decimal) -> None:
            seen.append((str(idempotency_key), order, amount))

    @gate.once(key="{order}", name="pay")
    def pay(idempotency_key: InjectedKey, order: str) -> None:
        seen.append((str(idempotency_key), order, None))

    Shop().pay("o-1", amount=Decimal(1))
    pay("o-1")

    assert [one[1:] for one in seen] == [("o-1", Decimal(1)), ("o-1", None)]
    assert all(len(one[0]) > 20 for one in seen)
    assert list(inspect.signature(Shop().pay).parameters) == ["order", "amount"]


def test_a_value_without_a_declared_type_is_warned_about_once(ledger: Ledger) -> None:
    """Its callers get plain JSON, the first one as well as every later one."""

    @ledger.gate().once(key="{order}", name="pay")
    def pay(order: str):
        return Decimal("1.10")

    with pytest.warns(AnnotationWarning, match="annotate it: -> Decimal"):
        assert pay("o-1") == "1.10"
    assert pay("o-2") == "1.10"


@dataclass
class Booking:
    """What a booking event holds."""

    id: str
    day: date
    seats: int
    price: Decimal = Decimal(0)


def test_a_handler_gets_its_event_as_the_class_it_names(ledger: Ledger) -> None:
    """Dataclasses and models, with and without once; plain dicts as ever."""
    gate = ledger.gate()
    seen: list[Any] = []

    @gate.handler("one", key="{id}")
    def one(event: Booking, once: Any) -> date:
        seen.append(event)
        return event.day

    @gate.handler("two", key="{buyerId}")
    def two(event: Buyer) -> UUID:
        seen.append(event)
        return event.buyer_id

    @gate.handler("three", key="{id}")
    def three(event: dict[str, Any]) -> None:
        seen.append(event)

    event = {"id": "b-1", "day": "2026-07-01", "seats": 2, "price": "9.90", "unknown": True}
    assert gate.admit_sync("one", event).value == date(2026, 7, 1)
    assert gate.admit_sync("one", event).verdict is Verdict.REPLAY
    buyer = {"buyerId": str(ORDER), "since": "2026-07-01T12:00:00Z"}
    assert gate.admit_sync("two", buyer).value == ORDER
    gate.admit_sync("three", event)
    assert seen == [
        Booking("b-1", date(2026, 7, 1), 2, Decimal("9.90")),
        Buyer(buyerId=ORDER, since=NOON),
        event,
    ]


def test_an_object_that_can_be_called_is_a_handler_like_others(ledger: Ledger) -> None:
    """Its annotations are read where its class was written."""
    gate = ledger.gate()
    seen: list[Any] = []

    class Books:
        def __call__(self, event: Booking) -> None:
            seen.append(event)

    class Takes:
        def __call__(self, event: Any) -> None:
            seen.append(event)

    event = {"id": "b-1", "day": "2026-07-01", "seats": 2}
    gate.handler("one", key="{id}")(Books())
    gate.handler("two", key="{id}")(Takes())
    gate.admit_sync("one", event)
    gate.admit_sync("two", event)

    assert seen == [Booking("b-1", date(2026, 7, 1), 2), event]


def test_a_parameter_that_a_new_version_has_not_is_left_out(ledger: Ledger) -> None:
    """What an earlier version stored is run by the next one, as far as it takes it."""
    seen: list[Any] = []

    def version(function: Any, crashpoints: Any = None) -> tuple[Gate, Any]:
        gate = ledger.gate(crashpoints)
        function.__qualname__ = "pay"
        bank = gate.downstream("bank", honours_key="7d")
        return gate, gate.once(key="{order}", name="pay", downstream=bank, lease=LEASE)(function)

    def pay(order: str, fee: int, idempotency_key: str = "") -> None:
        seen.append((order, fee))

    def pay_less(order: str, idempotency_key: str = "") -> None:
        seen.append(order)

    with pytest.raises(CrashReached):
        version(pay, DeadAfter("effect.after"))[1]("o-1", 5)
    ledger.lapse()
    _reconcile(version(pay_less)[0])

    assert seen == [("o-1", 5), "o-1"]
    assert ledger.state() == "committed"


def test_an_event_that_does_not_fit_is_quarantined_without_its_values(ledger: Ledger) -> None:
    """Nothing runs; the reason names the place and the type, for dataclasses and for models."""
    gate = ledger.gate()
    calls: list[Any] = []

    @gate.handler("one", key="{id}")
    def one(event: Booking) -> None:
        calls.append(event)

    @gate.handler("two", key="{id}")
    def two(event: Buyer) -> None:
        calls.append(event)

    answer = gate.admit_sync("one", {"id": "b-1", "day": "2026-07-01", "seats": "hunter2"})
    model = gate.admit_sync("two", {"id": "b-1", "buyerId": "hunter2", "since": "2026-07-01T12:00:00Z"})

    assert (answer.verdict, model.verdict) == (Verdict.QUARANTINE, Verdict.QUARANTINE)
    assert answer.reason == "event_input: wrong_type: seats: Expected `int`, got `str`"
    assert "buyerId: uuid_parsing" in str(model.reason)
    assert "hunter2" not in f"{answer.reason}{model.reason}"
    assert calls == []


def test_a_stored_event_that_fits_no_longer_fails_for_good(ledger: Ledger) -> None:
    """A new version of the program declares another type while an event waits for its second attempt."""

    class Later(msgspec.Struct):
        id: str
        seats: list[int]

    def version(declared: type) -> Gate:
        gate = ledger.gate()

        def book(event: Any, once: Any) -> None:
            raise TimeoutError

        book.__annotations__["event"] = declared
        gate.handler("bookings", key="{id}", lease=LEASE)(book)
        return gate

    event = {"id": "b-1", "day": "2026-07-01", "seats": 2}
    with pytest.raises(TimeoutError):
        version(Booking).admit_sync("bookings", event)
    ledger.clock.advance(60)
    _reconcile(version(Later))

    assert ledger.state() == "failed"
    assert "does not fit" in ledger.reason()
    with pytest.raises(RecordedFailure, match="seats: Expected `array`, got `int`"):
        version(Booking).admit_sync("bookings", event).result()


def test_a_handler_of_something_that_is_no_event_is_refused(ledger: Ledger) -> None:
    """A class that nothing can be read into; a name that is unknown at run time is a warning."""
    gate = ledger.gate()
    with pytest.raises(ConfigError, match="takes a Session, which no event can be read into"):

        @gate.handler("one", key="{id}")
        def one(event: Session) -> None: ...

    with pytest.warns(AnnotationWarning, match="HTTPConnection"):

        @gate.handler("two", key="{id}")
        def two(event: HTTPConnection) -> None: ...

    with warnings.catch_warnings():
        warnings.simplefilter("error")

        @gate.handler("three", key="{id}")
        def three(event: Any) -> None: ...

    with pytest.raises(Quarantined):
        gate.admit_sync("three", {}).result()


def test_the_guides_program_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/functions.md, as it stands there."""
    guide = (Path(__file__).parents[2] / "docs" / "functions.md").read_text("utf-8")
    program = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)[0]
    monkeypatch.chdir(tmp_path)
    module = ModuleType("guide")  # dataclasses look their module up
    monkeypatch.setitem(sys.modules, "guide", module)
    exec(compile(program, "functions.md", "exec"), vars(module))
    assert (tmp_path / "shop.db").exists()
