"""Which claim is running here, so that what its handler emits inherits the journey it belongs to.

Set around a handler's call: two writes to a context variable, nothing else, unless there is a context. Must
never be why an event is refused.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Final

from msgspec.structs import replace

from oncegate.commit.trace_operations import FindLink, Link
from oncegate.gate.driver.requests import Flow
from oncegate.gate.runtime.claim import Claim
from oncegate.gate.runtime.context import GateContext
from oncegate.model.paths import MISSING, lookup
from oncegate.model.trace import Context, decode_context, encode_context, inherited, named, usable
from oncegate.store import TraceLink

current_claim: ContextVar[Claim | None] = ContextVar("oncegate_claim", default=None)

_LINK: Final = "INSERT INTO oncegate_trace (entry, trace, context) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"


def inherited_context() -> Context | None:
    """The context for what is emitted here; None outside handlers."""
    claim = current_claim.get()
    return None if claim is None else inherited(claim.context, claim.key.digest)


def carried_context() -> Context | None:
    """The context that the event being run came with, for one that it leads to; None without any."""
    claim = current_claim.get()
    if claim is None or claim.context is None:
        return None
    return replace(claim.context, cause=claim.key.digest.hex())


def correlated(path: tuple[str, ...], event: Any, context: Context | None) -> Context | None:
    """The context with the correlation id that the event itself has, if it has a usable one."""
    found = lookup(event, path)
    correlation_id = None if found is MISSING else usable(found)
    if correlation_id is None:
        return context
    given = context or Context()
    return replace(given, trace_id=None, correlation_id=correlation_id, cause=None, seq=None, type=None)


def link_parked_flow(gate: GateContext, entry_id: int, context: Context) -> Flow[None]:
    """Records the journey of an entry that waits for a person: what it leads to comes much later."""
    context = named(context)
    if context.trace_id is not None and gate.has_stats:
        yield Link(TraceLink(entry_id, context.trace_id, encode_context(context)))


def link_flow(claim: Claim, *, in_transaction: bool) -> Flow[None]:
    """Records the entry's place in its journey, or finds it for an attempt that came without.

    Inside a transaction it is written with the outcome.
    """
    if claim.context is None:
        if not claim.is_new and not in_transaction:
            found: TraceLink | None = yield FindLink(claim.entry_id)
            claim.context = None if found is None else decode_context(found.context)
        return
    context = claim.context = named(claim.context)
    if context.trace_id is None:
        return
    link = TraceLink(claim.entry_id, context.trace_id, encode_context(context))
    if in_transaction:
        claim.writes = [*claim.writes, (_LINK, (link.entry_id, link.trace_id, link.context))]
    else:
        yield Link(link)
