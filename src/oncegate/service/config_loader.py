"""Reads the settings: the file, then the environment. Finds every mistake at once, with file and line.

Must never show a secret: in the file they are names of environment variables, elsewhere they are masked.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final, get_args

import msgspec

from oncegate.config import SETTINGS_FILE, URL_VARIABLE, LedgerAddress
from oncegate.errors import ConfigError
from oncegate.model.ledger_addresses import masked_address
from oncegate.model.redact import masked_url
from oncegate.service.settings import (
    AlarmsSettings,
    ContractSettings,
    DeliverySettings,
    DownstreamSettings,
    FeedSettings,
    ListenersSettings,
    NetworkSettings,
    RecordSettings,
    ServerSettings,
    Settings,
    SourceSettings,
    SurfaceSettings,
)

PREFIX: Final = "ONCEGATE_"
_SINGLE: Final[dict[str, type[msgspec.Struct]]] = {
    "server": ServerSettings,
    "listeners": ListenersSettings,
    "network": NetworkSettings,
    "contract": ContractSettings,
    "feed": FeedSettings,
    "delivery": DeliverySettings,
    "record": RecordSettings,
    "alarms": AlarmsSettings,
}
_NAMED: Final[dict[str, type[msgspec.Struct]]] = {
    "downstreams": DownstreamSettings,
    "surfaces": SurfaceSettings,
    "sources": SourceSettings,
}
_TOP: Final = ("url",)
# Whoever forwards to a downstream whose address is wrong has no mistake of its own.
_STAND_INS: Final[dict[Any, dict[str, Any]]] = {DownstreamSettings: {"url": "https://downstream.example"}}
_TABLE: Final = re.compile(r"^\s*\[\s*([^\[\]]+?)\s*\]")
_KEY: Final = re.compile(r"^\s*([A-Za-z0-9_.\"'-]+?)\s*=")


class Mistake(msgspec.Struct, frozen=True):
    """One thing that is wrong, and where."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


class Mistakes(ConfigError):
    """The settings cannot be read; every mistake is on a line of its own.

    `readable` is the rest of them, with defaults in the place of what is wrong: it can be looked at too.
    """

    def __init__(self, found: list[Mistake], readable: Configuration | None = None) -> None:
        super().__init__("\n".join(str(mistake) for mistake in found))
        self.found, self.readable = found, readable


class Origin(msgspec.Struct, frozen=True):
    """A setting, its value for people, and where it came from."""

    name: str
    value: str
    source: str


class Configuration(msgspec.Struct, frozen=True):
    """The settings, the origin of each, and the line of each place in the file."""

    settings: Settings
    origins: tuple[Origin, ...]
    path: Path
    lines: dict[str, int]

    def where(self, place: str) -> str:
        """The variable that a setting came from, else its line, else that of the table around it."""
        given = {origin.name: origin.source for origin in self.origins}.get(place, "")
        if given.startswith(PREFIX):
            return given
        line = self.lines.get(place)
        while line is None and "." in place:
            place = place.rpartition(".")[0]
            line = self.lines.get(place)
        return f"{self.path}:{line}" if line else str(self.path)


def read_configuration(path: Path | None, environment: Mapping[str, str]) -> Configuration:
    """Reads the settings, or raises Mistakes with all that is wrong."""
    reading = _Reading(path, environment)
    return reading.read()


def read_ledger_address(path: Path | None, environment: Mapping[str, str]) -> LedgerAddress:
    """Where the ledger is, as `read_configuration` would say; raises Mistakes about that and nothing else.

    An operator who looks at a ledger in an incident must not be stopped by a mistake elsewhere.
    """
    return _Reading(path, environment).read_ledger_address()


class _Reading:
    def __init__(self, path: Path | None, environment: Mapping[str, str]) -> None:
        self._path = path or Path(SETTINGS_FILE)
        self._is_wanted = path is not None
        self._environment = environment
        self._mistakes: list[Mistake] = []
        self._origins: list[Origin] = []
        self._lines: dict[str, int] = {}

    def read(self) -> Configuration:
        document = self._document()
        values: dict[str, Any] = {}
        self._check_variables()
        for name in document:
            if name not in (*_TOP, *_SINGLE, *_NAMED):
                self._wrong(name, _unknown(name, (*_TOP, *_SINGLE, *_NAMED)))
        for name in _TOP:
            values[name] = self._value(Settings, name, name, document.get(name, msgspec.UNSET))
        for section, kind in _SINGLE.items():
            values[section] = self._table(kind, section, document.get(section, {}))
        for section, kind in _NAMED.items():
            values[section] = self._tables(kind, section, document.get(section, {}))
        whole = {name: value for name, value in values.items() if value is not None}
        configuration = Configuration(Settings(**whole), tuple(self._origins), self._path, self._lines)
        if self._mistakes:
            raise Mistakes(self._mistakes, configuration)
        return configuration

    def read_ledger_address(self) -> LedgerAddress:
        document = self._document()
        for name in difflib.get_close_matches(_TOP[0], set(document) - {*_TOP, *_SINGLE, *_NAMED}):
            self._wrong(name, _unknown(name, _TOP))
        url = self._value(Settings, "url", "url", document.get("url", msgspec.UNSET))
        if self._mistakes:
            raise Mistakes(self._mistakes)
        return LedgerAddress(url or Settings().url, self._origins[-1].source)

    def _check_variables(self) -> None:
        """Refuses variables that are nearly a setting: a mistyped one would quietly change nothing.

        Others are left alone: platforms make variables of their own from the names of services.
        """
        for section, kind in _SINGLE.items():
            known = {_variable(f"{section}.{name}"): name for name in kind.__struct_fields__}
            start = _variable(section) + "_"
            for variable in self._environment:
                name = variable.removeprefix(start).lower()
                if not variable.startswith(start) or variable in known:
                    continue
                if difflib.get_close_matches(name, known.values(), 1):
                    self._mistakes.append(Mistake(variable, _unknown(name, known.values())))

    def _document(self) -> dict[str, Any]:
        try:
            text = self._path.read_text("utf-8")
        except FileNotFoundError:
            if self._is_wanted:
                raise ConfigError(f"there is no file {self._path}") from None
            return {}
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{self._path} cannot be read: {error}") from None
        self._lines = dict(_located(text))
        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise Mistakes([_toml_mistake(self._path, text, error)]) from None

    def _tables(self, kind: type[msgspec.Struct], section: str, given: Any) -> dict[str, Any]:
        if not isinstance(given, dict):
            self._wrong(section, f"must be tables such as [{section}.NAME]")
            return {}
        found = {name: self._table(kind, f"{section}.{name}", table) for name, table in given.items()}
        return {name: table for name, table in found.items() if table is not None}

    def _table(self, kind: type[msgspec.Struct], place: str, given: Any) -> Any:
        if not isinstance(given, dict):
            self._wrong(place, "must be a table")
            return None
        fields = {one.name: one for one in msgspec.structs.fields(kind)}
        for name in given:
            if name not in fields:
                self._wrong(f"{place}.{name}", _unknown(name, fields))
        values = {}
        for name in fields:
            before = len(self._mistakes)
            value = self._value(kind, name, f"{place}.{name}", given.get(name, msgspec.UNSET))
            if len(self._mistakes) == before:
                values[name] = value
        try:
            return kind(**{**_STAND_INS.get(kind, {}), **values})
        except TypeError:
            return None  # what it cannot do without is wrong or missing, which was told

    def _value(self, kind: type[msgspec.Struct], name: str, place: str, given: Any) -> Any:
        """One setting: from the environment, else from the file, else its default."""
        field = next(one for one in msgspec.structs.fields(kind) if one.name == name)
        variable = _variable(place)
        source = self._where(place)
        is_strict = True
        if self._is_set(variable):
            given, source, is_strict = _spelled(self._environment[variable], field.type), variable, False
        if given is msgspec.UNSET:
            return self._default(field, place)
        try:
            value = msgspec.convert(given, field.type, strict=is_strict)
        except msgspec.ValidationError as error:
            self._mistakes.append(Mistake(source, f"{place}: {_plain(error, field.type)}"))
            return None
        self._origins.append(Origin(place, _shown(name, value), source))
        return value

    def _is_set(self, variable: str) -> bool:
        """An empty address is none, here and in the library; other settings may well be empty."""
        given = self._environment.get(variable)
        return given is not None and (given != "" or variable != URL_VARIABLE)

    def _default(self, field: Any, place: str) -> Any:
        if field.default_factory is not msgspec.NODEFAULT:
            field.default = field.default_factory()
        if field.default is msgspec.NODEFAULT:
            self._wrong(place.rpartition(".")[0], f"{place} is missing")
            return None
        self._origins.append(Origin(place, _shown(field.name, field.default), "default"))
        return field.default

    def _wrong(self, place: str, what: str) -> None:
        self._mistakes.append(Mistake(self._where(place), what))

    def _where(self, place: str) -> str:
        return Configuration(Settings(), (), self._path, self._lines).where(place)


def _located(text: str) -> Iterator[tuple[str, int]]:
    """The line of every table and key, as far as they are written one a line."""
    table = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if found := _TABLE.match(line):
            table = _bare(found[1])
            yield table, number
        elif found := _KEY.match(line):
            name = _bare(found[1])
            yield (f"{table}.{name}" if table else name), number


def _bare(name: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in name.split("."))


def _unknown(name: str, known: Any) -> str:
    close = difflib.get_close_matches(name, list(known), 1)
    hint = f"; did you mean {close[0]}?" if close else f"; known: {', '.join(known)}"
    return f"{name} is not a setting{hint}"


def _plain(error: msgspec.ValidationError, kind: Any) -> str:
    text = str(error).partition(" - at")[0]
    for choice in (kind, *get_args(kind)):  # it may be left out, too
        if isinstance(choice, type) and issubclass(choice, Enum):
            return f"{text}; known: {', '.join(str(one.value) for one in choice)}"
    return text


def _variable(place: str) -> str:
    return PREFIX + place.upper().replace(".", "_").replace("-", "_")


def _spelled(text: str, kind: Any) -> Any:
    """A variable's text as its setting takes it: a list is written with commas."""
    if kind != tuple[str, ...]:
        return text
    return [part.strip() for part in text.split(",") if part.strip()]


def _toml_mistake(path: Path, text: str, error: tomllib.TOMLDecodeError) -> Mistake:
    said = str(error)
    found = re.search(r"\(at line (\d+), column \d+\)", said)
    line = int(found[1]) if found else len(text.splitlines())
    hint = "" if found else "; the file ends in the middle of it"
    return Mistake(f"{path}:{max(1, line)}", re.sub(r" \(at .*\)", "", said) + hint)


def _shown(name: str, value: Any) -> str:
    if name == "key" and isinstance(value, str) and not value.startswith("$") and "{" not in value:
        return "…"
    if name == "secrets":
        return ", ".join(secret if secret.startswith("$") else "…" for secret in value)
    if name in ("url", "probe_url") and isinstance(value, str) and value.startswith(("https:", "http:")):
        return masked_url(value)
    if name in ("url", "probe_url") and isinstance(value, str):
        return masked_address(value)
    return str(msgspec.to_builtins(value))


def find_secrets(place: str, given: tuple[str, ...], environment: Mapping[str, str]) -> tuple[str, ...]:
    """The secrets behind their names; raises ConfigError naming the variable that is not set."""
    found = []
    for text in given:
        if not text.startswith("$"):
            raise ConfigError(f"{place}: write a secret as the name of an environment variable, $NAME")
        secret = environment.get(text[1:])
        if not secret:
            raise ConfigError(f"{place}: the environment has no {text[1:]}")
        found.append(secret)
    return tuple(found)
