"""The watch: measures, tells each change once, keeps counters few; on both ledgers."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from oncegate.errors import BadEndpoint
from oncegate.maintenance.schedule import PeriodicJob
from oncegate.model.states import State
from oncegate.signals.alarms import AlarmChange, AlarmNotice
from oncegate.signals.definition import Level
from oncegate.signals.definitions import Thresholds
from oncegate.signals.notifiers import WebhookNotifier
from oncegate.signals.watch import HOURS_KEPT, MINUTES_KEPT, Watch
from oncegate.store import Observations, Reservation, Settlement, Store, Tally, What
from oncegate.testing import ManualClock
from oncegate.wiring import Gate, open_store
from tests.support.serving import running_server

DAY_MINUTES = 1440


class Told:
    """A notifier that remembers."""

    def __init__(self) -> None:
        self.notices: list[AlarmNotice] = []

    def notify(self, notice: AlarmNotice) -> None:
        self.notices.append(notice)

    @property
    def changes(self) -> list[tuple[str, AlarmChange]]:
        return [(one.signal.definition.name, one.change) for one in self.notices]


def observe(store: Store, clock: ManualClock, *tallies: tuple[int, What, int]) -> None:
    """Counts so many minutes ago."""
    session = store.connect()
    now = clock.wall_ms() // 60_000
    with session.unit():
        session.observe([Observations(tuple(Tally("orders", now - ago, *rest) for ago, *rest in tallies))])
    session.close()


def strand(store: Store, clock: ManualClock) -> None:
    session = store.connect()
    with session.unit():
        session.reserve(
            [Reservation(b"k" * 24, "", "orders", "one", b"f" * 16, b"{}", clock.wall_ms(), 1000, 8, 1)]
        )
    session.close()


# By a clock moved by hand the server's own is always far away.
# Nor does a worker run here.
NO_OFFSET: Any = {"clock_offset": (None, None), "worker_absent": (None, None)}


def watching(store: Store, clock: ManualClock, notifiers: Any = (), **limits: Any) -> Watch:
    return Watch(store, clock, thresholds=Thresholds({**NO_OFFSET, **limits}), notifiers=notifiers)


def of_pages(report: Any) -> set[str]:
    return {one.definition.name for one in report.signals if one.level is Level.PAGE}


def test_a_stranded_entry_pages_after_ten_minutes(store: Store, clock: ManualClock) -> None:
    told = Told()
    watch = watching(store, clock, [told])
    strand(store, clock)
    assert of_pages(watch.run_once()) == set()
    clock.advance(600)
    assert of_pages(watch.run_once()) == {"in_flight_age"}
    clock.advance(60)
    watch.run_once()
    assert told.changes == [("in_flight_age", AlarmChange.RAISED)]


@pytest.mark.slow
def test_a_storm_is_told_once_and_calms_once(store: Store, clock: ManualClock) -> None:
    told = Told()
    watch = watching(store, clock, [told])
    observe(store, clock, (0, What.FRESH, 10), (0, What.REPLAY, 10))
    for _ in range(45):
        watch.run_once()
        clock.advance(120)
    assert told.changes == [
        ("repeat_ratio_high", AlarmChange.RAISED),
        ("repeat_ratio_high", AlarmChange.CALMED),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("step", [-365 * 86_400, -7200, 7200, 365 * 86_400])
def test_a_wall_clock_that_steps_calls_nobody(store: Store, clock: ManualClock, step: int) -> None:
    """Neither in the minute of the step nor later; also where somebody has work to decide."""
    told = Told()
    watch = watching(store, clock, [told])
    session = store.connect()
    reservation = Reservation(b"k" * 24, "", "orders", "one", b"f" * 16, b"{}", clock.wall_ms(), 1000, 8, 1)
    with session.unit():
        (claim,) = session.reserve([reservation])
    at_ms = clock.wall_ms()
    held = Settlement(*claim.claim, State.HELD, at_ms, "suite", reason="who knows")
    with session.unit():
        session.settle([held])
    session.close()
    observe(store, clock, (0, What.FRESH, 500), (0, What.REPLAY, 5))
    watch.run_once()
    clock.step_wall(step)
    for _ in range(10):
        clock.advance(60)
        watch.run_once()
    assert told.changes == [("waiting_for_person", AlarmChange.RAISED)]


def test_a_clock_that_leaps_ahead_does_not_hide_a_storm(store: Store, clock: ManualClock) -> None:
    """The ledger knows what time it was, and a leap has to last before it is believed."""
    watch = watching(store, clock)
    observe(store, clock, (0, What.FRESH, 10), (0, What.REPLAY, 10))
    assert of_pages(watch.run_once()) == {"repeat_ratio_high"}
    clock.step_wall(365 * 86_400)
    report = watch.run_once()
    assert report.clock_is_doubted
    assert of_pages(report) == {"repeat_ratio_high"}


def test_old_counters_are_folded_and_the_oldest_forgotten(store: Store, clock: ManualClock) -> None:
    fold, forget = MINUTES_KEPT.days * DAY_MINUTES, HOURS_KEPT.days * DAY_MINUTES
    observe(store, clock, *((ago, What.FRESH, 1) for ago in (0, fold + 61, fold + 62, forget + 120)))
    report = watching(store, clock).run_once()
    with store.look() as session:
        left = session.tallies(0, 2**40, "orders")
    assert report.trimmed >= 3
    assert sum(tally.count for tally in left) == 3
    assert all(tally.minute % 60 == 0 for tally in left[:-1])


def test_a_notifier_that_fails_keeps_nobody_from_being_told(
    store: Store, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A webhook that answers with an error is such a one."""
    told, sent = Told(), []

    def post(url: str, body: bytes, headers: Any) -> int:
        sent.append((url, body))
        return 503

    strand(store, clock)
    clock.advance(601)
    with caplog.at_level(logging.ERROR, "oncegate.signals"):
        watching(store, clock, [WebhookNotifier("https://example.test/x", post), told]).run_once()
    assert told.changes == [("in_flight_age", AlarmChange.RAISED)]
    assert b'"signal":"in_flight_age"' in sent[0][1]
    assert "no notifier took the alarm in_flight_age" in caplog.text


def test_what_a_notifier_failed_at_is_told_once_it_works_again(store: Store, clock: ManualClock) -> None:
    """A page that went out while the webhook was down is no page."""
    answers, sent = [503, 503, 204, 204, 204], []

    def post(url: str, body: bytes, headers: Any) -> int:
        sent.append(body)
        return answers.pop(0)

    watch = watching(store, clock, [WebhookNotifier("https://example.test/x", post)])
    strand(store, clock)
    for _ in range(5):
        clock.advance(601)
        watch.run_once()
    assert len(sent) == 3
    assert len(set(sent)) == 1


def test_the_log_has_pages_as_errors(
    clock: ManualClock, tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'ledger.db'}", clock=clock)
    strand(store, clock)
    clock.advance(601)
    with caplog.at_level(logging.INFO, "oncegate.signals"):
        Watch(store, clock).run_once()
    (line,) = caplog.records
    assert line.levelno == logging.ERROR
    assert "raised in_flight_age on orders: 601 (limit 600)" in line.message


def test_limits_are_the_users(store: Store, clock: ManualClock) -> None:
    watch = watching(store, clock, in_flight_age=(None, 30))
    strand(store, clock)
    clock.advance(31)
    assert of_pages(watch.run_once()) == {"in_flight_age"}


def test_alarms_reach_a_webhook_through_the_guarded_client(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One real request; nothing without TLS, and nothing inside, unless the environment allows it."""
    with _receiver() as (port, received), Gate(f"sqlite:///{tmp_path / 'ledger.db'}") as gate:
        url = f"http://127.0.0.1:{port}/alarms?token=canary"
        with pytest.raises(BadEndpoint) as refused:
            gate.worker(alarms_to=url)
        assert "canary" not in str(refused.value)
        monkeypatch.setenv("ONCEGATE_ALLOW_LOOPBACK", "1")
        strand(gate.engine.store, ManualClock())
        limits = Thresholds({"waiting_for_person": (None, None), "in_flight_age": (None, 0)})
        worker = gate.worker(thresholds=limits, notifiers=[], alarms_to=url)
        (watch,) = [job for job in worker.jobs if isinstance(job, PeriodicJob) and job.name == "watch"]
        assert watch.run_once is not None
        watch.run_once(lambda: True)
    assert ["/alarms?token=canary", "in_flight_age"] in received


@contextmanager
def _receiver() -> Iterator[tuple[int, list[list[str]]]]:
    received: list[list[str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            received.append([self.path, body["signal"]])
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with running_server(HTTPServer(("127.0.0.1", 0), Handler)) as port:
        yield port, received


def test_a_worker_watches_too_unless_told_not_to(tmp_path: Any) -> None:
    with Gate(f"sqlite:///{tmp_path / 'ledger.db'}") as gate:
        assert "watch" in {job.name for job in gate.worker().jobs}
        quiet = gate.worker(without=["watch"])
        assert "watch" not in {job.name for job in quiet.jobs}


def test_a_clock_that_differs_from_the_servers_is_told(ledger_url: str, clock: ManualClock) -> None:
    told = Told()
    Watch(open_store(ledger_url, clock=clock), clock, notifiers=[told]).run_once()
    assert told.changes == [("clock_offset", AlarmChange.RAISED)]
