"""The page on a real server and in a real browser: what the tests and the pictures of the docs share."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from playwright.sync_api import Browser, sync_playwright
from starlette.applications import Starlette
from starlette.routing import Mount

from oncegate.dashboard.operators import OperatorBook, Role
from oncegate.testing.waiting import DEADLINE_SECONDS, wait_until
from oncegate.wiring import Gate

PREFIX = "/deep/oncegate"  # any path will do: the page must work under all of them
BROWSER_VARIABLE = "ONCEGATE_TEST_CHROMIUM"
REQUIRED_VARIABLE = "ONCEGATE_REQUIRE_CHROMIUM"


def find_chromium() -> str | None:
    """A Chromium that is on this machine already.

    The one that has no windows comes first: for the same page it takes a third of the processor time.
    """
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    return os.environ.get(BROWSER_VARIABLE) or next(filter(None, map(shutil.which, names)), None)


@contextmanager
def browser() -> Iterator[Browser]:
    """A Chromium without a window."""
    with sync_playwright() as tool:
        chromium = tool.chromium.launch(
            executable_path=find_chromium(), args=["--no-sandbox", "--disable-gpu"], timeout=60_000
        )
        try:
            yield chromium
        finally:
            chromium.close()


class Stage:
    """One server for many applications, one after the other: starting a server takes longer than a test."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.current: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.current(scope, receive, send)

    @contextmanager
    def showing(self, application: Any) -> Iterator[str]:
        """Serves an application while the block lasts."""
        self.current = application
        yield self.address


@contextmanager
def served(application: Any) -> Iterator[str]:
    """Serves one application."""
    with staged() as stage, stage.showing(application) as address:
        yield address


@contextmanager
def staged() -> Iterator[Stage]:
    """A server below a prefix on a free port, with nothing to show yet."""
    stage = Stage("")
    mounted = Starlette(routes=[Mount(PREFIX, stage)])
    config = uvicorn.Config(mounted, port=0, log_level="error", lifespan="off", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_until(lambda: server.started)
    port = server.servers[0].sockets[0].getsockname()[1]
    stage.address = f"http://127.0.0.1:{port}{PREFIX}"
    try:
        yield stage
    finally:
        server.should_exit = True
        thread.join(DEADLINE_SECONDS)


def add_operator(gate: Gate, name: str, role: Role, tenant: str | None = None) -> str:
    """An operator's token."""
    return OperatorBook(gate.engine.commits, gate.engine.clock).add(name, role, tenant, "setup")
