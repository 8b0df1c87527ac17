"""Runs one fuzz target, or each in turn, with atheris for some seconds: none may raise what it should not.

    python -m lab.fuzzing --seconds 60             every target
    python -m lab.fuzzing canonical --seconds 600  one of them

How often each target ran is added to `lab/fuzzing/fuzz.json`. An input that breaks a target is written to
`lab/fuzzing/found/`, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

from lab import ROOT

PLACE = Path(__file__).parent
RECORD = PLACE / "fuzz.json"
FOUND = PLACE / "found"
HOW_TO_INSTALL = (
    "atheris was not found: pip install 'oncegate[fuzz]' (or pip install atheris) puts it there"
)
INPUT_BYTES_MAX = 4096
HERE = "--here"  # the target that this very process runs


def main() -> int:
    """Fuzzes, tells, and keeps count."""
    if sys.argv[1:2] == [HERE]:
        _fuzz_here(sys.argv[2], sys.argv[3:])
    from lab.fuzzing.targets import TARGETS

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--seconds", type=int, default=60, help="for each target (default: 60)")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.targets if name not in TARGETS]:
        parser.error(f"there is no target {unknown[0]!r}; there are {', '.join(TARGETS)}")
    if not _has_atheris():
        print(HOW_TO_INSTALL, file=sys.stderr)
        return 1
    broken = [name for name in arguments.targets or TARGETS if not _fuzz(name, arguments.seconds)]
    return 1 if broken else 0


def _has_atheris() -> bool:
    import importlib.util

    return importlib.util.find_spec("atheris") is not None


def _fuzz_here(name: str, options: list[str]) -> NoReturn:
    """In a process of its own, which the fuzzer ends; only our own code is instrumented."""
    import atheris

    with atheris.instrument_imports(include=["oncegate"]):
        from lab.fuzzing.targets import TARGETS
    atheris.Setup([sys.argv[0], *options], TARGETS[name])
    atheris.Fuzz()
    raise SystemExit(0)


def _fuzz(name: str, seconds: int) -> bool:
    from lab.fuzzing.targets import SAMPLES

    FOUND.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as corpus:
        for number, sample in enumerate(SAMPLES):
            (Path(corpus) / str(number)).write_bytes(sample[:INPUT_BYTES_MAX])
        command = [sys.executable, "-m", "lab.fuzzing", HERE, name, corpus, f"-max_total_time={seconds}"]
        command += [
            f"-max_len={INPUT_BYTES_MAX}",
            f"-artifact_prefix={FOUND}/{name}-",
            "-print_final_stats=1",
        ]
        ended = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, errors="replace", check=False
        )
    told = ended.stdout + ended.stderr
    runs = sum(int(count) for count in re.findall(r"number_of_executed_units:\s*(\d+)", told))
    print(
        f"{name}: {runs:,} executions, {'nothing found' if ended.returncode == 0 else 'BROKEN'}", flush=True
    )
    if ended.returncode:
        print(told[-3000:])
    _count(name, runs, seconds)
    return ended.returncode == 0


def _count(name: str, runs: int, seconds: int) -> None:
    record = json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {}
    known = record.setdefault(name, {"executions": 0, "seconds": 0})
    known["executions"] += runs
    known["seconds"] += seconds
    RECORD.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", "utf-8")
