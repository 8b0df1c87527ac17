"""The types of users' first programs, by `mypy --strict` and pyright: `make types` runs it.

Read are the examples, the roles of tests/examples/test_roles.py and the page of an agent's tool. Pyright
brings itself through npm; where that cannot be reached it is left out, which is said.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.examples import test_roles
from tests.support.guides import ROOT, blocks

PROGRAMS = Path(sys.executable).parent
PYRIGHT = {
    "pythonVersion": "3.11",
    "useLibraryCodeForTypes": False,  # Django has no types, and guesses at them are errors
    "reportMissingModuleSource": False,
}


def write_roles(folder: Path) -> list[Path]:
    """A folder a role, with its programs."""
    pages = {
        "async_service": test_roles.ASYNC_SERVICE,
        "tester": test_roles.TESTER,
        "night": test_roles.NIGHT,
        "migration": f'```python title="after.py"\n{test_roles.AFTER_THE_MOVE}```\n',
        "agent_tool": (ROOT / "docs" / "quickstarts" / "agent-tool.md").read_text("utf-8"),
    }
    for name, page in pages.items():
        (folder / name).mkdir()
        for block in blocks(page):
            if block.language == "python" and block.title:
                (folder / name / block.title).write_text(block.text, "utf-8")
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    return [folder / name for name in pages]


def main() -> int:
    """0 if no checker objects."""
    failed = 0
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        cache = ROOT / ".mypy_cache" / "roles"
        for role in write_roles(folder):
            words = ["mypy", "--strict", "--cache-dir", str(cache), "."]
            failed |= subprocess.run(
                [str(PROGRAMS / words[0]), *words[1:]], cwd=role, check=False
            ).returncode
        roots = [
            {"root": str(one)}
            for one in [*folder.iterdir(), *(folder / "examples").iterdir()]
            if one.is_dir()
        ]
        settings = {
            **PYRIGHT,
            "executionEnvironments": roots,
            "venvPath": str(PROGRAMS.parent.parent),
            "venv": PROGRAMS.parent.name,
        }
        (folder / "pyrightconfig.json").write_text(json.dumps(settings), "utf-8")
        pyright = str(PROGRAMS / "pyright")
        if subprocess.run([pyright, "--version"], capture_output=True, check=False).returncode:
            sys.stderr.write("pyright cannot be had here (it needs node and npm); left out\n")
            return failed
        failed |= subprocess.run([pyright, "-p", str(folder)], check=False).returncode
    return failed


if __name__ == "__main__":
    raise SystemExit(main())
