"""Settings that come from the environment, each with its unit and its reason; where the ledger is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

URL_VARIABLE: Final = "ONCEGATE_URL"
DEFAULT_URL: Final = "sqlite:///oncegate.db"  # the working folder: a first program needs no decision
SETTINGS_FILE: Final = "oncegate.toml"  # in the working folder too; the library itself never reads it


@dataclass(frozen=True, slots=True)
class LedgerAddress:
    """Which ledger is meant, and by what: --url, a variable, a line of a file, or nothing ("default")."""

    url: str
    source: str


def store_url(given: str | None = None, environment: Mapping[str, str] | None = None) -> str:
    """Finds the ledger's address: what was given, else ONCEGATE_URL, else a file in this folder."""
    variables = os.environ if environment is None else environment
    return given or variables.get(URL_VARIABLE) or DEFAULT_URL
