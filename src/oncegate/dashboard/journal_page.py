"""The journal: who did what, when and why; with the gate's own records if asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode

from msgspec import Struct

from oncegate.dashboard.request_context import PageResponse, RequestContext, Tools
from oncegate.review.wording import happened
from oncegate.store import LaneName, LogKind, LogRecord, Session

PAGE_RECORDS: Final = 80
POSITION_MAX: Final = 2**127 - 1  # PostgreSQL's positions are a transaction's number and one of its own

_REPLAYS: Final = (LogKind.REPLAY_STARTED, LogKind.REPLAY_CANCELLED)


def journal_page(tools: Tools, session: Session, visit: RequestContext) -> PageResponse:
    """One page of records, newest first."""
    everything = visit.query.get("all") == "1"
    before = visit.cursor("before", POSITION_MAX)
    found = session.log_before(before, PAGE_RECORDS + 1, by_people=not everything)
    page = found[:PAGE_RECORDS]
    lanes = session.lane_names([-record.entry_id for record in page if record.entry_id < 0])
    values = {
        "title": "Journal",
        "rows": [(record, happened(record.kind), about(record, lanes)) for record in page],
        "everything": everything,
        "next_before": page[-1].position if len(found) > PAGE_RECORDS else None,
    }
    return PageResponse("journal.html", values)


class About(Struct, frozen=True):
    """What a record is about, for people, and where that is shown."""

    text: str = ""
    path: str = ""


def about(record: LogRecord, lanes: Mapping[int, LaneName]) -> About:
    """An entry, a lane by its names, a replay of many lanes, or nothing."""
    if record.entry_id > 0:
        return About(f"entry {record.entry_id}", f"/entries/{record.entry_id}")
    lane = lanes.get(-record.entry_id)
    if lane is None and record.kind in _REPLAYS:
        name = (record.note or "").partition(":")[0]
        return About(f"replay {name}", f"/replays/{name}")
    if lane is None:
        return About(f"lane {-record.entry_id}" if record.entry_id else "")
    return About(f"{lane.key} to {lane.destination}", f"/lane?{urlencode(lane._asdict())}")
