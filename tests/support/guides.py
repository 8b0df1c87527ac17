"""Runs a tutorial as a reader would: writes its files and types its commands, in an empty folder.

A fenced block with `title="name"` is a file. A block of the language `console` is a terminal: each line
after `$ ` is typed into one shell, and the lines below it are the output that must appear, where `…`
stands for anything. Other blocks are shown only. `pip install` is not run: its extras are checked
against pyproject.toml.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Self

from oncegate.testing.waiting import wait_until

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INSTALL = re.compile(r"pip install (?:'oncegate(?:\[([\w,]+)\])?'|oncegate|[\w ]+)")
_END = "=end-of-command="
_ANYTHING = "…"


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    title: str
    text: str


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    return [Block(*found) for found in _FENCE.findall(page)]


def commands(block: str) -> Iterator[tuple[str, str]]:
    """Each command of a terminal block with the output below it."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        line, _, output = part.partition("\n")
        while line.endswith("\\"):
            more, _, output = output.partition("\n")
            line = f"{line[:-1].rstrip()} {more.strip()}"
        yield line, output.strip()


def free_port() -> int:
    """A port that no program uses at the moment."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Shell:
    """One shell in one folder, from the first command to the last; its background jobs end with it."""

    def __init__(self, folder: Path, environment: Mapping[str, str], wheel: Path | None = None) -> None:
        programs = f"{wheel or Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        source = str(folder) if wheel else os.pathsep.join([str(ROOT / "src"), str(folder)])
        clean = {name: value for name, value in os.environ.items() if not name.startswith("ONCEGATE_")}
        self._process = subprocess.Popen(
            ["bash", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
            env={**clean, "PATH": programs, "PYTHONPATH": source, "PYTHONUNBUFFERED": "1", **environment},
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.run("kill $(jobs -p) 2>/dev/null; wait")
        self._process.communicate("exit\n")

    def run(self, command: str) -> tuple[str, int]:
        """Types one command; returns what it printed and its exit code."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command}\nprintf '\\n{_END}%s\\n' $?\n")
        self._process.stdin.flush()
        printed: list[str] = []
        for line in self._process.stdout:
            if line.startswith(_END):
                return "".join(printed).strip(), int(line.removeprefix(_END))
            printed.append(line)
        raise AssertionError(f"the shell ended: {command}")


class Reader:
    """Follows one page. `replaced` are texts of it that differ here, such as a port or an address."""

    def __init__(self, page: Path, folder: Path, replaced: Mapping[str, str] | None = None) -> None:
        text = page.read_text("utf-8")
        for old, new in (replaced or {}).items():
            assert old in text, f"{page.name} has no {old}"
            text = text.replace(old, new)
        self.blocks = blocks(text)
        self._folder = folder

    def follow(self, environment: Mapping[str, str] | None = None, wheel: Path | None = None) -> None:
        """Writes every file and runs every command, in the order of the page; `wheel` has the programs."""
        with Shell(self._folder, environment or {}, wheel) as shell:
            for block in self.blocks:
                if block.title:
                    (self._folder / block.title).write_text(block.text, "utf-8")
                elif block.language == "console":
                    for command, expected in commands(block.text):
                        self._type(shell, command, expected)

    def _type(self, shell: Shell, command: str, expected: str) -> None:
        if command.startswith("pip install"):
            check_install(command)
            return
        printed, code = shell.run(command)
        assert code == 0, f"$ {command}\nended with {code}:\n{printed}"
        assert _fits(expected, printed), f"$ {command}\nshould print:\n{expected}\nbut printed:\n{printed}"
        if command.endswith("&") and (port := re.search(r"(?:--port |:|PORT=)(\d{4,5})\b", command)):
            wait_until(lambda: _answers(int(port[1])), what=f"a server on port {port[1]}")


def check_install(command: str) -> None:
    """A page may only ask for extras that exist."""
    known = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    found = _INSTALL.match(command)
    assert found is not None, command
    assert set((found[1] or "").split(",")) - {""} <= set(known), command


def _fits(expected: str, printed: str) -> bool:
    """Whether a command printed what the page shows; a page that shows nothing takes anything."""
    shown, seen = (re.sub(r"[ ]*\n[ ]*", "\n", re.sub(r" +", " ", one)) for one in (expected, printed))
    pattern = ".*".join(re.escape(part) for part in re.split(f" ?{_ANYTHING} ?", shown))
    return not expected or re.fullmatch(pattern, seen, re.DOTALL) is not None


def _answers(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0
