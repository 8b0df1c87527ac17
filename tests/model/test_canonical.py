"""Canonical JSON and fingerprints: as RFC 8785 has it, refused if not JSON, stable for ever."""

from __future__ import annotations

import contextlib
import copy
import enum
import json
from collections import OrderedDict
from collections.abc import Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pytest
import rfc8785
from hypothesis import example, given
from hypothesis import strategies as st

from oncegate.errors import ConfigError, EventNotStorable
from oncegate.model.canonical import canonical_again, canonical_json, fingerprint, fingerprint_of
from oncegate.model.limits import DEPTH_MAX
from tests.support.properties import tried

bounded = tried(80)

SAFE_INTEGER_MAX = 2**53 - 1
EVENT: dict[str, Any] = {
    "notification_id": "N-1001",
    "equipment": "MSKU1234565",
    "weight_kg": 24310.5,
    "seals": ["A1", "B2"],
    "reefer": False,
    "vessel": None,
    "id": 9007199254740993,
    "meta": {"sent_at": "2024-05-31T22:14:09Z", "source": "edi"},
}

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
keys = texts | st.sampled_from(["", "a", "aa", "A", "\ue000", "\U0001f600", "\uffff", "\x00", '"'])
integers = st.integers(min_value=-SAFE_INTEGER_MAX, max_value=SAFE_INTEGER_MAX)
floats = st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | integers | floats | texts


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(keys, inner, max_size=5)
    )


values = st.recursive(scalars, containers, max_leaves=20)
plain_values = st.recursive(st.none() | st.booleans() | integers | texts, containers, max_leaves=20)


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


@pytest.mark.slow
@bounded
@given(values)
@example({"\U0001f600": 1, "\ue000": 2})
@example({"b": 1.5, "a": {"d": 1e21, "c": [-0.0, 5e-324]}})
def test_output_equals_rfc_8785(value: Any) -> None:
    """An independent implementation of the RFC writes the same bytes."""
    assert canonical_json(value) == rfc8785.dumps(value)


@pytest.mark.slow
@bounded
@given(plain_values)
def test_output_equals_rfc_8785_without_floats(value: Any) -> None:
    """The quick way for events without floats writes the same bytes as well."""
    assert canonical_json(value) == rfc8785.dumps(value)


@bounded
@given(floats)
@example(0.0)
@example(-0.0)
@example(1.0)
@example(-1.5)
@example(5e-324)
@example(1.7976931348623157e308)
@example(1e-6)
@example(1e-7)
@example(1.5e-7)
@example(0.000123)
@example(9007199254740992.0)
@example(1e15)
@example(1e16)
@example(1.2345678901234567e16)
@example(123456789012345680000.0)
@example(1e20)
@example(1e21)
@example(-1e21)
@example(1.5e300)
@example(333333333.33333329)
def test_floats_are_written_as_ecmascript_does(value: float) -> None:
    """Alone, in a list and in a mapping, a float has the text the RFC asks for."""
    for event in (value, [value], {"a": value}):
        assert canonical_json(event) == rfc8785.dumps(event)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (-0.0, b"0"),
        (1.0, b"1"),
        (1e20, b"100000000000000000000"),
        (1e21, b"1e+21"),
        (5e-324, b"5e-324"),
        (1e-6, b"0.000001"),
        (1e-7, b"1e-7"),
        (1.5e-9, b"1.5e-9"),
    ],
)
def test_known_floats(value: float, expected: bytes) -> None:
    """A few numbers written out, so that the layout does not rest on the oracle alone."""
    assert canonical_json([value]) == b"[" + expected + b"]"


@pytest.mark.parametrize("block", [range(0x300), range(0x2000, 0x2070), range(0xFFF0, 0x10010)])
def test_characters_are_escaped_as_the_rfc_asks(block: range) -> None:
    """Control characters are escaped; DEL, U+2028 and the rest are written as they are."""
    for text in map(chr, block):
        assert canonical_json([text]) == rfc8785.dumps([text])
        assert canonical_json({text: 1.5}) == rfc8785.dumps({text: 1.5})


def test_keys_are_sorted_by_utf_16() -> None:
    """A character beyond the basic plane sorts before U+E000, though its code point is higher."""
    assert canonical_json({"\ue000": 1, "\U0001f600": 2}) == '{"\U0001f600":2,"\ue000":1}'.encode()


@pytest.mark.parametrize("number", [2**53, 2**53 + 1, 2**63 - 1, -(2**63), 2**64, -(10**400)])
def test_large_integers_keep_all_their_digits(number: int) -> None:
    """A 64-bit id is neither refused nor rounded, in the quick way and in the slow one."""
    assert canonical_json([number]) == b"[%d]" % number
    assert canonical_json([number, 1.5]) == b"[%d,1.5]" % number
    assert canonical_json({"é": number}) == '{"é":%d}'.encode() % number
    assert canonical_json(number) == b"%d" % number


@pytest.mark.parametrize("event", [{"a": {"id": 10**5000}}, {"a": {"id": 10**5000, "w": 0.5}}])
def test_endless_integer_is_refused_with_its_path(event: object) -> None:
    """An integer that Python will not print does not crash the gate."""
    with pytest.raises(EventNotStorable, match=r"\$\.a\.id is an integer of too many digits"):
        canonical_json(event)


@pytest.mark.parametrize(
    "event",
    [
        {"a": {"b": ["x", "\ud800"]}},
        {"a": {"b": [1.5, "ab\udfff"]}},
        {"a": {"b": [{"é": 1}, "\udc00\ud800"]}},
    ],
)
def test_lone_surrogate_in_a_text_is_refused_with_its_path(event: object) -> None:
    """Half a character is not Unicode; the refusal says where it is."""
    with pytest.raises(EventNotStorable, match=r"^\$\.a\.b\.1 has a lone surrogate"):
        canonical_json(event)


def test_lone_surrogate_in_a_key_is_refused() -> None:
    """A broken key is refused like a broken text, with a message that can be printed."""
    with pytest.raises(EventNotStorable, match="lone surrogate") as refused:
        canonical_json({"a": {"\ud800": {"b": "\udfff"}}})
    assert str(refused.value).encode()


def test_refusal_below_an_odd_key_can_be_printed() -> None:
    """Control characters in a key do not reach the log."""
    with pytest.raises(EventNotStorable) as refused:
        canonical_json({"a\x1b[31m\n": {"b": set()}})
    assert str(refused.value).isprintable()


def test_refusal_names_only_the_start_of_a_long_path() -> None:
    """Neither a deep path nor a long key makes a long message."""
    event: object = object()
    for _ in range(60):
        event = {"k" * 1000: event}
    with pytest.raises(EventNotStorable) as refused:
        canonical_json(event)
    assert len(str(refused.value)) < 500


class Colour(enum.Enum):
    RED = "red"


class Custom:
    pass


@pytest.mark.parametrize(
    "value",
    [
        b"bytes",
        bytearray(b"x"),
        {1, 2},
        frozenset(),
        Decimal("1.5"),
        Colour.RED,
        Custom(),
        MappingProxyType({}),
        object,
        1j,
        (n for n in range(3)),
        float("nan"),
        float("inf"),
        float("-inf"),
    ],
)
def test_what_is_not_json_is_refused_with_its_path(value: object) -> None:
    """The encoder would write some of these; they would come back as something else."""
    for event in ({"a": [0, value]}, {"a": [0.5, value]}, {"a": [{"é": 1}, value]}):
        with pytest.raises(EventNotStorable, match=r"^\$\.a\.1 is not|^\$\.a\.1 \w+ is not"):
            canonical_json(event)
    with pytest.raises(EventNotStorable, match=r"^\$ "):
        canonical_json(value)


@pytest.mark.parametrize("key", [1, 1.5, None, True, b"k", ("a",), Colour.RED])
def test_keys_that_are_not_text_are_refused(key: object) -> None:
    """1 and "1" must not become the same key."""
    for event in ({"a": {key: 1}}, {"a": {key: 1.5}}, {"a": {key: 1, "é": 2}}):
        with pytest.raises(EventNotStorable, match=r"^\$\.a has a key of type"):
            canonical_json(event)


def test_depth_is_limited() -> None:
    """64 levels pass and the 65th is refused, with and without floats."""
    assert canonical_json(nested(DEPTH_MAX)) == b"[" * DEPTH_MAX + b"]" * DEPTH_MAX
    assert canonical_json([nested(DEPTH_MAX - 1), 1.5]).endswith(b",1.5]")
    for event in (nested(DEPTH_MAX + 1), [nested(DEPTH_MAX), 1.5], [nested(DEPTH_MAX), {"é": 1}]):
        with pytest.raises(EventNotStorable, match="nested more than 64 deep"):
            canonical_json(event)


def test_event_that_contains_itself_is_refused() -> None:
    """A cycle ends at the depth limit instead of at the interpreter's."""
    event: dict[str, Any] = {"a": []}
    event["a"].append(event)
    with pytest.raises(EventNotStorable, match="nested"):
        canonical_json(event)


class Text(str):
    __slots__ = ()


class Number(int):
    pass


class Measure(float):
    pass


class Status(enum.StrEnum):
    OPEN = "open"


class Level(enum.IntEnum):
    HIGH = 3


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({Text("b"): 1, Text("a"): 2}, b'{"a":2,"b":1}'),
        ([Text("x")], b'["x"]'),
        ([Number(2**60)], b"[1152921504606846976]"),
        ([Measure(1.0)], b"[1]"),
        ([Status.OPEN, Level.HIGH], b'["open",3]'),
        ({Status.OPEN: 1}, b'{"open":1}'),
        (OrderedDict([("b", 1), ("a", True)]), b'{"a":true,"b":1}'),
        ((1, (2,)), b"[1,[2]]"),
    ],
)
def test_subclasses_are_written_as_what_they_are(value: object, expected: bytes) -> None:
    """An enum or a named tuple is the text, number or list it is built on."""
    assert canonical_json(value) == expected


class Folded(str):
    """A text that finds itself in a dict only by its own odd hash."""

    __slots__ = ()
    __eq__ = object.__eq__
    __hash__ = object.__hash__


def test_keys_with_their_own_equality_are_written_by_their_text() -> None:
    """A subclass that redefines equality neither crashes the writer nor hides a key."""
    assert canonical_json({Folded("b"): 1, Folded("a"): 2}) == b'{"a":2,"b":1}'
    with pytest.raises(EventNotStorable, match="two keys with the same text"):
        canonical_json({"n": {Folded("a"): 1, Folded("a"): 2}})


@pytest.mark.slow
@bounded
@given(values)
def test_event_is_left_as_it_was(value: object) -> None:
    """Neither writing nor fingerprinting changes the event, or puts anything into it."""
    before = copy.deepcopy(value)
    canonical_json(value)
    fingerprint(value, ("a", "a.b", "0", "0.a"))
    assert repr(value) == repr(before)


@pytest.mark.slow
@bounded
@given(plain_values)
def test_canonical_json_reads_back_as_the_event(value: object) -> None:
    """What is stored is what was sent."""
    assert json.loads(canonical_json(value)) == json.loads(json.dumps(value))


@pytest.mark.slow
@bounded
@given(st.dictionaries(keys, scalars, max_size=6), st.randoms(use_true_random=False))
def test_order_of_keys_does_not_matter(event: dict[str, object], random: Any) -> None:
    """A sender that shuffles its keys sends the same content."""
    items = list(event.items())
    random.shuffle(items)
    assert fingerprint(dict(items)) == fingerprint(event)


@pytest.mark.slow
@bounded
@given(st.recursive(st.just(0) | st.binary(max_size=1) | floats | st.text(max_size=2), containers))
def test_arbitrary_value_is_written_or_refused_and_nothing_else(value: object) -> None:
    """No value makes the encoder fail in any other way."""
    with contextlib.suppress(EventNotStorable):
        assert isinstance(canonical_json(value), bytes)


def test_golden_fingerprints() -> None:
    """These are stored in ledgers: a change here makes every known event a conflict."""
    assert fingerprint({}).hex() == "44136fa355b3678a1146ad16f7e8649e"
    assert fingerprint(EVENT).hex() == "20edeb98e031c03b8b6f630c04539204"
    assert fingerprint(EVENT, ("meta.sent_at",)).hex() == "b727189e86734a3a57a901a21eee2f1e"
    mixed = {"größe": 1.0, "\U0001f600": 1e21, "\ue000": -0.0}
    assert fingerprint(mixed).hex() == "02a4afb3ab06ec54291ba532444c9632"


def test_fingerprint_of_a_stored_body_is_the_fingerprint_of_the_event() -> None:
    """The body need not be written twice."""
    assert fingerprint_of(canonical_json(EVENT)) == fingerprint(EVENT)
    assert len(fingerprint(EVENT)) == 16


def test_ignored_path_does_not_count() -> None:
    """Two sendings that differ only in an ignored field are the same content."""
    again = EVENT | {"meta": {"sent_at": "2024-06-01T00:00:00Z", "source": "edi"}}
    assert fingerprint(again) != fingerprint(EVENT)
    assert fingerprint(again, ("meta.sent_at",)) == fingerprint(EVENT, ("meta.sent_at",))


def test_fields_that_are_not_ignored_still_count() -> None:
    """Ignoring one field does not ignore its neighbours or fields of that name elsewhere."""
    ignore = ("meta.sent_at",)
    known = fingerprint(EVENT, ignore)
    assert fingerprint(EVENT | {"meta": {"source": "other"}}, ignore) != known
    assert fingerprint(EVENT | {"sent_at": "x"}, ignore) != known
    assert fingerprint(EVENT | {"meta.sent_at": "x"}, ignore) != known


@pytest.mark.parametrize(
    ("event", "ignore", "same_as"),
    [
        ({"a": 1, "b": 2}, ("a",), {"b": 2}),
        ({"a": {"x": 1}}, ("a.x",), {"a": {}}),
        ({"a": {"x": 1}, "b": 0}, ("a", "a.x"), {"b": 0}),
        ({"a": {"x": 1}, "b": 0}, ("a.x", "a"), {"b": 0}),
        ({"a": [{"x": 1, "y": 2}, {"x": 3}]}, ("a.0.x",), {"a": [{"y": 2}, {"x": 3}]}),
        ({"a": [1, 2, 3]}, ("a.0", "a.1"), {"a": [3]}),
        ({"a": 1}, ("b", "a.b.c", "b.c"), {"a": 1}),
        ({"a": {"b": {"c": 1, "d": 2}, "e": 3}}, ("a.b.c", "a.e"), {"a": {"b": {"d": 2}}}),
        ([{"x": 1}], ("0.x",), [{}]),
        ("text", ("a",), "text"),
    ],
)
def test_ignored_paths_are_left_out(event: Any, ignore: tuple[str, ...], same_as: Any) -> None:
    """The fingerprint is that of the event without the ignored paths, however they overlap."""
    assert fingerprint(event, ignore) == fingerprint(same_as)
    assert fingerprint(event, frozenset(ignore)) == fingerprint(same_as)


def test_ignored_part_is_not_looked_at() -> None:
    """A part that is left out need not be JSON."""
    assert fingerprint({"a": 1, "b": b""}, ("b",)) == fingerprint({"a": 1})


@pytest.mark.parametrize("ignore", ["meta", ("a..b",), ("",)])
def test_malformed_ignore_is_a_config_error(ignore: Any) -> None:
    """A slip in the setting is not silently without effect."""
    with pytest.raises(ConfigError):
        fingerprint({"a": 1}, ignore)


def test_integer_and_text_have_different_fingerprints() -> None:
    """7 and "7" share a key on purpose, so the contents must differ to be a conflict."""
    assert fingerprint({"id": 7}) != fingerprint({"id": "7"})


def test_mappings_other_than_dict_are_not_taken() -> None:
    """What only looks like a mapping is refused rather than read through unknown code."""
    assert issubclass(MappingProxyType, Mapping)
    with pytest.raises(EventNotStorable, match="mappingproxy is not a JSON type"):
        canonical_json(MappingProxyType({"a": 1}))


@pytest.mark.parametrize(
    "rest", [{}, {"f": 1.0}, {"é": 1, "\U0001f600": 2, "\ufb01": 3}, {"n": {"t": (1, 2.5e21)}}]
)
def test_a_value_with_other_texts_is_written_as_if_it_were_read_whole(rest: dict[str, object]) -> None:
    known: dict[str, object] = {"b": "1.10", "a": [1, "x"], **rest}
    other = {**known, "b": "1.1"}
    assert canonical_again(other, known, canonical_json(known)) == canonical_json(other)
