"""One entry as people and programs see it: its facts, its history, its steps, its outcome.

Called by `oncegate entries`. The payload is personal data more often than not: it is left out unless
asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from oncegate.cli.output import (
    Cell,
    Colour,
    age,
    pretty_json,
    print_fields,
    print_table,
    stored_json,
    utc,
)
from oncegate.cli.timeline_compare import add_parser as add_parser  # noqa: PLC0414  the command's own
from oncegate.clock import SystemClock
from oncegate.gate.codec.outcome import Outcome, decode_outcome
from oncegate.model.states import State
from oncegate.review.effect_timeline import Start, moment, starts, storyline
from oncegate.review.lease_history import Tenure, reserved, tenures
from oncegate.review.wording import happened, meaning, told
from oncegate.store import Entry, EntryDetail, Session, StepState

COLOURS: Final = {
    State.IN_FLIGHT: Colour.NONE,
    State.COMMITTED: Colour.GREEN,
    State.FAILED: Colour.RED,
    State.RETRYABLE: Colour.YELLOW,
    State.UNKNOWN: Colour.RED,
    State.HELD: Colour.YELLOW,
    State.QUARANTINED: Colour.YELLOW,
}


def facts(entry: Entry) -> dict[str, Any]:
    """An entry as JSON."""
    return {
        "id": entry.entry_id,
        "key": entry.key.hex(),
        "surface": entry.surface,
        "tenant": entry.tenant or None,
        "label": entry.label,
        "state": entry.state.label,
        "attempt": entry.attempt,
        "fence": entry.fence,
        "fingerprint": entry.fingerprint.hex(),
        "received_at": utc(entry.received_at_ms),
        "settled_at": utc(entry.settled_at_ms) or None,
        "reason": entry.reason,
    }


def all_facts(detail: EntryDetail, *, is_stranded: bool, with_payload: bool) -> dict[str, Any]:
    """An entry with all that belongs to it, as JSON."""
    return {
        **facts(detail.entry),
        "history": [
            {
                "at": utc(record.at_ms),
                "what": record.kind.name.lower(),
                "actor": record.actor,
                "note": record.note,
                "position": record.position,
            }
            for record in detail.records
        ],
        "fences": [
            {
                "attempt": held.attempt,
                "fence": held.fence,
                "since": utc(held.since_ms) or None,
                "until": utc(held.until_ms) or None,
                "actor": held.by or None,
                "ended": held.ended,
            }
            for held in tenures(detail.entry, detail.records, is_lapsed=is_stranded)
        ],
        "effect_starts": [_shown_start(start) for start in starts(detail, _outcome(detail))],
        "steps": [_shown_step(step, with_payload) for step in _steps(detail)],
        "outcome": stored_json(detail.outcome),
        "payload_bytes": None if detail.body is None else len(detail.body),
        **({"payload": stored_json(detail.body)} if with_payload else {}),
    }


def _shown_start(start: Start) -> dict[str, Any]:
    """A call as JSON: `at`, or `after` and `before` where its own moment is not on record."""
    times: dict[str, str | None] = (
        {"at": utc(start.at_ms)} if start.is_exact else {"at": None, "after": utc(start.at_ms)}
    )
    if not start.is_exact:
        times["before"] = utc(start.until_ms) or None
    names = {"step": start.step or None, "downstream": start.downstream or None}
    return {**times, "is_certain": start.is_certain, **names}


def _shown_step(step: dict[str, Any], with_payload: bool) -> dict[str, Any]:
    return {name: value for name, value in step.items() if with_payload or name != "result"}


def _steps(detail: EntryDetail) -> list[dict[str, Any]]:
    """The steps of a key: those on record, else those that its outcome carries."""
    recorded = [
        {
            "name": step.name,
            "state": step.state.name.lower(),
            "downstream": step.downstream,
            "resource": step.resource,
            "started_at": utc(step.started_at_ms) or None,
            "result": stored_json(step.result),
        }
        for step in detail.steps
    ]
    return recorded or [
        {
            "name": step.name,
            "state": StepState.DONE.name.lower(),
            "downstream": step.downstream,
            "resource": step.resource,
            "started_at": utc(moment(detail.entry.received_at_ms, step.after_ms)) or None,
        }
        for step in _outcome(detail).steps
    ]


def _outcome(detail: EntryDetail) -> Outcome:
    """The outcome document, or an empty one where what is stored cannot be read as one."""
    import msgspec

    try:
        return decode_outcome(detail.outcome)
    except msgspec.DecodeError:
        return Outcome()


def is_stranded(entry: Entry, session: Session) -> bool:
    """Tells whether an entry is in flight under a lease that is over."""
    return entry.state is State.IN_FLIGHT and (entry.lease_until_ticks or 0) <= session.now_ticks()


def print_detail(detail: EntryDetail, *, is_stranded: bool, with_payload: bool) -> None:
    """Prints an entry for people."""
    print_fields(list(_fields(detail, meaning(detail, is_lapsed=is_stranded))))
    print("\nhistory (UTC)")
    print_table(("AT", "WHAT", "BY", "NOTE"), list(_history(detail)))
    _print_fences(tenures(detail.entry, detail.records, is_lapsed=is_stranded))
    _print_steps(detail, with_payload)
    _print_body("outcome", bytes(_outcome(detail).value) or None)
    if with_payload:
        _print_body("payload", detail.body)
    elif detail.body is not None:
        print(f"\npayload: {len(detail.body)} bytes, shown with --payload")


def _fields(detail: EntryDetail, meaning: str) -> Iterator[tuple[str, Cell]]:
    entry = detail.entry
    now_ms = SystemClock().wall_ms()
    yield "entry", Cell.of(entry.entry_id)
    yield "key", Cell.of(entry.key.hex())
    yield "surface", Cell.of(entry.surface)
    yield "tenant", Cell.of(entry.tenant)
    yield "label", Cell.of(entry.label)
    yield "state", Cell.of(entry.state.label, COLOURS[entry.state])
    yield "", Cell.of(meaning)
    yield "reason", Cell.of(entry.reason or "")
    yield "resource", Cell.of(_outcome(detail).resource or "")
    yield "received", Cell.of(f"{utc(entry.received_at_ms)}, {age(now_ms - entry.received_at_ms)} ago")
    yield "settled" if entry.state.is_final else "so since", Cell.of(utc(entry.settled_at_ms))
    yield "attempts", Cell.of(entry.attempt or "none")
    yield "fence", Cell.of(entry.fence)
    yield "fingerprint", Cell.of(entry.fingerprint.hex())


def _history(detail: EntryDetail) -> Iterator[list[Cell]]:
    received = Cell.of(utc(detail.entry.received_at_ms))
    yield [received, Cell("first received"), Cell(""), Cell("")]
    claim = reserved(detail.entry, detail.records)
    if claim:
        yield [received, Cell("reserved"), Cell(""), Cell(claim)]
    for one in storyline(detail, _outcome(detail)):
        if isinstance(one, Start):
            yield [Cell.of(utc(one.at_ms)), Cell(one.what), Cell(""), Cell.of(_told_start(one))]
        else:
            what = happened(one.kind)
            yield [Cell.of(utc(one.at_ms)), Cell(what), Cell.of(one.actor), Cell.of(told(one))]


def _told_start(start: Start) -> str:
    return start.note if start.until_ms is None else f"{start.note} and before {utc(start.until_ms)}"


def _print_fences(found: list[Tenure]) -> None:
    if not found:
        return
    print("\nfences (UTC)")
    rows = [
        (
            held.attempt or "?",
            held.fence or "?",
            utc(held.since_ms) or "?",
            utc(held.until_ms),
            held.by,
            held.ended,
        )
        for held in found
    ]
    headers = ("ATTEMPT", "FENCE", "FROM", "UNTIL", "BY", "ENDED")
    print_table(headers, [[Cell.of(value) for value in row] for row in rows])


def _print_steps(detail: EntryDetail, with_payload: bool) -> None:
    steps = _steps(detail)
    if not steps:
        return
    print("\nsteps")
    print_table(
        ("NAME", "STATE", "DOWNSTREAM", "RESOURCE", "STARTED (UTC)"),
        [
            [
                Cell.of(step[name] or "")
                for name in ("name", "state", "downstream", "resource", "started_at")
            ]
            for step in steps
        ],
    )
    for step in detail.steps if with_payload else ():
        _print_body(f"result of {step.name}", step.result)


def _print_body(title: str, body: bytes | None) -> None:
    if body is None:
        return
    print(f"\n{Cell.of(title).text}")
    for line in pretty_json(body):
        print(f"  {line}")
