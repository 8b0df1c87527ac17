"""Events that are committed together behave as if each had a transaction of its own (A5, I22)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from oncegate.errors import StoreRejected
from tests.support.batched_events import (
    BOOK,
    COUNT,
    NUMBER,
    UNDER,
    WHO,
    Shop,
    Statements,
    all_run,
    shop_maker,
)

MANY = 50


@pytest.fixture(params=["sqlite", "postgres"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    made = shop_maker(request.param, tmp_path, lambda: request.getfixturevalue("ledger_url"))
    yield made
    made.close()


@pytest.fixture(params=["tasks", "threads"])
def how(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_each_line_belongs_to_the_order_of_its_own_event(shop: Shop, how: str) -> None:
    assert all_run(shop.admit_all([shop.order(f"C-{n}") for n in range(MANY)], how))
    strays = "SELECT 1 FROM lines LEFT JOIN orders ON id = orders WHERE orders.customer <> lines.customer"
    assert shop.rows("SELECT count(*) FROM lines") == [(MANY,)]
    assert shop.rows(strays) == []


def test_each_invoice_gets_the_number_that_its_own_event_counted(shop: Shop, how: str) -> None:
    events = [[(COUNT, ("invoices",)), (NUMBER, (f"C-{n}",))] for n in range(MANY)]
    assert all_run(shop.admit_all(events, how))
    assert shop.rows("SELECT number FROM invoices ORDER BY number") == [(n + 1,) for n in range(MANY)]


def test_an_event_that_fails_is_undone_alone(shop: Shop, how: str) -> None:
    events = [[(COUNT, ("invoices",)), (BOOK, (f"S-{n // 2}",))] for n in range(20)]
    answers = shop.admit_all(events, how)
    refused = [answer for answer in answers if isinstance(answer, StoreRejected)]
    assert len(refused) == 10
    assert shop.rows("SELECT count(*) FROM bookings") == [(10,)]
    assert shop.rows("SELECT n FROM counter WHERE name = 'invoices'") == [(10,)]


@pytest.mark.parametrize("shop", ["postgres"], indirect=True)
def test_a_setting_of_one_event_ends_with_it(shop: Shop, how: str) -> None:
    """Also for events of the same kind, which would be the next in a shared transaction."""
    hidden = "INSERT INTO tenants (tenant, customer) VALUES (under(?), ?)"  # the function sets it unseen
    shop.rows(
        "CREATE OR REPLACE FUNCTION under(t text) RETURNS text LANGUAGE sql"
        " AS $$ SELECT set_config('app.tenant', t, true) $$"
    )
    kinds: list[Callable[[int], Statements]] = [
        lambda n: [(UNDER, (f"T-{n}",)), (WHO, (f"T-{n}",))],
        lambda n: [(UNDER, ("lone",))],
        lambda n: [(WHO, ("nobody",))],
        lambda n: [("SET LOCAL work_mem = '4MB'", ()), (WHO, ("nobody",))],
        lambda n: [(hidden, (f"H-{n}", f"H-{n}")), (BOOK, (f"H-{n}",))],
        lambda n: [(BOOK, (f"N-{n}",)), (WHO, ("nobody",))],
    ]
    mixed = [kind(n) for n in range(10) for kind in kinds]
    assert all_run(shop.admit_all(mixed, how))
    found = shop.rows("SELECT tenant, customer FROM tenants WHERE customer <> coalesce(tenant, 'nobody')")
    assert found == []
    assert shop.rows("SELECT count(*) FROM tenants") == [(50,)]
