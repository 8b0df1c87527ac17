"""New events whose content another key has had: what the ledger is asked, and what its answer means (C6).

The ledger knows the contents that every process has seen within the last hour. Only for reports: what is
found here never keeps an event from running.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final

import msgspec
from msgspec import Struct

from oncegate.model.content_similarity import likeness_of
from oncegate.model.repeats import RETRY_WITHIN_MS, SPLIT_WITHIN_MS, Classified, Twin, classify_twin
from oncegate.model.surface import SurfaceRule
from oncegate.store import Before, SeenContent

REMEMBERED_MS: Final = 6 * RETRY_WITHIN_MS
CONTENTS_MAX: Final = 500  # contents that one process brings at once; whole ones first


class Look(Struct, frozen=True, gc=False):
    """A new event as it is compared: its ids, its content, and that without each of its numbers."""

    surface: str
    entry_id: int
    at_ms: int
    ids: tuple[str, ...]
    whole: int
    without: tuple[tuple[str, int], ...]


class DuplicateFound(Struct, frozen=True, gc=False):
    """An entry that repeats another one."""

    surface: str
    entry_id: int
    at_ms: int
    classified: Classified


def look_at(rule: SurfaceRule, entry_id: int, tenant: str, body: bytes, at_ms: int) -> Look | None:
    """What of an event is compared; None if there is nothing."""
    paths = tuple(field.name for field in rule.key.fields)
    found = likeness_of(msgspec.json.decode(body), paths, rule.fingerprint_ignore, tenant)
    if found is None:
        return None
    return Look(rule.name, entry_id, at_ms, found.ids, found.whole, found.without)


class Comparing:
    """One batch of looks on its way to the ledger and back."""

    def __init__(self, looks: Iterable[Look]) -> None:
        self._chains: dict[tuple[str, int], tuple[str, list[Look]]] = {}
        wanted = sorted(looks, key=lambda look: (look.at_ms, look.entry_id))
        for look in wanted:
            self._add(look, "", look.whole)
        for look in wanted:
            for name, content in look.without:
                self._add(look, name, content)

    def _add(self, look: Look, name: str, content: int) -> None:
        place = (look.surface, content)
        if place in self._chains:
            self._chains[place][1].append(look)
        elif len(self._chains) < CONTENTS_MAX:
            self._chains[place] = (name, [look])

    def contents(self) -> tuple[SeenContent, ...]:
        """What the ledger is asked about."""
        return tuple(
            SeenContent(surface, content, chain[-1].entry_id, chain[-1].at_ms, _within(name), len(chain))
            for (surface, content), (name, chain) in self._chains.items()
        )

    def found(self, before: Sequence[Before | None]) -> list[DuplicateFound]:
        """What the ledger's answer means: one finding for an entry, that of its whole content first."""
        findings: dict[int, DuplicateFound] = {}
        whole: set[int] = set()
        answers = before or [None] * len(self._chains)
        for (name, chain), known in zip(self._chains.values(), answers, strict=True):
            for entry_id, found in _along(name, chain, known):
                if not name:  # whole contents come first
                    whole.add(entry_id)
                elif entry_id in whole:
                    continue
                if found is not None:
                    findings.setdefault(entry_id, found)
        return list(findings.values())


def _within(name: str) -> int:
    return SPLIT_WITHIN_MS if name else REMEMBERED_MS


def _along(
    name: str, chain: list[Look], known: Before | None
) -> Iterator[tuple[int, DuplicateFound | None]]:
    """Each entry that has a twin, the first one in the ledger; with what that means, if anything."""
    shared_by = 0 if known is None else known.shared_by
    if known is not None and known.entry_id != chain[0].entry_id:
        yield _pair(chain[0], known.entry_id, known.at_ms, name, shared_by + 1)
    for place, (one, other) in enumerate(pairwise(chain), start=2):
        if other.at_ms - one.at_ms <= _within(name):
            yield _pair(other, one.entry_id, one.at_ms, name, shared_by + place)


def _pair(
    look: Look, twin_id: int, twin_at_ms: int, name: str, shared_by: int
) -> tuple[int, DuplicateFound | None]:
    """The later of two repeats the other: processes do not bring what they saw in one order."""
    entry_id, at_ms = look.entry_id, look.at_ms
    if twin_at_ms > at_ms:
        entry_id, at_ms, twin_id, twin_at_ms = twin_id, twin_at_ms, entry_id, at_ms
    twin = Twin(twin_id, at_ms - twin_at_ms, look.ids, name or None, shared_by)
    found = classify_twin(twin)
    return entry_id, None if found is None else DuplicateFound(look.surface, entry_id, at_ms, found)
