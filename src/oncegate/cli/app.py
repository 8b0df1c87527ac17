"""The user's own program behind `--app module:gate`: imported for the gate with its handlers."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from typing import Any, Final

from oncegate.errors import ConfigError
from oncegate.wiring import Gate

_WHAT: Final = {"--app": "a gate"}


def add_app(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """Adds the option that names the user's gate."""
    parser.add_argument(
        "--app", metavar="MODULE:GATE", required=required,
        help="the gate with its handlers, as module:name; the module is imported from this folder",
    )  # fmt: skip


def load_gate(text: str) -> Gate:
    """Imports the module and returns its gate; raises ConfigError naming what is missing."""
    found = load_name("--app", text)
    if not isinstance(found, Gate):
        raise ConfigError(f"--app: {text[:80]} is a {type(found).__name__}, not an oncegate.Gate")
    if not found.engine.surfaces:
        raise ConfigError(f"--app: {text[:80]} has no handlers; register them where the gate is made")
    return found


def load_name(option: str, text: str) -> Any:
    """Imports a module and returns what it has under a name, both given as `module:name`."""
    module_name, colon, path = text.partition(":")
    what = _WHAT.get(option, "a function")
    if not colon or not module_name or not path:
        raise ConfigError(f"{option} {text[:80]!r} does not name {what}; write it as module:name")
    found: Any = _imported(option, module_name)
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            the_thing = what.replace("a ", "the ", 1)
            raise ConfigError(
                f"{option}: {module_name} has no {path[:80]!r}; name {the_thing} in it"
            ) from None
    return found


def _imported(option: str, name: str) -> object:
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigError(
                f"{option}: there is no module {name[:80]!r} in {folder} or on the path"
            ) from None
        raise ConfigError(f"{option}: {name[:80]} needs {error.name}, which cannot be imported") from error
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
        raise ConfigError(f"{option}: importing {name[:80]} raised {told[:200]}") from error
