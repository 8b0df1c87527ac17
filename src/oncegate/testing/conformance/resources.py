"""Second resources: of one target, and of one key by a late worker; each is found once (A9, F6)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from oncegate.model.states import State
from oncegate.store import (
    Forgetting,
    LateResource,
    LogKind,
    Observations,
    ResourceDismissal,
    ResourceSeen,
    SecondCount,
    SecondResource,
    Session,
)
from oncegate.testing.conformance.bench import StoreBench

ABOUT = b"one container.."
UNTIL = 1_000
THREADS = 4


class ResourceConformance(StoreBench):
    """`observe` of resources, `note_late`, `second_resources`, `dismiss_resource`, `trim_targets`."""

    def see(self, session: Session, entry: int, resource: str, **more: Any) -> None:
        """Lets an entry bring a resource for the one target."""
        values: dict[str, Any] = {
            "about": ABOUT,
            "target": "C-1",
            "place": "terminal",
            "at_ms": 1,
            "until_ms": UNTIL,
        }
        with session.unit():
            session.observe(
                [Observations((), (), (ResourceSeen(entry, resource=resource, **values | more),))]
            )

    def ran(self, session: Session, text: str, outcome: bytes | None = None) -> int:
        """An entry that is committed."""
        claim = self.reserve(session, text)
        assert self.settle(session, claim, State.COMMITTED, outcome=outcome)
        return claim.entry_id

    def found(self, session: Session) -> list[SecondResource]:
        """The open findings."""
        with session.unit():
            return session.second_resources(0, 10)

    def kinds_at(self, session: Session, entry: int) -> list[LogKind]:
        """What the log has under an entry."""
        with session.unit():
            detail = session.detail(entry)
        assert detail is not None
        return [record.kind for record in detail.records]

    def test_one_target_with_two_resources_is_found_once_with_both(self) -> None:
        """With a record at both entries; the same resource again finds nothing."""
        session = self.open()
        first, second = self.ran(session, "first"), self.ran(session, "second")
        for entry, resource in ((first, "slot 1"), (first, "slot 1"), (second, "slot 2")):
            self.see(session, entry, resource)
        (one,) = self.found(session)
        assert (one.surface, one.target, one.place) == ("orders", "C-1", "terminal")
        assert (one.entry_id, one.resource, one.other_id, one.other_resource) == (
            second, "slot 2", first, "slot 1",
        )  # fmt: skip
        assert not one.is_of_key
        for entry in (first, second):
            assert self.kinds_at(session, entry) == [LogKind.COMMITTED, LogKind.SECOND_RESOURCE]
        self.see(session, second, "slot 2")
        assert len(self.found(session)) == 1

    def test_a_second_resource_after_the_time_of_the_first_is_none(self) -> None:
        """At its end exactly it still is one."""
        session = self.open()
        entries = [self.ran(session, str(number)) for number in range(3)]
        self.see(session, entries[0], "slot 1", until_ms=10)
        self.see(session, entries[1], "slot 2", at_ms=10, until_ms=20)
        self.see(session, entries[2], "slot 3", at_ms=21, until_ms=30)
        assert [one.resource for one in self.found(session)] == ["slot 2"]

    def test_two_resources_of_one_event_are_none(self) -> None:
        """A retry that brings another one is the key's affair; two targets are two."""
        session = self.open()
        first, second = self.ran(session, "first"), self.ran(session, "second")
        self.see(session, first, "slot 1")
        self.see(session, first, "slot 2")
        self.see(session, second, "slot 3", about=b"another one....")
        assert self.found(session) == []

    def test_processes_that_bring_resources_at_once_are_all_found(self) -> None:
        """Of so many for one target all but the first are second ones."""
        opened = [self.open() for _ in range(THREADS)]
        entries = [self.ran(opened[0], str(number)) for number in range(THREADS)]

        def bring(number: int) -> None:
            self.see(opened[number], entries[number], f"slot {number}")

        with ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(bring, range(THREADS)))
        assert len(self.found(opened[0])) == THREADS - 1

    def test_what_a_late_worker_brings_back_is_recorded_at_its_entry(self) -> None:
        """Once, with what the key's entry came to, also where another worker holds the key now."""
        session = self.open()
        entry = self.ran(session, "late", outcome=b'{"value":1}')
        late = LateResource(entry, ABOUT, "book", "terminal", "slot 2", 5, "zombie")
        with session.unit():
            assert session.note_late([late, late]) == [True, False]
        (one,) = self.found(session)
        assert one.is_of_key
        assert (one.step, one.resource, one.other_id, one.other_resource) == ("book", "slot 2", entry, None)
        assert (one.state, one.outcome) == (State.COMMITTED, b'{"value":1}')
        assert self.kinds_at(session, entry) == [LogKind.COMMITTED, LogKind.SECOND_RESOURCE]
        with session.unit():
            assert session.note_late([LateResource(10**9, b"gone", "book", "terminal", "x", 5)]) == [False]

    def test_a_person_dismisses_a_second_resource_once(self) -> None:
        """With one record."""
        session = self.open()
        entry = self.ran(session, "late")
        with session.unit():
            session.note_late([LateResource(entry, ABOUT, "book", "terminal", "slot 2", 5)])
        (one,) = self.found(session)
        with session.unit():
            assert session.dismiss_resource(ResourceDismissal(one.number, 6, "ann", "cancelled"))
        with session.unit():
            assert not session.dismiss_resource(ResourceDismissal(one.number, 7, "bob", "no"))
        assert self.found(session) == []
        assert self.kinds_at(session, entry).count(LogKind.DISMISSED) == 1

    def test_a_second_resource_that_is_acknowledged_stays_open_with_a_name_on_it(self) -> None:
        """It is counted until a person decides."""
        session = self.open()
        entry, running = self.ran(session, "late"), self.reserve(session, "running").entry_id
        with session.unit():
            for number, owner in enumerate((entry, entry, running)):
                late = LateResource(owner, ABOUT, "book", "terminal", f"slot {number}", 5 + number)
                assert session.note_late([late]) == [True]
        number = self.found(session)[0].number
        word = ResourceDismissal(number, 6, "ann", "acknowledged: I call them", closes=False)
        with session.unit():
            assert session.dismiss_resource(word)
        seen = self.found(session)[0]
        assert (seen.number, seen.acknowledged_by, seen.note) == (number, "ann", word.note)
        assert LogKind.DISMISSED not in self.kinds_at(session, entry)
        with session.unit():
            assert session.second_counts() == [SecondCount("orders", True, 2, 1, 5)]
            assert session.dismiss_resource(ResourceDismissal(number, 7, "bob", "one cancelled: by phone"))
            assert not session.dismiss_resource(word)
            assert session.second_counts() == [SecondCount("orders", True, 1, 1, 6)]

    def test_targets_and_findings_are_forgotten_in_the_end(self) -> None:
        """Targets when their time is over, findings with their entry."""
        session = self.open()
        first, second = self.ran(session, "first"), self.ran(session, "second")
        self.see(session, first, "slot 1")
        self.see(session, second, "slot 2")
        with session.unit():
            assert session.trim_targets(UNTIL, 10) == 0
            assert session.trim_targets(UNTIL + 1, 10) == 1
        self.clock.advance(1)
        now = self.clock.wall_ms()
        with session.unit():
            assert session.forget(Forgetting("orders", now, (second,), now, "pruner")) == 1
        assert self.found(session) == []
