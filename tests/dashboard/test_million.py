"""Every page within 150 ms at the median on a million entries, on both ledgers (issue 7). For `make soak`.

Measured as a browser would: one request after the other over HTTP, with signing in, rendering and all.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final

import pytest

from oncegate.clock import SystemClock
from oncegate.dashboard.operators import Role
from oncegate.model.states import State
from oncegate.testing.postgres import PostgresServer
from tests.dashboard.big_file import fill_file
from tests.dashboard.big_ledger import fill
from tests.dashboard.conftest import Client, Site
from tests.dashboard.scene import Scene
from tests.dashboard.serving import Stage

ENTRIES: Final = 1_000_000
PAGE_MS_MAX: Final = 150
VISITS: Final = 9
LANE: Final = "/lane?destination=orders&tenant=acme&key=A-17"
SERVER: Final = {"shared_buffers": "512MB", "max_wal_size": "4GB"}


@contextmanager
def embedded(folder: Path) -> Iterator[Scene]:
    """A million entries in a file."""
    path = folder / "oncegate.db"
    scene = Scene(f"sqlite:///{path}")
    play(scene)
    fill_file(path, ENTRIES)
    yield scene


@contextmanager
def on_a_server(_: Path) -> Iterator[Scene]:
    """A million entries on a server of their own."""
    with PostgresServer(SERVER, in_memory=True) as server:
        url = server.new_database()
        scene = Scene(url)
        play(scene)
        fill(url, ENTRIES)
        yield scene


def play(scene: Scene) -> None:
    scene.quiet()
    scene.incident()
    scene.replaying()


def visit_ms(client: Client, path: str) -> float:
    """One visit; the milliseconds it took."""
    clock = SystemClock()
    began = clock.elapsed_us()
    assert client.get(path).status == 200, path
    return (clock.elapsed_us() - began) / 1_000


@pytest.mark.soak
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("ledger", [embedded, on_a_server])
def test_pages_are_fast_on_a_million_entries(ledger, tmp_path: Path, stage: Stage) -> None:
    """On a quiet machine; what each page took is told in any case."""
    slow, told = {}, []
    with ledger(tmp_path) as scene, stage.showing(scene.gate.dashboard(login=True)) as address:
        client = Site(scene, address).client(Role.APPROVER)
        entry = scene.waiting(State.HELD, "payouts")
        paths = [
            "/",
            "/waiting",
            "/entries",
            "/entries?q=state:held",
            "/entries?q=nowhere",
            f"/entries/{entry}",
        ]
        paths += ["/lanes", LANE, "/replays", "/replays/abc", "/dead-letters", "/trace?id=A-17", "/feed"]
        for path in [*paths, "/surfaces", "/surface?name=routes", "/journal", "/journal?all=1"]:
            times = [visit_ms(client, path) for _ in range(VISITS)]
            told.append(f"{path}: {median(times):.0f} ms, at best {min(times):.0f}")
            if median(times) > PAGE_MS_MAX:
                slow[path] = times
        scene.gate.close()
    sys.stdout.write("\n".join(["", *told, ""]))  # shown with -s
    assert not slow, "; ".join(told)
