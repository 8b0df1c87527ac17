"""Users' first programs, each from the built wheel: a web service, a tester, an operator, a migration.

The examples and the agent's tool run from the same wheel: see test_examples.py and docs/test_tutorials.py.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.guides import Reader, free_port
from tests.support.wheel import environment, wheel_environment

pytestmark = pytest.mark.slow

ASYNC_SERVICE = """
```python title="app.py"
import os
from typing import Any

from fastapi import FastAPI
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from oncegate import AsyncOnce, Gate

URL = os.environ["ONCEGATE_URL"]
gate = Gate(URL)
engine = create_async_engine(URL.replace("postgresql://", "postgresql+psycopg://"))
app = FastAPI()


@gate.handler("orders", key="{order}")
async def order(event: dict[str, Any], once: AsyncOnce) -> str:
    async with AsyncSession(engine) as session, session.begin():
        await session.execute(text("INSERT INTO orders VALUES (:order)"), {"order": event["order"]})
        await once.commit(tx=session)
    return str(event["order"])


@app.post("/orders")
async def post(event: dict[str, Any]) -> dict[str, Any]:
    admission = await gate.admit("orders", event)
    return {"order": admission.value, "replay": admission.replay}


@app.get("/orders")
async def get() -> list[str]:
    async with AsyncSession(engine) as session:
        return [row[0] for row in await session.execute(text('SELECT "order" FROM orders'))]
```

```python title="tables.py"
import os
import psycopg

with psycopg.connect(os.environ["ONCEGATE_URL"]) as connection:
    connection.execute('CREATE TABLE orders ("order" text)')
```

```console
$ python tables.py && echo '{"order": "A-1"}' > order.json
$ uvicorn app:app --port 8000 > app.log 2>&1 &
$ oncegate send http://127.0.0.1:8000/orders --fixture order.json --times 3 --concurrency 1
1  200 replay: false … {"order":"A-1","replay":false}
2  200 replay: true … {"order":"A-1","replay":true}
3  200 replay: true … {"order":"A-1","replay":true}
…
$ python -c "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8000/orders').read().decode())"
["A-1"]
```
"""

TESTER = """
```python title="test_booking.py"
from collections.abc import Callable
from typing import Any

from oncegate import Gate, Once
from oncegate.testing import Chaos

gate = Gate()
terminal = gate.downstream("terminal", honours_key="7d")


def claim_slot(container: str, idempotency_key: str = "") -> dict[str, str]:
    return {"id": f"slot-for-{container}"}


@gate.handler("containers", key="{container}")
def book(event: dict[str, Any], once: Once) -> dict[str, str]:
    return once.effect(terminal, claim_slot, event["container"], name="claim_slot")


def test_one_slot_whatever_happens(oncegate_chaos: Callable[..., Chaos]) -> None:
    oncegate_chaos(book, {"container": "MSKU1"}).assert_effects(claim_slot=1)
```

```console
$ python -m pytest -q -p no:cacheprovider -p no:xdist test_booking.py
.…
1 passed…
```
"""

NIGHT = """
```python title="yesterday.py"
from typing import Any

from oncegate import Failed, Gate, Once

with Gate() as gate:

    @gate.handler("refunds", key="{id}", approve_first=True)
    def refund(event: dict[str, Any]) -> None: ...

    @gate.handler("orders", key="{id}")
    def order(event: dict[str, Any], once: Once) -> None:
        if event["amount"] < 0:
            raise Failed("an amount cannot be negative")

    gate.admit_sync("refunds", {"id": "R-1", "amount": 120000})
    for number, amount in enumerate((5, -1, 7)):
        try:
            gate.admit_sync("orders", {"id": f"A-{number}", "amount": amount})
        except Failed:
            pass
```

```console
$ python yesterday.py
$ oncegate entries list --since 1h --state failed --json
{…"label":"A-1"…"reason":"an amount cannot be negative"…}
$ oncegate entries list --field amount=7 --json
{…"label":"A-2"…}
$ oncegate held list --since 1h
…R-1…
$ oncegate held approve 1 --reason "asked the customer" --as ann
…
$ oncegate journal --since 1h
…ann…asked the customer
$ oncegate entries tail --for 1ms
following …
$ oncegate doctor > doctor.txt; grep -c "^ok" doctor.txt
…
```
"""


def follow(page: str, folder: Path, **variables: str) -> None:
    (folder / "page.md").write_text(page, "utf-8")
    ports = {"8000": str(free_port())} if "8000" in page else {}
    Reader(folder / "page.md", folder, ports).follow(variables, wheel_environment())


def test_an_async_service_on_postgresql(tmp_path: Path, ledger_url: str) -> None:
    """FastAPI with SQLAlchemy's async sessions: row and outcome are one commit."""
    follow(ASYNC_SERVICE, tmp_path, ONCEGATE_URL=ledger_url)


def test_a_tester(tmp_path: Path) -> None:
    """The fixtures come with the wheel."""
    follow(TESTER, tmp_path)


def test_an_operators_night(tmp_path: Path) -> None:
    """What failed, what waits, who did what."""
    follow(NIGHT, tmp_path)


OLD_KEYS = 15_000
AFTER_THE_MOVE = """
import sys

from oncegate import Gate

with Gate(sys.argv[1]) as gate:

    @gate.handler("orders", key="{order_id}")
    def order(event: dict[str, str]) -> str:
        return "ran"

    for number in (0, 14_999, 15_000):
        print(gate.admit_sync("orders", {"order_id": f"A-{number}", "amount": "5"}).verdict.value)
"""


def test_a_migration_of_old_keys(tmp_path: Path, ledger_url: str) -> None:
    """Imported, moved to PostgreSQL, killed in the middle and run again: old keys replay, new ones run."""
    programs = wheel_environment()
    old_url = f"sqlite:///{tmp_path / 'orders.db'}"
    rows = "".join(f"A-{number},2026-10-01T12:00:00Z\n" for number in range(OLD_KEYS))
    (tmp_path / "old.csv").write_text(f"id,handled_at\n{rows}", "utf-8")
    (tmp_path / "after.py").write_text(AFTER_THE_MOVE, "utf-8")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        variables = environment(programs)
        return subprocess.run(
            words, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False, timeout=250
        )

    key = ("--surface", "orders", "--key", "{order_id}", "--map", "order_id=id", "--time", "handled_at")
    assert run("oncegate", "import", "old.csv", *key, "--url", old_url).stdout.startswith("15,000 rows")
    move = ("oncegate", "migrate-ledger", old_url, ledger_url, "--yes")
    with subprocess.Popen(
        move, cwd=tmp_path, env=environment(programs), stderr=subprocess.PIPE, text=True
    ) as first:
        assert first.stderr is not None
        next(line for line in first.stderr if "entry: 10,000" in line)
        first.kill()
    for url in (old_url, ledger_url):  # both are closed: no program runs a key twice meanwhile
        refused = run("python", "after.py", url)
        assert refused.returncode == 1
        assert "moved to" in refused.stderr or "being filled" in refused.stderr
    again = run(*move)
    assert "moved and compared" in again.stdout, again.stderr
    assert run("python", "after.py", ledger_url).stdout.split() == ["replay", "replay", "run"]


def test_the_wheel_is_what_runs() -> None:
    """Nothing of the clone is imported."""
    programs = wheel_environment()
    found = subprocess.run(
        [str(programs / "python"), "-c", "import oncegate; print(oncegate.__file__)"],
        env=environment(programs), cwd="/", capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert Path(found.stdout.strip()).is_relative_to(programs.parent)
