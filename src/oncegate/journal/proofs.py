"""Proofs from the sealed tree, as small JSON that an auditor checks without oncegate."""

from __future__ import annotations

import base64
from typing import Any

from oncegate.errors import ConfigError
from oncegate.journal.leaves import WITH_OUTCOME, Salts, erased_note
from oncegate.journal.tiles import HEAD, JOURNAL, SECRET, SealState, Tiles, head_name, read_state
from oncegate.store import LogRecord, Session


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def sealed_state(session: Session) -> SealState:
    """How far the log is sealed; raises ConfigError where nothing is."""
    state, _ = read_state(session)
    if state is None or not state.head:
        raise ConfigError("nothing is sealed yet; run: oncegate journal seal --once")
    return state


def prove_record(
    session: Session, record: LogRecord, *, with_content: bool = False
) -> dict[str, Any] | None:
    """The proof for one record; None while it is not sealed.

    `leaf` is the record's leaf and `path` leads from it to the root of `head`. `opened` has the note, and
    with `with_content` event and outcome, each with the salt that its commitment in the leaf is made with.
    """
    state = sealed_state(session)
    tiles, found = Tiles(session, state.size), session.document(JOURNAL, SECRET)
    index = tiles.index_of(record.position, state.position)
    row = None if index is None else tiles.row(index)
    if index is None or row is None or found is None:
        return None
    salts = Salts(found.body)
    return {
        "oncegate": "inclusion/1",
        "leaf": salts.leaf(record, row.content).decode(),
        "index": index,
        "path": [_text(one) for one in tiles.inclusion(index, state.size)],
        "head": state.head,
        "opened": _opened(session, record, salts, with_content=with_content),
        **({"introductions": list(state.introductions)} if state.introductions else {}),
    }


def _opened(session: Session, record: LogRecord, salts: Salts, *, with_content: bool) -> dict[str, Any]:
    parts: dict[str, Any] = {}
    if erased_note(salts, record) is not None:
        parts["note"] = record.note
    if with_content:
        for one in session.bodies([record.entry_id]):
            if one.body is not None:
                parts["payload"] = _text(one.body)
            if one.outcome is not None and record.kind in WITH_OUTCOME:
                parts["outcome"] = _text(one.outcome)
    return {"salt": _text(salts.of(record.position)), **parts} if parts else {}


def prove_entry(session: Session, entry_id: int, *, with_content: bool = False) -> list[dict[str, Any]]:
    """The proofs for all sealed records of an entry."""
    detail = session.detail(entry_id)
    if detail is None or not detail.records:
        raise ConfigError(f"entry {entry_id} has no records; oncegate entries lists entries")
    made = (prove_record(session, record, with_content=with_content) for record in detail.records)
    proofs = [one for one in made if one is not None]
    if not proofs:
        raise ConfigError(f"entry {entry_id} is not sealed yet; run: oncegate journal seal --once")
    return proofs


def prove_consistency(session: Session, old: int, new: int) -> dict[str, Any]:
    """The proof that the head of `old` records is the beginning of that of `new` records."""
    state = sealed_state(session)
    heads = {}
    for size in (old, new):
        found = session.document(HEAD, head_name(size))
        if found is None:
            raise ConfigError(f"no head of {size} records was signed; oncegate journal heads lists them")
        heads[size] = found.body.decode()
    if old > new:
        raise ConfigError("name the smaller head first")
    path = Tiles(session, state.size).consistency(old, new)
    return {
        "oncegate": "consistency/1",
        "old": heads[old],
        "new": heads[new],
        "path": [_text(one) for one in path],
        **({"introductions": list(state.introductions)} if state.introductions else {}),
    }
