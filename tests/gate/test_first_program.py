"""The program of the documentation, as a newcomer would type it: no server, no configuration."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from oncegate.testing.waiting import DEADLINE_SECONDS

pytestmark = pytest.mark.slow

SIX_LINES = """\
from oncegate import Gate
gate = Gate()
@gate.once(key="{order_id}")
def charge(order_id, cents):
    return {"charged": cents}
print(charge("o-1", 1250), charge("o-1", 1250))
"""

# DESIGN, "The user's code, as we want it to read", with a downstream made up around it.
BOOKING = """\
import asyncio
from dataclasses import dataclass

@dataclass
class Slot:
    id: str

claimed = {}

async def claim_slot(equipment, window, idempotency_key) -> Slot:
    claimed.setdefault(idempotency_key, []).append(equipment)
    return Slot(f"slot-{equipment}")

async def find_slot(key):
    return Slot(f"slot-{claimed[key][0]}") if key in claimed else None

from oncegate import Gate

gate = Gate()                                   # ./oncegate.db, or ONCEGATE_URL=postgresql://...
ect = gate.downstream("ect-delta", honours_key="7d", probe=find_slot)

@gate.handler("portbase.cis", key="{notificationId}:{equipment_number}", retention="90d")
async def book(event, once):
    slot = await once.effect(ect, claim_slot, event["equipment_number"], event["window"], name="claim_slot")
    async with once.commit(resource=slot.id) as tx:      # or once.commit(tx=your_session)
        await tx.execute("CREATE TABLE IF NOT EXISTS bookings (slot TEXT PRIMARY KEY)")
        await tx.execute("INSERT INTO bookings VALUES (?)", (slot.id,))
    return {"slot": slot.id}

async def main():
    event = {"notificationId": "N-1", "equipment_number": "MSKU1234565", "window": "07:00"}
    for _ in range(3):
        answer = await gate.admit("portbase.cis", event)
        print(answer.replay, answer.value["slot"], answer.resource, len(claimed))

asyncio.run(main())
"""

# With no setting at all: after a refused call the key is busy for a while, and then it is tried again.
REFUSED_ONCE = """\
import time
from oncegate import Gate

gate = Gate()
bank, calls = gate.downstream("bank", honours_key="7d"), []

def pay(idempotency_key):
    calls.append(time.monotonic())
    if len(calls) == 1:
        raise ConnectionRefusedError(111, "Connection refused")
    return "paid"

@gate.handler("orders", key="{id}")
def order(event, once):
    return once.effect(bank, pay, name="pay")

for number in range(9):  # a machine that stood still past the wait brings the next event
    calls.clear()
    try:
        gate.admit_sync("orders", {"id": number})
    except ConnectionRefusedError:
        pass
    answer = gate.admit_sync("orders", {"id": number})
    if answer.verdict.name == "BUSY":
        break
print(answer.verdict.name, len(calls), 0 < answer.retry_after_seconds < 10)
deadline = time.monotonic() + 60
while answer.verdict.name == "BUSY":
    assert time.monotonic() < deadline
    time.sleep(min(answer.retry_after_seconds, 0.05))  # as the answer asks
    answer = gate.admit_sync("orders", {"id": number})
print(answer.verdict.name, answer.value, len(calls), calls[1] - calls[0] > 0.2)
"""


def run(program: str, folder: Path, **variables: str) -> str:
    """Runs a program in a folder of its own and returns what it printed."""
    (folder / "pay.py").write_text(program, "utf-8")
    environment = {name: value for name, value in os.environ.items() if name != "ONCEGATE_URL"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "pay.py"],
        cwd=folder,
        env=environment | variables,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.slow
def test_six_lines_are_enough(tmp_path: Path) -> None:
    """The first useful program: once per key, also for the next run of it."""
    assert len(SIX_LINES.splitlines()) == 6
    printed = "{'charged': 1250} {'charged': 1250}\n"
    assert run(SIX_LINES, tmp_path) == printed
    assert (tmp_path / "oncegate.db").is_file()
    # The next run finds the charge in the ledger: the function that would fail now is not called
    assert run(SIX_LINES.replace('return {"charged": cents}', "raise SystemExit(1)"), tmp_path) == printed


@pytest.mark.slow
@pytest.mark.parametrize("again", [False, True], ids=["first run", "second run"])
def test_the_documented_handler_works_as_written(tmp_path: Path, again: bool) -> None:
    """One slot, one booking, however often the notification comes and the program is started."""
    if again:
        run(BOOKING, tmp_path)
    lines = run(BOOKING, tmp_path).splitlines()
    replay = "True slot-MSKU1234565 slot-MSKU1234565"
    if again:
        assert lines == [f"{replay} 0"] * 3
    else:
        assert lines == ["False slot-MSKU1234565 slot-MSKU1234565 1"] + [f"{replay} 1"] * 2
    assert (tmp_path / "oncegate.db").is_file()


def test_the_environment_names_another_ledger(tmp_path: Path) -> None:
    """ONCEGATE_URL is the only setting."""
    run(SIX_LINES, tmp_path, ONCEGATE_URL=f"sqlite:///{tmp_path / 'elsewhere.db'}")
    assert (tmp_path / "elsewhere.db").is_file()
    assert not (tmp_path / "oncegate.db").exists()


def test_a_refused_call_is_tried_again_after_the_default_wait(tmp_path: Path) -> None:
    """Most tests bring a failed event again at once; this program has the waits that users have."""
    lines = run(REFUSED_ONCE, tmp_path).splitlines()
    assert lines == ["BUSY 1 True", "RUN paid 2 True"]
