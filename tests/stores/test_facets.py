"""The contract in facets: what is declared, what is required, and the tables that tell it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import oncegate.store
from oncegate.errors import ConfigError
from oncegate.store import (
    ALL_FACETS,
    AuditTrail,
    Capabilities,
    Durability,
    Facet,
    Session,
    Units,
    require,
)
from oncegate.store.ledger import ClaimSession, InteractiveUnits, LanesFacet, ReviewFacet, StatsFacet
from oncegate.stores.sqlite import SqliteStore
from oncegate.testing import conformance

GUIDE = (Path(__file__).parents[2] / "docs" / "stores.md").read_text("utf-8")
GROUPS = {Facet.LANES: LanesFacet, Facet.REVIEW: ReviewFacet, Facet.STATS: StatsFacet}


def declared(**changes: Any) -> Capabilities:
    """What a store with claims only declares."""
    return Capabilities(
        "kept", Durability.MEMORY, 1, AuditTrail.NONE, **{"business_writes": False, **changes}
    )


class Declaring:
    """A store, as far as `require` looks at it."""

    def __init__(self, **changes: Any) -> None:
        self.capabilities = declared(**changes)


def test_missing_facet_is_told_in_one_line_with_the_stores_that_have_it() -> None:
    """Which facet, what the ledger has instead, what needs it, where it is."""
    with pytest.raises(ConfigError) as refused:
        require(Declaring(), Facet.LANES, "deliveries")

    told = "no lanes in this ledger (kept: claims only): deliveries need SQLite or PostgreSQL"
    assert str(refused.value) == told


def test_store_with_every_facet_is_refused_nothing(tmp_path: Path) -> None:
    """SQLite has all of them."""
    store = SqliteStore(tmp_path / "ledger.db")

    for facet in Facet:
        require(store, facet, "anything")
    assert store.capabilities.facets == ALL_FACETS


@pytest.mark.parametrize(
    "wrong",
    [
        {"facets": frozenset()},
        {"facets": frozenset({Facet.CLAIMS, Facet.LANES})},
        {"units": Units.PER_CALL},
        {"units": Units.PER_CALL, "one_writer": False, "business_writes": True},
    ],
)
def test_declaration_that_contradicts_itself_is_refused(wrong: dict[str, Any]) -> None:
    """Claims are in every store, all else stands on review, and units per call hold nothing together."""
    with pytest.raises(ConfigError, match="the store kept declares"):
        declared(**wrong)


@pytest.mark.parametrize("facet", GROUPS)
def test_tables_name_the_protocols_of_each_facet(facet: Facet) -> None:
    """In the package's docstring and in the guide, in the order of the code."""
    names = [base.__name__ for base in GROUPS[facet].__bases__ if base.__name__ != "Protocol"]
    (row,) = re.findall(rf"^\| {facet.value} \| (.+?) \|", GUIDE, re.MULTILINE)
    table = str(oncegate.store.__doc__).split("------\n")[-1].split("\n\n")[0]
    lines = [
        line
        for line in re.split(r"\n    (?=\S)", "\n" + table.lstrip("\n"))
        if line.startswith(facet.value)
    ]

    assert re.findall(r"`(\w+)`", row) == names
    assert [name for name in re.findall(r"\w+", lines[0]) if name in names] == names


def test_session_of_a_full_store_is_made_of_the_facets() -> None:
    """Nothing is in it that no facet has."""
    parts = [ClaimSession, InteractiveUnits, *GROUPS.values(), oncegate.store.feed.FeedFacet]
    own = {name for name in vars(Session) if not name.startswith("_")}

    assert own == set()
    assert set(Session.__mro__[1:]) >= set(parts)


def test_conformance_of_a_full_store_has_the_class_of_every_facet() -> None:
    """And the two traits of SQL stores."""
    parts = [getattr(conformance, name) for name in conformance.__all__ if name != "StoreConformance"]

    assert len(parts) == len(Facet) + 2
    assert all(issubclass(conformance.StoreConformance, part) for part in parts)


def test_example_of_the_guide_runs() -> None:
    """The class that a writer of a store begins with."""
    (example,) = re.findall(r"```python\n(.+?)```", GUIDE, re.DOTALL)
    variables: dict[str, Any] = {}
    exec(example, variables)

    assert issubclass(variables["TestMyStore"], conformance.ClaimsConformance)
