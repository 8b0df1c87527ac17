"""The journal: who did what, when and why; a filter, a file of it, and whether its seal is intact."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from io import StringIO
from typing import Any, Final
from urllib.parse import urlencode

from msgspec import Struct

from oncegate.clock import utc_text
from oncegate.dashboard.operators import Role
from oncegate.dashboard.request_context import Act, NotHere, PageResponse, RequestContext, Tools, need
from oncegate.journal.tiles import JOURNAL, PUBLISHED, read_state
from oncegate.journal.trust import published_heads, trusted_keys, verify_briefly
from oncegate.review.wording import happened
from oncegate.store import LaneName, LogKind, LogRecord, Session

PAGE_RECORDS: Final = 80
LOOKED_STEP: Final = 1_000
LOOKED_MAX: Final = 20_000  # records that one page or file looks at
EXPORTED_MAX: Final = 20_000
_COLUMNS: Final = ("at", "who", "what", "entry", "why", "position")
POSITION_MAX: Final = 2**127 - 1  # PostgreSQL's positions are a transaction's number and one of its own

_REPLAYS: Final = (LogKind.REPLAY_STARTED, LogKind.REPLAY_CANCELLED)


def journal_page(tools: Tools, session: Session, visit: RequestContext) -> PageResponse:
    """One page of records, newest first; with the state of the seal."""
    return PageResponse("journal.html", _values(session, visit))


def _values(session: Session, visit: RequestContext) -> dict[str, Any]:
    wanted = JournalFilter.of(visit.query)
    found, looked = _matching(session, wanted, visit.cursor("before", POSITION_MAX), PAGE_RECORDS + 1)
    page = found[:PAGE_RECORDS]
    lanes = session.lane_names([-record.entry_id for record in page if record.entry_id < 0])
    last = page[-1].position if len(found) > PAGE_RECORDS else looked
    return {
        "title": "Journal",
        "rows": [(record, happened(record.kind), about(record, lanes)) for record in page],
        "wanted": wanted,
        "kinds": [(kind.name.lower(), happened(kind)) for kind in LogKind],
        "terms": wanted.terms,
        "next_before": last,
        "seal": _seal(session),
        "verified": None,
    }


class JournalFilter(Struct, frozen=True):
    """Which records are shown: of people or all, of one kind, with a text in who, what or why."""

    everything: bool = False
    kind: str = ""
    text: str = ""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> JournalFilter:
        """Reads the query; raises NotHere for a kind that does not exist."""
        kind = query.get("kind", "")
        if kind and kind.upper() not in LogKind.__members__:
            raise NotHere("there is no such kind of record")
        return cls(query.get("all") == "1" or bool(kind), kind, query.get("q", "")[:200].strip())

    @property
    def terms(self) -> dict[str, str]:
        """The query that leads here."""
        given = {"all": "1" if self.everything else "", "kind": self.kind, "q": self.text}
        return {name: value for name, value in given.items() if value}

    def has(self, record: LogRecord) -> bool:
        """Whether a record is shown."""
        if self.kind and record.kind.name.lower() != self.kind:
            return False
        if not self.text:
            return True
        entry = f"entry {record.entry_id}" if record.entry_id > 0 else ""
        words = (record.actor, happened(record.kind), record.note or "", entry)
        return any(self.text.casefold() in word.casefold() for word in words)


def _matching(
    session: Session, wanted: JournalFilter, before: int | None, limit: int
) -> tuple[list[LogRecord], int | None]:
    """Records that fit, and where to go on: a bounded number is looked at, whatever the log holds."""
    found: list[LogRecord] = []
    step = limit if not (wanted.kind or wanted.text) else LOOKED_STEP
    for _ in range(LOOKED_MAX // LOOKED_STEP):
        records = session.log_before(before, step, by_people=not wanted.everything)
        found += [record for record in records if wanted.has(record)]
        if len(found) >= limit or len(records) < step:
            return found[:limit], None
        before = records[-1].position
    return found, before


class SealFacts(Struct, frozen=True):
    """How far the journal is sealed, for people."""

    size: int
    at_ms: int
    origin: str
    published: int | None
    problem: str
    is_behind: bool


def _seal(session: Session) -> SealFacts | None:
    state, _ = read_state(session)
    if state is None or not state.size:
        return None
    published, problem = session.document(JOURNAL, PUBLISHED), session.document(JOURNAL, "problem")
    return SealFacts(
        state.size,
        state.at_ms,
        state.origin,
        None if published is None else int(published.body),
        "" if problem is None else problem.body.decode("utf-8", "replace"),
        bool(session.read_log(state.position, 1)),
    )


def verify_now(tools: Tools, visit: RequestContext) -> PageResponse:
    """Checks the sealed journal, if it is short enough for a person who waits."""
    if visit.tenant is not None:
        raise NotHere("there is no such action")
    need(tools, visit, Role.OPERATOR, "verify the journal")
    with tools.look() as session:
        values = _values(session, visit)
        report = verify_briefly(session, with_bodies=True)
    known = {"is_trusted": bool(trusted_keys()), "outside": len(published_heads())}
    return PageResponse("journal.html", {**values, "verified": report or "long", **known})


def export_journal(tools: Tools, session: Session, visit: RequestContext) -> PageResponse:
    """The records of a filter as a file: CSV, or JSON lines. Its last line says where it broke off."""
    wanted = JournalFilter.of(visit.query)
    found, looked = _matching(session, wanted, visit.cursor("before", POSITION_MAX), EXPORTED_MAX + 1)
    last = found[EXPORTED_MAX - 1].position if len(found) > EXPORTED_MAX else looked
    if last is not None and not session.log_before(last, 1, by_people=not wanted.everything):
        last = None
    rows = [
        (
            utc_text(one.at_ms),
            one.actor,
            one.kind.name.lower(),
            max(0, one.entry_id),
            one.note or "",
            one.position,
        )
        for one in found[:EXPORTED_MAX]
    ]
    told = f"older records were not looked at; the next file: before={last}"
    if visit.query.get("format") == "json":
        lines = [json.dumps(dict(zip(_COLUMNS, row, strict=True)), ensure_ascii=False) for row in rows]
        lines += [] if last is None else [json.dumps({"incomplete": told, "before": last})]
        return PageResponse(text="".join(f"{line}\n" for line in lines), file="journal.jsonl")
    made = StringIO()
    writer = csv.writer(made)
    writer.writerows([_COLUMNS, *([_cell(value) for value in row] for row in rows)])
    if last is not None:
        writer.writerow([f"# {told}", *[""] * (len(_COLUMNS) - 2), last])
    return PageResponse(text=made.getvalue(), file="journal.csv")


def _cell(value: object) -> str:
    """Text that no spreadsheet takes for a formula."""
    text = str(value)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


ACTS: Final[Mapping[str, Act]] = {"/journal/verify": verify_now}


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
