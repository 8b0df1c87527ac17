"""The Spin models hold, and stop holding when a protecting clause is taken out (issue 8, 5)."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from lab import ROOT

CHECK = ROOT / "lab" / "models" / "check.sh"

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(1_800),
    pytest.mark.skipif(
        not (shutil.which("spin") and shutil.which("cc")), reason="needs spin and a C compiler"
    ),
]


def test_models_hold_and_every_clause_is_needed():
    ended = subprocess.run([CHECK], capture_output=True, text=True, check=False)

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count("holds ") == 4
    assert ended.stdout.count("breaks ") == 11
