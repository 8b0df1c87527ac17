"""Any input is survived, and what cannot be read is said on one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from oncegate.audit import AuditSettings, audit

Run = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("syntax.py", b"def (:\n", "has a syntax error: line 1"),
        ("two.py", b"print 'hello'\n", "is Python 2"),
        ("encoding.py", b"# -*- coding: no-such -*-\n", "its encoding cannot be read"),
        ("latin.py", b"x = '\xff\xfe\xfa'\n", "its encoding cannot be read"),
        ("null.py", b"x = 1\x00\n", "null bytes"),
        ("deep.py", b"x = " + b"(" * 5000 + b")" * 5000 + b"\n", "deep.py"),
        ("adds.py", b"x = " + b"1+" * 60000 + b"1\n", "adds.py"),
        ("large.py", b"#" * 4_000_001, "is larger than"),
        ("book.ipynb", b"{}", "is a notebook"),
    ],
)
def test_a_file_that_cannot_be_read_is_said_on_one_line(
    run: Run, project: Path, name: str, content: bytes, words: str
) -> None:
    """The other files are judged as always; --strict makes it an exit code of its own."""
    (project / name).write_bytes(content)
    code, out, _ = run()
    assert code == 1
    (line,) = [one for one in out.splitlines() if one.startswith(f"{name}:")]
    assert words in line
    (project / "orders.py").unlink()
    assert run()[0] == 0
    assert run("--strict")[0] == 7


def test_loops_of_links_and_dangling_links_are_survived(project: Path) -> None:
    """A folder that contains itself is read once."""
    (project / "again").symlink_to(project, target_is_directory=True)
    (project / "gone.py").symlink_to(project / "nowhere.py")
    report = audit(AuditSettings(paths=(str(project),), use_cache=False))
    assert [finding.rule for finding in report.findings] == ["OG001"]
    assert {one.path.rsplit("/", 1)[-1] for one in report.skipped} == {"again", "gone.py"}


@pytest.mark.parametrize(
    "body",
    [
        "    x = x.y(x)\n    x = x.z\n    x()\n",
        "    a(order)\n",
        "    f = getattr(order, 'x')\n    f()\n    {}['k'](order)\n",
        "".join(f"    if order[{n}]:\n        order.save()\n" for n in range(60)),
        "    " + ".b".join(["a"] * 400) + "()\n",
    ],
)
def test_odd_but_valid_code_is_judged(project: Path, body: str) -> None:
    """Names that lead back to themselves, recursion, dynamic calls and many branches end in time."""
    (project / "orders.py").write_text(
        f"from celery import shared_task\n\n\n@shared_task\ndef a(order):\n{body}", "utf-8"
    )
    report = audit(AuditSettings(paths=(str(project),), use_cache=False))
    assert len(report.cards) == 1
    assert report.skipped == ()


def test_control_characters_in_code_do_not_reach_the_terminal(run: Run, project: Path) -> None:
    """A source line is shown with its escapes written out."""
    (project / "orders.py").write_text(
        "import requests\nfrom celery import shared_task\n\n\n@shared_task\ndef a(order):\n"
        "    requests.post('https://x\x1b]0;owned\x07', json=order)\n",
        "utf-8",
    )
    assert "\x1b" not in run()[1]
