"""Settings that come from the environment, each with its unit and its reason."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

URL_VARIABLE: Final = "ONCEGATE_URL"
DEFAULT_URL: Final = "sqlite:///oncegate.db"  # the working folder: a first program needs no decision


def store_url(given: str | None = None, environment: Mapping[str, str] | None = None) -> str:
    """Finds the ledger's address: what was given, else ONCEGATE_URL, else a file in this folder."""
    variables = os.environ if environment is None else environment
    return given or variables.get(URL_VARIABLE) or DEFAULT_URL
