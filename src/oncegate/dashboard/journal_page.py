"""The journal: who did what, when and why; with the gate's own records if asked for."""

from __future__ import annotations

from typing import Final

from oncegate.dashboard.visits import Answer, Tools, Visit
from oncegate.store import LogRecord, Session
from oncegate.upkeep.telling import happened

PAGE_RECORDS: Final = 100
POSITION_MAX: Final = 2**127 - 1  # PostgreSQL's positions are a transaction's number and one of its own


def journal_page(tools: Tools, session: Session, visit: Visit) -> Answer:
    """One page of records, newest first."""
    everything = visit.query.get("all") == "1"
    before = visit.cursor("before", POSITION_MAX)
    found = session.log_before(before, PAGE_RECORDS + 1, by_people=not everything)
    page = found[:PAGE_RECORDS]
    values = {
        "title": "Journal",
        "rows": [(record, happened(record.kind), about(record)) for record in page],
        "everything": everything,
        "next_before": page[-1].position if len(found) > PAGE_RECORDS else None,
    }
    return Answer("journal.html", values)


def about(record: LogRecord) -> str:
    """What a record is about, for people."""
    if record.entry_id > 0:
        return f"entry {record.entry_id}"
    return f"lane {-record.entry_id}" if record.entry_id < 0 else ""
