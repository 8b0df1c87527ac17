"""Runs the tests of the store against the PostgreSQL of the distribution, with the settings it comes with.

`make check` runs it after all tests, which have the server of a wheel: that one has no JIT.
Without such a server it says so and ends well, unless ONCEGATE_REQUIRE_STOCK_POSTGRES is set.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from oncegate.testing.postgres import PROGRAMS_VARIABLE

REQUIRE_VARIABLE: Final = "ONCEGATE_REQUIRE_STOCK_POSTGRES"
INSTALLED: Final = Path("/usr/lib/postgresql")
STORE: Final = Path("tests/stores/postgres")
TESTS: Final = (
    "tests/stores/test_conformance_postgres.py",
    "tests/gate/test_join_postgres.py",
    *(
        str(STORE / f"test_{name}.py")
        for name in (
            "plans_of_claims",
            "lane_statements",
            "speed_of_claims",
            "doctor_speed",
            "settings_of_handlers",
            "fused",
            "log_order",
        )
    ),
)


def newest_programs(installed: Path = INSTALLED) -> Path | None:
    """The folder with the newest server's programs; client packages alone do not count."""
    found = [path.parent for path in installed.glob("*/bin/postgres")]
    return max(found, key=lambda path: _version(path.parent.name), default=None)


def _version(name: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", name)]


def main(arguments: list[str]) -> int:
    """Runs the tests, with further arguments for pytest."""
    programs = newest_programs()
    if programs is None:
        is_required = bool(os.environ.get(REQUIRE_VARIABLE))
        missing = f"no PostgreSQL server in {INSTALLED}: apt-get install postgresql"
        _say(missing if is_required else f"tests with a stock server are skipped: {missing}")
        return int(is_required)
    _say(f"tests with the server in {programs}")
    environment = {**os.environ, PROGRAMS_VARIABLE: str(programs)}
    return subprocess.run(
        [sys.executable, "-m", "pytest", *arguments, *TESTS], env=environment, check=False
    ).returncode


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
