"""What the ledger believes of itself: counts and digests by surface and state, open entries, settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any, Final

from msgspec import Struct
from msgspec.json import decode

from oncegate.gate.surface import Surface
from oncegate.journal.snapshots.beliefs import LEDGER, Belief, BeliefObject
from oncegate.model.canonical import canonical_json
from oncegate.model.durations import format_duration
from oncegate.model.states import State
from oncegate.store import Entry, EntryFilter, Session

OPEN: Final = (State.IN_FLIGHT, State.RETRYABLE, State.UNKNOWN, State.HELD, State.QUARANTINED)
STEP: Final = 1_000
JOURNAL_STATE: Final = ("journal", "state")  # the document of the sealer
_read: Final = Belief(LEDGER, list).read


def ledger_objects(session: Session, surfaces: Sequence[Surface]) -> Iterator[list[BeliefObject]]:
    """The objects of the belief `oncegate`, in lists of bounded length."""
    digests: dict[tuple[str, State], Any] = {}
    before: int | None = None
    while page := session.entries(EntryFilter(states=OPEN), before, STEP):
        for entry in page:
            line = f"{entry.entry_id}:{entry.fence}:{entry.key.hex()}\n"
            digests.setdefault((entry.surface, entry.state), sha256()).update(line.encode())
        yield [_read(_open_entry(entry)) for entry in page]
        before = page[-1].entry_id
    counts = [
        {
            "id": f"count:{surface}:{state.name.lower()}",
            "count": count,
            "digest": _hex(digests, surface, state),
        }
        for surface, state, count in session.counts_by_surface()
    ]
    yield [_read(one) for one in (*counts, *map(_settings, surfaces))]


class _SealWord(Struct):
    """What is read here of the sealer's state."""

    head: str = ""


def journal_head(session: Session) -> str | None:
    """The newest signed head of the sealed journal; None where nothing is sealed."""
    found = session.document(*JOURNAL_STATE)
    return None if found is None else decode(found.body, type=_SealWord).head or None


def config_hash(surfaces: Sequence[Surface]) -> str:
    """A hash of the rules of all surfaces."""
    return sha256(canonical_json([_settings(one) for one in surfaces])).hexdigest()


def _open_entry(entry: Entry) -> dict[str, Any]:
    return {
        "id": f"entry:{entry.entry_id}",
        "surface": entry.surface,
        "state": entry.state.name.lower(),
        "key": entry.key.hex(),
        "fence": entry.fence,
        "attempt": entry.attempt,
    }


def _hex(digests: dict[tuple[str, State], Any], surface: str, state: State) -> str | None:
    found = digests.get((surface, state))
    return None if found is None else found.hexdigest()


def _settings(surface: Surface) -> dict[str, Any]:
    rule = surface.rule
    return {
        "id": f"surface:{rule.name}",
        "key": rule.key.text,
        "retention": format_duration(rule.retention),
        "approve_first": rule.approve_first,
        "same_database": surface.same_database,
        "accepts": surface.lane is not None,
    }
