"""The statements that end a claim on PostgreSQL: what each of them compares."""

from __future__ import annotations

import re
from types import ModuleType

import pytest

from oncegate.stores.postgres import fused, join_statements, settle_statements


@pytest.mark.parametrize("module", [settle_statements, join_statements, fused])
def test_every_statement_that_ends_a_claim_compares_fence_and_token(module: ModuleType) -> None:
    """The variants are written out one by one; none may forget what makes an end the claim's own (I4)."""
    ends = {name: sql for name, sql in vars(module).items() if re.match(r"SETTLE|END", name)}
    assert ends
    for name, sql in ends.items():
        (condition,) = re.findall(r"UPDATE oncegate_entry.*?WHERE(.*?)RETURNING", sql, re.DOTALL)
        for column in ("id", "fence", "token", "state"):
            assert re.search(rf"\b{column} = ", condition), name
        if module is join_statements:
            assert "(SELECT same FROM here)" in condition, name
