"""Sender bugs over the contract's calls and several processes of `oncegate serve` on one ledger (C6)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest

from oncegate.model.repeats import RepeatClass
from oncegate.testing.waiting import wait_until
from oncegate.wiring import open_store
from tests.service.fleet import add_partner
from tests.service.process import Process, served

pytestmark = pytest.mark.slow

REALTIME = "/wes/v1/realtime"


class Fleet:
    """Two processes on one ledger, and what the ledger knows of senders."""

    def __init__(self, url: str, processes: list[Process], token: str) -> None:
        self.url, self.processes, self.token = url, processes, token
        self._turn = 0

    def send(self, **body: object) -> None:
        """A call that reaches one process after the other."""
        self._turn += 1
        process = self.processes[self._turn % len(self.processes)]
        answer = process.partner("POST", REALTIME, body, self.token)
        assert answer.status == 200, answer.body

    def found(self) -> list[RepeatClass]:
        with open_store(self.url).look() as session:
            return [one.kind for one in session.sender_bugs("wes.realtime", 100)]


@pytest.fixture(params=["sqlite", "postgres"])
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fleet]:
    is_postgres = request.param == "postgres"
    url = request.getfixturevalue("ledger_url") if is_postgres else f"sqlite:///{tmp_path}/ledger.db"
    token = add_partner(url)
    with ExitStack() as stack:
        folders = [tmp_path / name for name in ("one", "two")]
        for folder in folders:
            folder.mkdir()
        processes = [stack.enter_context(served(folder, more="", url=url)) for folder in folders]
        yield Fleet(url, processes, token)


def test_a_new_uuid_for_each_retry_and_split_actions_are_reported_over_processes(fleet: Fleet) -> None:
    """Nine faults, each half at another process: all nine are found, with the entry that each repeats."""
    for number in range(8):
        for _ in range(2):
            fleet.send(correlation_id=str(uuid4()), task=f"t-{number}", bin="4-2", quantity=number)
    for quantity in (6, 4):
        fleet.send(correlation_id=str(uuid4()), task="split", bin="4-2", quantity=quantity)

    wait_until(lambda: len(fleet.found()) >= 9, what="the report")
    kinds = fleet.found()
    assert kinds.count(RepeatClass.NEW_ID_PER_RETRY) == 8
    assert kinds.count(RepeatClass.SPLIT_ACTION) == 1


def test_a_stale_offset_that_both_processes_see_a_part_of_is_reported(fleet: Fleet) -> None:
    """Fourteen calls again in their order: seven at each process, which is too few for either."""
    calls = [{"correlation_id": str(uuid4()), "task": f"t-{n}"} for n in range(14)]
    for call in calls:
        fleet.send(**call)
    for call in calls:
        fleet.send(**call)

    wait_until(lambda: RepeatClass.STALE_OFFSET in fleet.found(), what="the report")
