"""Alarms by e-mail and by a command, the dead man's ping, and limits that operators set."""

from __future__ import annotations

import json
import socketserver
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from oncegate import Gate
from oncegate.errors import ConfigError, StoreError
from oncegate.maintenance.schedule import PeriodicJob
from oncegate.service.alarming import alarm_options, thresholds_of
from oncegate.service.config_loader import read_configuration
from oncegate.signals.alarms import AlarmChange, AlarmNotice
from oncegate.signals.alerts import Signal
from oncegate.signals.commands import CommandNotifier
from oncegate.signals.definition import Level
from oncegate.signals.definitions import DOUBLED, QUARANTINES, Thresholds
from oncegate.signals.limits import decided_limits, set_limit
from oncegate.signals.mail import MailNotifier, MailServer, Tls
from oncegate.signals.measures import measure
from oncegate.signals.watch import Watch
from oncegate.store import LogKind, Store
from oncegate.testing import ManualClock
from oncegate.testing.faults import Fault, Faults, faulty
from oncegate.wiring import declared_thresholds
from tests.support.serving import running_server

NOTICE = AlarmNotice(AlarmChange.RAISED, Signal(DOUBLED, "orders", 2, Level.PAGE, 1, "entry 4"), Level.PAGE)


class _Smtp(socketserver.StreamRequestHandler):
    """As much of a mail server as a message needs."""

    def handle(self) -> None:
        self.wfile.write(b"220 here\r\n")
        while line := self.rfile.readline():
            word = line.split()[0].upper()
            if word == b"DATA":
                self.wfile.write(b"354 go on\r\n")
                lines = []
                while (text := self.rfile.readline()) != b".\r\n":
                    lines.append(text)
                self.server.messages.append(b"".join(lines).decode())  # type: ignore[attr-defined]
            self.wfile.write(b"221 bye\r\n" if word == b"QUIT" else b"250 ok\r\n")
            if word == b"QUIT":
                return


@contextmanager
def mail_server() -> Iterator[tuple[int, list[str]]]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Smtp) as server:
        server.messages = []  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1], server.messages  # type: ignore[attr-defined]
        server.shutdown()


def test_an_alarm_is_an_email() -> None:
    """One message a notice, with what it means and what to do."""
    with mail_server() as (port, messages):
        server = MailServer("127.0.0.1", port, Tls.NONE)
        MailNotifier(server, "gate@example.com", ["ops@example.com", "lead@example.com"]).notify(NOTICE)
    (message,) = messages
    assert "Subject: [oncegate page] doubled on orders: raised" in message
    assert "To: ops@example.com, lead@example.com" in message
    assert "oncegate duplicates list" in message
    assert "Changes that ran twice: 2 (limit 1)" in message


def test_a_mail_server_that_is_away_fails_the_notice_and_shows_no_password() -> None:
    with pytest.raises(ConfigError, match="without TLS"):
        MailServer("127.0.0.1", 25, Tls.NONE, "user", "canary")
    server = MailServer("127.0.0.1", 1, Tls.IMPLICIT, "user", "canary")
    assert "canary" not in repr(server)
    with pytest.raises(ConnectionRefusedError):
        MailNotifier(server, "gate@example.com", ["ops@example.com"]).notify(NOTICE)


def test_an_alarm_runs_a_command_with_the_notice_on_its_input(tmp_path: Path) -> None:
    """Without a shell: what looks like one's syntax is an argument."""
    target = tmp_path / "told; rm -rf nothing"
    script = "import sys; open(sys.argv[1], 'wb').write(sys.stdin.buffer.read())"
    CommandNotifier([sys.executable, "-c", script, str(target)]).notify(NOTICE)
    assert json.loads(target.read_bytes())["signal"] == "doubled"


@pytest.mark.parametrize(
    ("script", "told"),
    [("import sys; sys.exit(3)", "ended with 3"), ("import time; time.sleep(60)", "took over 0.5 s")],
)
def test_a_command_that_fails_or_hangs_is_told(script: str, told: str) -> None:
    with pytest.raises(ConnectionError, match=told):
        CommandNotifier([sys.executable, "-c", script], timeout_seconds=0.5).notify(NOTICE)


def test_a_command_that_is_not_there_is_told() -> None:
    with pytest.raises(ConnectionError, match="could not be started"):
        CommandNotifier(["/no/such/program"]).notify(NOTICE)
    with pytest.raises(ConfigError, match="a list"):
        CommandNotifier("page me")


class Failing:
    """A notifier that cannot tell anybody."""

    def notify(self, notice: AlarmNotice) -> None:
        raise ConnectionError("down")


def quarantine_one(store: Store, clock: ManualClock) -> None:
    with Gate(store=store, clock=clock) as gate:
        gate.handler("orders", key="{id}")(lambda event: None)
        gate.admit_sync("orders", {"no": "id"})


def test_the_ping_comes_at_every_look_that_went_well_and_at_no_other(
    store: Store, clock: ManualClock
) -> None:
    """Silent where the ledger is away, and where an alarm could not be delivered."""
    pings: list[int] = []
    faults = Faults()
    watch = Watch(faulty(store, faults), clock, notifiers=(), ping=lambda: pings.append(1))
    watch.run_once()
    assert len(pings) == 1
    faults.plan.extend([Fault.DOWN] * 20)
    with pytest.raises(StoreError):
        watch.run_once()
    assert len(pings) == 1
    quarantine_one(store, clock)
    Watch(store, clock, notifiers=[Failing()], ping=lambda: pings.append(1)).run_once()
    assert len(pings) == 1


def test_a_ping_that_fails_fails_no_look(store: Store, clock: ManualClock) -> None:
    def ping() -> None:
        raise ConnectionError("secret address")

    assert Watch(store, clock, notifiers=(), ping=ping).run_once() is not None


def test_the_ping_is_a_real_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    monkeypatch.setenv("ONCEGATE_ALLOW_LOOPBACK", "1")
    with (
        running_server(HTTPServer(("127.0.0.1", 0), Handler)) as port,
        Gate(f"sqlite:///{tmp_path / 'ledger.db'}") as gate,
    ):
        worker = gate.worker(notifiers=[], ping=f"http://127.0.0.1:{port}/alive")
        (watch,) = [job for job in worker.jobs if isinstance(job, PeriodicJob) and job.name == "watch"]
        assert watch.run_once is not None
        watch.run_once(lambda: True)
    assert asked == ["/alive"]


def test_limits_of_a_surface_are_seen_by_those_who_look_from_elsewhere(
    store: Store, clock: ManualClock
) -> None:
    """The watch puts up by which limits it goes."""
    with Gate(store=store, clock=clock) as gate:
        gate.handler("orders", key="{id}", limits={"quarantines": (1, 10)})(lambda event: None)
        thresholds = declared_thresholds(gate, Thresholds({"overdue": (None, 60)}))
    Watch(store, clock, thresholds=thresholds, notifiers=()).run_once()
    with store.look() as session:
        seen = measure(session, clock).thresholds
    assert seen.of(QUARANTINES, "orders") == (1, 10)
    assert seen.of(QUARANTINES, "refunds") == (None, 1)
    assert seen.limits == {"overdue": (None, 60)}


def test_an_operator_sets_and_takes_back_a_limit_in_the_journal(store: Store, clock: ManualClock) -> None:
    session = store.connect()
    try:
        for limit in ((2, 20), None):
            with session.unit():
                set_limit(
                    session, "quarantines", "orders", limit, at_ms=5, actor="ann", reason="a known storm"
                )
            with session.unit():
                found = decided_limits(session)
            assert found.places == ({"orders": {"quarantines": (2, 20)}} if limit else {})
        with pytest.raises(ConfigError), session.unit():
            set_limit(session, "quarantine", "", (1, 2), at_ms=5, actor="ann", reason="mistyped")
    finally:
        session.close()
    with store.look() as reader:
        notes = [one for one in reader.read_log(0, 10) if one.kind is LogKind.DOCUMENT_CHANGED]
    assert [note.actor for note in notes] == ["ann", "ann"]
    assert "ticket 2, page 20; a known storm" in (notes[0].note or "")


SETTINGS = """
[alarms]
webhook = "$HOOK"
email_to = ["ops@example.com"]
email_from = "gate@example.com"
smtp = "mail.example.com:587"
smtp_user = "gate"
smtp_password = "$PASSWORD"
command = ["/usr/local/bin/page-me", "--urgent"]
ping = "https://ping.example.com/abc"

[alarms.limits]
quarantines = { ticket = 1, page = 5 }

[surfaces.hooks]
key = "{id}"
signature = "bearer"
secrets = ["$SECRET"]
tenant = "acme"
limits = { quarantines = { page = 50 } }
"""


def test_settings_name_everybody_who_is_told(tmp_path: Path) -> None:
    path = tmp_path / "oncegate.toml"
    path.write_text(SETTINGS)
    environment = {"HOOK": "https://alerts.example.com/x", "PASSWORD": "canary"}
    settings = read_configuration(path, environment).settings
    options = alarm_options(settings, environment)
    kinds = [type(one).__name__ for one in options["notifiers"]]
    assert kinds == ["LogNotifier", "WebhookNotifier", "MailNotifier", "CommandNotifier"]
    assert options["ping"] == "https://ping.example.com/abc"
    for limits in (thresholds_of(settings), options["thresholds"]):  # the rules', and the watch's
        assert limits.of(QUARANTINES, "hooks") == (None, 50)
        assert limits.of(QUARANTINES, "other") == (1, 5)
    with pytest.raises(ConfigError, match="the environment has no PASSWORD"):
        alarm_options(settings, {"HOOK": "https://alerts.example.com/x"})
