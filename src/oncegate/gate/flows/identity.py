"""What a surface's events are recognised by is kept in the ledger, and compared before anything runs (I27).

Once per process and surface, and again every few minutes, the ledger's identity is read: the first program
to use a name registers its own. Called before an event's key is made. Must never let an event of a program
with another key template, or of another function, go past.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final, cast

from oncegate.commit.registry_operations import KeepFirst, StoredDocument
from oncegate.errors import SchemaMismatch, StoreBusy, StoreUnavailable, StoreUnknown
from oncegate.gate.driver.requests import Flow, Invoke, Where
from oncegate.gate.runtime.context import GateContext
from oncegate.gate.surface import Surface
from oncegate.model.identity import KIND, Identity, KeyPlan, LedgerNow, identity_of, plan_of, read_identity
from oncegate.store import DocumentChange, Joined, Session, Store

_NEVER: Final = 2**63 - 1
_SLACK: Final = timedelta(days=1)  # entries are pruned some time after their retention


def identify_flow(gate: GateContext, surface: Surface, joined: Joined | None = None) -> Flow[KeyPlan]:
    """Compares a surface with what its ledger knows; raises ConfigError where that is another one.

    After it the process obeys what people decided about the surface.
    """
    plan = yield from _identify_flow(gate, surface, joined)
    if not gate.decided.is_read:
        yield from gate.decided.read_flow()
    gate.sightings.watch(surface.rule)
    return plan


def _identify_flow(gate: GateContext, surface: Surface, joined: Joined | None) -> Flow[KeyPlan]:
    if not gate.has_review:
        gate.plans[surface.name] = plan = KeyPlan(_NEVER, _NEVER)
        return plan
    declared = identity_of(surface.rule, surface.origin)
    first = DocumentChange(
        KIND, surface.name, 0, declared.encoded(), gate.clock.wall_ms(), gate.actor, "", None
    )
    store = gate.commits.store
    if not store.capabilities.is_local:
        kept: StoredDocument = yield KeepFirst(first)
    elif joined is None:
        kept = _kept_here(store, first) or (yield KeepFirst(first))
    else:
        found = _look(store, first)
        if found is None:
            # The caller's transaction has the only lock for writing, and may be undone: what is registered
            # in it is relied on for this event alone.
            kept = yield Invoke(_kept_in, (joined, first), where=Where.HERE)
            return _plan(gate, surface, declared, kept)
        kept = found
    gate.plans[surface.name] = plan = _plan(gate, surface, declared, kept)
    return plan


def _plan(gate: GateContext, surface: Surface, declared: Identity, kept: StoredDocument) -> KeyPlan:
    known = read_identity(kept.document.body)
    now = LedgerNow(kept.now_ticks, gate.clock.wall_ms(), gate.clock.ticks_ms())
    kept_ms = (surface.rule.retention_max + _SLACK) // timedelta(milliseconds=1)
    return plan_of(surface.name, known, declared, now, kept_ms)


def _kept_here(store: Store, first: DocumentChange) -> StoredDocument | None:
    """On a local disk, over a connection of its own: a read in nearly every case, and never a wait."""
    found = _look(store, first)
    if found is not None:
        return found
    session = store.connect()
    try:
        with session.unit(wait=False):
            return KeepFirst.run(session, [KeepFirst(first)])[0]
    except (StoreBusy, StoreUnknown):
        return None  # in turn with the others then, who read a doubtful commit back
    finally:
        session.close()


def _look(store: Store, first: DocumentChange) -> StoredDocument | None:
    try:
        with store.look() as session:
            return KeepFirst(first).recall(session)
    except (StoreUnavailable, SchemaMismatch):  # no ledger yet, or an older one: connecting sees to it
        return None


def _kept_in(joined: Joined, first: DocumentChange) -> StoredDocument:
    """A joined transaction of a local store is a session of the ledger."""
    session = cast("Session", joined)
    with session.unit():
        return KeepFirst.run(session, [KeepFirst(first)])[0]


def expired(gate: GateContext, surface: Surface) -> StoreBusy:
    """What is raised where a reservation came later than its key template may be relied on."""
    gate.plans.pop(surface.name, None)
    return StoreBusy(
        f"the key template of {surface.name} was compared with the ledger too long ago; nothing was run,"
        " try again"
    )
