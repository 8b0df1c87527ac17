"""The record of a downstream's answer: it changes nothing, whatever happens to it (E5, I4, I5)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oncegate import Gate, NotApplied, Verdict
from oncegate.errors import ClaimLost
from oncegate.gate.driver.requests import NotCalled
from oncegate.store import EntryFilter, LogKind, Reservation
from oncegate.stores.sqlite import SqliteStore
from oncegate.testing import Fault, Faults, ManualClock, faulty

EVENT = {"id": "N-1"}


class Port:
    """A gate on a store that can fail, and a terminal that can be asked."""

    def __init__(self, path: Path, probe: Any = None) -> None:
        self.clock, self.faults = ManualClock(), Faults()
        self.store = SqliteStore(path, clock=self.clock)
        self.gate = Gate(store=faulty(self.store, self.faults), clock=self.clock)
        self.sold: list[str] = []
        self.got: list[Any] = []
        self.on_question: list[Any] = []
        self._register(self.gate.downstream("ect", probe=probe or self.find))

    def _register(self, ect: Any) -> None:
        @self.gate.handler("bookings", key="{id}")
        def book(event: dict[str, Any], once: Any) -> str:
            slot = once.effect(ect, self.claim)
            self.got.append(slot)
            return str(slot["id"])

    def claim(self) -> dict[str, str]:
        self.sold.append("slot-7")
        raise ConnectionError("the answer was lost")

    def find(self, key: str) -> list[dict[str, str]]:
        for what in self.on_question:
            what()
        return [{"id": slot} for slot in self.sold]

    def lose_an_answer(self) -> None:
        with pytest.raises(ConnectionError):
            self.gate.admit_sync("bookings", EVENT)

    def probes(self) -> list[str | None]:
        with self.store.look() as session:
            (entry,) = session.entries(EntryFilter(), None, 10)
            seen = session.detail(entry.entry_id)
        assert seen is not None
        return [record.note for record in seen.records if record.kind is LogKind.PROBED]

    def take_over(self) -> None:
        """Another worker gets the key after this one's lease."""
        self.clock.advance(3600)
        session = self.store.connect()
        try:
            (entry,) = session.entries(EntryFilter(), None, 10)
            wanted = Reservation(
                entry.key, "", "bookings", "", entry.fingerprint, b"{}", self.clock.wall_ms(), 20_000, 8, 9
            )
            with session.unit():
                assert session.reserve([wanted])[0].decision.claims
        finally:
            session.close()


@pytest.fixture
def port(tmp_path: Path) -> Iterator[Port]:
    made = Port(tmp_path / "ledger.db")
    yield made
    made.gate.close()


@pytest.mark.parametrize(
    ("fault", "told"), [(Fault.NONE, 1), (Fault.LOST_REPLY, 1), (Fault.UNDONE, 0), (Fault.DOWN, 0)]
)
def test_a_record_that_cannot_be_written_keeps_nothing_from_being_settled(
    port: Port, fault: Fault, told: int
) -> None:
    """I5: it is there once or not at all, and what was found counts all the same."""
    port.lose_an_answer()
    port.on_question.append(lambda: port.faults.plan.append(fault))
    answer = port.gate.admit_sync("bookings", EVENT)
    assert (answer.verdict, answer.value, port.sold) == (Verdict.RUN, "slot-7", ["slot-7"])
    assert port.probes() == ["asked ect about claim: holds slot-7"] * told


def test_who_has_lost_the_key_while_asking_goes_no_further(port: Port) -> None:
    """I4: an answer under an old fence is not recorded, and the handler does not get it."""
    port.lose_an_answer()
    port.on_question.append(port.take_over)
    with pytest.raises(ClaimLost):
        port.gate.admit_sync("bookings", EVENT)
    assert (port.probes(), port.got) == ([], [])


def test_the_reason_says_that_nothing_was_found_where_nothing_is_called_yet(port: Port) -> None:
    """The settlement tells it: no record of its own for every question that only leads to waiting."""
    port.lose_an_answer()
    port.sold.clear()
    for _ in range(3):
        with pytest.raises(NotApplied, match="claim at ect: asked, nothing found, but an earlier request"):
            port.gate.admit_sync("bookings", EVENT)
    assert port.probes() == []


def test_a_probe_that_could_not_be_called_at_all_was_no_question(tmp_path: Path) -> None:
    """An async probe reached from a plain caller: nobody was asked, and the history does not say so."""

    async def find(key: str) -> None:
        raise AssertionError("nobody can await this")

    port = Port(tmp_path / "ledger.db", find)
    try:
        port.lose_an_answer()
        with pytest.raises(NotCalled):
            port.gate.admit_sync("bookings", EVENT)
        assert port.probes() == []
    finally:
        port.gate.close()
