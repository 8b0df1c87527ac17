"""A cursor is made by its ledger for one tenant; every other text is refused (I13)."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncegate.errors import CursorRefused
from oncegate.feed.cursors import CURSOR_LENGTH, Cursors

OURS = Cursors(b"s" * 32)


@given(st.text(max_size=20), st.integers(0, 2**63 - 1))
def test_a_cursor_leads_back_to_its_place(tenant: str, position: int) -> None:
    cursor = OURS.make(tenant, position)

    assert len(cursor) == CURSOR_LENGTH
    assert OURS.read(tenant, cursor) == position


def test_another_tenants_cursor_is_refused() -> None:
    cursor = OURS.make("acme", 7)

    for tenant in ("", "acme2", "acm", "ACME"):
        with pytest.raises(CursorRefused):
            OURS.read(tenant, cursor)


def test_another_ledgers_cursor_is_refused() -> None:
    with pytest.raises(CursorRefused):
        OURS.read("acme", Cursors(b"t" * 32).make("acme", 7))


@given(st.integers(0, 25 * 8 - 1))
def test_every_changed_bit_is_noticed(bit: int) -> None:
    raw = bytearray(urlsafe_b64decode(OURS.make("acme", 7) + "=="))
    raw[bit // 8] ^= 1 << bit % 8

    with pytest.raises(CursorRefused):
        OURS.read("acme", urlsafe_b64encode(bytes(raw)).decode().rstrip("="))


def test_there_is_one_spelling_only() -> None:
    """The last character has bits that mean nothing; they must be as they were made."""
    cursor = OURS.make("acme", 7)
    others = [
        cursor[:-1] + last for last in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    ]

    refused = 0
    for other in others:
        try:
            assert OURS.read("acme", other) == 7
            assert other == cursor
        except CursorRefused:
            refused += 1
    assert refused == len(others) - 1


@pytest.mark.parametrize(
    "text", ["", "0", "7", "A" * 33, "A" * 35, "A" * 34, "ä" * 34, "=" * 34, "\0" * 34]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(CursorRefused):
        OURS.read("acme", text)
