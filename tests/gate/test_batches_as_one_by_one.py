"""Any mix of events committed at once leaves what the same events leave one by one (A5, I22)."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from oncegate.errors import StoreRejected
from oncegate.gate.admission import Verdict
from tests.support.batched_events import BOOK, COUNT, NUMBER, UNDER, WHO, Shop, Statements, shop_maker
from tests.support.properties import tried

pytestmark = pytest.mark.slow

EVENTS_MAX = 5  # all their orders are tried in the model
STOCK = "UPDATE counter SET n = 2 * n + 300 WHERE name = 'stock'"
DIVIDE = "UPDATE counter SET n = n / (n - n) WHERE name = 'stock'"  # SQLite makes it NULL, which is refused
STOCK_MAX = 1000  # a check of the table
TABLES = ("lines", "orders", "invoices", "tenants", "bookings")
# In the order in which an event takes them, so that no two wait for each other in a circle.
ACTIONS = ("stock", "divide", "invoice", "order", "book A", "ask", "under", "who")
RIGHT = ("invoice", "order", "ask", "under", "who")
SETTINGS = ("ask", "under", "who")

Action = tuple[str, ...]
Model = dict[str, Any]


@pytest.fixture(params=["sqlite", "postgres"], scope="module")
def shop(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder: Path = tmp_path_factory.mktemp("shop")
    made = shop_maker(request.param, folder, lambda: request.getfixturevalue("spare_ledgers").take())
    yield made
    made.close()


def statements_of(shop: Shop, actions: Action, who: str) -> Statements:
    """What an event hands over to be committed with it."""
    each: dict[str, Statements] = {
        "stock": [(STOCK, ())],
        "divide": [(DIVIDE, ())],
        "invoice": [(COUNT, ("invoices",)), (NUMBER, (who,))],
        "order": shop.order(who),
        "book A": [(BOOK, ("A",))],
        "ask": [(WHO, (who,))],
        "under": [(UNDER, (who,))],
        "who": [(WHO, (who,))],
    }
    return [statement for action in actions for statement in each[action]]


def run_alone(model: Model, actions: Action, who: str) -> bool:
    """One event as a transaction of its own; False if it was refused, and then it changed nothing."""
    tenant = None
    for action in actions:
        if action == "stock":
            model["stock"] = 2 * model["stock"] + 300
        elif action == "invoice":
            model["count"] += 1
            model["invoices"].append((model["count"], who))
        elif action == "order":
            model["lines"].append((who, who))
        elif action.startswith("book"):
            model["bookings"].append(action[-1])
        elif action == "under":
            tenant = who
        elif action in ("ask", "who"):
            model["tenants"].append((tenant or "", who))
        is_refused = action == "divide" or model["stock"] >= STOCK_MAX
        if is_refused or len(set(model["bookings"])) < len(model["bookings"]):
            return False
    return True


def one_by_one(events: dict[str, Action], order: tuple[str, ...]) -> Model:
    """What all of them leave in this order, and which of them were refused."""
    model: Model = {"stock": 0, "count": 0, "refused": []}
    model |= {"invoices": [], "lines": [], "bookings": [], "tenants": []}
    for who in order:
        changed = deepcopy(model)
        if run_alone(changed, events[who], who):
            model = changed
        else:
            model["refused"].append(who)
    return {name: sorted(rows) if isinstance(rows, list) else rows for name, rows in model.items()}


def left_by(shop: Shop, names: list[str], answers: list[object]) -> Model:
    """What is there now."""
    counters = dict(shop.rows("SELECT name, n FROM counter"))
    lines = "SELECT orders.customer, lines.customer FROM lines LEFT JOIN orders ON id = orders"
    refused = [name for name, answer in zip(names, answers, strict=True) if answer is not Verdict.RUN]
    assert all(answer is Verdict.RUN or isinstance(answer, StoreRejected) for answer in answers), answers
    return {
        "stock": counters["stock"],
        "count": counters["invoices"],
        "refused": sorted(refused),
        "invoices": sorted(shop.rows("SELECT number, customer FROM invoices")),
        "lines": sorted(shop.rows(lines)),
        "bookings": sorted(slot for (slot,) in shop.rows("SELECT slot FROM bookings")),
        "tenants": sorted(shop.rows("SELECT coalesce(tenant, ''), customer FROM tenants")),
    }


def actions_for(store: str) -> st.SearchStrategy[Action]:
    """Some of the actions, each once, in their order; few that are refused, or no batch ever stands."""
    able = [action for action in RIGHT if store == "postgres" or action not in SETTINGS]
    right = st.sets(st.sampled_from(able), min_size=1, max_size=3)
    wrong = st.sampled_from([*[frozenset()] * 9, *map(frozenset, [["divide"], ["book A"], ["stock"]])])
    chosen = st.tuples(right, wrong).map(lambda both: both[0] | both[1])
    return chosen.map(lambda some: tuple(action for action in ACTIONS if action in some))


@tried(12, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_events_at_once_leave_what_they_leave_one_by_one(shop: Shop, data: st.DataObject) -> None:
    each = data.draw(st.lists(actions_for(shop.store), min_size=2, max_size=EVENTS_MAX))
    how = data.draw(st.sampled_from(["tasks", "threads"]))
    shop.empty(TABLES)
    names = [f"{shop.round}-{number}" for number in range(len(each))]
    events = dict(zip(names, each, strict=True))

    answers = shop.admit_all([statements_of(shop, events[who], who) for who in names], how, names)

    found = left_by(shop, names, answers)
    assert found in [one_by_one(events, order) for order in permutations(names)]
