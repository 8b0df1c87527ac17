"""What roll-backs keep of events: compensations, released copies and the lines of plans; their erasure."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable
from typing import Final

import msgspec
from msgspec.structs import replace

from oncegate.errors import StoreBusy
from oncegate.journal.rollback.plans import KIND, LINES, PlanLines, PlanState, RollbackLine, RollbackPlan
from oncegate.journal.rollback.releasing import line_entries, ran_again
from oncegate.store import DocumentChange, Session
from oncegate.store.sealing import ERASED_LABEL, ERASED_VALUE

_UNREADABLE: Final = (ERASED_LABEL,)


def copies_of(session: Session, entries: Iterable[int]) -> list[int]:
    """The compensations of events, and the entries they were released as; of those again, and so on."""
    behind: dict[int, list[tuple[str, RollbackLine]]] = {}
    for document in session.documents(LINES):
        for line in _lines(document.body).lines:
            for number in line.entries:
                behind.setdefault(number, []).append((document.name, line))
    todo = list(entries)
    seen, found = set(todo), list[int]()
    while todo and behind:
        number = todo.pop()
        runs = [
            one.entry_id
            for name, line in behind.get(number, ())
            for one in line_entries(session, name, line)
        ]
        detail = session.detail(number)
        again = None if detail is None else ran_again(session, detail.entry.key)
        for one in (*runs, *(() if again is None else (again,))):
            if one not in seen:
                seen.add(one)
                found.append(one)
                todo.append(one)
    return sorted(found)


def in_use(session: Session) -> set[int]:
    """The events behind plans that are being applied: without their values a line cannot go on."""
    plans = [msgspec.json.decode(one.body, type=RollbackPlan) for one in session.documents(KIND)]
    active = {plan.name for plan in plans if plan.state is PlanState.APPLYING}
    return {
        number
        for document in session.documents(LINES)
        if document.name in active
        for line in _lines(document.body).lines
        for number in line.entries
    }


def erase_lines(session: Session, entries: Collection[int], at_ms: int, actor: str) -> None:
    """Removes values and labels from the lines about events. A plan that was not applied fits no more."""
    for document in session.documents(LINES):
        made = _lines(document.body)
        lines = tuple(one if set(entries).isdisjoint(one.entries) else _erased(one) for one in made.lines)
        if lines == made.lines:
            continue
        body = zlib.compress(msgspec.msgpack.encode(replace(made, lines=lines)), 1)
        change = DocumentChange(LINES, document.name, document.version, body, at_ms, actor, "", None)
        if not session.change_document(change):
            raise StoreBusy(f"plan {document.name} is being changed; erase again")


def _erased(line: RollbackLine) -> RollbackLine:
    to = None if line.to is None else ERASED_VALUE
    hand = None if line.hand is None else ERASED_LABEL
    return replace(line, live=ERASED_VALUE, to=to, why=_UNREADABLE, hand=hand)


def _lines(body: bytes) -> PlanLines:
    return msgspec.msgpack.decode(zlib.decompress(body), type=PlanLines)
