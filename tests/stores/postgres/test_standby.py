"""A standby takes over: after synchronous replication nothing is lost, else the doctor has said so."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from urllib.parse import quote

import psycopg
import pytest

from oncegate.stores.postgres import PostgresStore
from oncegate.testing.postgres import PostgresServer
from oncegate.testing.waiting import wait_until
from tests.support.postgres_site import SURFACE, PostgresSite, during, events_of

pytestmark = pytest.mark.soak
COUNT, LATE = 200, 5


class Pair:
    """A primary, its standby, and an address that leads to whichever takes writes."""

    def __init__(self, primary: PostgresServer, standby: PostgresServer) -> None:
        self.primary = primary
        self.standby = standby
        self.direct = primary.new_database()
        self.database = self.direct.partition("@/")[2].partition("?")[0]
        folders = ",".join(quote(str(server.folder), safe="") for server in (primary, standby))
        self.either = (
            f"postgresql://oncegate@/{self.database}?host={folders}&target_session_attrs=read-write"
        )
        self._copy()

    def _copy(self) -> None:
        from oncegate.testing.postgres import _give_away

        _give_away(self.standby.folder)
        source = f"host={self.primary.folder} user=oncegate application_name=second"
        self.standby._run("pg_basebackup", "-D", self.standby.data, "-d", source, "-R", "-c", "fast")
        self.standby.start()
        wait_until(lambda: self.is_connected, what="the standby")

    @property
    def is_connected(self) -> bool:
        with psycopg.connect(self.direct, autocommit=True) as connection:
            found = connection.execute("SELECT state FROM pg_stat_replication").fetchall()
        return found == [("streaming",)]

    def booked_at_standby(self) -> int:
        with psycopg.connect(self.standby.url(self.database), autocommit=True) as connection:
            ((count,),) = connection.execute("SELECT count(*) FROM booking").fetchall()
        return int(count)

    def make_synchronous(self) -> None:
        with psycopg.connect(self.direct, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'second'")
            connection.execute("SELECT pg_reload_conf()")
            asked = "SELECT sync_state FROM pg_stat_replication"
            wait_until(
                lambda: connection.execute(asked).fetchall() == [("sync",)], what="synchronous commits"
            )

    def wait_until_replayed(self) -> None:
        """Waits until the standby has everything."""
        asked = "SELECT replay_lsn >= pg_current_wal_lsn() FROM pg_stat_replication"
        with psycopg.connect(self.direct, autocommit=True) as connection:
            wait_until(lambda: connection.execute(asked).fetchall() == [(True,)], what="the standby")

    def fail_over(self) -> None:
        """The primary dies for good; the standby takes over."""
        self.primary.stop(signal.SIGQUIT)
        with psycopg.connect(self.standby.url(), autocommit=True) as connection:
            connection.execute("SELECT pg_promote()")


@pytest.fixture
def pair() -> Iterator[Pair]:
    with contextlib.ExitStack() as stack:
        primary = stack.enter_context(PostgresServer())
        standby = PostgresServer()
        stack.callback(standby.remove)
        yield Pair(primary, standby)


def test_synchronous_standby_that_takes_over_has_everything(pair: Pair) -> None:
    """The primary dies under load; the same gate goes on at the standby, and no answer was wrong."""
    pair.make_synchronous()
    site = PostgresSite(pair.direct, pair.either)
    (finding,) = [f for f in PostgresStore(pair.direct).examine() if f.what == "replication"]
    assert finding.ok
    gate, events = site.gate(), events_of(COUNT)

    answered = during(
        lambda: site.deliver(gate, events), pair.fail_over, lambda: site.terminal.total >= COUNT // 3
    )

    # Then what was answered is there, before anything is delivered again
    site.direct = pair.standby.url(pair.database)
    booked = {ref for (ref,) in site.rows("SELECT ref FROM booking")}
    assert answered
    assert answered <= booked
    site.recover(gate, events, set())
    site.check(events)
    site.close()


def test_asynchronous_standby_may_lack_the_last_commits_and_the_doctor_says_so(pair: Pair) -> None:
    """What the standby never got is run again when it is delivered again, under the same keys."""
    site = PostgresSite(pair.direct, pair.either)
    # Given a standby that is not waited for: the examination says what that may cost
    (finding,) = [f for f in PostgresStore(pair.direct).examine() if f.what == "replication"]
    assert not finding.ok
    assert "may lack the last commits" in finding.next_step
    # When it is away while the last events are answered, and takes over
    gate, events = site.gate(), events_of(COUNT)
    site.deliver(gate, events[:-LATE])
    wait_until(lambda: pair.booked_at_standby() == COUNT - LATE, what="what was committed before")
    pair.standby.stop()
    answered = site.deliver(gate, events[-LATE:])
    pair.primary.stop(signal.SIGQUIT)
    pair.standby.start()
    pair.fail_over()
    # Then those answers are lost, and delivering them again has no second effect where keys are honoured
    site.direct = pair.standby.url(pair.database)
    assert len(answered) == LATE
    assert site.rows("SELECT count(*) FROM booking") == [(COUNT - LATE,)]
    assert gate.admit_sync(SURFACE, events[0]).verdict.value == "replay"
    site.recover(gate, events, set())
    site.check(events)
    site.close()


def test_doctor_says_which_standby_is_waited_for_and_writes_on_none(pair: Pair) -> None:
    """A name that fits no standby leaves it asynchronous; on the standby itself nothing is tried."""
    PostgresStore(pair.direct).connect().close()
    with psycopg.connect(pair.direct, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = local")
        connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'another'")
        connection.execute("SELECT pg_reload_conf()")
        asked = "SELECT current_setting('synchronous_standby_names')"
        wait_until(lambda: connection.execute(asked).fetchall() == [("another",)], what="the setting")
    findings = {finding.what: finding for finding in PostgresStore(pair.direct).examine()}
    assert not findings["replication"].ok
    assert "0 of 1 standby connected" in findings["replication"].value
    assert findings["writing"].ok

    standby = PostgresStore(pair.standby.url(pair.database))
    findings = {finding.what: finding for finding in standby.examine()}
    assert "standby itself" in findings["replication"].value
    assert "not tried: this server is a standby" in findings["writing"].value
    with standby.look() as session:
        assert session.counts() == {}
