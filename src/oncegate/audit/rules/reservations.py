"""OG001 no reservation, OG003 time windows, OG005 check-then-act."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from oncegate.audit.flow.calls import CallInfo, number_of
from oncegate.audit.flow.events import CodeEvent, Keyed, Kind, Path
from oncegate.audit.project.scope import Scope
from oncegate.audit.rules.atoms import wrong_parts
from oncegate.audit.rules.view import (
    Draft,
    Guard,
    OpenQuestion,
    View,
    branch_on,
    dedupe_test,
    failed,
    guard_before,
    is_after_error,
    is_known_duplicate,
    short,
)
from oncegate.audit.tables.making import WINDOW_SECONDS_MIN

Occurrences = list[tuple[Path, int, CodeEvent]]


def unreserved_calls(view: View) -> Iterator[Draft]:
    """OG001: an outside call, or an update that adds, which nothing keeps a repeat away from."""
    if view.handler.is_gated:
        return
    races = {id(event.node) for event in _raced(view)}
    for group in [*view.grouped(Kind.EFFECT), *view.grouped(Kind.WRITE)]:
        event = group[0][2]
        if event.kind is Kind.WRITE and not event.is_relative:
            continue
        if event.keyed is Keyed.YES or {"gated", "spawned gated"} & event.flags or id(event.node) in races:
            continue
        if view.is_behind_middleware and view.handler.kind == "http":
            continue
        yield from _judged(view, group)


def _judged(view: View, group: Occurrences) -> Iterator[Draft]:
    event = group[0][2]
    live = [(path, position) for path, position, _ in group if not is_after_error(path, position)]
    if not live:
        return
    for path, position in live:
        passed = is_known_duplicate(path, position)
        if passed is not None:
            text = f"outside call although the key is known: {short(event)}"
            yield Draft("OG001", event.node, event.scope, text, short(event), event.via,
                        fix="return in the except block, before the call")  # fmt: skip
            return
    guards = {guard_before(path, position) for path, position in live}
    if guards == {Guard.NONE}:
        words = "update that adds" if event.kind is Kind.WRITE else "outside call"
        memory = any(_memory_before(path, position) for path, position in live)
        hint = " (a set in memory is gone after a restart)" if memory else ""
        yield Draft(
            "OG001",
            event.node,
            event.scope,
            f"{words} before any reservation: {short(event)}{hint}",
            short(event),
            event.via,
        )
    elif Guard.NONE in guards and any(guard is not Guard.NONE for guard in guards):
        view.doubts.append(
            OpenQuestion(event.node, event.scope, f"{short(event)} is reserved on some paths only")
        )
    elif Guard.CHECKED in guards or Guard.LOCKED in guards:
        reason = f"{short(event)} follows a check whose atomicity is not visible"
        view.doubts.append(OpenQuestion(event.node, event.scope, reason))


def _memory_before(path: Path, position: int) -> bool:
    return any(event.in_memory for event in path.events[:position])


def _raced(view: View) -> list[CodeEvent]:
    """The effects that follow a check and come before, or right after, a mark that is not atomic."""
    found: dict[int, CodeEvent] = {}
    for path in view.paths:
        for position, event in enumerate(path.events):
            acts = event.kind is Kind.EFFECT or (event.kind is Kind.WRITE and event.is_relative)
            if (
                not acts
                or event.keyed is Keyed.YES
                or "gated" in event.flags
                or is_after_error(path, position)
            ):
                continue
            if race_of(path, position) is not None:
                found.setdefault(id(event.node), event)
    return list(found.values())


def race_of(path: Path, position: int) -> CodeEvent | None:
    """The check that an effect relies on, where nothing atomic stands beside it."""
    if guard_before(path, position) is not Guard.CHECKED:
        return None
    for at in range(position):
        check = path.events[at]
        if check.kind is not Kind.CHECK or dedupe_test(path, at, position) is None:
            continue
        marks = [one for one in path.events[at + 1 :] if _marks(one, check)]
        atomic_after_memory = check.in_memory and any(
            _marks(one, check) for one in path.events[at + 1 : position]
        )
        if marks and not atomic_after_memory:
            return check
    return None


def _marks(event: CodeEvent, check: CodeEvent) -> bool:
    """Whether an event notes what an earlier check asked for."""
    if event.kind not in (Kind.MARK, Kind.RESERVE, Kind.WRITE):
        return False
    if check.by_name or event.by_name:
        return event.kind is Kind.MARK and (event.by_name or bool(event.subject))
    if check.library == "attribute":
        return event.library == "attribute" and event.subject == check.subject
    if event.library == "attribute":
        return False
    same = bool(check.subject) and check.subject.lower() == event.subject.lower()
    return same or (check.library == event.library and check.library in ("redis", "cache"))


def check_then_act(view: View) -> Iterator[Draft]:
    """OG005: the check and the act can be passed by two deliveries at once."""
    if view.handler.is_gated:
        return
    done: set[int] = set()
    for path in view.paths:
        for position, event in enumerate(path.events):
            acts = event.kind is Kind.EFFECT or (event.kind is Kind.WRITE and event.is_relative)
            if (
                not acts
                or event.keyed is Keyed.YES
                or "gated" in event.flags
                or is_after_error(path, position)
            ):
                continue
            check = race_of(path, position)
            if check is not None and id(check.node) not in done:
                done.add(id(check.node))
                text = f"check, then act: {short(check)} is asked, then {short(event)} is called; two deliveries at once pass both"
                yield Draft("OG005", check.node, check.scope, text, short(check), check.via)


def time_windows(view: View) -> Iterator[Draft]:
    """OG003: keys that are forgotten, or compared with the current time."""
    done: set[int] = set()
    for path in view.paths:
        for position, event in enumerate(path.events):
            if not event.window or id(event.node) in done or not _is_dedupe(view, path, position):
                continue
            done.add(id(event.node))
            yield Draft(
                "OG003",
                event.node,
                event.scope,
                f"repeats are recognised for a time only: {event.window}",
                short(event),
                event.via,
            )
    for group in view.grouped(Kind.EFFECT):
        event = group[0][2]
        if "deduplicates" in event.flags and event.library == "AWS" and "start_execution" not in event.what:
            guards = {guard_before(path, position) for path, position, _ in group}
            is_fresh = event.key is not None and bool(wrong_parts(event.key))
            if guards == {Guard.NONE} and not view.handler.is_gated and not is_fresh:
                text = f"a FIFO queue recognises repeats for five minutes only: {short(event)}"
                yield Draft("OG003", event.node, event.scope, text, short(event), event.via)


def window_settings(calls: list[tuple[ast.Call, Scope]]) -> Iterator[Draft]:
    """OG003: a library that keeps keys for a time, told to keep them for less than a week."""
    for node, scope in calls:
        call = CallInfo(node, scope)
        if call.method == "IdempotencyConfig":
            seconds = number_of(call.keyword("expires_after_seconds"), scope)
            if seconds is not None and seconds < WINDOW_SECONDS_MIN:
                yield Draft(
                    "OG003",
                    node,
                    scope,
                    f"repeats are recognised for a time only: {seconds:g} seconds",
                    "IdempotencyConfig",
                )


def _is_dedupe(view: View, path: Path, position: int) -> bool:
    """Whether an event with a window decides about a repeat: work follows it, or a branch drops."""
    event = path.events[position]
    if event.kind is not Kind.RESERVE and not any(
        one.kind in (Kind.EFFECT, Kind.WRITE) for one in _all_events(view)
    ):
        return False
    if event.kind is Kind.OTHER:
        return any(
            one.kind is Kind.TEST and _contains(one, event) for one in path.events[position:]
        ) and _has_memory(view)
    if event.kind is Kind.MARK:
        asked = [
            one
            for one in path.events
            if one.kind in (Kind.CHECK, Kind.RESERVE)
            and (one.library, one.subject) == (event.library, event.subject)
        ]
        return bool(asked) and not any(one.window for one in asked) and _skips_work(view, asked[0])
    if event.kind is Kind.CHECK:
        return branch_on(path, position) is not None or bool(failed(path, position, len(path.events)))
    return True


def _skips_work(view: View, check: CodeEvent) -> bool:
    """Whether one answer to a check ends the work: a cache of values is asked too, and the work goes on."""
    works = set()
    for path in view.paths:
        at = next((n for n, one in enumerate(path.events) if one.node is check.node), None)
        if at is not None:
            rest = path.events[at:]
            works.add(any(one.kind in (Kind.EFFECT, Kind.WRITE, Kind.DYNAMIC, Kind.SPAWN) for one in rest))
    return len(works) == 2


def _all_events(view: View) -> Iterator[CodeEvent]:
    return (event for path in view.paths for event in path.events)


def _contains(test: CodeEvent, event: CodeEvent) -> bool:
    return any(node is event.node for node in ast.walk(test.node))


def _has_memory(view: View) -> bool:
    return any(event.kind in (Kind.CHECK, Kind.MARK) for path in view.paths for event in path.events)
