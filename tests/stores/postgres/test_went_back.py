"""I23: a PostgreSQL ledger that goes back in time under a living process."""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from oncegate import Gate, Once
from oncegate.errors import ClaimLost, StoreError
from oncegate.gate.admission import Verdict
from oncegate.maintenance.reconciler import Reconciler
from oncegate.model.states import State
from oncegate.store import EntryFilter, Session
from oncegate.store.incarnations import WENT_BACK
from oncegate.stores.postgres import PostgresStore
from oncegate.testing.postgres import PostgresServer
from tests.stores.postgres.test_standby import Pair

pytestmark = pytest.mark.slow

EVENTS = 6


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A primary with an asynchronous standby."""
    with contextlib.ExitStack() as stack:
        primary = stack.enter_context(PostgresServer())
        standby = PostgresServer()
        stack.callback(standby.remove)
        yield Pair(primary, standby)


class Post:
    """Two handlers: one that nobody can ask, one whose downstream honours the key; both count calls."""

    def __init__(self, gate: Gate) -> None:
        self.calls: list[str] = []
        self.gate = gate
        bank = gate.downstream("bank", honours_key="1d")

        @gate.handler("mail", key="{id}")
        def send(event: dict[str, str]) -> str:
            self.calls.append(f"mail {event['id']}")
            return "sent"

        @gate.handler("charge", key="{id}")
        def charge(event: dict[str, str], once: Once) -> str:
            return once.effect(bank, self._charge, event["id"])

    def _charge(self, number: str, *, idempotency_key: str) -> str:
        self.calls.append(f"charge {number} {idempotency_key}")
        return f"charged {number}"

    def admit(self, surface: str, number: int, **options: Any) -> Any:
        """Admits an event; the failover may be met once by each connection."""
        return _admit(self.gate, surface, f"N-{number}", **options)


def lose_commits(pair: Pair, post: Post) -> None:
    """The standby is away while the last events are settled, and takes over without them."""
    for number in range(EVENTS):
        post.admit("mail", number)
    pair.wait_until_replayed()
    pair.standby.stop()
    for number in range(EVENTS, 2 * EVENTS):
        post.admit("mail", number)
        post.admit("charge", number)
    pair.primary.stop(signal.SIGQUIT)
    pair.standby.start()
    pair.fail_over()


def incidents(session: Session) -> list[dict[str, Any]]:
    return [json.loads(document.body) for document in session.documents(WENT_BACK)]


def test_events_that_an_asynchronous_failover_lost_are_not_answered_from_memory_and_not_run_again(
    pair: Pair,
) -> None:
    with Gate(store=PostgresStore(pair.either)) as gate:
        post = Post(gate)
        lose_commits(pair, post)
        made = list(post.calls)

        new = post.admit("mail", 99)
        lost = [post.admit("mail", number).verdict for number in range(EVENTS, 2 * EVENTS)]
        kept = [post.admit("mail", number).verdict for number in range(EVENTS)]

        assert new.verdict is Verdict.RUN
        assert set(lost) == {Verdict.HOLD}
        assert set(kept) == {Verdict.REPLAY}
        assert post.calls == [*made, "mail N-99"]
        # What the downstream can recognise is recovered: called again under the same key
        report = Reconciler(gate, at_once=True).run_once()
        charged = [call for call in post.calls if call.startswith("charge")]
        assert report is not None
        assert len(set(charged)) == EVENTS
        assert post.admit("charge", EVENTS).verdict is Verdict.REPLAY
        with gate.engine.store.look() as session:
            (incident,) = incidents(session)
    assert {one["state"] for one in incident["held"]} == {"committed"}
    assert (len(incident["held"]), len(incident["recovering"])) == (EVENTS, EVENTS)
    assert incident["before"][0] != incident["after"][0]


def test_worker_of_the_lost_timeline_does_not_settle_the_event_that_has_its_number_now(pair: Pair) -> None:
    """The promoted server gives the same numbers out again, and the tenant is another one there."""
    with Gate(store=PostgresStore(pair.either)) as gate, Gate(store=PostgresStore(pair.either)) as other:
        post = Post(gate)
        other.handler("mail", key="{id}")(lambda event: "another's")
        post.admit("mail", 1)
        pair.wait_until_replayed()
        pair.standby.stop()

        def stall(event: dict[str, str]) -> str:
            pair.primary.stop(signal.SIGQUIT)
            pair.standby.start()
            pair.fail_over()
            for number in range(200, 260):
                _admit(other, "mail", f"N-{number}", tenant="another")
            return "mine"

        gate.handler("stalls", key="{id}")(stall)
        with pytest.raises((ClaimLost, StoreError)):
            gate.admit_sync("stalls", {"id": "S-1"})
        again = _admit(gate, "stalls", "S-1")
        values = {
            other.admit_sync("mail", {"id": f"N-{n}"}, tenant="another").value for n in range(200, 260)
        }
        with gate.engine.store.look() as session:
            tenants = {entry.tenant for entry in _entries(session, State.COMMITTED)}

    assert again.verdict is Verdict.HOLD
    assert values == {"another's"}
    assert tenants == {"", "another"}


def _admit(gate: Gate, surface: str, number: str, **options: Any) -> Any:
    refused: StoreError | None = None
    for _ in range(20):
        try:
            return gate.admit_sync(surface, {"id": number}, **options)
        except StoreError as error:
            refused = error
    raise AssertionError("the ledger was not found again") from refused


def _entries(session: Session, state: State) -> list[Any]:
    return session.entries(EntryFilter(states=(state,)), None, 500)


def test_dump_that_is_restored_under_a_running_worker_is_noticed(ledger_url: str) -> None:
    """The tables are other ones, in the same database of the same server."""
    store = PostgresStore(ledger_url)
    with Gate(store=store) as gate:
        post = Post(gate)
        post.admit("mail", 1)
        with psycopg.connect(ledger_url, autocommit=True) as connection:
            connection.execute("CREATE TABLE kept AS SELECT * FROM oncegate_entry")
        post.admit("mail", 2)
        with psycopg.connect(ledger_url, autocommit=True) as connection:
            connection.execute("DELETE FROM oncegate_entry WHERE id NOT IN (SELECT id FROM kept)")
            connection.execute("DROP TABLE kept")
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )

        verdicts = [post.admit("mail", number).verdict for number in (3, 2, 1)]

    assert verdicts == [Verdict.RUN, Verdict.HOLD, Verdict.REPLAY]
    assert post.calls == ["mail N-1", "mail N-2", "mail N-3"]


def test_switchover_that_loses_nothing_is_no_incident(pair: Pair) -> None:
    """Another timeline with everything in it: what is remembered is there, and nothing waits."""
    with Gate(store=PostgresStore(pair.either)) as gate:
        post = Post(gate)
        post.admit("mail", 1)
        pair.wait_until_replayed()
        pair.fail_over()

        assert post.admit("mail", 2).verdict is Verdict.RUN
        assert post.admit("mail", 1).verdict is Verdict.REPLAY
        with gate.engine.store.look() as session:
            assert incidents(session) == []
        assert gate.engine.store.incarnations.generation == 1
