"""Shell completion: the scripts complete the commands, options and values that exist."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from oncegate.cli.completion import bash_script, fish_script, words_of, zsh_script
from oncegate.cli.main import COMMANDS, build_parser

WORDS = list(words_of(build_parser(list(COMMANDS.values())), ()))


def completed(shell: str, script: Path, line: str) -> list[str]:
    """What a shell offers for the last word of a line."""
    words = line.split(" ")
    if shell == "fish":
        program = f'source {script}; complete -C "{line}"'
        found = subprocess.run(["fish", "-c", program], capture_output=True, text=True, check=True)
        return [one.split("\t")[0] for one in found.stdout.splitlines()]
    listed = " ".join(f'"{word}"' for word in words)
    program = (
        f"source {script}; COMP_WORDS=({listed}); COMP_CWORD={len(words) - 1}; _oncegate;"
        ' printf "%s\\n" "${COMPREPLY[@]}"'
    )
    found = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)
    return found.stdout.split()


@pytest.fixture(params=["bash", "fish"])
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    name = request.param
    if shutil.which(name) is None:
        pytest.skip(f"{name} was not found: apt-get install {name}")
    script = tmp_path / "script"
    script.write_text(bash_script(WORDS) if name == "bash" else fish_script(WORDS), "utf-8")
    return name, script


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("oncegate doc", {"doctor"}),
        ("oncegate entries ", {"list", "show"}),
        ("oncegate entries list --surf", {"--surface"}),
        ("oncegate signals limit quarantines --tic", {"--ticket"}),
        ("oncegate signals --json li", {"limits", "limit"}),
    ],
)
def test_a_shell_offers_what_can_follow(shell: tuple[str, Path], line: str, offered: set[str]) -> None:
    assert offered <= set(completed(*shell, line))


def test_a_shell_offers_the_values_of_an_option(shell: tuple[str, Path]) -> None:
    path, name, values = next(
        (one.path, name, values) for one in WORDS for name, values in one.values.items() if one.path
    )
    assert set(completed(*shell, f"oncegate {path} {name} ")) == set(values)


def test_every_command_and_option_is_in_every_script() -> None:
    for script in (bash_script(WORDS), zsh_script(WORDS), fish_script(WORDS)):
        for one in WORDS:
            for word in one.commands:
                assert word in script
            for option in one.options:
                assert option[2:] in script


def test_the_command_prints_a_script(call) -> None:
    ended = call("completion", "bash")
    assert (ended.code, ended.out) == (0, bash_script(WORDS))
    assert call("completion", "tcsh").code == 2
