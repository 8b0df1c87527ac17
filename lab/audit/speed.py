"""The time of an audit, cold and with its cache, beside ruff and semgrep on the same tree in the same run.

semgrep is used where it is installed, or where its wheel is unpacked below `build/semgrep-core`. It gets
one rule, with the question that OG001 asks of one function.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from oncegate.clock import SystemClock

_RULE = """\
rules:
  - id: call-in-a-task
    languages: [python]
    severity: WARNING
    message: an outside call in a task
    patterns:
      - pattern-inside: |
          @shared_task(...)
          def $F(...):
              ...
      - pattern: requests.post(...)
"""


@dataclass
class Timing:
    """One run: wall time, processor time of it and its children, largest memory of one process."""

    name: str
    wall_s: float
    processor_s: float
    memory_mb: int


def speed(path: str) -> list[Timing]:
    """Times ruff and the audit on a tree; the cache is in a folder of its own."""
    target = str(Path(path).resolve())
    with tempfile.TemporaryDirectory() as folder:
        audit = [
            sys.executable,
            "-m",
            "oncegate",
            "audit",
            target,
            "--json",
            "--output",
            f"{folder}/report.json",
        ]
        runs = [
            _timed("oncegate audit, cold", audit, folder),
            _timed("oncegate audit, cache", audit, folder),
        ]
        ruff = shutil.which("ruff", path=str(Path(sys.executable).parent)) or shutil.which("ruff")
        if ruff:
            check = [
                ruff,
                "check",
                "--isolated",
                "--select",
                "E,F,B,DTZ",
                "--exit-zero",
                "--quiet",
                "-o",
                f"{folder}/ruff.txt",
                target,
            ]
            runs += [_timed("ruff check, cold", [*check, "--no-cache"], folder)]
        semgrep = _semgrep()
        if semgrep:
            rule = Path(folder) / "rule.yml"
            rule.write_text(_RULE, "utf-8")
            scan = [
                *semgrep,
                "scan",
                "--config",
                str(rule),
                "--metrics",
                "off",
                "--no-git-ignore",
                "--json",
            ]
            runs += [_timed("semgrep, one rule", [*scan, target], folder)]
    return runs


def _semgrep() -> list[str]:
    """The command of semgrep; empty where there is none."""
    found = shutil.which("semgrep", path=str(Path(sys.executable).parent)) or shutil.which("semgrep")
    if found:
        return [found, "scan"]
    unpacked = sorted((Path(__file__).parents[2] / "build" / "semgrep-core").rglob("osemgrep"))
    return [str(unpacked[0]), "scan", "--experimental"] if unpacked else []


def _timed(name: str, command: list[str], folder: str) -> Timing:
    clock, before = SystemClock(), resource.getrusage(resource.RUSAGE_CHILDREN)
    started = clock.elapsed_us()
    subprocess.run(command, cwd=folder, check=False, capture_output=True)
    wall = (clock.elapsed_us() - started) / 1_000_000
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Timing(name, wall, spent, after.ru_maxrss // 1024)


def as_text(runs: list[Timing]) -> str:
    """A table."""
    lines = [f"{'run':<24} {'wall s':>8} {'processor s':>12} {'memory MB':>10}"]
    lines += [
        f"{one.name:<24} {one.wall_s:>8.1f} {one.processor_s:>12.1f} {one.memory_mb:>10}" for one in runs
    ]
    if not any(one.name.startswith("semgrep") for one in runs):
        lines.append("semgrep is not installed: not measured")
    return "\n".join(lines)
