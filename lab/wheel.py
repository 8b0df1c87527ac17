"""What the wheel holds: its files, and how many lines of Python each package has.

Reads `pyproject.toml` as the build does: a wheel holds all that is below its packages. Called by
`python -m lab wheel` and by a test.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from lab import ROOT


def wheel_files(root: Path = ROOT) -> Iterator[Path]:
    """Every file of the wheel, as its path in the clone."""
    settings = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    for package in settings["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        for path in sorted((root / package).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path


def lines_by_package(root: Path = ROOT) -> Counter[str]:
    """Lines of Python in the wheel, by the package or module at its root."""
    lines: Counter[str] = Counter()
    for path in wheel_files(root):
        if path.suffix == ".py":
            name = path.relative_to(root / "src" / "oncegate").parts[0]
            lines[name.removesuffix(".py")] += len(path.read_text("utf-8").splitlines())
    return lines
