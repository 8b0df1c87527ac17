"""Compiles the tests of a fresh clone once, not once in each test process.

pytest rewrites the assertions of a test file as it imports it and keeps the result. Processes that begin
together import the same files in the same order, and each would rewrite all of them. Here each has a share.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from _pytest.assertion.rewrite import (
    PYC_TAIL,
    _rewrite_test,
    _write_pyc,
    assertstate_key,
    get_cache_dir,
    try_makedirs,
)


def compile_share(config: pytest.Config, folder: Path) -> None:
    """Rewrites those test files of this process's share that nothing was kept of."""
    given = getattr(config, "workerinput", None)
    if given is None or sys.dont_write_bytecode:
        return
    number, count = int(given["workerid"].removeprefix("gw")), given["workercount"]
    for path in sorted(folder.rglob("test_*.py"))[number::count]:
        kept = get_cache_dir(path) / (path.name[:-3] + PYC_TAIL)
        if not kept.exists() and try_makedirs(kept.parent):
            told, code = _rewrite_test(path, config)
            _write_pyc(config.stash[assertstate_key], code, told, kept)
