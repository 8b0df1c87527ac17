"""Fields that a surface shows: on cards, plans and pairs, masked by role; names of what differs for all."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oncegate import Gate
from oncegate.cli.main import main
from oncegate.dashboard.operators import Role
from oncegate.errors import ConfigError
from oncegate.model.differences import differing
from oncegate.model.states import State
from oncegate.review.differences import VALUE_LENGTH_MAX, difference, fields_of
from tests.dashboard.conftest import Client, Site
from tests.dashboard.scene import DUE
from tests.dashboard.test_doors import number_on

FIELD = f'<span class="muted">due</span> <b>{DUE}</b>'
MASKED = '<span class="muted">due</span> <b>•••</b>'


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR, Role.APPROVER])
def test_a_card_shows_the_declared_fields_to_those_who_may_see_content(site: Site, role: Role) -> None:
    client = site.client(role)
    entry = number_on(site.scene, "PAY-0")
    for path in ("/waiting?q=PAY-0", f"/entries/{entry}"):
        text = client.get(path).text
        assert (FIELD in text, MASKED in text) == (role is not Role.VIEWER, role is Role.VIEWER), path
        assert (DUE in text) == (role is not Role.VIEWER)


def plan_for(site: Site, client: Client) -> str:
    form = site.form(client, q="surface:payouts", verb="approve", reason="month's end")
    return client.post("/plans/entries", form).headers["location"].removeprefix(client.prefix)


def test_a_plan_shows_the_declared_fields_of_its_sample(site: Site) -> None:
    plan = plan_for(site, site.client(Role.APPROVER))
    assert FIELD in site.client(Role.APPROVER).get(plan).text
    seen = site.client(Role.VIEWER).get(plan).text
    assert (MASKED in seen, DUE in seen) == (True, False)


def test_a_pair_shows_both_halves_and_the_names_of_what_differs(site: Site, capsys: Any) -> None:
    site.scene.plan_twice()
    text = site.client(Role.APPROVER).get("/doubled").text
    assert text.count('<span class="muted">date</span> <b>2026-10-25</b>') == 2
    assert "As events they differ in: id." in text
    seen = site.client(Role.VIEWER).get("/doubled").text
    assert "they differ in: id" in seen
    assert "2026-10-25" not in seen
    assert main(["duplicates", "list", "--json", "--url", site.url]) == 0
    assert json.loads(capsys.readouterr().out)["differs_in"] == ["id"]


def test_a_conflict_names_the_fields_that_differ_and_no_value(site: Site, capsys: Any) -> None:
    entry = site.scene.waiting(State.QUARANTINED, "portbase.cis")
    text = site.client(Role.VIEWER).get(f"/entries/{entry}").text
    assert "they differ in: terminal" in text
    assert "Changed" not in text
    assert main(["quarantine", "show", str(entry), "--url", site.url]) == 0
    assert "they differ in: terminal" in capsys.readouterr().out


def test_values_are_short_and_what_cannot_be_read_is_not_guessed() -> None:
    body = json.dumps({"a": {"b": 1.5}, "c": "x" * 500, "d": [1], "e": None}).encode()
    fields = dict(fields_of(body, ("a.b", "c", "d", "e", "missing")))
    assert (fields["a.b"], fields["d"], fields["e"]) == ("1.5", "[1]", "null")
    assert len(fields["c"]) == VALUE_LENGTH_MAX
    assert "missing" not in fields
    assert fields_of(None, ("a",)) == fields_of(b"not json", ("a",)) == []
    assert differing(b'{"a":{"b":1,"c":2}}', b'{"a":{"b":1,"c":3},"d":null}') == ["a.c", "d"]
    assert differing(None, b"{}") is None
    assert difference(b"[1]", b"{}") == ""
    many = json.dumps({f"f{n}": n for n in range(40)}).encode()
    assert difference(many, b"{}").endswith("and 28 more")


def test_fields_to_show_are_checked_when_they_are_declared() -> None:
    gate = Gate("sqlite:///:memory:")
    with pytest.raises(ConfigError, match="empty component"):
        gate.handler("a", key="{id}", show=("a..b",))(lambda event: None)
    with pytest.raises(ConfigError, match="at most 8 fields"):
        gate.handler("a", key="{id}", show=tuple("abcdefghi"))(lambda event: None)
