"""Failed entries on the page and in the terminal: told by a cause, run again by a button or a plan (D4)."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from html import unescape
from typing import Any

import pytest

from oncegate import Failed, Once
from oncegate.cli.main import main
from oncegate.dashboard.operators import Role
from oncegate.model.states import State
from oncegate.store import EntryFilter
from tests.dashboard.conftest import Site
from tests.dashboard.test_doubled_page import plan_of, start, wait_for_end
from tests.dashboard.test_thousands import text_of

FAILED = 'state:failed surface:"tariffs"'


@pytest.fixture
def failing(site: Site) -> list[str]:
    """Three events that failed, and what their handler is asked for."""
    known: list[str] = []

    @site.gate.handler("tariffs", key="{id}")
    def price(event: dict[str, Any], once: Once) -> str:
        if event["id"] not in known:
            raise Failed("no tariff is known")
        return "priced"

    for number in range(3):
        with suppress(Failed):
            site.gate.admit_sync("tariffs", {"id": f"T-{number}"})
    site.gate.engine.sightings.flush()
    return known


def in_state(site: Site, state: State) -> list[Any]:
    with site.gate.engine.store.look() as session:
        return session.entries(EntryFilter((state,), "tariffs"), None, 10)


@pytest.mark.slow
def test_failed_events_are_a_cause_that_leads_to_a_plan_for_all(site: Site, failing: list[str]) -> None:
    client = site.client(Role.APPROVER)
    page = client.get("/").text
    assert "Events within an hour that ended as failed" in page
    link = next(one for one in re.findall(r'href="([^"]*)">Review<', page) if "tariffs" in one)
    shown = client.get(unescape(link).removeprefix(client.prefix)).text
    assert (shown.count("data-row"), "Let all that failed" in shown) == (3, True)
    plan = plan_of(site, client, "retry", FAILED)
    assert "oncegate entries retry --surface tariffs" in client.get(plan).text
    start(site, client, plan)
    assert "3" in wait_for_end(client, plan)
    assert len(in_state(site, State.RETRYABLE)) == 3
    assert "failed before: may run again" in text_of(client, "/journal")


def test_button_lets_one_failed_entry_run_again_once(site: Site, failing: list[str]) -> None:
    entry = in_state(site, State.FAILED)[0]
    viewer, client = site.client(Role.VIEWER), site.client(Role.APPROVER)
    path = f"/entries/{entry.entry_id}"
    form = {"fence": str(entry.fence), "key": entry.key.hex(), "reason": "known now"}
    assert "Retry…" in client.get(path).text
    assert viewer.post(f"{path}/retry", site.form(viewer, **form)).status == 403
    assert client.post(f"{path}/retry", site.form(client, **form)).status == 303
    assert client.post(f"{path}/retry", site.form(client, **form)).status == 409
    failing += ["T-0", "T-1", "T-2"]
    assert site.gate.admit_sync("tariffs", {"id": entry.label}).value == "priced"
    assert "Retry…" not in client.get(path).text


def test_terminal_plans_and_retries(site: Site, failing: list[str], capsys: Any) -> None:
    asked = ["entries", "retry", "--surface", "tariffs", "--reason", "known now", "--url", site.url]
    assert main([*asked, "--dry-run", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)["plan"]
    assert (plan["entries"], plan["verb"], len(plan["sample"])) == (3, "retry", 3)
    assert len(in_state(site, State.FAILED)) == 3
    number = in_state(site, State.FAILED)[0].entry_id
    assert main(["entries", "retry", str(number), "--reason", "known now", "--url", site.url]) == 0
    assert main(["entries", "retry", str(number), "--reason", "known now", "--url", site.url]) == 1
    assert "is retryable now" in capsys.readouterr().err
    assert main([*asked, "--yes"]) == 0
    assert "2 set to run again" in capsys.readouterr().out
    assert main([*asked, "--yes"]) == 0
    assert "nothing fits" in capsys.readouterr().err
