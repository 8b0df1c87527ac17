"""gevent with a PostgreSQL ledger: greenlets go on while one waits; patches that came late are refused."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

pytest.importorskip("gevent")

PATCHED_FIRST = """
from gevent import monkey; monkey.patch_all()
import sys, gevent
from oncegate import Gate
with Gate(sys.argv[1]) as gate:
    @gate.handler("slow", key="{id}", same_database=True)
    def slow(event, once):
        once.tx.execute("SELECT pg_sleep(0.3)")
        done.append("slow")
    @gate.handler("quick", key="{id}")
    def quick(event, once):
        done.append("quick")
    done = []
    quick_warm = gate.admit_sync("quick", {"id": "0"})
    waits = gevent.spawn(gate.admit_sync, "slow", {"id": "1"})
    others = [gevent.spawn(gate.admit_sync, "quick", {"id": str(number)}) for number in range(1, 20)]
    gevent.joinall([waits, *others], timeout=20, raise_error=True)
    assert sorted(done) == ["quick"] * 20 + ["slow"], done
    assert done.index("slow") > 1, done
print("well")
"""
PATCHED_LATE = """
import sys, oncegate.stores.postgres
from gevent import monkey; monkey.patch_all()
try:
    oncegate.stores.postgres.PostgresStore(sys.argv[1]).connect()
except oncegate.errors.ConfigError as error:
    assert "before any other import" in str(error)
    print("refused")
"""


@pytest.mark.parametrize(("program", "word"), [(PATCHED_FIRST, "well"), (PATCHED_LATE, "refused")])
def test_greenlets_go_on_or_late_patches_are_refused(ledger_url: str, program: str, word: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, ledger_url],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.stdout.strip() == word, ran.stderr
