"""`oncegate completion`: a script that completes commands and options in bash, zsh and fish."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct

from oncegate.cli.exitcodes import DONE
from oncegate.cli.parser import CommandParser

_BASH: Final = """\
_oncegate() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} path= words= i
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$path ${{COMP_WORDS[i]}}" in
{paths}) path="$path ${{COMP_WORDS[i]}}" ;;
    esac
  done
  case "$path $before" in
{values}
  *)
    case "$path" in
{words}
    esac ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _oncegate oncegate
"""
_ZSH: Final = "autoload -U +X bashcompinit && bashcompinit\n"
_FISH: Final = """\
function __oncegate_at
  set -l path
  for word in (commandline -opc)[2..-1]
    contains -- (string join ' ' -- $path $word) {paths}; and set path $path $word
  end
  test "$path" = "$argv"
end
complete -c oncegate -f -n __oncegate_at -a "{commands}"
{lines}
"""
_DESCRIPTION: Final = """\
Print a script that completes commands, options and their values. It is made from the commands of this
version; print it again after an upgrade."""
_EPILOG: Final = """\
examples:
  source <(oncegate completion bash)
  oncegate completion zsh >> ~/.zshrc
  oncegate completion fish > ~/.config/fish/completions/oncegate.fish"""


class CommandWords(Struct, frozen=True):
    """What can follow one command: its path, further commands, options, and the values of options."""

    path: str
    commands: list[str]
    options: dict[str, str]
    values: dict[str, list[str]]


def add_parser(subparsers: Any) -> None:
    """Adds the command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "completion", help="print a script that completes commands in a shell",
        description=_DESCRIPTION, epilog=_EPILOG,
    )  # fmt: skip
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell it is for")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints the script."""
    from oncegate.cli.main import COMMANDS, build_parser

    words = list(words_of(build_parser(list(COMMANDS.values())), ()))
    print({"bash": bash_script, "zsh": zsh_script, "fish": fish_script}[arguments.shell](words), end="")
    return DONE


def words_of(parser: CommandParser, path: tuple[str, ...]) -> Iterator[CommandWords]:
    """What can follow each command, from the root down."""
    commands: dict[str, CommandParser] = {}
    options: dict[str, str] = {}
    values: dict[str, list[str]] = {}
    for action in parser.actions:
        if isinstance(action.choices, dict):
            commands |= action.choices
            continue
        for name in (one for one in action.option_strings if one.startswith("--")):
            options[name] = "" if action.help in (None, argparse.SUPPRESS) else str(action.help)
            if action.choices:
                values[name] = [str(one) for one in action.choices]
    yield CommandWords(" ".join(path), list(commands), options, values)
    for name, child in commands.items():
        yield from words_of(child, (*path, name))


def bash_script(words: list[CommandWords]) -> str:
    """The script for bash."""
    paths = "|".join(f'" {one.path}"' for one in words if one.path)
    places = [
        f'    "{" " if one.path else ""}{one.path}") words="{" ".join([*one.commands, *one.options])}" ;;'
        for one in words
    ]
    values = [
        f'  "{" " if one.path else ""}{one.path} {name}") words="{" ".join(found)}" ;;'
        for one in words
        for name, found in one.values.items()
    ]
    return _BASH.format(paths=paths, words="\n".join(places), values="\n".join(values))


def zsh_script(words: list[CommandWords]) -> str:
    """The script for zsh, which can run the one for bash."""
    return _ZSH + bash_script(words)


def fish_script(words: list[CommandWords]) -> str:
    """The script for fish."""
    lines = []
    for one in words:
        at = f'complete -c oncegate -n "__oncegate_at {one.path}"'
        if one.path and one.commands:
            lines.append(f'{at} -f -a "{" ".join(one.commands)}"')
        for name, text in one.options.items():
            found = one.values.get(name)
            takes = f' -x -a "{" ".join(found)}"' if found else ""
            lines.append(f"{at} -l {name[2:]}{takes} -d {shlex.quote(text.partition('. ')[0])}")
    paths = " ".join(shlex.quote(one.path) for one in words if one.path)
    return _FISH.format(paths=paths, commands=" ".join(words[0].commands), lines="\n".join(lines))
