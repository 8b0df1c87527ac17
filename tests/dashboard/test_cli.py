"""`oncegate operators` and `oncegate page`, and the page below the service's /ui."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from oncegate.cli.main import main
from oncegate.dashboard.operators import find_by_token, operators
from oncegate.service.application import Service
from oncegate.service.settings import Settings
from oncegate.store import LogKind
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
