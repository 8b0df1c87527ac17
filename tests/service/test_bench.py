"""The measurement over HTTP runs, with processes of its own, and means something."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.soak
def test_the_measurement_runs(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "oncegate", "bench", "http", "--quick", "--rounds", "1", "--json"],
        cwd=tmp_path,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=True,
    )

    document = json.loads(done.stdout)
    assert {(one["name"], one["keys"]) for one in document["results"]} == {
        ("bare", "fresh"), ("sqlite", "fresh"), ("sqlite", "replay"), ("forward", "fresh"),
        ("postgres", "fresh"), ("postgres", "replay"),
    }  # fmt: skip
    assert all(one["rate"] > 0 and one["service_us"] > 0 for one in document["results"])
    assert all(one["database_us"] > 0 for one in document["results"] if one["name"] == "postgres")
    assert len(document["bounds"]) == len(document["results"])
    assert set(document["ratios"]) == set(document["processor_ratios"])
