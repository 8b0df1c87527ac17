"""Settings of the audit from `pyproject.toml`: the table [tool.oncegate.audit]."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Final

from oncegate.audit.catalogue import RULES
from oncegate.errors import ConfigError

_LISTS: Final = ("paths", "exclude", "handlers", "select", "ignore")
_KNOWN: Final = (*_LISTS, "baseline")


def read_settings(base: Path) -> dict[str, Any]:
    """The table, checked; empty where there is none."""
    path = base / "pyproject.toml"
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error
    table = document.get("tool", {}).get("oncegate", {}).get("audit", {})
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: tool.oncegate.audit is not a table")
    for name, value in table.items():
        _check(path, name, value)
    return table


def _check(path: Path, name: str, value: object) -> None:
    if name not in _KNOWN:
        raise ConfigError(
            f"{path}: tool.oncegate.audit has no setting {name!r}; it has {', '.join(_KNOWN)}"
        )
    if name in _LISTS:
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise ConfigError(f"{path}: tool.oncegate.audit.{name} is a list of texts")
        if name in ("select", "ignore"):
            check_rules(value)
    elif not isinstance(value, str):
        raise ConfigError(f"{path}: tool.oncegate.audit.{name} is a text")


def check_rules(names: list[str]) -> list[str]:
    """The names of rules; raises ConfigError for one that does not exist."""
    for name in names:
        if name not in RULES:
            raise ConfigError(f"there is no rule {name[:20]!r}; rules are {', '.join(RULES)}")
    return names
