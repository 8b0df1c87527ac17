"""The audit's report on the page: kept by the command, shown as text, with its trend."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from starlette.exceptions import HTTPException

from oncegate.audit.kept import (
    FINDINGS_MAX,
    KIND,
    LAST,
    TEXT_MAX,
    TREND_MAX,
    keep_report,
    last_report,
    read_report,
    trend,
)
from oncegate.cli.main import main
from oncegate.dashboard import reading
from oncegate.dashboard.auth import COOKIE
from oncegate.dashboard.operators import Role
from oncegate.dashboard.reading import UPLOAD_BYTES_MAX, parts_of
from oncegate.errors import ConfigError
from tests.dashboard.conftest import Client, Reply, Site

BAD = """import requests
from celery import shared_task

@shared_task
def book(order):
    requests.post("https://terminal.example/slots", json=order)
"""


def report(findings: int = 1, /, **changed: Any) -> bytes:
    one = {"rule": "OG001", "path": "a.py", "line": 4, "message": "<b>outside</b> call", "handler": "book"}
    numbers = dict.fromkeys(("new", "handlers", "not_judged", "suppressed", "files", "lines"), 12_345)
    summary = {**numbers, "findings": findings, "by_rule": {"OG001": findings, "OG002": 0}}
    document = {"tool": "oncegate audit", "version": 1, "summary": summary, "findings": [one] * findings}
    return json.dumps({**document, **changed}).encode()


def keep(site: Site, document: bytes, at_ms: int = 1) -> None:
    with site.gate.engine.commits.transaction() as session:
        keep_report(session, read_report(document), at_ms=at_ms, actor="ci")


def test_the_page_shows_the_last_report_and_the_trend(site: Site) -> None:
    client = site.client(Role.VIEWER)
    assert "No report is kept" in client.get("/audit").text
    keep(site, report(3), at_ms=1)
    keep(site, report(2), at_ms=2)
    page = client.get("/audit").text
    assert "<strong>2 findings</strong>" in page
    assert "&lt;b&gt;outside&lt;/b&gt; call" in page
    assert "12&#8239;345 handlers" in page
    assert page.count('data-label="Findings"') == 2


def upload(site: Site, client: Client, document: bytes, **fields: str) -> Reply:
    form = {**site.form(client), **fields}
    rows = [f'--cut\r\ncontent-disposition: form-data; name="{one}"\r\n\r\n{form[one]}\r\n' for one in form]
    rows.append('--cut\r\ncontent-disposition: form-data; name="report"; filename="r.json"\r\n\r\n')
    body = "".join(rows).encode() + document + b"\r\n--cut--\r\n"
    return client.ask("POST", "/audit/keep", body, content_type="multipart/form-data; boundary=cut")


def test_an_approver_uploads_a_report(site: Site) -> None:
    """The journal names the operator; a large report is taken, one above the limit is not."""
    client = site.client(Role.APPROVER)
    assert 'enctype="multipart/form-data"' in client.get("/audit").text
    large = report(2, note="x" * 200_000)
    assert upload(site, client, large).status == 303
    page = client.get("/audit").text
    assert "<strong>2 findings</strong>" in page
    assert "approver-all" in page
    assert upload(site, client, report(3, note="x" * 4 * 1024 * 1024)).status == 413
    refused = upload(site, client, b'{"tool": "ruff"}')
    assert (refused.status, "Nothing was kept" in refused.text) == (409, True)
    with site.gate.engine.store.look() as session:
        assert [point.summary.findings for point in trend(session)] == [2]


def test_a_report_is_not_taken_from_others(site: Site) -> None:
    """Not from viewers, operators, operators of one tenant, strangers, or without the form's token."""
    for role, tenant, status in (
        (Role.VIEWER, None, 403),
        (Role.OPERATOR, None, 403),
        (Role.APPROVER, "acme", 404),
        (None, None, 401),
    ):
        client = site.client(role, tenant)
        assert upload(site, client, report()).status == status
    assert upload(site, site.client(Role.APPROVER), report(), form_token="").status == 403
    assert upload(site, site.client(None), report(note="x" * 200_000)).status == 413
    with site.gate.engine.store.look() as session:
        assert trend(session) == []


def nested(depth: int, size: int) -> bytes:
    """A form in a form in a form: a parser that goes into each takes seconds for a small body."""
    inner = "".join(f"content-type: multipart/mixed; boundary=b{n}\r\n\r\n--b{n}\r\n" for n in range(depth))
    body = f"--cut\r\n{inner}\r\n".encode()
    return body + b"--\n" * ((size - len(body)) // 3)


def test_a_file_is_not_looked_at_before_the_session(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other pages refuse a file unread; this one takes it from its own page in a session of the ledger."""
    looked: list[int] = []

    def look(kind: str, body: bytes) -> dict[str, str]:
        looked.append(len(body))
        return {}

    monkeypatch.setattr(reading, "parts_of", look)
    kind, body = "multipart/form-data; boundary=cut", nested(800, 65_000)
    junk = f"{COOKIE}=junk"  # the page has not read the ledger's key yet, so it cannot tell by the cookie
    asked = [
        Client(site.address).ask("POST", "/audit/keep", body, content_type=kind, cookie=junk).status,
        Client(site.address).ask("POST", "/audit/keep", body * 4, content_type=kind, cookie=junk).status,
        Client(site.address).ask("POST", "/audit/keep", body, content_type=kind).status,
    ]
    client = site.client(Role.APPROVER)
    asked.append(client.ask("POST", "/audit/keep", body, content_type=kind, origin="http://evil").status)
    assert asked == [401, 413, 401, 403]
    for path in ("/login", "/logout", "/entries/1/approve"):
        for other in (kind, "Multipart/mixed; boundary=cut", "multipart/form-data" + ";a=b" * 5000):
            assert client.ask("POST", path, body, content_type=other).status == 415
    assert looked == []
    assert client.ask("POST", "/audit/keep", body, content_type=kind).status == 403
    assert looked == [len(body)]


NAMED = b'--cut\r\ncontent-disposition: form-data; name="a"\r\n\r\n'


def test_a_form_with_a_file_that_no_browser_writes_costs_little() -> None:
    """Refused with a bounded number of operations, each of which passes over the body once."""
    end = b"x\r\n--cut--"
    kinds = ("", "; boundary=", "; boundary=cut" + ";a=b" * 5000, "; boundary=" + "c" * 71)
    bodies = (
        b"",
        NAMED + b"x",
        b"x" + NAMED + end,
        b"--cut--" + NAMED + end,
        b"--cut\r\n\r\n" + end,
        (NAMED + b"x\r\n") * 9 + b"--cut--",
        nested(800, UPLOAD_BYTES_MAX),
        b"--cut\r\n\r\n\r\n" * 300_000,
        NAMED[:27] + b"(" * UPLOAD_BYTES_MAX + b"\r\n\r\n" + end,
        NAMED[:38] + b";a=b" * 1_000_000 + b"\r\n\r\n" + end,
    )
    hostile = [(f"multipart/form-data{kind}", NAMED + end) for kind in kinds]
    hostile += [("multipart/form-data; boundary=cut", body) for body in bodies]
    hostile += [("multipart/form-data; boundary=" + "-" * 70, (b"\r\n" + b"-" * 71) * 50_000)]
    for kind, body in hostile:
        status, operations = refused_after(kind, body)
        assert (status, operations < 100) == (400, True), (kind[:60], body[:60])
    assert parts_of("multipart/form-data; boundary=cut", NAMED + end) == {"a": "x"}


def refused_after(kind: str, body: bytes) -> tuple[int, int]:
    """The status, and how many functions were called, those in C too."""
    calls: list[str] = []
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, argument: calls.append(event))
    try:
        with pytest.raises(HTTPException) as refused:
            parts_of(kind, body)
    finally:
        sys.setprofile(before)
    return refused.value.status_code, len(calls)


def test_operators_of_one_tenant_do_not_see_the_code_of_all(site: Site) -> None:
    client = site.client(Role.APPROVER, "acme")
    assert client.get("/audit").status == 404


def test_a_report_is_kept_within_bounds(site: Site) -> None:
    for number in range(TREND_MAX + 2):
        keep(site, report(FINDINGS_MAX + 1 if number > TREND_MAX else 1), at_ms=number)
    with site.gate.engine.store.look() as session:
        kept = last_report(session)
        assert kept is not None
        assert (len(kept.findings), kept.summary.findings) == (FINDINGS_MAX, FINDINGS_MAX + 1)
        assert [point.at_ms for point in trend(session)] == list(range(2, TREND_MAX + 2))


def test_texts_and_rules_of_a_report_are_kept_within_bounds(site: Site) -> None:
    """A rule that the audit does not have would be copied into each point of the trend."""
    long = "x" * 100_000
    one = dict.fromkeys(("rule", "path", "message", "handler", "why", "fix", "reason"), long) | {"line": 1}
    card = {"handler": long, "path": long, "line": 1, "answers": {f"{n}{long}": long for n in range(9)}}
    numbers = json.loads(report())["summary"]
    rules = {f"OG{n}": 1 for n in range(1000, 9000)} | numbers["by_rule"]
    summary = {**numbers, "by_rule": rules}
    keep(site, report(summary=summary, findings=[one], suppressed=[one], cards=[card]))
    with site.gate.engine.store.look() as session:
        assert trend(session)[0].summary.by_rule == {"OG001": 1, "OG002": 0}
        kept = session.document(KIND, LAST)
        assert kept is not None
        assert len(kept.body) < 40 * TEXT_MAX


HUGE = report().replace(b"12345", b"9" * 400)
DEEP = b'{"a":' + b"[" * 100_000


@pytest.mark.parametrize(
    "document", [b"", b"[]", b"{}", b"\xff", DEEP, HUGE, report(version=2), report(tool="ruff")]
)
def test_what_is_no_report_is_refused(document: bytes) -> None:
    with pytest.raises(ConfigError, match="no report of oncegate audit"):
        read_report(document)


def test_the_command_keeps_a_report_and_a_file_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tasks.py").write_text(BAD)
    url = f"sqlite:///{tmp_path}/ledger.db"
    assert main(["audit", "tasks.py", "--no-cache", "--keep", "--url", url]) == 3, "there is no ledger yet"
    assert main(["migrate", "--url", url]) == 0
    assert main(["audit", "tasks.py", "--no-cache", "--keep", "--url", url, "--as", "ada"]) == 1
    capsys.readouterr()
    main(["audit", "tasks.py", "--no-cache", "--json"])
    (tmp_path / "report.json").write_text(capsys.readouterr().out)
    assert main(["audit", "--report", "report.json", "--keep", "--url", url, "--as", "ci"]) == 0
    from oncegate import open_store

    with open_store(url).look() as session:
        assert [(point.actor, point.summary.findings) for point in trend(session)] == [
            ("ada", 1),
            ("ci", 1),
        ]
