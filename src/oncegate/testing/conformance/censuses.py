"""Lists and counts: filters, pages, details, and what a crash left behind."""

from __future__ import annotations

from oncegate.model.states import State
from oncegate.store import EntryFilter, Session
from oncegate.testing.conformance.bench import ALL, StoreBench, key_of

ODD_NAMES = (
    "Zürich",
    "Zu\u0308rich",  # the same to the eye, in another form
    "zürich",
    "מסוף",
    "\u202eright-to-left",
    "港口 🚢",
    "'; DROP TABLE oncegate_entry; --",
    "100%_[a-z]",
    " leading and trailing ",
    "tab\tand\nnewline",
    "İstanbul",
    "a" * 120,
)


class CensusConformance(StoreBench):
    """`entries`, `detail`, `counts`."""

    def test_filters_select_by_every_field(self) -> None:
        """Each filter selects exactly the entries that have what it asks for."""
        session = self.open()
        self._populate(session)

        def labels(**wanted: object) -> list[str]:
            found = self.entries(EntryFilter(**wanted), None, ALL)  # type: ignore[arg-type]
            return [entry.label for entry in found]

        assert labels() == ["order 4", "order 3", "order 2", "order 1"]
        assert labels(tenant="acme") == ["order 3", "order 1"]
        assert labels(surface="refunds") == ["order 4", "order 3"]
        assert labels(tenant="acme", surface="refunds") == ["order 3"]
        assert labels(states=(State.COMMITTED,)) == ["order 1"]
        assert labels(states=(State.COMMITTED, State.FAILED)) == ["order 2", "order 1"]
        assert labels(label_contains="der 4") == ["order 4"]
        assert labels(label_contains="%") == []
        assert labels(tenant="nobody") == []
        assert labels(surface="nothing", states=tuple(State)) == []

    def test_a_resource_finds_the_entries_whose_outcome_or_steps_name_it(self) -> None:
        """As a whole value of the outcome, or as the resource of a step that is on record."""
        session = self.open()
        first, second, third = (self.reserve(session, name) for name in ("1", "2", "3"))
        self.settle(session, first, State.COMMITTED, outcome=b'{"value":{"slot":"S-47"},"resource":"S-47"}')
        self.settle(session, second, State.COMMITTED, outcome=b'{"resource":"S-4711"}')
        self.settle(session, third, State.COMMITTED, outcome=b'{"value":"it\'s \\"so\\""}')

        def labels(resource: str, **more: object) -> list[str]:
            wanted = EntryFilter(resource=resource, **more)  # type: ignore[arg-type]
            return [entry.label for entry in self.entries(wanted, None, ALL)]

        assert labels("S-4711") == ["2"]
        assert labels("S-47") == ["1"]
        assert labels("S-4") == []
        assert labels('it\'s "so"') == ["3"]
        assert labels("S-47", tenant="nobody") == []
        assert labels("S-47", above_id=first.entry_id) == []

    def test_key_prefix_finds_by_the_start_of_a_key(self) -> None:
        """Any number of a key's leading hex digits selects it, an odd number too."""
        session = self.open()
        for number in range(30):
            self.reserve(session, f"e{number}")
        wanted = key_of("e7").hex()
        everything = [entry.key.hex() for entry in self.entries(EntryFilter(), None, ALL)]

        for length in (0, 1, 2, 3, 47, 48):
            prefix = wanted[:length]
            found = self.entries(EntryFilter(key_prefix=prefix), None, ALL)
            assert [entry.key.hex() for entry in found] == [
                key for key in everything if key.startswith(prefix)
            ], length

    def test_pages_are_complete_and_newest_first(self) -> None:
        """Following `before_id` page by page lists every entry once, the newest first."""
        session = self.open()
        ids = [self.reserve(session, f"e{number}").entry_id for number in range(7)]

        seen: list[int] = []
        while page := self.entries(EntryFilter(), seen[-1] if seen else None, 3):
            assert len(page) <= 3
            seen += [entry.entry_id for entry in page]

        assert seen == sorted(ids, reverse=True)

    def test_counts_are_by_state(self) -> None:
        """Entries are counted by the state they are in now."""
        session = self.open()
        self._populate(session)

        assert self.counts() == {
            State.COMMITTED: 1,
            State.FAILED: 1,
            State.QUARANTINED: 1,
            State.IN_FLIGHT: 1,
        }

    def test_surfaces_are_those_that_have_entries(self) -> None:
        """Every surface with an entry in whatever state is named once, and nothing else is."""
        session = self.open()
        with self.looking() as reader:
            assert reader.surfaces() == []
        self._populate(session)

        with self.looking() as reader:
            assert sorted(reader.surfaces()) == ["orders", "refunds"]

    def test_detail_of_nothing_is_nothing(self) -> None:
        """An id or a key that does not exist is None, not an error."""
        self.open()

        assert self.find(12_345) is None
        assert self.read([key_of("nobody")]) == [None]
        assert self.read([]) == []

    def test_reading_many_keys_keeps_their_order(self) -> None:
        """Entries read by key come in the order asked for, with None for those that are not there."""
        session = self.open()
        first, second = self.reserve(session, "one"), self.reserve(session, "two")

        found = self.read([key_of("two"), key_of("none"), key_of("one"), key_of("two")])

        ids = [entry and entry.entry_id for entry in found]
        assert ids == [second.entry_id, None, first.entry_id, second.entry_id]

    def test_names_of_any_script_come_back_as_they_were(self) -> None:
        """Tenants, surfaces, labels, reasons and actors keep every character, and never merge."""
        session = self.open()
        ids: dict[str, int] = {}
        for name in ODD_NAMES:
            claim = self.reserve(session, f"e-{name!a}", tenant=name, surface=name, label=name)
            self.settle(session, claim, State.FAILED, actor=name, reason=name)
            ids[name] = claim.entry_id

        for name, entry_id in ids.items():
            found = self.detail(entry_id)
            assert (found.entry.tenant, found.entry.surface, found.entry.label) == (name, name, name)
            assert (found.entry.reason, found.records[0].actor) == (name, name)
            for wanted in (EntryFilter(tenant=name), EntryFilter(surface=name)):
                assert [entry.entry_id for entry in self.entries(wanted, None, ALL)] == [entry_id], name

    def _populate(self, session: Session) -> None:
        one = self.reserve(session, "1", tenant="acme", label="order 1")
        two = self.reserve(session, "2", tenant="bolt", label="order 2")
        self.reserve(session, "3", tenant="acme", surface="refunds", label="order 3", quarantine="skew")
        self.reserve(session, "4", tenant="", surface="refunds", label="order 4")
        self.settle(session, one)
        self.settle(session, two, State.FAILED)
