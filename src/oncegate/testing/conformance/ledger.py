"""The store itself: durable over a reopen, migrated, examined, honest about what it promises."""

from __future__ import annotations

from oncegate.errors import StoreUnavailable
from oncegate.model.states import Decision, State
from oncegate.store import AuditTrail, Durability, Facet, StepRecord, StepState
from oncegate.testing.conformance.bench import StoreBench, key_of, refused, unchanged


class LedgerConformance(StoreBench):
    """One ledger, opened again and again."""

    def test_everything_is_there_after_closing_and_reopening(self) -> None:
        """Claims, steps, outcomes, log and business writes outlive the session and the store object."""
        session = self.open()
        self.make_business_table(session, required=False)
        done, running = self.reserve(session, "done"), self.reserve(session, "running")
        self.settle(session, done, outcome=b'"kept"', writes=self.writes("b-1"))
        self.progress(session, running, StepRecord("s", StepState.STARTED, "terminal"))
        before = self.picture(session)
        session.close()

        reopened = self.open()

        assert self.picture(reopened) == before
        assert self.reserve(reopened, "done").outcome == b'"kept"'
        assert self.reserve(reopened, "running").decision is Decision.BUSY

    def test_claim_can_be_finished_by_another_session(self) -> None:
        """A claim belongs to the holder of its fence, not to the connection that made it."""
        first = self.open()
        claim = self.reserve(first)
        first.close()

        second = self.open()

        assert self.renew(second, claim)
        assert self.settle(second, claim, outcome=b"1")
        assert self.counts() == {State.COMMITTED: 1}

    def test_entries_are_read_by_key_with_all_that_belongs_to_them(self) -> None:
        """After a doubtful commit each operation is read back by the key that it names."""
        session = self.open()
        first, other = self.reserve(session, "first", body=b"1"), self.reserve(session, "other", body=b"2")
        step = StepRecord("s", StepState.STARTED, "terminal")
        self.progress(session, first, step)
        self.settle(session, other, outcome=b'"kept"')

        with session.unit():
            found = session.details([other.key, key_of("nobody"), first.key])

        assert [one and (one.entry.key, one.body, one.outcome, one.steps) for one in found] == [
            (other.key, self.kept_body(b"2", is_final=True), b'"kept"', ()),
            None,
            (first.key, self.kept_body(b"1"), None, (step,)),
        ]

    def test_empty_ledger_is_brought_to_the_current_schema(self) -> None:
        """A ledger that does not exist yet needs every migration, and connecting is enough."""
        store = self.make_store(self.clock)
        needed = store.pending_migrations()
        numbers = [migration.number for migration in needed]
        assert numbers == sorted(set(numbers))

        self.open(store)

        assert store.pending_migrations() == []
        assert store.migrate() == []

    def test_migrating_twice_applies_everything_once(self) -> None:
        """Migrating returns what it applied; the second time there is nothing to do."""
        store = self.make_store(self.clock)
        needed = store.pending_migrations()

        assert store.migrate() == needed
        assert store.migrate() == []
        assert self.reserve(self.open(store)).decision is Decision.RUN

    def test_looking_creates_and_changes_nothing(self) -> None:
        """Where there is no ledger none comes to be by looking; where there is one it stays as it is."""
        store = self.make_store(self.clock)
        assert not store.exists()
        with refused(StoreUnavailable), store.look() as nothing:
            nothing.read([])
        assert not store.exists()

        session = self.open(store)
        self.reserve(session)
        assert store.exists()
        with unchanged(self, session), store.look() as reader:
            assert [entry is not None for entry in reader.read([key_of("event")])] == [True]

    def test_store_says_what_it_promises(self) -> None:
        """It shows name, durability and limits; the address shows no secret."""
        store = self.make_store(self.clock)

        capabilities = store.capabilities
        assert capabilities.name
        assert capabilities.writers_max >= 1
        assert isinstance(capabilities.durability, Durability)
        assert Facet.CLAIMS in capabilities.facets
        assert isinstance(capabilities.audit_trail, AuditTrail)
        assert "password" not in store.address

    def test_examination_of_a_sound_ledger_finds_nothing_wrong(self) -> None:
        """Every finding on a fresh ledger is good and says what was looked at."""
        store = self.make_store(self.clock)
        self.reserve(self.open(store))

        findings = store.examine()

        assert findings
        for finding in findings:
            assert finding.ok, finding
            assert finding.what, finding
            assert finding.value, finding

    def test_examination_changes_nothing(self) -> None:
        """Whatever is rehearsed is undone: no entry, no record, no name is left."""
        store = self.make_store(self.clock)
        session = self.open(store)
        self.settle(session, self.reserve(session, "done"))
        self.reserve(session, "running")
        with unchanged(self, session):
            store.examine()
