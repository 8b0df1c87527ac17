"""Version 1 of a program is killed right after its effects; version 2 takes over (I1, I24).

Two real program files, one real kill -9, both ledgers. `test_deployments.py` has every pair of versions.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from oncegate.testing.waiting import DEADLINE_SECONDS, wait_until

pytestmark = pytest.mark.slow

# The bank is a file: a line for each charge. It knows a key only if it was told that it honours keys.
COMMON = """
import json, sys, threading, time
from pathlib import Path
from oncegate import Gate
from oncegate.errors import OncegateError

bank, is_first = Path("bank"), Path(__file__).name == "one.py"
gate = Gate(sys.argv[1])

def charge(surface, key="", honours=False):
    if not (honours and f"{surface} {key} True" in bank.read_text().splitlines()):
        with bank.open("a") as file:
            file.write(f"{surface} {key} {honours}\\n")
    if is_first:
        threading.Event().wait()
    return surface

def find(key):
    return {"id": key} if f" {key} " in bank.read_text() else None

def by_effect(surface, name, honours=None, probe=None):
    at = gate.downstream(f"bank of {surface}", honours_key=honours, probe=probe)

    @gate.handler(surface, key="{id}", lease="1s")
    def handle(event, once):
        def pay(idempotency_key):
            return charge(surface, idempotency_key, honours is not None)
        return once.effect(at, pay, name=name)

def opaque(surface):
    gate.handler(surface, key="{id}", lease="1s")(lambda event: charge(surface))
"""
ONE = """
by_effect("same, honours the key", "charge", honours="7d")
by_effect("same, can be asked", "charge", probe=find)
by_effect("renamed", "charge")
by_effect("honours the key, renamed", "charge", honours="7d")
by_effect("honours the key no more", "charge", honours="7d")
by_effect("can be asked no more", "charge", probe=find)
opaque("opaque, learns once")
opaque("opaque, one database")
"""
TWO = """
by_effect("same, honours the key", "charge", honours="7d")
by_effect("same, can be asked", "charge", probe=find)
by_effect("renamed", "pay_by_card")
by_effect("honours the key, renamed", "pay_by_card", honours="7d")
by_effect("honours the key no more", "charge")
by_effect("can be asked no more", "charge")
by_effect("opaque, learns once", "charge", honours="7d")

@gate.handler("opaque, one database", key="{id}", lease="1s", same_database=True)
def write(event, once):
    return charge("opaque, one database")
"""
RUN = """
verdicts = {}

def admit(surface):
    deadline = time.monotonic() + 30
    while verdicts.get(surface, "BUSY") in ("BUSY", "OutcomeUnknown"):
        assert time.monotonic() < deadline, surface
        time.sleep(0.05)
        try:
            verdicts[surface] = gate.admit_sync(surface, {"id": 1}).verdict.name
        except OncegateError as error:
            verdicts[surface] = type(error).__name__

threads = [threading.Thread(target=admit, args=(surface.name,)) for surface in gate.engine.surfaces]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(json.dumps(verdicts))
"""
RECOVERED = {"same, honours the key": "RUN", "same, can be asked": "RUN"}
CHANGED = (
    "renamed",
    "honours the key, renamed",
    "honours the key no more",
    "can be asked no more",
    "opaque, learns once",
    "opaque, one database",
)


@pytest.mark.parametrize("ledger", ["sqlite", "postgres"])
def test_second_version_of_a_killed_program_charges_nobody_twice(
    ledger: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Where it is the same as before it finishes the event; where it has changed, a person decides."""
    bank = tmp_path / "bank"
    bank.touch()
    url = request.getfixturevalue("ledger_url") if ledger == "postgres" else "sqlite:///ledger.db"
    for name, surfaces in (("one.py", ONE), ("two.py", TWO)):
        (tmp_path / name).write_text(COMMON + surfaces + RUN, "utf-8")

    with subprocess.Popen([sys.executable, "one.py", url], cwd=tmp_path) as first:
        wait_until(
            lambda: len(_charges(bank)) == 8 or first.poll() is not None, what="every effect of version 1"
        )
        first.send_signal(signal.SIGKILL)
    second = subprocess.run(
        [sys.executable, "two.py", url],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE_SECONDS,
        check=False,
    )

    assert first.returncode == -signal.SIGKILL
    assert second.returncode == 0, second.stderr
    assert json.loads(second.stdout) == {**RECOVERED, **dict.fromkeys(CHANGED, "HOLD")}
    assert sorted(_charges(bank)) == sorted([*RECOVERED, *CHANGED])


def _charges(bank: Path) -> list[str]:
    lines = bank.read_text("utf-8").splitlines()
    return [line.rsplit(" ", 2)[0] for line in lines]
