"""Month partitions on a real server: made ahead, late, beside others; dropped when empty; never needed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import psycopg
import pytest

from oncegate.model.states import State
from oncegate.store import Forgetting, Reservation, Session, Settlement
from oncegate.stores.postgres import PostgresStore, partitions
from oncegate.testing import ManualClock
from oncegate.testing.postgres import GivenServer

JUNE = datetime(2026, 6, 15, 12, tzinfo=UTC)
DAY = 86_400


def milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(milliseconds(JUNE))


@pytest.fixture
def store(postgres, clock: ManualClock) -> PostgresStore:
    return PostgresStore(postgres.new_database(), clock=clock)


@pytest.fixture
def session(store: PostgresStore) -> Iterator[Session]:
    opened = store.connect()
    yield opened
    opened.close()


def rows(store: PostgresStore, sql: str) -> list[tuple]:
    with psycopg.connect(store._url, autocommit=True) as connection:
        cursor = connection.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []


def months(store: PostgresStore, table: str = "oncegate_payload") -> list[str]:
    found = rows(
        store, f"SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = '{table}'::regclass"
    )
    return sorted(name.rpartition("_")[2] for (name,) in found)


def arrive(session: Session, clock: ManualClock, text: str, *, settles: bool = True) -> int:
    wanted = Reservation(
        key=text.encode().ljust(24, b"."), tenant="", surface="orders", label=text, fingerprint=b"f",
        body=b"{}", received_at_ms=clock.wall_ms(), lease_ms=1000, attempts_max=8, token=1,
    )  # fmt: skip
    with session.unit():
        (claim,) = session.reserve([wanted])
    if settles:
        end = Settlement(*claim.claim, State.COMMITTED, clock.wall_ms(), "test", outcome=b"1")
        with session.unit():
            assert session.settle([end]) == [True]
    return claim.entry_id


def forget(session: Session, clock: ManualClock, *entries: int) -> int:
    now = clock.wall_ms()
    with session.unit():
        return session.forget(Forgetting("orders", now, entries, now, "test"))


def test_opening_makes_this_month_and_two_ahead(store, session, clock):
    """And a second time finds nothing to do."""
    assert months(store) == ["202606", "202607", "202608", "other"]
    assert months(store, "oncegate_outcome") == ["202606", "202607", "202608", "other"]
    assert store.make_room(clock.wall_ms()) == []


def test_year_end_is_crossed(store, session):
    """November makes December and January."""
    made = store.make_room(milliseconds(datetime(2026, 11, 30, 23, 59, 59, tzinfo=UTC)))
    assert "made oncegate_payload_202701" in made


def test_bodies_lie_in_their_month(store, session, clock):
    """The default partition stays empty as long as the months are there."""
    arrive(session, clock, "event")
    assert rows(store, "SELECT count(*) FROM oncegate_payload_202606") == [(1,)]
    assert rows(store, "SELECT count(*) FROM oncegate_outcome_202606") == [(1,)]


def test_late_partition_takes_over_what_went_to_the_default_one(store, session, clock):
    """Nobody looked after the ledger for half a year: everything still works, and is put right later."""
    clock.advance(180 * DAY)
    early, waiting = arrive(session, clock, "early"), arrive(session, clock, "waiting", settles=False)
    assert rows(store, "SELECT count(*) FROM oncegate_payload_other") == [(2,)]

    store.make_room(clock.wall_ms())

    assert rows(store, "SELECT count(*) FROM oncegate_payload_other") == [(0,)]
    assert rows(store, "SELECT count(*) FROM oncegate_payload_202612") == [(2,)]
    with store.look() as reader:
        assert reader.detail(early).outcome == b"1"
        assert reader.detail(waiting).body == b"{}"


def test_many_rows_in_the_default_partition_are_left_there(store, session, clock, monkeypatch):
    """Moving them would make writers wait; the months ahead are made all the same."""
    clock.advance(180 * DAY)
    arrive(session, clock, "one")
    arrive(session, clock, "two")
    monkeypatch.setattr(partitions, "MOVED_MAX", 1)

    made = store.make_room(clock.wall_ms())

    assert "made oncegate_payload_202701" in made
    assert "made oncegate_payload_202612" not in made
    assert forget(session, clock, 1, 2) == 0  # received in this very millisecond
    clock.advance(1)
    assert forget(session, clock, 1, 2) == 2
    assert rows(store, "SELECT count(*) FROM oncegate_payload") == [(0,)]


def test_month_is_dropped_once_nothing_in_it_is_known(store, session, clock):
    """Only then: one entry that waits keeps its month, and is still complete."""
    done, waiting = arrive(session, clock, "done"), arrive(session, clock, "waiting", settles=False)
    clock.advance(120 * DAY)
    assert forget(session, clock, done, waiting) == 1
    assert "dropped oncegate_outcome_202606" in store.make_room(clock.wall_ms())
    assert "202606" in months(store)
    with store.look() as reader:
        assert reader.detail(waiting).body == b"{}"

    rows(store, f"UPDATE oncegate_entry SET state = 2 WHERE id = {waiting}")
    assert forget(session, clock, waiting) == 1

    assert "dropped oncegate_payload_202606" in store.make_room(clock.wall_ms())
    assert "202606" not in months(store)


def test_month_that_has_just_ended_is_not_dropped(store, session, clock):
    """A clock that is a little behind may still write to it."""
    end = datetime(2026, 7, 1, tzinfo=UTC)
    assert store.make_room(milliseconds(end)) == [
        "made oncegate_payload_202609",
        "made oncegate_outcome_202609",
    ]
    assert "dropped oncegate_payload_202606" in store.make_room(milliseconds(end) + DAY * 1000)


def test_key_is_known_across_the_end_of_its_month(store, session, clock):
    """A replay on 1 July of an event of 30 June is a replay."""
    clock.step_wall((datetime(2026, 6, 30, 23, 59, 59, tzinfo=UTC) - JUNE).total_seconds())
    first = arrive(session, clock, "event")
    clock.advance(2)
    again = Reservation(
        key=b"event".ljust(24, b"."), tenant="", surface="orders", label="event", fingerprint=b"f",
        body=b"{}", received_at_ms=clock.wall_ms(), lease_ms=1000, attempts_max=8, token=2,
    )  # fmt: skip
    with session.unit():
        (answer,) = session.reserve([again])
    assert (answer.entry_id, answer.outcome) == (first, b"1")


def test_writers_in_the_way_only_put_it_off(store, session, clock):
    """A long transaction of somebody else: no partition is made, nothing fails, the next time it is."""
    with psycopg.connect(store._url) as busy:
        busy.execute("LOCK TABLE oncegate_payload IN ROW EXCLUSIVE MODE")
        assert "made oncegate_payload_202612" not in store.make_room(clock.wall_ms() + 180 * DAY * 1000)
        arrive(session, clock, "meanwhile")
    assert "made oncegate_payload_202612" in store.make_room(clock.wall_ms() + 180 * DAY * 1000)


def test_user_without_the_right_to_create_can_still_work(store, session, clock, postgres):
    """Partitions belong to whoever owns the schema; a plain user's rows go to the default one."""
    if isinstance(postgres, GivenServer):
        pytest.skip("roles are made on a server of our own only")
    rows(store, "DROP ROLE IF EXISTS plain_gate")
    rows(store, "CREATE ROLE plain_gate LOGIN")
    rows(store, "GRANT ALL ON ALL TABLES IN SCHEMA public TO plain_gate")
    rows(store, "GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO plain_gate")
    plain = PostgresStore(store._url.replace("oncegate@", "plain_gate@"), clock=clock)
    clock.advance(180 * DAY)

    theirs = plain.connect()
    arrive(theirs, clock, "event")
    theirs.close()

    assert rows(store, "SELECT count(*) FROM oncegate_payload_other") == [(1,)]
    assert plain.make_room(clock.wall_ms()) == []
    rows(store, "DROP OWNED BY plain_gate")
    rows(store, "DROP ROLE plain_gate")


def test_two_pruners_do_not_wait_for_each_other(store, session, clock):
    """What one is about to forget the other leaves alone, at once."""
    entries = [arrive(session, clock, f"e{number}") for number in range(3)]
    clock.advance(DAY)
    now = clock.wall_ms()
    other = store.connect()
    with session.unit():
        assert session.forget(Forgetting("orders", now, tuple(entries[:2]), now, "test")) == 2
        assert forget(other, clock, *reversed(entries)) == 1
    other.close()
    with store.look() as reader:
        assert reader.counts() == {}
