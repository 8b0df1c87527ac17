"""OG004 key and write in different transactions, OG013 effects inside a transaction."""

from __future__ import annotations

from collections.abc import Iterator

from oncegate.audit.flow.events import CodeEvent, Kind, Path
from oncegate.audit.rules.view import Draft, View, failed, is_after_error, short
from oncegate.audit.tables.sql import surely_holds_keys


def separate_transactions(view: View) -> Iterator[Draft]:
    """OG004: the key's insert and the business write are not committed together."""
    if view.handler.is_gated:
        return
    done: set[int] = set()
    for path in view.paths:
        numbered = _transactions(path)
        if numbered is None:
            continue
        keys = [
            (at, event)
            for at, event in enumerate(path.events)
            if _is_key(event) and not failed(path, at, len(path.events))
        ]
        writes = [
            (at, event)
            for at, event in enumerate(path.events)
            if _is_write(event) and not is_after_error(path, at)
        ]
        for at, key in keys:
            for other, write in writes:
                between = path.events[min(at, other) : max(at, other)]
                if any(one.kind in (Kind.EFFECT, Kind.SPAWN, Kind.DYNAMIC) for one in between):
                    continue
                if numbered[at] != numbered[other] and id(key.node) not in done and key.library != "redis":
                    done.add(id(key.node))
                    order = "after" if at > other else "before"
                    text = f"the key is inserted in a transaction of its own, {order} the write: {short(write)}"
                    yield Draft("OG004", key.node, key.scope, text, short(key), key.via)


def _is_key(event: CodeEvent) -> bool:
    is_insert = event.kind is Kind.RESERVE or (event.kind is Kind.MARK and "insert" in event.flags)
    return (
        is_insert
        and event.library in ("sql", "sqlalchemy", "orm", "django")
        and (surely_holds_keys(event.subject) or "keys" in event.flags)
    )


def _is_write(event: CodeEvent) -> bool:
    in_database = event.library in ("sql", "sqlalchemy", "orm", "django")
    return event.kind is Kind.WRITE and in_database and not surely_holds_keys(event.subject)


def _transactions(path: Path) -> list[int] | None:
    """The number of the transaction that each event is in; None where the path does not show any."""
    number, depth, is_shown = 0, 0, False
    numbers: list[int] = []
    has_blocks = any(event.kind is Kind.BEGIN for event in path.events)
    has_commits = any(event.kind is Kind.COMMIT for event in path.events)
    commits_alone = _commits_alone(path)
    for event in path.events:
        if event.kind is Kind.BEGIN:
            depth += 1
            number += 1 if depth == 1 else 0
            is_shown = True
        numbers.append(number)
        if event.kind is Kind.END:
            depth = max(0, depth - 1)
            number += 1 if depth == 0 else 0
        elif event.kind is Kind.COMMIT and depth == 0:
            number += 1
            is_shown = True
        elif depth == 0 and (_is_key(event) or _is_write(event)) and not has_commits:
            is_single = commits_alone or (has_blocks and event.library != "orm")
            number += 1 if is_single else 0
            is_shown = is_shown or commits_alone
    return numbers if is_shown else None


def _commits_alone(path: Path) -> bool:
    """Whether statements outside a block are transactions of their own: Django, asyncpg."""
    return any(
        event.library == "django" or "asyncpg" in str(event.scope.module.imports.values())
        for event in path.events
        if _is_key(event) or _is_write(event)
    )


def effects_in_transactions(view: View) -> Iterator[Draft]:
    """OG013: what the transaction can take back, the effect cannot."""
    done: set[int] = set()
    for path in view.paths:
        open_blocks: list[CodeEvent] = []
        has_written = False
        for position, event in enumerate(path.events):
            if event.kind is Kind.BEGIN:
                open_blocks.append(event)
                has_written = False
            elif event.kind is Kind.END and open_blocks:
                open_blocks.pop()
            elif event.kind in (Kind.WRITE, Kind.RESERVE, Kind.MARK) and event.library in (
                "sql",
                "sqlalchemy",
                "orm",
                "django",
            ):
                has_written = True
            elif event.kind in (Kind.COMMIT, Kind.ROLLBACK):
                has_written = False
            if not _leaves(event) or id(event.node) in done or is_after_error(path, position):
                continue
            if _is_inside(open_blocks, has_written) or (has_written and _is_undone(view, event)):
                done.add(id(event.node))
                text = f"effect inside a database transaction: {short(event)}"
                yield Draft("OG013", event.node, event.scope, text, short(event), event.via)


def _leaves(event: CodeEvent) -> bool:
    if {"after commit", "gated", "spawned"} & event.flags:
        return False
    return event.kind is Kind.EFFECT or "enqueue" in event.flags


def _is_inside(blocks: list[CodeEvent], has_written: bool) -> bool:
    return any("block" in block.flags or not block.flags or has_written for block in blocks)


def _is_undone(view: View, effect: CodeEvent) -> bool:
    """Whether a path rolls back after this effect was tried."""
    for path in view.paths:
        raised = [
            at
            for at, one in enumerate(path.events)
            if one.kind is Kind.RAISED and one.of is not None and one.of.node is effect.node
        ]
        if raised and any(one.kind is Kind.ROLLBACK for one in path.events[raised[0] :]):
            return True
    return False
