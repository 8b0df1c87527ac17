"""Keys: the same for the same event for ever, and different for everything else."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncegate.errors import ConfigError, UsageError
from oncegate.model.keys import Key, check_step_name, derive_key, derive_quarantine_key
from tests.support.properties import tried

bounded = tried(80)

# Few letters, so that Hypothesis often moves a character across a boundary.
short = st.text(alphabet="ab:\x00", max_size=3)
inputs = st.tuples(short, short, short, st.lists(short, max_size=3).map(tuple))


def test_golden_keys() -> None:
    """These are stored in ledgers and at downstreams: a change here runs every effect again."""
    booking = derive_key(
        "acme", "bookings", "booking:{notification_id}:{equipment}", ("N-1001", "MSKU1234565")
    )
    assert booking.text == "eeec575d5979042bf6d0151e45800639bd2fa12d315523f0"
    unicode_key = derive_key("tenant-ü", "surface", "{a}:{b}", ("日本", "7"))
    assert unicode_key.text == "6004bda4facae4b466a3499aaeb6490973384905364b31e9"
    empty_key = derive_key("", "", "{a}", ("",))
    assert empty_key.text == "a3b3fac0fb2beb401c03b057901792b57cd6975222f1727e"


def test_golden_quarantine_key() -> None:
    """Quarantined events must be found again by a later version."""
    key = derive_quarantine_key("acme", "bookings", bytes(range(16)))
    assert key.text == "3911e5c25c756db460bd246b0e786dd75246fcfa182c36d5"


def test_digest_is_made_as_documented() -> None:
    """Tag, then each component after its length, with the count of parts before the parts."""

    def long(number: int) -> bytes:
        return number.to_bytes(8, "big")

    written = b"oncegate-key-1"
    written += long(3) + "tü".encode() + long(1) + b"s" + long(3) + b"{a}"
    written += long(2) + long(1) + b"x" + long(2) + b"yz"
    assert derive_key("tü", "s", "{a}", ("x", "yz")).digest == sha256(written).digest()[:24]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("t", "s", "{a}{b}", ("ab", "c")), ("t", "s", "{a}{b}", ("a", "bc"))),
        (("t", "s", "k", ("a:b",)), ("t", "s", "k", ("a", "b"))),
        (("t", "s", "k", ("a", "")), ("t", "s", "k", ("a",))),
        (("t", "s", "k", ()), ("t", "s", "k", ("",))),
        (("t", "s", "k", ("a", "b")), ("t", "s", "k", ("b", "a"))),
        (("t1", "s", "k", ("a",)), ("t", "1s", "k", ("a",))),
        (("t", "s", "k", ("a",)), ("s", "t", "k", ("a",))),
        (("t", "sk", "", ("a",)), ("t", "s", "k", ("a",))),
        (("t", "s", "k1", ("a",)), ("t", "s", "k2", ("a",))),
        (("", "t", "s", ("k", "a")), ("t", "s", "k", ("a",))),
        (("acme", "s", "k", ("a",)), ("other", "s", "k", ("a",))),
        (("Acme", "s", "k", ("a",)), ("acme", "s", "k", ("a",))),
        (("t", "s", "k", ("é",)), ("t", "s", "k", ("e\u0301",))),
        (("t", "s", "k", ("a",)), ("t", "s", "k", ("\x00" * 7 + "\x01a",))),
    ],
)
def test_no_boundary_can_be_moved(one: tuple[Any, ...], other: tuple[Any, ...]) -> None:
    """Characters moved between tenant, surface, template and parts make another key."""
    assert derive_key(*one) != derive_key(*other)


@bounded
@given(inputs, inputs)
def test_keys_are_equal_exactly_when_all_inputs_are(one: Any, other: Any) -> None:
    """No two different inputs share a key."""
    assert (derive_key(*one) == derive_key(*other)) == (one == other)


@bounded
@given(short, short, short, short)
def test_length_bytes_cannot_be_forged_by_content(a: str, b: str, c: str, d: str) -> None:
    """Content that imitates a length prefix does not imitate a boundary."""
    imitation = a + "\x00" * 7 + chr(len(b.encode())) + b
    assert derive_key("t", "s", c, (imitation,)) != derive_key("t", "s", c, (a, b))
    assert derive_key("t", "s", imitation, (d,)) != derive_key("t", a, b, (d,))


def test_quarantine_keys_never_meet_event_keys() -> None:
    """The two kinds of key come from different tags."""
    quarantined = derive_quarantine_key("t", "s", b"k")
    assert quarantined != derive_key("t", "s", "k", ())
    assert quarantined == derive_quarantine_key("t", "s", b"k")


def test_quarantine_key_depends_on_all_its_inputs() -> None:
    """Another tenant, surface or content waits under another key."""
    keys = {
        derive_quarantine_key(tenant, surface, content)
        for tenant in ("t", "ts")
        for surface in ("s", "ts", "")
        for content in (b"", b"s", b"ts")
    }
    assert len(keys) == 18


def test_parts_may_be_any_sequence() -> None:
    """A list and a tuple of the same parts are the same parts."""
    assert derive_key("t", "s", "k", ["a", "b"]) == derive_key("t", "s", "k", ("a", "b"))


@pytest.mark.parametrize(("tenant", "part"), [("\ud800", "a"), ("t", "a\udfff")])
def test_lone_surrogate_is_refused(tenant: str, part: str) -> None:
    """What has no bytes has no key, and says so."""
    with pytest.raises(UsageError, match="surrogate"):
        derive_key(tenant, "s", "k", (part,))


def test_text_and_key_are_inverse() -> None:
    """A key can be copied from a page and used on the command line."""
    key = derive_key("t", "s", "k", ("a",))
    assert Key.from_text(key.text) == key
    assert len(key.text) == 48
    assert str(key) == key.text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a" * 47,
        "a" * 49,
        "A" * 48,
        "g" * 48,
        "a" * 48 + "\n",
        " " + "a" * 48,
        "aa " * 16,
        "a" * 48 + ":step",
        "\u0663" * 48,
        None,
        b"a" * 48,
        pytest.param(10**5000, id="unprintable integer"),
    ],
)
def test_text_that_is_not_a_key_is_refused(text: Any) -> None:
    """One spelling per key, so that comparing texts is comparing keys."""
    with pytest.raises(ConfigError, match="48 hex digits"):
        Key.from_text(text)


@pytest.mark.parametrize("size", [0, 16, 23, 25, 32])
def test_digest_of_another_size_is_not_a_key(size: int) -> None:
    """A cut or foreign digest read from a store is noticed."""
    with pytest.raises(ValueError, match="24 bytes"):
        Key(bytes(size))


def test_key_cannot_be_changed() -> None:
    """A key is a value: hashable, comparable, immutable."""
    key = Key(bytes(24))
    with pytest.raises(AttributeError):
        key.digest = bytes(24)  # type: ignore[misc]
    assert len({key, Key(bytes(24))}) == 1


@pytest.mark.parametrize("name", ["a", "charge", "send_mail-2.b", "9", "x" * 64])
def test_step_has_a_key_of_its_own(name: str) -> None:
    """A downstream sees one key per step."""
    key = Key(bytes(24))
    assert key.step(name) == "0" * 48 + ":" + name


@pytest.mark.parametrize(
    "name", ["", "x" * 65, "a b", "a:b", "a/b", "a\n", "é", "a\x00", "\r\nX-Header: 1", None, 7]
)
def test_step_name_is_checked(name: Any) -> None:
    """A step's name goes into a header, so only harmless characters pass."""
    with pytest.raises(UsageError, match="cannot name a step"):
        check_step_name(name)
    with pytest.raises(UsageError):
        Key(bytes(24)).step(name)
