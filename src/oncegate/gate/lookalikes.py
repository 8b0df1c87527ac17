"""The last events of one surface, so that the same content under another id is noticed (C6).

Bounded in number and in time; lost with the process. Only for reports: what is found here never keeps an
event from running.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import msgspec
from msgspec import Struct

from oncegate.model.likeness import Likeness, likeness_of
from oncegate.model.repeats import RETRY_WITHIN_MS, SPLIT_WITHIN_MS, Classified, Twin, classify_twin
from oncegate.model.surface import SurfaceRule

CONTENTS_MAX: Final = 4_096  # for each surface, about half a megabyte
REMEMBERED_MS: Final = 6 * RETRY_WITHIN_MS


class _Known(Struct, gc=False):
    """The latest key with a content, when it came, and how many keys had the content before."""

    entry_id: int
    at_ms: int
    shared_by: int = 1


Contents = OrderedDict[tuple[str, int], _Known]


class Lookalikes:
    """Contents of a surface's recent events."""

    def __init__(self, rule: SurfaceRule) -> None:
        self._paths = tuple(field.name for field in rule.key.fields)
        self._ignored = rule.fingerprint_ignore
        self._whole: Contents = OrderedDict()
        self._partial: Contents = OrderedDict()

    def see(self, entry_id: int, body: bytes, at_ms: int) -> Classified | None:
        """Looks for another key with the content of a new entry, and remembers it."""
        likeness = likeness_of(msgspec.json.decode(body), self._paths, self._ignored)
        if likeness is None:
            return None
        whole = self._meet(self._whole, ("", likeness.whole), entry_id, at_ms, REMEMBERED_MS)
        parts = [
            (name, self._meet(self._partial, (name, rest), entry_id, at_ms, SPLIT_WITHIN_MS))
            for name, rest in likeness.without
        ]
        if whole is not None:
            return classify_twin(_twin(whole, at_ms, likeness, None))
        return next(
            (found for name, known in parts if (found := _split(known, at_ms, likeness, name))), None
        )

    def _meet(
        self, contents: Contents, content: tuple[str, int], entry_id: int, at_ms: int, within_ms: int
    ) -> _Known | None:
        """Returns who had a content before, if that is not too long ago, and notes who has it now."""
        known = contents.pop(content, None)
        if known is not None and (known.entry_id == entry_id or at_ms - known.at_ms > within_ms):
            known = None
        shared_by = 1 if known is None else known.shared_by + 1
        contents[content] = _Known(entry_id, at_ms, shared_by)
        if len(contents) > CONTENTS_MAX:
            contents.popitem(last=False)
        return known

    def __len__(self) -> int:
        return len(self._whole) + len(self._partial)


def _twin(known: _Known, at_ms: int, likeness: Likeness, also_differs: str | None) -> Twin:
    return Twin(known.entry_id, at_ms - known.at_ms, likeness.ids, also_differs, known.shared_by + 1)


def _split(known: _Known | None, at_ms: int, likeness: Likeness, name: str) -> Classified | None:
    return None if known is None else classify_twin(_twin(known, at_ms, likeness, name))
