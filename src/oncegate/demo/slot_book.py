"""The simulated terminal's slot book: what was sold to whom, in memory and in an fsynced record.

Only `terminal.py` sells from it; `terminal_client.py` reads its record as evidence. Must never let an
answer out before all it rests on is durable.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from pathlib import Path
from typing import Any


class KeyMode(StrEnum):
    """What the terminal does with an `Idempotency-Key`."""

    HONOUR = "honour"
    IGNORE = "ignore"
    LOOKUP_ONLY = "lookup-only"


@dataclass(frozen=True, slots=True)
class Slot:
    """One sold slot; `key` is what its buyer sent, kept as evidence even where keys are ignored."""

    slot_id: str
    equipment: str
    window: str
    key: str | None
    cancelled: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the slot as it travels; `from_json` is the inverse."""
        return {
            "slot": self.slot_id,
            "equipment": self.equipment,
            "window": self.window,
            "key": self.key,
            "cancelled": self.cancelled,
        }

    @classmethod
    def from_json(cls, wire: dict[str, Any]) -> Slot:
        """Read a slot from an answer, or from a line of the record that sold it."""
        cancelled = bool(wire.get("cancelled", False))
        return cls(wire["slot"], wire["equipment"], wire["window"], wire["key"], cancelled)


class SlotRefused(Exception):
    """The request cannot be served; it is the caller's to correct."""

    def __init__(self, status: HTTPStatus, message: str, *, allow: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.allow = allow


class RecordUnusable(Exception):
    """The record cannot be read or written; nothing more is answered from it."""


def parse_record(content: bytes) -> tuple[list[dict[str, Any]], int]:
    """Return a record's events and the length of its sound part; only the last line may be torn."""
    events: list[dict[str, Any]] = []
    sound_bytes = 0
    for number, line in enumerate(content.splitlines(keepends=True), start=1):
        event = _parse_line(line)
        if event is not None:
            events.append(event)
            sound_bytes += len(line)
        elif sound_bytes + len(line) < len(content):
            raise RecordUnusable(f"line {number} is damaged and is not the last one")
    return events, sound_bytes


def _parse_line(line: bytes) -> dict[str, Any] | None:
    try:
        event = json.loads(line) if line.endswith(b"\n") else None
    except ValueError:
        return None
    return event if isinstance(event, dict) else None


class SlotRecord:
    """An append-only file of JSON lines with group commit: one fsync serves all who wait for it."""

    def __init__(self, path: Path) -> None:
        """Open or create the file, and hold it alone until this process ends."""
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RecordUnusable("another terminal is using it") from None
        _sync_folder(path.parent)
        self._turn = threading.Condition()
        self._pending: list[bytes] = []
        self._appended = 0
        self._durable = 0
        self._writing = False
        self._failure: OSError | None = None

    def read_back(self) -> list[dict[str, Any]]:
        """Return what earlier runs recorded, cutting off a torn last line; goes before `append`."""
        with open(self._file, "rb", closefd=False) as content:
            events, sound_bytes = parse_record(content.read())
        os.ftruncate(self._file, sound_bytes)
        # An earlier run may have died between its write and its fsync.
        os.fsync(self._file)
        return events

    def append(self, event: dict[str, Any]) -> None:
        """Queue one event; it is on disk when `wait_until_durable` returns."""
        with self._turn:
            self._pending.append(json.dumps(event).encode() + b"\n")
            self._appended += 1

    def wait_until_durable(self) -> None:
        """Return once all that was queued before is fsynced; write it if no other thread does."""
        with self._turn:
            wanted = self._appended
            while self._durable < wanted:
                if self._failure is not None:
                    raise RecordUnusable(str(self._failure))
                if self._writing:
                    self._turn.wait()
                else:
                    self._write_pending()

    def _write_pending(self) -> None:
        """Write and fsync the queue as one batch, without the lock: the next batch forms."""
        batch, self._pending = self._pending, []
        self._writing = True
        self._turn.release()
        failure: OSError | None = None
        try:
            self._write(b"".join(batch))
        except OSError as error:
            failure = error
        finally:
            self._turn.acquire()
            self._writing = False
            # After a failed write the file's end is unknown: the record stays unusable.
            self._failure = failure
            self._durable += 0 if failure else len(batch)
            self._turn.notify_all()

    def _write(self, batch: bytes) -> None:
        rest = memoryview(batch)
        while rest:
            rest = rest[os.write(self._file, rest) :]
        os.fsync(self._file)


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class Terminal:
    """The slot book: what was sold to whom, in memory and in its record."""

    def __init__(self, record: SlotRecord, key_mode: KeyMode) -> None:
        self._record = record
        self._key_mode = key_mode
        self._lock = threading.Lock()
        self._slots: dict[str, Slot] = {}
        self._slot_ids_by_key: dict[str, list[str]] = {}
        for number, event in enumerate(record.read_back(), start=1):
            try:
                self._apply(event)
            except KeyError as field:
                raise RecordUnusable(f"line {number} is not a terminal's: {field}") from None

    def sell(self, equipment: str, window: str, key: str | None) -> tuple[Slot, bool]:
        """Return a slot and whether it had been sold before to the same honoured key."""
        with self._answering():
            earlier = self._honoured(key)
            if earlier is None:
                return self._sell_new(equipment, window, key), False
            if (earlier.equipment, earlier.window) != (equipment, window):
                raise SlotRefused(
                    HTTPStatus.UNPROCESSABLE_ENTITY, "this Idempotency-Key came with another body"
                )
            return earlier, True

    def owned_by(self, key: str) -> list[Slot]:
        """Return every slot sold to the key, cancelled or not; refuse where keys are ignored."""
        if self._key_mode is KeyMode.IGNORE:
            # An empty list would be a false "nothing was sold".
            raise SlotRefused(HTTPStatus.BAD_REQUEST, "this terminal cannot be asked by key")
        with self._answering():
            return [self._slots[slot_id] for slot_id in self._slot_ids_by_key.get(key, ())]

    def all_slots(self) -> list[Slot]:
        """Return every slot ever sold, in the order of sale."""
        with self._answering():
            return list(self._slots.values())

    def cancel(self, slot_id: str) -> Slot:
        """Cancel a slot; cancelling it again changes nothing."""
        with self._answering():
            slot = self._slots.get(slot_id)
            if slot is None:
                raise SlotRefused(HTTPStatus.NOT_FOUND, f"no slot {slot_id}")
            if not slot.cancelled:
                self._keep({"event": "cancelled", "slot": slot_id})
            return self._slots[slot_id]

    def check(self) -> None:
        """Raise when the record can no longer be written."""
        with self._answering():
            return

    @contextlib.contextmanager
    def _answering(self) -> Iterator[None]:
        """Decide under the lock, and let the answer out only when all it rests on is durable."""
        try:
            with self._lock:
                yield
        finally:
            self._record.wait_until_durable()

    def _honoured(self, key: str | None) -> Slot | None:
        if key is None or self._key_mode is not KeyMode.HONOUR:
            return None
        owned = self._slot_ids_by_key.get(key)
        return self._slots[owned[0]] if owned else None

    def _sell_new(self, equipment: str, window: str, key: str | None) -> Slot:
        slot_id = f"SLOT-{len(self._slots) + 1:06d}"
        sale = {"slot": slot_id, "equipment": equipment, "window": window, "key": key}
        self._keep({"event": "sold", **sale})
        return self._slots[slot_id]

    def _keep(self, event: dict[str, Any]) -> None:
        self._record.append(event)
        self._apply(event)

    def _apply(self, event: dict[str, Any]) -> None:
        slot_id = event["slot"]
        if event["event"] == "cancelled":
            self._slots[slot_id] = dataclasses.replace(self._slots[slot_id], cancelled=True)
            return
        slot = Slot.from_json(event)
        self._slots[slot_id] = slot
        if slot.key is not None:
            self._slot_ids_by_key.setdefault(slot.key, []).append(slot_id)
