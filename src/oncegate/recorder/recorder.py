"""The recorder: writes down arrivals as a gate sees them, with the rules for personal data applied first.

One file a process, in a folder, readable by its owner only. Must never delay an arrival by more than one
write to the page cache, never fail one, and never write a value before its rule was applied. What it cannot
write is counted; the file's last line says how many arrivals are missing.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self
from weakref import WeakSet

import msgspec
from msgspec import UNSET, Raw

from oncegate.errors import OncegateError
from oncegate.gate.facade import GateOnStore
from oncegate.model.canonical import canonical_json
from oncegate.model.paths import lookup, parse_path
from oncegate.model.surface import Arrival, Reason, SurfaceRule, read_arrival
from oncegate.recorder.pseudonyms import Pseudonyms
from oncegate.recorder.recording import (
    AnswerLine,
    ArrivalLine,
    SurfaceLine,
)
from oncegate.recorder.redaction import Redaction, Rules
from oncegate.recorder.writing import BYTES_MAX, RecordingFile

NO_RULES: Final = "no rules for this surface"
NOT_THE_SAME: Final = "the rules would change how the gate reads it"
_UNREADABLE: Final = (Reason.KEY_INPUT.value, Reason.TENANT_INPUT.value)


class Recorder:
    """Records the arrivals of one gate, while it is attached, into files of a folder.

    `rules` are by surface; a surface without any is recorded without payloads. Values are hashed with
    `key`, or with a random one that is forgotten with the process: files of one key can be played together.
    """

    def __init__(
        self,
        folder: str | Path,
        rules: Mapping[str, Rules] | None = None,
        *,
        key: bytes | None = None,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        self._folder = Path(folder)
        self._rules = dict(rules or {})
        self._names = Pseudonyms(key)
        self._bytes_max = bytes_max
        self._guard = threading.Lock()
        self._redactions: dict[str, Redaction | None] = {}
        self._file: RecordingFile | None = None
        _live.add(self)

    def attach(self, gate: GateOnStore) -> Self:
        """Begins: checks the rules against the gate's surfaces, and records what arrives from now on."""
        for surface in gate.engine.surfaces:
            self._redaction(surface.rule)
        for name in self._rules:
            gate.engine.surface(name)  # a rule for a surface that is not there is a spelling mistake
        gate.engine.observe(self)
        return self

    @property
    def path(self) -> Path | None:
        """The file of this process, once something has arrived."""
        return None if self._file is None else self._file.path

    def arrived(self, rule: SurfaceRule, arrival: Arrival, at_ms: int) -> int:
        """Writes an arrival down and returns its number."""
        redaction = self._redaction(rule)
        event, why = self._redacted(redaction, rule, arrival)
        payload = UNSET if event is None else Raw(canonical_json(event))
        with self._guard:
            file = self._opened(at_ms)
            if rule.name not in file.surfaces:
                file.begin_surface(
                    SurfaceLine(rule.name, redaction is not None, _dotted(rule.occurred_at_path))
                )
            return file.add(
                ArrivalLine(
                    file.next_number,
                    at_ms - file.began_ms,
                    rule.name,
                    event=self._names.of_bytes("key", arrival.key.digest),
                    content=self._names.of_bytes("content", arrival.fingerprint),
                    tenant=self._tenant(redaction, arrival.tenant),
                    type=None if redaction is None else text_at(event, redaction.rules.type),
                    occurred_at=text_at(event, _dotted(rule.occurred_at_path)),
                    payload=payload,
                    why=why,
                )
            )

    def answered(self, number: int, verdict: str | None, error: str | None) -> None:
        """Writes down what the arrival of that number got."""
        with self._guard:
            if self._file is not None and number:
                self._file.write(AnswerLine(number, verdict, error))

    def _tenant(self, redaction: Redaction | None, tenant: str) -> str:
        return self._names.of_text(tenant) if redaction is None else redaction.tenant(tenant)

    def _redaction(self, rule: SurfaceRule) -> Redaction | None:
        if rule.name not in self._redactions:
            rules = self._rules.get(rule.name)
            made = None if rules is None else Redaction(rules, self._names, rule)
            self._redactions[rule.name] = made
        return self._redactions[rule.name]

    def _redacted(
        self, redaction: Redaction | None, rule: SurfaceRule, arrival: Arrival
    ) -> tuple[Any, str | None]:
        """The event as it may be written, or None and why it may not."""
        if redaction is None:
            return None, NO_RULES
        kept = redaction.redact(msgspec.json.decode(arrival.body))
        if not _is_read_alike(rule, arrival, kept):
            return None, NOT_THE_SAME
        return kept, None

    def _opened(self, at_ms: int) -> RecordingFile:
        if self._file is None:
            self._file = RecordingFile.begun_in(self._folder, at_ms, self._bytes_max)
        return self._file

    def close(self) -> None:
        """Writes the last line; what arrives later begins another file."""
        with self._guard:
            if self._file is not None:
                self._file.close()
            self._file = None

    def after_fork_in_child(self) -> None:
        """Lets go of the parent's file; a child writes one of its own."""
        self._guard = threading.Lock()
        if self._file is not None:
            self._file.abandon()
        self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _is_read_alike(rule: SurfaceRule, arrival: Arrival, kept: object) -> bool:
    """Whether the redacted event is readable if and only if the event was."""
    try:
        again = read_arrival(rule, kept, arrival.tenant if rule.tenant_path is None else None, 0)
    except OncegateError:
        return False
    return _is_readable(again) == _is_readable(arrival)


def _is_readable(arrival: Arrival) -> bool:
    return arrival.quarantine is None or not arrival.quarantine.startswith(_UNREADABLE)


def _dotted(path: tuple[str, ...] | None) -> str | None:
    return None if path is None else ".".join(path)


def text_at(event: object, path: str | None) -> str | None:
    """The text at a path of an event, if there is one."""
    found = None if path is None or event is None else lookup(event, parse_path(path))
    return found if isinstance(found, str) else None


_live: WeakSet[Recorder] = WeakSet()


def _after_fork_in_child() -> None:
    for recorder in list(_live):
        recorder.after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
