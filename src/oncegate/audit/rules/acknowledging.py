"""OG007: acknowledged before the work is durable, by a setting, by order, or by leaving the work for later."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from oncegate.audit.entries.find import ModuleEntries
from oncegate.audit.flow.calls import bound_value
from oncegate.audit.flow.events import CodeEvent, Kind, Path
from oncegate.audit.project.scope import Scope
from oncegate.audit.rules.view import Draft, View, is_after_error, short

_WORK = frozenset({Kind.EFFECT, Kind.WRITE})


def early_acknowledgements(view: View) -> Iterator[Draft]:
    """An acknowledgement that comes before the work on the same path."""
    done: set[int] = set()
    for path in view.paths:
        for position, event in enumerate(path.events):
            if event.kind is Kind.ACK and id(event.node) not in done:
                work = _work_after(path, position)
                if work is not None:
                    done.add(id(event.node))
                    text = f"acknowledged before the work is durable: {short(event)} comes before {short(work)}"
                    yield _where_they_part(event, work, text)
            elif event.kind is Kind.SPAWN and id(event.node) not in done and _waits_for_answer(view):
                work = next(
                    (one for one in path.events[position:] if one.kind in _WORK and "spawned" in one.flags),
                    None,
                )
                if work is not None:
                    done.add(id(event.node))
                    text = f"acknowledged while the work still runs in the background: {short(work)}"
                    yield Draft("OG007", event.node, event.scope, text, short(event), event.via)
    for setting in view.handler.settings:
        yield Draft("OG007", setting.node, setting.scope, setting.message, setting.message)


def _where_they_part(event: CodeEvent, work: CodeEvent, text: str) -> Draft:
    """The early acknowledgement, in the function that decides about the order."""
    for depth, (scope, call) in enumerate(event.via):
        if depth >= len(work.via) or work.via[depth][1] is not call:
            return Draft("OG007", call, scope, text, short(event), event.via[:depth])
    return Draft("OG007", event.node, event.scope, text, short(event), event.via)


def _work_after(path: Path, position: int) -> CodeEvent | None:
    if is_after_error(path, position):
        return None
    for at in range(position + 1, len(path.events)):
        event = path.events[at]
        if (event.kind in _WORK or "work" in event.flags) and not is_after_error(path, at):
            return event
    return None


def _waits_for_answer(view: View) -> bool:
    """Whether the sender takes the handler's end for the end of the work."""
    if view.handler.kind == "message":
        return True
    words = f"{view.handler.unit.qualname} {view.handler.unit.module.name}"
    scope = Scope(view.index, view.handler.unit.module, None)
    for node in view.handler.unit.node.decorator_list:
        words += f" {ast.unparse(node)}"
        owner = (
            node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
        )
        made = bound_value(owner, scope) if isinstance(owner, ast.Name) else None
        words += f" {ast.unparse(made[0])}" if made else ""
    return view.handler.kind == "http" and bool(
        re.search(
            r"hook|callback|notif|event|ipn|inbound|receive|status_code=202|ACCEPTED", words, re.IGNORECASE
        )
    )


def early_settings_of(entries: ModuleEntries, acts: bool) -> Iterator[Draft]:
    """Settings of a module's consumers; a default counts where the module's handlers act."""
    for setting in entries.settings:
        if "default" in setting.message and not acts:
            continue
        yield Draft("OG007", setting.node, setting.scope, setting.message, setting.message.split(" ")[0])
