"""What is not final: what a crash left, and lists of what is open."""

from __future__ import annotations

from oncegate.model.parking import Parked
from oncegate.model.states import State
from oncegate.store import EntryFilter
from oncegate.testing.conformance.bench import ALL, LEASE_MS, StoreBench


class OpenEntryConformance(StoreBench):
    """`stranded`, `parked`, and `entries`, `detail` and `counts` of open entries."""

    def test_what_is_due_is_found_before_what_still_waits(self) -> None:
        """However long ago its last call was: it must not hide what may be tried now."""
        session = self.open()
        for number, wait_ms in enumerate((9_000, 1_000, 0)):
            claim = self.reserve(session, str(number))
            self.settle(session, claim, State.RETRYABLE, retry_in_ms=wait_ms)
        self.clock.advance(2)

        found = [item.entry.label for item in session.stranded(3)]

        assert found == ["2", "1", "0"]
        assert [item.entry.label for item in session.stranded(2)] == ["2", "1"]

    def test_stranded_are_the_lapsed_and_the_retryable(self) -> None:
        """What a worker gets is what a crash or a passing failure left, with its body and steps."""
        session = self.open()
        for state in set(State) - {State.IN_FLIGHT}:
            self.settle(session, self.reserve(session, state.label), state)
        lapsed = self.reserve(session, "lapsed", body=b'{"id":"lapsed"}')
        self.let_lapse()
        self.reserve(session, "fresh")

        found = {item.entry.label: item for item in self.stranded(10)}

        assert set(found) == {"lapsed", State.RETRYABLE.label}
        assert found["lapsed"] == self.find(lapsed.entry_id)
        assert found["lapsed"].body == b'{"id":"lapsed"}'

    def test_stranded_come_oldest_first_and_no_more_than_asked(self) -> None:
        """The longest stranded are looked into first."""
        session = self.open()
        for number in range(5):
            self.reserve(session, f"e{number}", lease_ms=LEASE_MS + number * 1_000)
        self.clock.advance(60)

        assert [item.entry.label for item in self.stranded(3)] == ["e0", "e1", "e2"]

    def test_stranded_can_be_limited_to_some_surfaces(self) -> None:
        """Keys that only another program can finish use up none of the limit."""
        session = self.open()
        for number in range(3):
            self.reserve(session, f"theirs-{number}", surface="theirs")
        self.settle(session, self.reserve(session, "retryable"), State.RETRYABLE)
        self.reserve(session, "lapsed")
        self.reserve(session, "third", surface="third")
        self.let_lapse()

        def labels(*surfaces: str) -> set[str]:
            with self.looking() as reader:
                return {item.entry.label for item in reader.stranded(2, surfaces)}

        assert labels("orders") == {"retryable", "lapsed"}
        assert labels("third", "never heard of") == {"third"}
        assert labels("never heard of") == set()
        assert len(self.stranded(10)) == 6

    def test_renewed_claim_is_not_stranded(self) -> None:
        """A worker that keeps its claim alive is left alone."""
        session = self.open()
        claim = self.reserve(session)
        self.clock.advance(19)
        self.renew(session, claim)
        self.clock.advance(19)

        assert self.stranded(10) == []

    def test_what_waits_for_a_person_is_counted_by_surface_and_tenant(self) -> None:
        """Entries that wait, with the bytes of their events; nothing that runs or has ended."""
        session = self.open()
        for name, tenant, body in (("a", "", b'"12"'), ("b", "", b'"1234"'), ("c", "acme", b"1")):
            self.reserve(session, name, tenant=tenant, body=body, quarantine="skew: 9m in the past")
        self.reserve(session, "running")
        self.settle(session, self.reserve(session, "done"))

        for state in (State.UNKNOWN, State.HELD):
            self.settle(session, self.reserve(session, state.label, tenant="bolt", body=b"1"), state)

        found = [session.parked("orders", tenant) for tenant in ("", "acme", "bolt", None)]

        assert found == [Parked(2, 10), Parked(1, 1), Parked(2, 2), Parked(5, 13)]
        assert session.parked("nowhere", "") == session.parked("nowhere", None) == Parked(0, 0)

    def test_open_entries_are_listed_once_page_by_page(self) -> None:
        """Following `before_id` lists each open entry once; what has ended meanwhile is not there."""
        session = self.open()
        claims = [self.reserve(session, f"e{number}") for number in range(9)]
        self.settle(session, claims[0])
        self.settle(session, claims[1], State.HELD, reason="who knows")
        self.settle(session, claims[2], State.RETRYABLE, retry_in_ms=60_000)
        states = (State.IN_FLIGHT, State.RETRYABLE, State.HELD)

        seen: list[int] = []
        while page := self.entries(EntryFilter(states), seen[-1] if seen else None, 3):
            seen += [entry.entry_id for entry in page]

        assert sorted(seen) == sorted(claim.entry_id for claim in claims[1:])
        with self.looking() as reader:
            counts = {state: count for state, count in reader.counts().items() if state in states}
        assert counts == {State.IN_FLIGHT: 6, State.RETRYABLE: 1, State.HELD: 1}

    def test_withdrawn_entry_is_not_open(self) -> None:
        """Nothing waits and nothing is stranded after a refused arrival."""
        session = self.open()
        claim = self.reserve(session)
        with session.unit():
            assert session.withdraw([claim.claim]) == [True]
        self.let_lapse()

        assert self.stranded(ALL) == []
        assert self.entries(EntryFilter((State.IN_FLIGHT,)), None, ALL) == []

    def test_open_entry_is_found_by_number_and_key(self) -> None:
        """With its event, its steps and its history."""
        session = self.open()
        claim = self.reserve(session, body=b'{"id":7}')
        self.settle(session, claim, State.HELD, reason="who knows")

        with self.looking() as reader:
            by_number = reader.detail(claim.entry_id)
            (by_key,) = reader.entries(EntryFilter(key_prefix=claim.key.hex()), None, 2)

        assert by_number is not None
        assert by_number.body == b'{"id":7}'
        assert by_key == by_number.entry
        assert [record.note for record in by_number.records] == ["who knows"]

    def test_final_entry_is_found_by_its_whole_key(self) -> None:
        """Also where only open entries are listed."""
        session = self.open()
        claim = self.reserve(session)
        self.settle(session, claim)

        (found,) = self.entries(EntryFilter(key_prefix=claim.key.hex()), None, 2)

        assert (found.entry_id, found.state) == (claim.entry_id, State.COMMITTED)
