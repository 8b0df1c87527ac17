"""Rules from a TOML file, a table for each surface; every mistake is one line that names its place."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec

from oncegate.errors import ConfigError
from oncegate.recorder.redaction import Rules

FILE_BYTES_MAX = 1024 * 1024


class _Table(msgspec.Struct, forbid_unknown_fields=True):
    keep: list[str] = []
    hash: list[str] = []
    mask: list[str] = []
    drop: list[str] = []
    rest: str = "hash"
    tenant: str = "hash"
    type: str | None = None
    occurred_at: str | None = None


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    surfaces: dict[str, _Table] = {}


def read_rules(path: Path) -> dict[str, Rules]:
    """Reads the rules of each surface; raises ConfigError with what is wrong and where."""
    try:
        with path.open("rb") as file:
            text = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    if len(text) > FILE_BYTES_MAX:
        raise ConfigError(f"{path} is larger than {FILE_BYTES_MAX >> 10} KiB; these are no rules")
    try:
        document = msgspec.convert(tomllib.loads(text.decode()), _Document)
    except (ValueError, RecursionError) as error:
        told = " ".join(str(error).split())
        raise ConfigError(f"{path} cannot be used: {told[:160]}") from None
    return {name: _rules(path, name, table) for name, table in document.surfaces.items()}


def _rules(path: Path, name: str, table: _Table) -> Rules:
    try:
        return Rules(**msgspec.structs.asdict(table))
    except ConfigError as error:
        raise ConfigError(f"{path}: surfaces.{name[:60]}: {error}") from None
