"""The page served for tests: one incident for each test, on either store, with operators of every role."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest
from playwright.sync_api import Browser, expect

from oncegate.dashboard.auth import FIELD, admit
from oncegate.dashboard.operators import Role
from oncegate.stores.sqlite import SqliteStore
from oncegate.testing.waiting import DEADLINE_SECONDS
from tests.dashboard.scene import Scene
from tests.dashboard.serving import (
    BROWSER_VARIABLE,
    REQUIRED_VARIABLE,
    Stage,
    add_operator,
    browser,
    find_chromium,
    staged,
)

expect.set_options(timeout=60_000)  # a busy machine may take its time to load a page


@dataclass
class Reply:
    """What came back over plain HTTP."""

    status: int
    headers: dict[str, str]
    text: str


class Client:
    """A program with cookies: follows no redirects and sends only the headers it is told to."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self.netloc, self.prefix = parts.netloc, parts.path
        self.cookie = ""

    def ask(
        self, method: str, path: str, form: dict[str, str] | bytes | None = None, **headers: str
    ) -> Reply:
        connection = HTTPConnection(self.netloc, timeout=DEADLINE_SECONDS)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.cookie:
            sent.setdefault("cookie", self.cookie)
        body = None
        if form is not None:
            body = form if isinstance(form, bytes) else urlencode(form)
            sent.setdefault("content-type", "application/x-www-form-urlencoded")
        connection.request(method, f"{self.prefix}{path}", body=body, headers=sent)
        answer = connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        text = answer.read().decode()
        connection.close()
        return Reply(answer.status, found, text)

    def get(self, path: str, **headers: str) -> Reply:
        return self.ask("GET", path, None, **headers)

    def post(self, path: str, form: dict[str, str], **headers: str) -> Reply:
        return self.ask("POST", path, form, **headers)

    def sign_in(self, token: str) -> Reply:
        reply = self.post("/login", {"token": token})
        self.cookie = reply.headers.get("set-cookie", "").partition(";")[0]
        return reply


class Site:
    """A served page on a ledger with an incident in it."""

    def __init__(self, scene: Scene, address: str) -> None:
        self.scene, self.gate, self.address = scene, scene.gate, address
        self.tokens: dict[str, str] = {}

    def token(self, role: Role, tenant: str | None = None) -> str:
        name = f"{role.label}-{tenant or 'all'}"
        if name not in self.tokens:
            self.tokens[name] = add_operator(self.gate, name, role, tenant)
        return self.tokens[name]

    def client(self, role: Role | None = None, tenant: str | None = None) -> Client:
        client = Client(self.address)
        if role is not None:
            assert client.sign_in(self.token(role, tenant)).status == 303
        return client

    @property
    def url(self) -> str:
        """The ledger's address, for commands."""
        store = self.gate.engine.store
        assert isinstance(store, SqliteStore)
        return f"sqlite:///{store.path}"

    def form(self, client: Client, **fields: str) -> dict[str, str]:
        """A form as the page makes it for this client's session."""
        value = client.cookie.partition("=")[2]
        with self.gate.engine.store.look() as session:
            visitor = admit(session, value, self.gate.engine.clock.wall_ms())
        return {FIELD: visitor.form_token if visitor else "", **fields}


@pytest.fixture(scope="session")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger after the incident, to be copied: playing it takes longer than most tests."""
    path = tmp_path_factory.mktemp("page") / "played.db"
    scene = Scene(f"sqlite:///{path}")
    scene.quiet()
    scene.incident()
    scene.gate.close()
    return path


@pytest.fixture
def scene(played: Path, tmp_path: Path) -> Iterator[Scene]:
    """An incident on an embedded ledger of one's own."""
    path = tmp_path / "oncegate.db"
    shutil.copy(played, path)
    scene = Scene(f"sqlite:///{path}?synchronous=NORMAL")
    yield scene
    scene.gate.close()


@pytest.fixture
def site(scene: Scene, stage: Stage) -> Iterator[Site]:
    """Its page, with signing in."""
    with stage.showing(scene.gate.dashboard(login=True)) as address:
        yield Site(scene, address)


@pytest.fixture(scope="session")
def stage() -> Iterator[Stage]:
    """The one server of these tests."""
    with staged() as stage:
        yield stage


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """One browser a file: while it is open its own event loop runs here, and no test could start another.

    Without any the tests are skipped, unless they are required.
    """
    if find_chromium() is None:
        line = f"no Chromium: apt-get install chromium-headless-shell, or name one in {BROWSER_VARIABLE}"
        if os.environ.get(REQUIRED_VARIABLE):
            pytest.fail(line)
        pytest.skip(line)
    with browser() as found:
        yield found
