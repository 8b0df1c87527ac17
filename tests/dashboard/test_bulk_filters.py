"""A plan for many means exactly what its filter says, and so does the command that is shown beside it."""

from __future__ import annotations

import html
import re
import shlex

import pytest

from oncegate.cli.main import main
from oncegate.dashboard.filters import TEXT_MAX
from oncegate.dashboard.operators import Role
from oncegate.model.states import State
from tests.dashboard.conftest import Client, Site


def planned(site: Site, client: Client, verb: str, q: str) -> tuple[int, str]:
    """How many a plan names, and the command on its page."""
    reply = client.post("/plans/entries", site.form(client, q=q, verb=verb, reason="x"))
    assert reply.status == 303, reply.text
    text = client.get(reply.headers["location"].removeprefix(client.prefix)).text
    count = re.search(rf"{verb.capitalize()} <strong>(\d+)</strong>", text)
    command = re.search(r"<code>(oncegate .*?)</code>", text)
    assert count is not None
    assert command is not None
    return int(count[1]), html.unescape(command[1])


@pytest.mark.parametrize(
    ("verb", "q", "count"),
    [
        ("reject", "", 4),
        ("reject", "state:held", 3),
        ("reject", "state:unknown", 1),
        ("reject", "state:held,unknown", 4),
        ("reject", "PAY-1", 1),
        ("reject", "tenant:acme", 2),
        ("reject", "surface:gate.in", 1),
        ("reject", "waits>1h", 0),
        ("reject", "age>1h", 0),
        ("reject", "age<1h state:held", 3),
    ],
)
def test_a_plan_and_its_command_name_what_the_filter_fits(site, capsys, verb, q, count):
    client = site.client(Role.APPROVER)

    found, command = planned(site, client, verb, q)

    words = shlex.split(command)
    url = f"sqlite:///{site.gate.engine.store.path}"
    assert main([*words[1:], "--dry-run", "--json", "--url", url]) == 0
    told = re.search(r'"entries":\s*(\d+)', capsys.readouterr().out)
    assert told is not None
    assert (found, int(told[1])) == (count, count)


def test_a_plan_by_the_beginning_of_a_key_names_that_entry_alone(site, capsys):
    client = site.client(Role.APPROVER)
    with site.gate.engine.store.look() as session:
        detail = session.detail(site.scene.waiting(State.HELD, "payouts"))
    assert detail is not None
    prefix = detail.entry.key.hex()[:12]

    found, command = planned(site, client, "reject", f"key:{prefix}")

    assert found == 1
    assert f"--key {prefix}" in command


@pytest.mark.parametrize(
    "q",
    ["state:quarantined", "state:committed", "id:1", "x" * (TEXT_MAX + 1), "state:held " + "y" * TEXT_MAX],
)
def test_a_filter_that_the_verb_does_not_fit_or_that_is_for_one_entry_or_too_long_plans_nothing(site, q):
    """Passing a term over, or cutting a filter off, would plan far more than was asked for."""
    client = site.client(Role.APPROVER)
    reply = client.post("/plans/entries", site.form(client, q=q, verb="reject", reason="x"))
    assert reply.status == 409
    page = client.get("/waiting?q=" + q.replace(" ", "+"))
    assert "PAY-0" not in page.text
