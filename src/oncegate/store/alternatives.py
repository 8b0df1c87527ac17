"""Reservations with other keys that their event may be known by, for all stores.

A surface whose key template was changed asks this way while entries under the old keys are kept. All who
ask with one of the keys wait for each other, so that looking and inserting are one step among them. Those
who would insert under an old key without asking so have ended before: see `model.identity`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec.structs import replace

from oncegate.store.claims import Entry, Reservation, Reserved


class Reserves(Protocol):
    """What of a session is needed here."""

    def serialise(self, names: Sequence[str]) -> None:
        """As in `Claims`."""

    def read(self, keys: Sequence[bytes]) -> list[Entry | None]:
        """As in `Claims`."""


def has_alternatives(wanted: Sequence[Reservation]) -> bool:
    """Whether any of these may be known by another key. Every event passes this."""
    for item in wanted:  # noqa: SIM110  a generator costs three times as much
        if item.also:
            return True
    return False


def by_known_keys(claims: Reserves, wanted: Sequence[Reservation]) -> list[Reservation]:
    """Each under the key that it is to be judged by; for the unit that is open."""
    keys = sorted({key for item in wanted for key in (item.key, *item.also)})
    claims.serialise([key.hex() for key in keys])
    known = {entry.key for entry in claims.read(keys) if entry is not None}
    found = []
    for item in wanted:
        chosen = under_known_key(item, known)
        known.add(chosen.key)  # what is inserted for one is known to the next
        found.append(chosen)
    return found


def under_known_key(item: Reservation, known: set[bytes]) -> Reservation:
    """One reservation under its own key, or another one that is known where its own is not."""
    if item.key not in known:
        for key in item.also:
            if key in known:
                return replace(item, key=key, also=())
    return replace(item, also=())


def told_apart(
    wanted: Sequence[Reservation], asked: Sequence[Reservation], answers: Sequence[Reserved]
) -> list[Reserved]:
    """The answers, with the key that was judged where it is another than was asked for."""
    return [
        answer if item.key == chosen.key else replace(answer, judged=chosen.key)
        for item, chosen, answer in zip(wanted, asked, answers, strict=True)
    ]
