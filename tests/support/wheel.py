"""oncegate as users have it: the built wheel in an environment of its own, made once for all processes.

What the wheel depends on comes from the environment of the tests. The environment is kept below `build/`
under a name that says which sources it is made of.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import site
import subprocess
import sys
import zipfile
from hashlib import sha256
from pathlib import Path

from lab.wheel import wheel_files
from tests.support.guides import ROOT

KEPT = ROOT / "build" / "wheel-environments"
_SCRIPT = "#!{python}\nimport sys\nfrom {module} import main\nsys.exit(main())\n"
_PROGRAMS = {"oncegate": "oncegate.cli.main", "uvicorn": "uvicorn.main", "flask": "flask.cli"}


def wheel_environment() -> Path:
    """The folder of programs of the environment; builds the wheel if these sources have none yet."""
    KEPT.mkdir(parents=True, exist_ok=True)
    folder = KEPT / _digest()
    with (KEPT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the other test processes wait for the first
        if not folder.exists():
            for old in KEPT.iterdir():
                shutil.rmtree(old, ignore_errors=True)
            _make(folder.with_suffix(".new"))
            folder.with_suffix(".new").rename(folder)
    return folder / "bin"


def _digest() -> str:
    found = sha256()
    for path in [*wheel_files(), ROOT / "pyproject.toml", Path(__file__)]:
        found.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return found.hexdigest()[:16]


def _make(folder: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    built = folder.with_suffix(".wheel")
    subprocess.run([*pip, "wheel", "-q", "--no-deps", "-w", str(built), str(ROOT)], check=True, timeout=250)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=60)
    (packages,) = folder.glob("lib/python*/site-packages")
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(packages)
    # A path, not a site folder: the editable install of the tests is not found there.
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()), "utf-8")
    python = folder.with_suffix("") / "bin" / "python"  # as it is called when it is done
    for name, module in _PROGRAMS.items():
        script = folder / "bin" / name
        script.write_text(_SCRIPT.format(python=python, module=module), "utf-8")
        script.chmod(0o755)
    shutil.rmtree(built)


def environment(programs: Path, **more: str) -> dict[str, str]:
    """Variables for programs that use the wheel, and nothing of the clone."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ONCEGATE_", "PYTHONPATH"))
    }
    return {**clean, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", **more}
