"""Addresses of ledgers as they are shown: no part of a password, however the address is mistyped."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncegate.model.ledger_addresses import masked_address, masked_text

SECRET = "tulip"
MISTYPED = [
    f"postgres//user:{SECRET}@host/db",
    f"postgresql:/user:{SECRET}@h",
    f"postgresql:user:{SECRET}@h",
    f"postgresql//user:{SECRET}",
    f"user:{SECRET}@host:5432/db",
    f"postgresql://user:{SECRET}",
    f"postgresql://user:{SECRET}/db",
    f"postgresql://user%3A{SECRET}@h/db",
    f"postgresql://user:{SECRET}%40h/db",
    f"postgresql://user:p@{SECRET}@h/db",
    f"postgresql://user:a/{SECRET}@h/db",
    f"postgresql://user:a#{SECRET}@h/db",
    f"postgresql://user:12?{SECRET}@h/db",
    f"postgresql://user:p?password=x@{SECRET}",
    f"postgresql://h/db?password={SECRET}",
    f"postgresql://h/db?password=a@{SECRET}",
    f"postgresql://h/db?p%61ssword={SECRET}",
    f"postgresql://h/db?pw={SECRET}",
    f"host=h user=u password={SECRET}",
    f"host=h password='my {SECRET}' dbname=x",
    f"psql postgresql://user:{SECRET}@h/db",
    f" postgresql://user:{SECRET}@h/db",
    f"sqlite://user:{SECRET}@h",
    f"mysql://user:{SECRET}@h/db",
]


@pytest.mark.parametrize("address", MISTYPED)
def test_no_part_of_a_password_is_shown_however_an_address_is_mistyped(address: str) -> None:
    assert SECRET not in masked_address(address)


@pytest.mark.parametrize("address", [one for one in MISTYPED if "'" not in one and "?" not in one])
def test_a_message_that_quotes_an_address_is_masked_too(address: str) -> None:
    assert SECRET not in masked_text(f"unrecognized arguments: '{address}'")


@pytest.mark.parametrize(
    "address",
    [
        "sqlite:///oncegate.db",
        "sqlite:////var/lib/a:b@c.db?synchronous=FULL",
        "postgresql://app@host:5432/db?sslmode=require",
        "postgresql://[::1]:5432/db",
        "postgresql://a:1,b:2/db",
        "orders/oncegate.db",
    ],
)
def test_an_address_without_secrets_is_shown_as_it_is(address: str) -> None:
    assert masked_address(address) == address


def test_a_good_address_keeps_all_but_its_password() -> None:
    assert masked_address("postgresql://app:tulip@host:5432/db") == "postgresql://app:…@host:5432/db"


SIGNS = st.text(alphabet="ab1:/@?#%=& ", max_size=6)


@given(SIGNS, SIGNS, st.sampled_from(["postgresql://", "postgres:/", "postgresql//", ""]))
def test_signs_around_a_password_never_bring_it_out(before: str, after: str, lead: str) -> None:
    """A password that holds any sign of an address, between `user:` and the last `@`."""
    assert SECRET not in masked_address(f"{lead}app:{before}{SECRET}{after}@host/db")
