"""`oncegate operators` and `oncegate page`, and the page below the service's /ui."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from typing import Any

import pytest

from oncegate.cli import page
from oncegate.cli.main import main
from oncegate.dashboard.operators import find_by_token, operators
from oncegate.errors import ConfigError, NotApplied
from oncegate.service.application import Service
from oncegate.service.settings import Settings
from oncegate.store import LogKind, Reservation, StepRecord, StepRecords, StepState
from oncegate.testing.waiting import DEADLINE_SECONDS
from oncegate.wiring import Gate, open_store


@pytest.fixture
def url(tmp_path) -> str:
    url = f"sqlite:///{tmp_path}/oncegate.db"
    open_store(url).migrate()
    return url


def test_an_operator_is_added_listed_and_removed_with_a_record_each(url, capsys):
    assert main(["operators", "add", "ada", "--role", "approver", "--as", "root", "--url", url]) == 0
    token = capsys.readouterr().out.strip()
    assert main(["operators", "list", "--url", url]) == 0
    listed = capsys.readouterr().out

    store = open_store(url)
    with store.look() as session:
        known = find_by_token(session, token)
        assert known is not None
        assert known.operator.name == "ada"
        assert token not in repr(session.documents("operator"))
    assert "ada" in listed
    assert token not in listed

    assert main(["operators", "remove", "ada", "--as", "root", "--url", url]) == 0
    with store.look() as session:
        assert operators(session) == []
        assert find_by_token(session, token) is None
        records = session.read_log(0, 10)
    assert [(record.kind, record.actor) for record in records] == [(LogKind.DOCUMENT_CHANGED, "root")] * 2
    assert token not in repr(records)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["add", "ada", "--role", "king"], "roles are viewer, operator, approver"),
        (["add", "a\nb", "--role", "viewer"], "name"),
        (["remove", "nobody"], "no operator is called"),
    ],
)
def test_mistakes_are_said_on_one_line(url, capsys, words, said):
    assert main(["operators", *words, "--url", url]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_the_same_name_twice_is_refused(url, capsys):
    assert main(["operators", "add", "ada", "--role", "viewer", "--url", url]) == 0
    assert main(["operators", "add", "ada", "--role", "approver", "--url", url]) == 2
    assert "already" in capsys.readouterr().err


def test_a_page_that_nobody_could_sign_in_to_is_not_served(url, capsys):
    assert main(["page", "--url", url]) == 2
    assert "oncegate operators add" in capsys.readouterr().err


def test_a_page_without_signing_in_stays_on_this_machine(url, capsys):
    assert main(["page", "--read-only", "--host", "0.0.0.0", "--url", url]) == 2
    assert "this machine only" in capsys.readouterr().err


def test_a_port_that_is_taken_is_said_in_one_line(url, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["page", "--read-only", "--port", port, "--url", url]) == 74
    told = capsys.readouterr().err
    assert "the page is at" not in told
    assert told.startswith("oncegate: the system refused: Address already in use")


def test_a_page_needs_a_ledger(tmp_path, capsys):
    assert main(["page", "--url", f"sqlite:///{tmp_path}/none.db"]) == 3
    assert "there is no ledger" in capsys.readouterr().err
    assert not (tmp_path / "none.db").exists()


def test_the_service_has_the_page_below_ui(url):
    with Gate(url) as gate:
        service = Service(gate, Settings(url=url), None, {})  # type: ignore[arg-type]
        assert ask(service, "/ui") == (307, b"/ui/")
        assert ask(service, "/ui/") == (303, b"/ui/login")
        assert ask(service, "/ui/login") == (200, b"")
        assert ask(service, "/ui/static/page.css") == (200, b"")


def ask(application: Any, path: str) -> tuple[int, bytes]:
    """One GET, straight into the application."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b"",
        "headers": [(b"host", b"x")], "scheme": "http", "server": ("x", 80), "client": ("127.0.0.1", 1),
        "root_path": "", "http_version": "1.1",
    }  # fmt: skip
    asyncio.run(application(scope, receive, send))
    location = dict(sent[0]["headers"]).get(b"location", b"")
    return sent[0]["status"], location


@contextmanager
def paging(*words: str) -> Iterator[str]:
    """A page in a process of its own; its address."""
    start = f"import sys; from oncegate.cli.main import main; sys.exit(main({['page', *words]!r}))"
    process = subprocess.Popen([sys.executable, "-c", start], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        found = re.search(r"http://([^/ ]+)/", line)
        assert found is not None, line
        yield found[1]
    finally:
        process.terminate()
        process.wait(DEADLINE_SECONDS)
        process.stderr.close()


def status_for(address: str, host: str) -> tuple[int, str | None]:
    """What a GET of the first page gets that is addressed to a host, and of which type it is."""
    with closing(HTTPConnection(address, timeout=DEADLINE_SECONDS)) as connection:
        connection.request("GET", "/", headers={"host": host})
        answer = connection.getresponse()
        answer.read()
        return answer.status, answer.getheader("content-type")


@pytest.mark.slow
def test_a_page_on_this_machine_answers_to_its_own_names_and_those_it_was_given(url):
    """Without signing in it would be open to every site that its user visits (DNS rebinding)."""
    with paging("--read-only", "--port", "0", "--url", url, "--allow-host", "desk.example") as address:
        assert status_for(address, address)[0] == 200
        assert status_for(address, "desk.example")[0] == 200
        assert status_for(address, "evil.example") == (421, "application/problem+json")


def test_a_name_that_is_none_is_refused_before_anything_is_served(url, capsys):
    assert main(["page", "--read-only", "--url", url, "--allow-host", "https://desk.example"]) == 2
    assert "not a host's name" in capsys.readouterr().err


SETTINGS = """
url = "{url}"

[downstreams.terminal]
url = "https://slots.example.com/claim"
honours_key = "7d"

[surfaces.bookings]
key = "{{booking_id}}:{{state}}"
signature = "github"
secrets = ["$NOT_SET_ON_THIS_MACHINE"]
tenant = "acme"
forward = "terminal"
"""


def get(address: str, path: str) -> str:
    """A page's text."""
    with closing(HTTPConnection(address, timeout=DEADLINE_SECONDS)) as connection:
        connection.request("GET", path)
        return connection.getresponse().read().decode()


@pytest.fixture
def forwarded(url) -> int:
    """An entry that a service with those settings left in doubt at its downstream."""
    store = open_store(url)
    session = store.connect()
    with closing(session):
        wanted = Reservation(b"k" * 24, "acme", "bookings", "B-1", b"f" * 16, b"{}", 1, 1000, 8, 1)
        with session.unit():
            claim = session.reserve([wanted])[0]
            step = StepRecord("forward", StepState.STARTED, "terminal")
            session.progress([StepRecords(*claim.claim, (step,), 1)])
    return claim.entry_id


@pytest.mark.slow
def test_a_page_beside_a_service_shows_the_rules_and_promises_of_its_settings(url, forwarded, tmp_path):
    """It needs no secret for that, and calls nobody."""
    settings = tmp_path / "settings.toml"
    settings.write_text(SETTINGS.format(url="sqlite:///somewhere-else.db"))
    with paging("--read-only", "--port", "0", "--url", url, "--config", str(settings)) as address:
        rules, entry = get(address, "/surfaces"), get(address, f"/entries/{forwarded}")
    assert "{booking_id}:{state}" in rules
    assert "What holds there" in entry
    assert "exactly-once effect: the downstream recognises our key" in entry


@pytest.mark.parametrize(("about", "is_shown"), [("this ledger", True), ("another", False)])
def test_settings_that_nobody_named_count_only_for_their_own_ledger(
    url, tmp_path, monkeypatch, about, is_shown
):
    """Promises of another ledger's surfaces would be wrong ones."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ONCEGATE_URL", raising=False)
    named = url if about == "this ledger" else "sqlite:///another.db"
    (tmp_path / "oncegate.toml").write_text(SETTINGS.format(url=named))
    with page._gate_of(open_store(url), None) as gate:
        assert ("bookings" in {one.name for one in gate.engine.surfaces}) is is_shown


def test_a_file_with_mistakes_keeps_the_page_from_nothing_unless_it_was_named(
    url, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    wrong = SETTINGS.format(url=url).replace("{booking_id}", "{booking id}")
    (tmp_path / "oncegate.toml").write_text(wrong)
    with page._gate_of(open_store(url), None) as gate:
        assert (gate.engine.surfaces, gate.engine.downstreams) == ((), ())
    assert "rules and promises are not shown: surfaces.bookings" in capsys.readouterr().err
    with pytest.raises(ConfigError, match=r"surfaces\.bookings"):
        page._gate_of(open_store(url), tmp_path / "oncegate.toml")
    with pytest.raises(ConfigError, match="there is no file"):
        page._gate_of(open_store(url), tmp_path / "missing.toml")


def test_what_a_page_declares_runs_nothing(url, tmp_path):
    settings = tmp_path / "oncegate.toml"
    settings.write_text(SETTINGS.format(url=url))
    with page._gate_of(open_store(url), settings) as gate:
        event = {"booking_id": 1, "state": "new"}
        with pytest.raises(NotApplied, match="runs no events"):
            asyncio.run(gate.admit("bookings", event, tenant="acme"))
